"""A session: one thread's place to make messages, send and receive them, and acknowledge what it received."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kjms.client.acknowledge_modes import Acknowledgement, Auto, Client, DupsOk, Individual, Transacted
from kjms.client.browser import QueueBrowser
from kjms.client.closing import AutoCloseable
from kjms.client.completion_queue import CompletionQueue
from kjms.client.consumer import MessageConsumer
from kjms.client.dead_letters import Redelivery
from kjms.client.message_listener import MessageListener, called_as_listener
from kjms.client.no_local import NotLocal
from kjms.client.producer import MessageProducer
from kjms.client.routes import Route, TemporaryRoute
from kjms.client.thread_guard import ThreadGuard
from kjms.client.topic_subscriber import TopicSubscriber
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.engine import DURABLE, NON_DURABLE, ConsumerSlot, Copy, Identity, Space, Terms, UnknownError, destination_name
from kjms.errors import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
    TransactionInProgressException,
    TransactionRefusedException,
    TransactionRolledBackException,
    shown,
)
from kjms.mapping import sign
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.options import DeliveryMode, FactoryOptions, SessionMode, checked_mode
from kjms.selector import Selector, parse_selector

if TYPE_CHECKING:
    from kjms.client.completion_listener import CompletionListener
    from kjms.client.connection import Connection
    from kjms.engine import Browsing, Delivery, InboxLook

__all__ = ["Session"]

C = TypeVar("C", bound=MessageConsumer)
P = TypeVar("P", bound=MessageProducer)

_log = logging.getLogger("kjms.session")
_numbers = itertools.count(1)

CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer
TEMPORARY: Final = (TemporaryQueue, TemporaryTopic)
FAILURE_SECONDS: Final = 1.0  # a delivery that Kafka made fail is tried again after that
DELIVERY_POLL_SECONDS: Final = 1.0  # the delivery thread is woken for everything; this only guards against a lost wake


class Session(AutoCloseable):
    """Sends and receives for one thread at a time; made by `kjms.Connection.create_session`.

    Spec: JMS 2.0 §4.4.
    """

    SESSION_TRANSACTED: Final = SessionMode.SESSION_TRANSACTED
    AUTO_ACKNOWLEDGE: Final = SessionMode.AUTO_ACKNOWLEDGE
    CLIENT_ACKNOWLEDGE: Final = SessionMode.CLIENT_ACKNOWLEDGE
    DUPS_OK_ACKNOWLEDGE: Final = SessionMode.DUPS_OK_ACKNOWLEDGE
    INDIVIDUAL_ACKNOWLEDGE: Final = SessionMode.INDIVIDUAL_ACKNOWLEDGE

    def __init__(self, connection: Connection, acknowledge_mode: int) -> None:
        self.number = next(_numbers)
        self._connection = connection
        self._options = connection._options
        self._engine = connection._engine
        self._now_ms = self._engine.tuning.now_ms
        self._acknowledge_mode = checked_mode(acknowledge_mode)
        self._redelivery = Redelivery(self._engine, self._options)
        self._transaction: Transacted | None = None
        if acknowledge_mode == self.SESSION_TRANSACTED:
            self._transaction = Transacted(
                self._redelivery, self._engine.committer.commit, self._options.max_unacknowledged
            )
        self._acknowledgement = self._transaction or _acknowledgement(
            self._acknowledge_mode, self._redelivery, self._options
        )
        self._id = f"{connection._id}-{next(connection._session_numbers)}"
        self._sent = itertools.count(1)
        self._turn = ThreadGuard(f"session {self.number}")
        self._wakeup = threading.Event()
        self._bulk = self._engine.bulk  # for sends that nobody waits for
        self._outbox = CompletionQueue(f"kjms-session-{self.number}-completions")
        self._running = threading.RLock()  # held while a message is delivered, so that stopping can wait for it
        self._current: MessageConsumer | None = None  # whose listener runs
        self._first: ConsumerSlot | None = None  # after recover or rollback: whose consumer is served next
        self._closed = threading.Event()
        self._routes: dict[Destination, Route] = {}
        self._consumers: list[MessageConsumer] = []
        self._producers: list[MessageProducer] = []
        self._browsers: list[QueueBrowser] = []
        self._listening: list[MessageConsumer] = []
        self._listener: MessageListener | None = None  # of all consumers
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._is_closed = False

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
        return self._listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._check_open("message_listener")
        chosen = called_as_listener(listener)
        with self._lock:
            owner = next((consumer for consumer in self._consumers if consumer._listener is not None), None)
        if chosen is not None and owner is not None:
            raise IllegalStateException(f"message_listener: {owner!r} of session {self.number} has one of its own")
        is_replaced, self._listener = self._listener is not None, chosen
        self._listeners_changed(is_replaced=is_replaced)

    def _check_no_listener(self) -> None:
        if self._listener is not None:
            raise IllegalStateException(f"message_listener: session {self.number} has one for all its consumers")

    # Making messages (JMS 2.0 §4.4.5).

    def create_message(self) -> Message:
        """Return a message without a body."""
        self._check_open("create_message")
        return Message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """Return a message whose body is *text*."""
        self._check_open("create_text_message")
        return TextMessage(text)

    def create_bytes_message(self) -> BytesMessage:
        """Return a message whose body is bytes, to be written."""
        self._check_open("create_bytes_message")
        return BytesMessage()

    def create_map_message(self) -> MapMessage:
        """Return a message whose body is names with typed values."""
        self._check_open("create_map_message")
        return MapMessage()

    def create_stream_message(self) -> StreamMessage:
        """Return a message whose body is a sequence of typed values."""
        self._check_open("create_stream_message")
        return StreamMessage()

    def create_object_message(self, value: Any = None) -> ObjectMessage:
        """Return a message whose body is *value*.

        Raises:
            MessageFormatException: No codec carries it.
        """
        self._check_open("create_object_message")
        return ObjectMessage(value)

    # Naming destinations (JMS 2.0 §4.4.4); none is made by that.

    def create_queue(self, queue_name: str) -> Queue:
        """Return the queue of that name."""
        self._check_open("create_queue")
        return Queue(queue_name)

    def create_topic(self, topic_name: str) -> Topic:
        """Return the topic of that name."""
        self._check_open("create_topic")
        return Topic(topic_name)

    # Making temporary destinations (JMS 2.0 §4.4.3).

    def create_temporary_queue(self) -> TemporaryQueue:
        """Return a new queue that lives as long as the session's connection; see `create_temporary_topic`."""
        self._check_open("create_temporary_queue")
        return self._engine.temporaries.create(TemporaryQueue, self._connection._id, self._options.defaults)

    def create_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic that lives as long as the session's connection, unless it is deleted before.

        Anybody can send to it who is told of it, by a JMSReplyTo for instance. Only the connection can receive from
        it. It goes when its `delete` is called, when the connection closes, and when the program has lost the object
        that is returned here, with every consumer, producer and message that has it.

        Raises:
            JMSException: Kafka does not let us.

        Spec: JMS 2.0 §4.4.3, §6.6.
        """
        self._check_open("create_temporary_topic")
        return self._engine.temporaries.create(TemporaryTopic, self._connection._id, self._options.defaults)

    # Sending.

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """Return a producer for *destination*, or, with None, for those that its sends name (JMS 2.0 §4.6).

        Raises:
            InvalidDestinationException: There is no such destination, and it may not be created.
        """
        return self._open_producer("create_producer", MessageProducer, destination)

    def _open_producer(
        self, doing: str, producer_class: Callable[[Session, Destination | None], P], destination: Destination | None
    ) -> P:
        self._check_open(doing)
        producer = producer_class(self, destination)
        with self._lock:
            self._producers.append(producer)
        return producer

    def _check_destination(self, destination: object) -> None:
        _check_destination(destination)

    def _route(self, destination: Destination) -> Route:
        self._check_destination(destination)
        route = self._routes.get(destination)
        if route is None:
            self._check_open("send")
            senders = self._connection._senders if isinstance(destination, Topic) else (None, None)
            if isinstance(destination, TEMPORARY):  # not kept: that would keep the destination
                to = self._engine.temporaries.address(destination)
                return TemporaryRoute(to, self._options.defaults, self._id, senders)
            topic, partitions = self._engine.topic_of(destination, self._options)
            chosen = self._options.destination(destination_name(destination))
            route = self._routes[destination] = Route(topic, partitions, chosen, self._id, *senders)
        return route

    def _delayed(self, route: Route) -> Route:
        """Return the route to where messages for the destination of *route* wait until they are due."""
        self._check_open("send")
        if isinstance(route, TemporaryRoute):
            return route  # they wait where all its messages do, in the process that has it
        if route.delayed is None:
            route.delayed = route.to_later(self._engine.schedule.prepare(route.topic, route.partitions))
        else:
            self._engine.schedule.serve(route.topic)
        return route.delayed

    def _next_message_id(self) -> str:
        return f"ID:{self._id}-{next(self._sent)}"

    def _send(
        self,
        producer: MessageProducer,
        message: Message,
        route: Route,
        listener: CompletionListener | None,
        original: Message,
    ) -> None:
        turn = self._turn
        outer = turn.take("send")
        try:
            self._check_open("send")
            record = route.encode(message)
            sender = route.sender if message._message_id is not None else route.sender_without_id
            if sender is not None:
                sign(record, sender)
            partition = route.partition if record.key is None else route.group_partition
            outbox = self._outbox
            if self._transaction is not None:
                self._transaction.sent(Copy(route.topic, partition, record))
                if listener is not None:  # the message is safe with the session; the rest is the commit's
                    outbox.begin(self._bulk, route.topic, original, listener).has_arrived()
                return
            if listener is None and message._delivery_mode == DeliveryMode.PERSISTENT:
                outbox.wait_for_arrivals()  # a session's messages stay in order, waited for or not
                self._engine.prompt.send_and_wait(route.topic, partition, record)
                return
            bulk = self._bulk
            pending = outbox.begin(bulk, route.topic, original, listener)
            try:
                bulk.send(route.topic, partition, record, pending)
            except BaseException:
                outbox.cancel()
                raise
        finally:
            turn.give_back(outer)

    def _close_producer(self, producer: MessageProducer) -> None:
        self._check_not_telling("close")
        self._outbox.wait()
        producer._is_closed = True
        with self._lock:
            if producer in self._producers:
                self._producers.remove(producer)

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
        if isinstance(queue, TemporaryQueue):
            self._engine.temporaries.check_owned(queue, self._connection._id)
        else:
            self._engine.topic_of(queue, self._options)
        browser = QueueBrowser(self, queue, chosen)
        with self._lock:
            self._check_open("create_browser")  # nobody closes it meanwhile
            self._browsers.append(browser)
        return browser

    def _look_at(self, queue: Queue, selector: Selector | None) -> Browsing | InboxLook:
        if isinstance(queue, TemporaryQueue):
            return self._engine.temporaries.look_at(queue, self._connection._id, selector)
        return self._engine.browse(queue, self._options, selector)

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
        self._check_destination(destination)
        selector = parse_selector(selector_text)
        if no_local and isinstance(destination, Topic):
            selector = self._not_local(selector)
        if isinstance(destination, TEMPORARY):
            temporaries = self._engine.temporaries
            slot = temporaries.open_slot(destination, self._connection._id, selector, self._wakeup)
        else:
            slot = self._engine.open_slot(destination, self._options, selector, self._wakeup)
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

        def subscriber(session: Session, destination: Topic, slot: ConsumerSlot) -> TopicSubscriber:
            return TopicSubscriber(session, destination, slot, no_local=no_local)

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
        self._check_destination(topic)
        if not isinstance(topic, Topic):
            raise InvalidDestinationException(f"{doing}: a subscription is on a Topic, not on {shown(topic)}")
        _check_subscription_name(doing, name)
        selector = parse_selector(selector_text)
        connection = self._connection
        if no_local or not is_shared:
            connection._needed_client_id(doing)
        connection._check_client_id()
        client_id = None if is_global else connection._client_id
        if isinstance(topic, TemporaryTopic):
            if space == DURABLE:
                raise InvalidDestinationException(f"{doing}: {topic} is temporary, and cannot be kept (JMS 2.0 §6.6)")
            slot = self._engine.temporaries.open_shared(
                (client_id, name),
                topic,
                connection._id,
                (selector, bool(no_local)),
                self._not_local(selector) if no_local else selector,
                self._wakeup,
            )
            return self._added(consumer_class(self, topic, slot))
        kafka_topic, _ = self._engine.topic_of(topic, self._options)
        slot = self._engine.open_subscription(
            Identity(space, client_id, name),
            Terms(topic, kafka_topic, selector, bool(no_local), is_shared),
            self._options,
            self._not_local(selector) if no_local else selector,
            self._wakeup,
            self._subscription_lost,
        )
        return self._added(consumer_class(self, topic, slot))

    def _not_local(self, selector: Selector | None) -> Selector:
        return NotLocal(selector, self._connection._client_id, self._connection._id)

    def _added(self, consumer: C) -> C:
        with self._lock:
            is_too_late = self._is_closed and not self._is_delivering()  # by a thread that did not know of it
            if not is_too_late:
                self._consumers.append(consumer)
        if is_too_late:
            self._engine.close_slots([consumer._slot])
            self._check_open("create_consumer")
        self._connection._consumer_added(consumer._slot)
        if self._listener is not None:
            self._listeners_changed(is_replaced=False)
        return consumer

    def _subscription_lost(self, slot: ConsumerSlot, failure: JMSException) -> None:
        """Close the consumer of *slot*, whose subscription another program has now, and say so."""
        for consumer in list(self._consumers):
            if consumer._slot is slot:
                self._close_consumer(consumer)
        self._engine.close_slots([slot])
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
        _check_subscription_name("unsubscribe", name)
        self._connection._check_client_id()
        try:
            self._engine.subscriptions.remove(Identity(DURABLE, self._connection._client_id, name))
        except IllegalStateException as error:
            if self._transaction is not None and self._transaction.has_received:
                raise TransactionInProgressException(f"{error}; commit or roll back first") from error
            raise

    def _receive(
        self,
        consumer: MessageConsumer,
        seconds: float | None,
        read: Callable[[Message], None] | None = None,
        *,
        is_loop: bool = False,
    ) -> Message | None:
        """Return the next message for *consumer*, or for a loop over it.

        If *read* raises, what becomes of the message is the session mode's to say.
        """
        turn = self._turn
        outer = turn.take("receive")
        try:
            acknowledgement = self._acknowledgement
            slot = consumer._slot
            acknowledgement.before_next(slot)
            if acknowledgement.is_full:
                raise self._overrun("receive")
            take = slot.reader.take
            deadline = None
            is_waiting = False
            while True:
                with self._running:  # stopping waits for a message that is on its way to the program
                    delivery = take(slot)
                    if delivery is not None:
                        message = self._acceptable(delivery, consumer)
                        if message is None:
                            continue
                        if read is not None:
                            self._read(read, delivery, message)
                        if is_loop:
                            acknowledgement.looping(delivery, message)
                        else:
                            acknowledgement.received(delivery, message)
                        return message
                if is_waiting and (consumer._is_closed or not slot.is_open or self._connection._is_closing):
                    return None
                try:
                    slot.reader.refusal.check()
                except JMSException:
                    slot.rest()
                    raise
                if is_waiting:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        slot.rest()
                        return None
                    self._wakeup.wait(left)
                elif seconds is not None:
                    deadline = time.monotonic() + seconds
                is_waiting = True
                self._wakeup.clear()  # after that, the take finds what came before
        finally:
            turn.give_back(outer)

    def _read(self, read: Callable[[Message], None], delivery: Delivery, message: Message) -> None:
        try:
            read(message)
        except BaseException:
            if isinstance(self._acknowledgement, Auto):  # as if nobody had asked: it comes again before any later one
                assert delivery.slot is not None
                delivery.slot.reader.give_back([delivery], to=delivery.slot, is_counted=False)
            else:
                self._acknowledgement.received(delivery, message)
            raise

    def _acceptable(self, delivery: Delivery, consumer: MessageConsumer) -> Message | None:
        """Return the message of *delivery*; None when it has expired or was delivered too often, and is dealt with."""
        message = delivery.message(consumer._destination)
        if "JMSExpiration" in message._properties:  # where header fields wait until they are read
            expires = message.jms_expiration
            if expires and expires < self._now_ms():
                self._expire(delivery, consumer)
                return None
        if delivery.count > 1 and (
            self._redelivery.is_one_too_many(delivery) or not self._is_recorded(delivery, consumer)
        ):
            return None
        return message

    def _expire(self, delivery: Delivery, consumer: MessageConsumer) -> None:
        """Let the expired message of *delivery* go: to the expiry queue, where there is one."""
        destination, reader = consumer._destination, consumer._slot.reader
        queue_name = self._options.destination(destination_name(destination)).expiry_queue
        if queue_name is None or destination == Queue(queue_name):
            reader.settle(delivery)
        else:
            self._redelivery.expire(delivery, queue_name)

    def _is_recorded(self, delivery: Delivery, consumer: MessageConsumer) -> bool:
        """Have Kafka know of a repeated delivery before it is made, so that a message that kills is found out."""
        reader = consumer._slot.reader
        try:
            if reader.record(delivery):
                return True
        except BaseException:
            reader.give_back([delivery], to=delivery.slot, is_counted=False)  # not behind those given back with it
            raise
        reader.give_back([delivery], is_counted=False)  # its partition was lost meanwhile
        return False

    def _listeners_changed(self, *, is_replaced: bool) -> None:
        """Have the delivery thread call the listeners that there are now; wait for one that *is_replaced*."""
        with self._lock:
            before = self._listening
            self._listening = [consumer for consumer in self._consumers if self._listener_of(consumer) is not None]
            if self._listening and self._thread is None and not self._is_closed:
                self._thread = threading.Thread(
                    target=self._deliver, name=f"kjms-session-{self.number}-delivery", daemon=True
                )
                self._thread.start()
        self._wakeup.set()
        if is_replaced:
            with self._running:
                pass  # a listener that was taken away is not running any more
        for consumer in before:
            if consumer not in self._listening:
                consumer._slot.rest()

    def _listener_of(self, consumer: MessageConsumer) -> MessageListener | None:
        return self._listener if consumer._listener is None else consumer._listener

    def _deliver(self) -> None:
        """Run the listeners, one message at a time (JMS 2.0 §4.4.14): the delivery thread."""
        delivered = was_full = False
        is_due = True  # whether those are asked, too, that have found nothing and were not woken since
        while not self._is_closed:
            if not delivered:
                self._wakeup.clear()  # after that, the poll finds what came before
            delivered = False
            consumers, first = self._listening, self._first
            is_full = self._acknowledgement.is_full
            if is_full:
                if not was_full:
                    self._connection._tell(self._overrun("delivery"))
                for consumer in consumers:
                    consumer._slot.rest()
                consumers = []
            was_full = is_full
            if first is not None:
                consumers = sorted(consumers, key=lambda consumer: consumer._slot is not first)
            starts, rivalled = ConsumerSlot.starts, _rivalled(consumers)
            for consumer in consumers:
                slot = consumer._slot
                if slot.is_waiting and not is_due:
                    continue
                delivery = slot.poll()
                if delivery is not None:
                    delivered = True
                    self._first = None
                    if starts != ConsumerSlot.starts:  # somebody has come meanwhile
                        starts, rivalled = ConsumerSlot.starts, _rivalled(consumers)
                    for other in rivalled:  # while this listener runs, messages for the others go to whoever is free
                        if other is not consumer:
                            other._slot.rest()
                    self._deliver_one(consumer, delivery)
                    if self._first is not None:
                        break  # recovered: what others have ready comes after the oldest unacknowledged message
            is_due = not delivered and not self._is_closed and not self._wakeup.wait(DELIVERY_POLL_SECONDS)

    def _overrun(self, doing: str) -> ResourceAllocationException:
        return ResourceAllocationException(
            f"{doing}: session {self.number} holds {self._options.max_unacknowledged} messages that are not"
            " acknowledged, and may hold no more (max_unacknowledged)"
        )

    def _deliver_one(self, consumer: MessageConsumer, delivery: Delivery) -> None:
        with self._turn.waited_for(), self._running:
            listener = self._listener_of(consumer)
            if listener is None or self._is_closed or not consumer._slot.is_started:
                consumer._slot.reader.give_back([delivery], is_counted=False)  # too late: nobody saw it
                return
            self._current = consumer
            try:
                self._acknowledgement.before_next(consumer._slot)  # in case that it failed after the last one
            except JMSException as failure:
                consumer._slot.reader.give_back([delivery], to=consumer._slot, is_counted=False)
                self._connection._tell(failure)
                self._current = None
                self._closed.wait(FAILURE_SECONDS)
                return
            try:
                message = self._acceptable(delivery, consumer)
                if message is not None:
                    self._call(listener, delivery, message)
                self._acknowledgement.before_next(consumer._slot)
            except Exception as error:
                _log.exception("session %d: delivery from %s failed", self.number, consumer._destination)
                self._connection._tell(
                    error if isinstance(error, JMSException) else JMSException(f"delivery failed: {error}", None, error)
                )
                self._closed.wait(FAILURE_SECONDS)
            finally:
                self._current = None

    def _call(self, listener: Any, delivery: Delivery, message: Message) -> None:
        self._acknowledgement.listening(delivery, message)
        try:
            listener(message)
        except BaseException as error:  # SystemExit, too, would end the delivery of everybody's messages
            self._connection._check_own("deliver")  # a listener that forked returns in the child, too
            _log.exception(
                "a message listener raised: delivery %d of message %s", delivery.count, message.jms_message_id
            )
            self._acknowledgement.listener_failed(delivery, error)
        else:
            self._connection._check_own("deliver")
            self._acknowledgement.listened(delivery)

    def _acknowledge(self) -> None:
        """Do what acknowledging its messages does: with CLIENT_ACKNOWLEDGE, acknowledge all that were dispatched."""
        with self._turn.taken_to("acknowledge"):
            acknowledgement = self._acknowledgement
            assert isinstance(acknowledgement, Auto | Client)
            acknowledgement.acknowledge()

    def recover(self) -> None:
        """Deliver again, in order and marked, what was delivered and not acknowledged (JMS 2.0 §4.4.11).

        Raises:
            IllegalStateException: The session is transacted or closed.
        """
        self._check_open("recover")
        if self._transaction is not None:
            raise IllegalStateException(f"recover: session {self.number} is transacted (JMS 2.0 §4.4.11)")
        with self._turn.taken_to("recover"):
            self._first = self._acknowledgement.recover()

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
        transaction = self._in_transaction("commit")
        with self._turn.taken_to("commit"):
            self._outbox.wait()
            failure = transaction.commit()
            if failure is not None:
                self._first = transaction.rollback()
                if isinstance(failure, UnknownError):
                    raise JMSException(f"commit: {failure}", failure.error_code, failure) from failure
                is_refused = isinstance(failure, JMSSecurityException)
                kind = TransactionRefusedException if is_refused else TransactionRolledBackException
                raise kind(
                    f"commit: the transaction was rolled back: {failure}", failure.error_code, failure
                ) from failure

    def rollback(self) -> None:
        """Destroy what the session sent since the last commit or rollback; what it received is delivered again.

        Raises:
            IllegalStateException: The session is not transacted or closed, or a completion listener called it.

        Spec: JMS 2.0 §4.4.7, §4.6.2.4.
        """
        transaction = self._in_transaction("rollback")
        with self._turn.taken_to("rollback"):
            self._outbox.wait()
            self._first = transaction.rollback()

    def _in_transaction(self, doing: str) -> Transacted:
        self._check_open(doing)
        if self._transaction is None:
            raise IllegalStateException(f"{doing}: session {self.number} is not transacted (JMS 2.0 §4.4.7)")
        self._check_not_telling(doing)
        return self._transaction

    # Starting, stopping, closing.

    def _start(self) -> None:
        for consumer in list(self._consumers):
            consumer._slot.start()

    def _stop(self) -> None:
        for consumer in list(self._consumers):
            consumer._slot.stop()
        with self._running:
            pass  # a listener that was running has returned, and so has a receive that had a message

    def _end_delivery(self) -> None:
        """End receives that wait, call no listener any more, and return when the one that was running has returned."""
        self._hold_delivery()
        if self._thread is not None:
            with self._running:
                pass

    def _hold_delivery(self) -> None:
        for consumer in list(self._consumers):
            consumer._slot.stop()
        self._wakeup.set()

    def _close_consumer(self, consumer: MessageConsumer) -> None:
        if self._is_delivering() and self._current is consumer:
            raise IllegalStateException("close: called by the consumer's own message listener (JMS 2.0 §4.5.3)")
        consumer._is_closed = True
        self._acknowledgement.consumer_closes(consumer._slot)
        self._engine.close_slots([consumer._slot])
        with self._lock:
            if consumer in self._consumers:
                self._consumers.remove(consumer)
        self._listeners_changed(is_replaced=True)
        with self._turn.waited_for():
            pass  # a receive that was waiting has returned

    def _is_delivering(self) -> bool:
        return threading.current_thread() is self._thread

    def _check_not_in_callback(self, doing: str) -> None:
        if self._is_delivering():
            raise IllegalStateException(f"{doing}: called by a message listener of the same session (JMS 2.0 §4.4.1)")
        self._check_not_telling(doing)

    def _check_not_telling(self, doing: str) -> None:
        if self._outbox.is_telling:
            raise IllegalStateException(
                f"{doing}: called by a completion listener of the same session (JMS 2.0 §4.6.2.4)"
            )

    def close(self) -> None:
        """Close the session with its producers and consumers; unacknowledged messages go to others at once.

        Waits for a running listener and for sends under way. May be called from any thread.

        Raises:
            IllegalStateException: A message listener or a completion listener of this session called it.

        Spec: JMS 2.0 §4.4.1.
        """
        self._check_not_in_callback("close")
        if self._is_closed:  # also in a forked child, where the lock may be held by a thread that is not there
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._closed.set()
        self._wakeup.set()
        for consumer in list(self._consumers):
            consumer._slot.stop()
            consumer._is_closed = True
        for browser in list(self._browsers):
            browser.close()
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join()
        with self._turn.waited_for(CLOSE_SECONDS):  # a receive whose acknowledgement Kafka does not answer has it
            self._finish()

    def _close_after(self, error: BaseException) -> None:
        self._acknowledgement.loop_failed(error)
        self.close()

    def _disown(self) -> None:
        """Refuse every further use, in a forked child."""
        self._is_closed = True
        for producer in self._producers:
            producer._is_closed = True
        for consumer in self._consumers:
            consumer._is_closed = True
        for browser in self._browsers:
            browser._is_closed = True
        self._acknowledgement.disown(self._connection._process)

    def _finish(self) -> None:
        self._outbox.close()
        for producer in self._producers:
            producer._is_closed = True
        try:
            self._acknowledgement.close()
        finally:
            self._engine.close_slots([consumer._slot for consumer in self._consumers])
            self._connection._session_closed(self)

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            self._connection._check_own(doing)
        # A listener that runs while its session is closed keeps everything until it returns (JMS 2.0 §4.3.5).
        if self._is_closed and not self._is_delivering():
            raise IllegalStateException(f"{doing}: session {self.number} is closed (JMS 2.0 §4.4.1)")


def either(selector: str | None, message_selector: str | None) -> str | None:
    """Return the selector that was given under one of its two names.

    Raises:
        ValueError: It was given under both.
    """
    if selector is not None and message_selector is not None:
        raise ValueError("selector and message_selector are two names of one argument; give one of them")
    return message_selector if selector is None else selector


def _rivalled(consumers: Iterable[MessageConsumer]) -> list[MessageConsumer]:
    return [consumer for consumer in consumers if consumer._slot.has_rivals]


def _acknowledgement(mode: SessionMode, redelivery: Redelivery, options: FactoryOptions) -> Acknowledgement:
    if mode == Session.AUTO_ACKNOWLEDGE:
        return Auto(redelivery, is_pipelined=options.pipelined_acknowledge)
    if mode == Session.CLIENT_ACKNOWLEDGE:
        return Client(redelivery, options.max_unacknowledged)
    if mode == Session.DUPS_OK_ACKNOWLEDGE:
        return DupsOk(redelivery)
    return Individual(redelivery, options.max_unacknowledged)


def _check_destination(destination: object) -> None:
    if not isinstance(destination, Queue | Topic):
        raise InvalidDestinationException(f"a destination is a Queue or a Topic, not {shown(destination)}")


def _check_subscription_name(doing: str, name: object) -> None:
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise InvalidDestinationException(f"{doing}: a subscription needs a name, not {shown(name)} (JMS 2.0 §6.11.7)")
