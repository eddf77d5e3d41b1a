"""A session: one thread's place to make messages, send and receive them, and acknowledge what it received."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kjms.client.acknowledge_modes import Acknowledgement, Auto, Client
from kjms.client.blocking_receiver import BlockingReceiver
from kjms.client.browser import QueueBrowser
from kjms.client.closing import AutoCloseable
from kjms.client.completion_queue import CompletionQueue
from kjms.client.consumer import MessageConsumer
from kjms.client.creating import Creating
from kjms.client.message_listener import MessageListener, called_as_listener
from kjms.client.producer import MessageProducer
from kjms.client.session_core import SessionCore
from kjms.client.session_parts import SessionParts
from kjms.client.slot_opener import SlotOpener, either
from kjms.client.topic_subscriber import TopicSubscriber
from kjms.client.transacted import Transacted, commit_failure
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.engine import DURABLE, NON_DURABLE, Event, Space
from kjms.errors import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    TransactionInProgressException,
    shown,
)
from kjms.options import SessionMode, checked_mode
from kjms.selector import parse_selector

if TYPE_CHECKING:
    from kjms.client.session_connection import SessionConnection
    from kjms.client.session_sender import SessionSender
    from kjms.engine import ConsumerSlot, Engine
    from kjms.message import Message

__all__ = ["Session"]

C = TypeVar("C", bound=MessageConsumer)
P = TypeVar("P", bound=MessageProducer)
T = TypeVar("T", TemporaryQueue, TemporaryTopic)

_numbers = itertools.count(1)

CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer


class Session(Creating, AutoCloseable):
    """Sends and receives for one thread at a time; made by `kjms.Connection.create_session`.

    Spec: JMS 2.0 §4.4.
    """

    def __init__(
        self,
        connection: SessionConnection,
        acknowledge_mode: int,
        *,
        wakeup: threading.Event | None = None,
        completions: Callable[[Engine], CompletionQueue] | None = None,
        acknowledgement: Callable[[SessionParts], Acknowledgement] | None = None,
    ) -> None:
        self.number = next(_numbers)
        self._connection = connection
        self._acknowledge_mode = checked_mode(acknowledge_mode)
        engine, options = connection._engine, connection._options
        parts = SessionParts(engine, options)
        chosen = parts.acknowledgement(self._acknowledge_mode) if acknowledgement is None else acknowledgement(parts)
        self._transaction = chosen if isinstance(chosen, Transacted) else None
        self._core = SessionCore(self.number, options, engine.tuning.now_ms, parts.redelivery, chosen)
        check_own = connection._ownership.check
        self._sender = parts.sender(
            engine,
            options,
            f"{connection._id}-{self.number}",
            self._core.guard,
            CompletionQueue(engine.bulk) if completions is None else completions(engine),
            self._senders,
            self._check_open,
            check_own,
            self._check_destination,
        )
        self._sender.transaction = self._transaction
        if self._transaction is not None:
            self._transaction.wait_for_sends = self._sender.completions.wait
        self._wakeup = wakeup or Event()
        self._slots = SlotOpener(
            engine, options, connection, self._wakeup, self._subscription_lost, self._check_destination
        )
        self._consumers: list[MessageConsumer] = []
        self._producers: list[MessageProducer] = []
        self._browsers: list[QueueBrowser] = []
        self._listeners = parts.listener_thread(
            self.number, self._core, self._consumers, self._wakeup, connection._tell, check_own
        )
        self._receive = BlockingReceiver(self.number, self._core, self._listeners, self._wakeup, connection).receive
        self._lock = threading.Lock()  # for the lists, and for closing once
        self._is_closed = False
        self._closing = 0  # the thread that closes it; where Ctrl-C ended that, the next call of the thread continues

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{len(self._consumers)} consumers, {len(self._producers)} producers"
        return f"<{type(self).__name__} {self.number}, {self._acknowledge_mode.name}: {state}>"

    @property
    def transacted(self) -> bool:
        """Whether the session is transacted (JMS 2.0 §4.4.7)."""
        self._check_open("transacted")
        return self._acknowledge_mode == self.SESSION_TRANSACTED

    @property
    def acknowledge_mode(self) -> SessionMode:
        """How messages are acknowledged, one of this class's constants (JMS 2.0 §4.4.11)."""
        self._check_open("acknowledge_mode")
        return self._acknowledge_mode

    @property
    def message_listener(self) -> MessageListener | None:
        """What is called for each message of each consumer of the session, by its own thread; None takes it away.

        While there is one it alone receives: consumers refuse `receive`, and listeners of their own.

        Raises:
            IllegalStateException: When setting: a consumer has a listener of its own.
            ValueError: When setting: it is not a function and has no ``on_message``.

        Spec: Jakarta Messaging, Session.setMessageListener.
        """
        self._check_open("message_listener")
        return self._listeners.listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._check_open("message_listener")
        chosen = called_as_listener(listener)
        with self._lock:
            owner = next((consumer for consumer in self._consumers if consumer._listener is not None), None)
        if chosen is not None and owner is not None:
            raise IllegalStateException(f"message_listener: {owner!r} of session {self.number} has one of its own")
        is_replaced, self._listeners.listener = self._listeners.listener is not None, chosen
        self._listeners.changed(is_replaced=is_replaced)

    def _check_no_listener(self) -> None:
        if self._listeners.listener is not None:
            raise IllegalStateException(f"message_listener: session {self.number} has one for all its consumers")

    # Making temporary destinations (JMS 2.0 §4.4.3).

    def create_temporary_queue(self) -> TemporaryQueue:
        """Return a new queue that lives as long as the session's connection; see `create_temporary_topic`."""
        self._check_open("create_temporary_queue")
        return self._create_temporary(TemporaryQueue)

    def create_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic that lives as long as the session's connection, unless it is deleted before.

        Every program that knows it, by a JMSReplyTo for instance, can send to it. Only the connection can receive from
        it. It goes when its `delete` is called, when the connection closes, and when the program has lost the object
        that is returned here, with every consumer, producer and message that has it.

        Raises:
            JMSException: Kafka does not let us.

        Spec: JMS 2.0 §4.4.3, §6.6.
        """
        self._check_open("create_temporary_topic")
        return self._create_temporary(TemporaryTopic)

    def _create_temporary(self, kind: type[T]) -> T:
        connection = self._connection
        return connection._engine.temporaries.create(kind, connection._id, connection._options.defaults)

    # Sending.

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """Return a producer for *destination*, or, with None, for those that its sends name (JMS 2.0 §4.6).

        Raises:
            InvalidDestinationException: There is no such destination, and it may not be created.
        """
        return self._open_producer("create_producer", MessageProducer, destination)

    def _open_producer(
        self,
        doing: str,
        producer_class: Callable[[SessionSender, Destination | None, Callable[[MessageProducer], None]], P],
        destination: Destination | None,
    ) -> P:
        self._check_open(doing)
        producer = producer_class(self._sender, destination, self._producer_closed)
        with self._lock:
            self._producers.append(producer)
        return producer

    def _producer_closed(self, producer: MessageProducer) -> None:
        with self._lock:
            if producer in self._producers:
                self._producers.remove(producer)

    def _check_destination(self, destination: object) -> None:
        if not isinstance(destination, Queue | Topic):
            raise InvalidDestinationException(f"a destination is a Queue or a Topic, not {shown(destination)}")

    def _senders(self) -> tuple[bytes | None, bytes | None]:
        return self._connection._senders

    # Looking.

    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Return a browser of a queue, which shows messages and takes none (JMS 2.0 §5.9).

        Args:
            queue: The queue.
            selector: Which messages it shows; None or "" is all (JMS 2.0 §3.8.1).

        Raises:
            InvalidDestinationException: It is no queue, or there is no such queue, and it may not be created.
            InvalidSelectorException: The selector's syntax is wrong.
        """
        self._check_open("create_browser")
        self._check_destination(queue)
        if not isinstance(queue, Queue):
            raise InvalidDestinationException(f"create_browser: a Queue can be browsed, and not {shown(queue)}")
        chosen = parse_selector(selector)
        browser = QueueBrowser(self._connection, queue, chosen, self._core.guard, self._browser_closed)
        with self._lock:
            self._check_open("create_browser")  # no thread closes it meanwhile
            self._browsers.append(browser)
        return browser

    def _browser_closed(self, browser: QueueBrowser) -> None:
        with self._lock:
            if browser in self._browsers:
                self._browsers.remove(browser)

    # Receiving.

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        message_selector: str | None = None,
    ) -> MessageConsumer:
        """Return a consumer of a queue, or of a topic's messages from now on (JMS 2.0 §4.5, §6.11.1).

        Args:
            destination: The queue or topic.
            selector: Which messages it wants; None or "" is all (JMS 2.0 §3.8.1).
            no_local: Leave out what this connection itself sends to the topic. For a queue it means nothing.
            message_selector: JMS's name of *selector*; give one of the two.

        Raises:
            InvalidDestinationException: There is no such destination, and it may not be created.
            InvalidSelectorException: The selector's syntax is wrong.
        """
        chosen = either(selector, message_selector)
        return self._open_consumer("create_consumer", MessageConsumer, destination, chosen, no_local)

    def _open_consumer(
        self,
        doing: str,
        consumer_class: Callable[[Session, Any, ConsumerSlot], C],
        destination: Destination,
        selector_text: str | None,
        no_local: bool = False,
    ) -> C:
        self._check_open(doing)
        slot = self._slots.open(destination, selector_text, no_local)
        return self._added(consumer_class(self, destination, slot))

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Return the consumer of an unshared durable subscription, which is made if there is none (JMS 2.0 §6.11.5).

        The subscription keeps the topic's messages, also while it has no consumer, until `unsubscribe`. With another
        topic, selector or no_local than it has, it is ended and made anew.

        Args:
            topic: The topic.
            name: The subscription's name, unique among those of the connection's client id.
            selector: Which messages it wants; None or "" is all (JMS 2.0 §3.8.1).
            no_local: Leave out what connections with this client id send.

        Raises:
            IllegalStateException: The connection has no client id.
            InvalidDestinationException: There is no such topic, and it may not be created, or *name* is no name.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: It has a consumer already, in whatever process, or is a shared one.
        """
        return self._subscribe("create_durable_consumer", MessageConsumer, topic, name, selector, no_local)

    def create_durable_subscriber(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> TopicSubscriber:
        """Return what `create_durable_consumer` does, under its JMS 1.1 name (JMS 2.0 §6.11.5)."""
        subscriber = partial(TopicSubscriber, no_local=no_local)
        return self._subscribe("create_durable_subscriber", subscriber, topic, name, selector, no_local)

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Return a consumer of a shared non-durable subscription, made by the first of them (JMS 2.0 §6.11.4).

        Its consumers, in whatever processes, share its messages. It ends with the last of them.

        Args:
            topic: The topic.
            name: The subscription's name, unique among those of the client id, or among those without one.
            selector: Which messages the subscription takes in; None or "" is all (JMS 2.0 §3.8.1).
            no_local: Leave out what connections with this client id send.

        Raises:
            IllegalStateException: *no_local*, and the connection has no client id.
            InvalidDestinationException: There is no such topic, and it may not be created, or *name* is no name.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: It has consumers, and another topic, selector or no_local.
        """
        doing = "create_shared_consumer"
        return self._subscribe(doing, MessageConsumer, topic, name, selector, no_local, NON_DURABLE, is_shared=True)

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """Return a consumer of a shared durable subscription, which is made if there is none (JMS 2.0 §6.11.6).

        Its consumers, in whatever processes, share its messages; without any it keeps them, until `unsubscribe`. With
        another topic, selector or no_local than it has, it is ended and made anew.

        Args:
            topic: The topic.
            name: The subscription's name, unique among those of the client id, or among those without one.
            selector: Which messages the subscription takes in; None or "" is all (JMS 2.0 §3.8.1).
            no_local: Leave out what connections with this client id send.

        Raises:
            IllegalStateException: *no_local*, and the connection has no client id.
            InvalidDestinationException: There is no such topic, and it may not be created, or *name* is no name.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: It has consumers, and another topic, selector or no_local; or it is an unshared one.
        """
        doing = "create_shared_durable_consumer"
        return self._subscribe(doing, MessageConsumer, topic, name, selector, no_local, is_shared=True)

    def _subscribe(
        self,
        doing: str,
        consumer_class: Callable[[Session, Topic, ConsumerSlot], C],
        topic: Topic,
        name: str,
        selector_text: str | None,
        no_local: bool,
        space: Space = DURABLE,
        *,
        is_shared: bool = False,
        is_global: bool = False,
    ) -> C:
        self._check_open(doing)
        slot = self._slots.open_subscription(
            doing, topic, name, selector_text, no_local, space, is_shared=is_shared, is_global=is_global
        )
        return self._added(consumer_class(self, topic, slot))

    def _added(self, consumer: C) -> C:
        consumer._slot.is_lending = self._core.acknowledgement.is_lending
        with self._lock:
            is_too_late = self._is_closed and not self._listeners.is_current  # by a thread that did not know of it
            if not is_too_late:
                self._consumers.append(consumer)
        if is_too_late:
            self._connection._engine.close_slots([consumer._slot])
            self._check_open("create_consumer")
        self._connection._consumer_added(consumer._slot)
        if self._listeners.listener is not None:
            self._listeners.changed(is_replaced=False)
        return consumer

    def _subscription_lost(self, slot: ConsumerSlot, failure: JMSException) -> None:
        """Close the consumer of *slot*, whose subscription another process has now, and report that."""
        for consumer in list(self._consumers):
            if consumer._slot is slot:
                self._close_consumer(consumer)
        self._connection._engine.close_slots([slot])
        self._connection._tell(failure)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with all that it keeps (JMS 2.0 §6.11.5).

        Args:
            name: Its name; it is one of the connection's client id, if that is set.

        Raises:
            InvalidDestinationException: There is none of that name.
            IllegalStateException: It has an open consumer, in whatever process, or messages received from it are not
                acknowledged.
            TransactionInProgressException: They were received in this session's transaction.
        """
        self._check_open("unsubscribe")
        identity = self._slots.durable(name)
        try:
            self._connection._engine.subscriptions.remove(identity)
        except IllegalStateException as error:
            if self._transaction is not None and self._transaction.has_received:
                raise TransactionInProgressException(f"{error}; commit or roll back first") from error
            raise

    def _listeners_changed(self, *, is_replaced: bool) -> None:
        self._listeners.changed(is_replaced=is_replaced)

    def _loop_failed(self, error: BaseException, slot: ConsumerSlot | None = None, *, judges: bool = True) -> None:
        """Note that *error* leaves the ``with`` statement of the session, or of the consumer of *slot*.

        It judges the message that was received last, unless a listener has that, or *error* may be of another thread.
        """
        judges = judges and not self._listeners.listening
        self._core.acknowledgement.loop_failed(error, slot, judges=judges)

    def _end_loop(self, consumer: MessageConsumer) -> None:
        """Give back what a loop over *consumer* has, unless it is this thread's, which closes: it may be at work."""
        if consumer._looper not in {None, threading.get_ident()}:
            self._core.acknowledgement.loop_failed(None, consumer._slot)

    def _acknowledge(self) -> None:
        """Do what acknowledging its messages does: with CLIENT_ACKNOWLEDGE, acknowledge all that were dispatched."""
        acknowledgement = self._core.acknowledgement
        assert isinstance(acknowledgement, Auto | Client)
        self._settle("acknowledge", acknowledgement.acknowledge)

    def _acknowledge_now(self, message: Message) -> None:
        """Acknowledge *message*, which a listener or a loop works on, whatever follows; commit what was sent with it.

        Raises:
            JMSException: Its partition was lost, or the transaction was rolled back: the message is delivered again.
        """
        if self._transaction is not None:
            self.commit()
        else:
            self._settle("acknowledge", partial(self._core.acknowledgement.acknowledge_now, message))

    def _settle(self, doing: str, call: Callable[[], None]) -> None:
        """Make *call*, which settles messages or gives them back, after what an interrupted call has left to do."""
        core = self._core
        with core.guard.taken_to(doing):
            if core.interrupted:
                core.take_back()
            try:
                call()
            except BaseException as error:
                if not isinstance(error, Exception):  # Ctrl-C, at any point of it
                    core.all_interrupted(consumer._slot for consumer in list(self._consumers))
                raise

    def recover(self) -> None:
        """Deliver again, in order and marked, what was delivered and not acknowledged (JMS 2.0 §4.4.11).

        Raises:
            IllegalStateException: The session is transacted or closed.
        """
        self._check_open("recover")
        if self._transaction is not None:
            raise IllegalStateException(f"recover: session {self.number} is transacted (JMS 2.0 §4.4.11)")
        self._settle("recover", self._recover)

    def _recover(self) -> None:
        self._listeners.first = self._core.acknowledgement.recover(judges=True)

    def commit(self) -> None:
        """Commit what the session sent and received since the last commit or rollback, all of it at once.

        Returns when Kafka has committed it. Waits for completion listeners of what was sent first.

        Raises:
            TransactionRolledBackException: None of it was committed; the linked exception says why. What was received
                is delivered again. A new transaction has begun. If Kafka does not allow it, it is a
                JMSSecurityException, too.
            JMSException: Whether it was committed cannot be found out: the connection is being closed while Kafka does
                not answer, or all that was done was to receive, and others have the partitions now.
            IllegalStateException: The session is not transacted or closed, or a completion listener called it.

        Spec: JMS 2.0 §4.4.7, §4.6.2.4.
        """
        self._settle("commit", partial(self._commit, self._in_transaction("commit")))

    def _commit(self, transaction: Transacted) -> None:
        self._sender.completions.wait()
        failure = transaction.commit()
        if failure is not None:
            self._listeners.first = transaction.rollback()
            raise commit_failure(failure) from failure

    def rollback(self) -> None:
        """Destroy what the session sent since the last commit or rollback; what it received is delivered again.

        Raises:
            IllegalStateException: The session is not transacted or closed, or a completion listener called it.

        Spec: JMS 2.0 §4.4.7, §4.6.2.4.
        """
        self._settle("rollback", partial(self._rollback, self._in_transaction("rollback")))

    def _rollback(self, transaction: Transacted) -> None:
        self._sender.completions.wait()
        self._listeners.first = transaction.rollback(judges=True)

    def _in_transaction(self, doing: str) -> Transacted:
        self._check_open(doing)
        if self._transaction is None:
            raise IllegalStateException(f"{doing}: session {self.number} is not transacted (JMS 2.0 §4.4.7)")
        self._sender.check_not_notifying(doing)
        return self._transaction

    # Starting, stopping, closing.

    def _start(self) -> None:
        for consumer in list(self._consumers):
            consumer._slot.start()

    def _stop(self) -> None:
        for consumer in list(self._consumers):
            consumer._slot.stop()
        with self._core.delivering:
            pass  # a listener that was running has returned, and so has a receive that had a message

    def _end_delivery(self) -> None:
        """End receives that wait, call no listener any more, and return when the one that was running has returned."""
        self._hold_delivery()
        self._listeners.wait_for_running()

    def _hold_delivery(self) -> None:
        for consumer in list(self._consumers):
            consumer._slot.stop()
        self._wakeup.set()

    def _close_consumer(self, consumer: MessageConsumer) -> None:
        if self._listeners.is_current and self._listeners.current is consumer:
            raise IllegalStateException("close: called by the consumer's own message listener (JMS 2.0 §4.5.3)")
        consumer._is_closed = True
        self._end_loop(consumer)
        self._core.acknowledgement.consumer_closes(consumer._slot)
        self._connection._engine.close_slots([consumer._slot])
        with self._lock:
            if consumer in self._consumers:
                self._consumers.remove(consumer)
        self._listeners.changed(is_replaced=True)
        with self._core.guard.waited_for():
            pass  # a receive that was waiting has returned

    def _check_not_in_callback(self, doing: str) -> None:
        if self._listeners.is_current:
            raise IllegalStateException(f"{doing}: called by a message listener of the same session (JMS 2.0 §4.4.1)")
        self._sender.check_not_notifying(doing)

    def close(self) -> None:
        """Close the session with its producers and consumers; unacknowledged messages go to others at once.

        Waits for a running listener and for sends under way. May be called from any thread.

        Raises:
            IllegalStateException: A message listener or a completion listener of this session called it.

        Spec: JMS 2.0 §4.4.1.
        """
        self._check_not_in_callback("close")
        thread = threading.get_ident()
        if self._is_closed and self._closing != thread:  # also in a forked child, whose lock a lost thread may have
            return
        with self._lock:
            if self._is_closed and self._closing != thread:
                return
            self._is_closed, self._closing = True, thread
        try:
            self._close()
        except Exception:
            self._closing = 0
            raise
        self._closing = 0

    def _close(self) -> None:
        self._listeners.end()
        for consumer in list(self._consumers):
            consumer._slot.stop()
            consumer._is_closed = True
        for browser in list(self._browsers):
            browser.close()
        self._wakeup.set()
        self._listeners.join()
        with self._core.guard.waited_for(CLOSE_SECONDS):  # a receive whose acknowledgement Kafka does not answer has it
            self._finish()

    def _close_after(self, error: BaseException) -> None:
        self._loop_failed(error)
        self.close()

    def _disown(self) -> None:
        """Refuse every further use, in a forked child."""
        self._is_closed = True
        self._listeners.disown()
        for producer in self._producers:
            producer._is_closed = True
        for consumer in self._consumers:
            consumer._is_closed = True
        for browser in self._browsers:
            browser._is_closed = True
        self._core.acknowledgement.disown(self._connection._ownership.process)

    def _finish(self) -> None:
        self._sender.completions.close()
        for producer in self._producers:
            producer._is_closed = True
        core = self._core
        try:
            core.take_back()
            core.report_interrupted()
            for consumer in list(self._consumers):
                self._end_loop(consumer)
            core.acknowledgement.close()
        except Exception:
            self._finished()
            raise
        except BaseException:  # Ctrl-C, at any point of it: another call continues, or that which closes the connection
            core.all_interrupted(consumer._slot for consumer in self._consumers)
            raise
        self._finished()

    def _finished(self) -> None:
        self._connection._engine.close_slots([consumer._slot for consumer in self._consumers])
        self._connection._session_closed(self)

    def _check_own(self, doing: str) -> None:
        self._connection._ownership.check(doing)

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            self._check_own(doing)
        # A listener that runs while its session is closed keeps everything until it returns (JMS 2.0 §4.3.5).
        if self._is_closed and not self._listeners.is_current:
            raise IllegalStateException(f"{doing}: session {self.number} is closed (JMS 2.0 §4.4.1)")

    _using = _check_open
