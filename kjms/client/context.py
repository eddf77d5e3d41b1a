"""The simplified API's one object: a connection, which several contexts may share, and a session of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kjms.client.closing import AutoCloseable
from kjms.client.creating import Creating
from kjms.client.jms_consumer import JMSConsumer
from kjms.client.jms_producer import JMSProducer
from kjms.client.session import Session
from kjms.client.slot_opener import either
from kjms.options import SessionMode, checked_mode

if TYPE_CHECKING:
    from kjms.client.browser import QueueBrowser
    from kjms.client.connection import Connection
    from kjms.client.connection_meta_data import ConnectionMetaData
    from kjms.client.consumer import MessageConsumer
    from kjms.client.exception_listener import ExceptionListener
    from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic

__all__ = ["JMSContext"]


class JMSContext(Creating, AutoCloseable):
    """Sends and receives for one thread at a time; made by `kjms.ConnectionFactory.create_context`.

    It is a connection and a session in one. Contexts that it makes with `create_context` have sessions of their own on
    the same connection, which ends with the last of them. Any thread may call `create_context` and `close`.

    Spec: JMS 2.0 §11.2.
    """

    def __init__(
        self,
        connection: Connection,
        session_mode: int,
        contexts: set[JMSContext],
        session_class: Callable[[Connection, int], Session] = Session,
    ) -> None:
        self._connection = connection
        self._session_class = session_class
        self._session = connection._open_session(session_class, checked_mode(session_mode))
        self._session_mode = self._session.acknowledge_mode
        self._contexts = contexts  # those of the connection that are open; under its lock
        self._auto_start = True
        self._is_closing = False
        self._closing = 0  # the thread that closes it; where Ctrl-C ended that, the next call of the thread continues
        contexts.add(self)

    def __repr__(self) -> str:
        state = "closed" if self._session._is_closed else f"{self._session!r}, {self._connection!r}"
        return f"<JMSContext, {self._session_mode.name}: {state}>"

    def create_context(self, session_mode: int = SessionMode.AUTO_ACKNOWLEDGE) -> JMSContext:
        """Return a new context on the same connection, with a session of its own (JMS 2.0 §11.2.1).

        Args:
            session_mode: One of the constants of this class.

        Raises:
            ValueError: There is no such mode.
        """
        self._check_open("create_context")
        with self._connection._lock:  # the connection does not end meanwhile
            self._using("create_context")
            return JMSContext(self._connection, session_mode, self._contexts, self._session_class)

    @property
    def session_mode(self) -> SessionMode:
        """How messages are acknowledged, one of this class's constants (JMS 2.0 §11.2.2)."""
        self._check_open("session_mode")
        return self._session_mode

    @property
    def transacted(self) -> bool:
        """Whether the context's session is transacted (JMS 2.0 §4.4.7)."""
        self._check_open("transacted")
        return self._session_mode == self.SESSION_TRANSACTED

    # The connection's part.

    @property
    def client_id(self) -> str | None:
        """The client identifier, to be set before anything else is done with the context (JMS 2.0 §4.3.2).

        Raises:
            IllegalStateException: When setting: the factory gave one, or the connection is in use already.
            InvalidClientIDException: When setting: it is no text, empty, or in use by another connection, in whatever
                process. The id of a program that was killed is free again after some seconds, which this waits for.
        """
        self._check_open("client_id")
        return self._connection.client_id

    @client_id.setter
    def client_id(self, client_id: str) -> None:
        self._check_open("client_id")
        self._connection.client_id = client_id

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """What is called with failures that no call can raise, such as a lost cluster (JMS 2.0 §4.3.8).

        The contexts of a connection have it in common.
        """
        self._check_open("exception_listener")
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._check_open("exception_listener")
        self._connection.exception_listener = listener

    @property
    def meta_data(self) -> ConnectionMetaData:
        """What is said of this provider (JMS 2.0 §4.3.7)."""
        self._check_open("meta_data")
        return self._connection.meta_data

    @property
    def auto_start(self) -> bool:
        """Whether creating a consumer starts the connection; it does unless this is switched off (JMS 2.0 §11.2.7)."""
        self._check_open("auto_start")
        return self._auto_start

    @auto_start.setter
    def auto_start(self, value: bool) -> None:
        self._using("auto_start")
        self._auto_start = bool(value)

    def start(self) -> None:
        """Let messages be delivered, to all contexts of the connection (JMS 2.0 §4.3.3)."""
        self._check_open("start")
        self._connection.start()

    def stop(self) -> None:
        """Hold delivery to all contexts of the connection, and return when running listeners are through.

        Raises:
            IllegalStateException: A message listener or a completion listener of this connection called it.

        Spec: JMS 2.0 §4.3.4.
        """
        self._check_open("stop")
        self._connection.stop()

    # Making temporary destinations.

    def create_temporary_queue(self) -> TemporaryQueue:
        """Return a new queue that lives as long as the connection; see `kjms.Session.create_temporary_topic`.

        Spec: JMS 2.0 §11.2, §11.4.11.
        """
        return self._using("create_temporary_queue").create_temporary_queue()

    def create_temporary_topic(self) -> TemporaryTopic:
        """Return a new topic that lives as long as the connection; see `kjms.Session.create_temporary_topic`."""
        return self._using("create_temporary_topic").create_temporary_topic()

    # Sending and looking.

    def create_producer(self) -> JMSProducer:
        """Return a producer, whose sends name their destinations (JMS 2.0 §11.2.4)."""
        return JMSProducer(self._using("create_producer")._sender)

    def create_browser(self, queue: Queue, selector: str | None = None) -> QueueBrowser:
        """Return a browser of a queue; see `kjms.Session.create_browser` (JMS 2.0 §5.9)."""
        return self._using("create_browser").create_browser(queue, selector)

    # Receiving. Creating a consumer starts the connection, unless `auto_start` is off.

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        message_selector: str | None = None,
    ) -> JMSConsumer:
        """Return a consumer of a queue, or of a topic's messages from now on; see `kjms.Session.create_consumer`.

        Spec: JMS 2.0 §11.2.5.1, §6.11.1.
        """
        session = self._using("create_consumer")
        return self._started(session.create_consumer(destination, either(selector, message_selector), no_local))

    def create_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Return the consumer of an unshared durable subscription; see `kjms.Session.create_durable_consumer`.

        Spec: JMS 2.0 §11.2.5.1, §6.11.5.
        """
        session = self._using("create_durable_consumer")
        return self._started(session.create_durable_consumer(topic, name, selector, no_local))

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Return a consumer of a shared non-durable subscription; see `kjms.Session.create_shared_consumer`.

        Spec: JMS 2.0 §11.2.5.1, §6.11.4.
        """
        session = self._using("create_shared_consumer")
        return self._started(session.create_shared_consumer(topic, name, selector, no_local))

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> JMSConsumer:
        """Return a consumer of a shared durable subscription; see `kjms.Session.create_shared_durable_consumer`.

        Spec: JMS 2.0 §11.2.5.1, §6.11.6.
        """
        session = self._using("create_shared_durable_consumer")
        return self._started(session.create_shared_durable_consumer(topic, name, selector, no_local))

    def _started(self, consumer: MessageConsumer) -> JMSConsumer:
        if self._auto_start:
            self._connection.start()
        return JMSConsumer(consumer)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with all that it keeps; see `kjms.Session.unsubscribe` (JMS 2.0 §6.11.5)."""
        self._using("unsubscribe").unsubscribe(name)

    # Settling.

    def acknowledge(self) -> None:
        """Acknowledge all that was received: with CLIENT_ACKNOWLEDGE and INDIVIDUAL_ACKNOWLEDGE; else nothing happens.

        Raises:
            IllegalStateException: The context is closed, or another thread is using it.
            JMSException: A partition was lost to another member of the group; its messages are delivered there.

        Spec: JMS 2.0 §4.4.11.
        """
        self._using("acknowledge")._acknowledge()

    def commit(self) -> None:
        """Commit what was sent and received since the last commit or rollback; see `kjms.Session.commit`.

        Raises:
            TransactionRolledBackException: None of it was committed. What was received is delivered again.
            IllegalStateException: The context is not transacted or closed, or a completion listener called it.

        Spec: JMS 2.0 §4.4.7.
        """
        self._using("commit").commit()

    def rollback(self) -> None:
        """Destroy what was sent since the last commit or rollback; what was received is delivered again.

        Raises:
            IllegalStateException: The context is not transacted or closed, or a completion listener called it.

        Spec: JMS 2.0 §4.4.7.
        """
        self._using("rollback").rollback()

    def recover(self) -> None:
        """Deliver again, in order and marked, what was delivered and not acknowledged (JMS 2.0 §4.4.11).

        Raises:
            IllegalStateException: The context is transacted or closed.
        """
        self._using("recover").recover()

    # Closing.

    def close(self) -> None:
        """Close the context with its consumers, and the connection with the last of its contexts.

        Waits for a running listener and for sends under way. What was not acknowledged goes to others at once.

        Raises:
            IllegalStateException: A message listener or a completion listener of this context called it.
            JMSException: Kafka did not take an acknowledgement; everything is closed nevertheless.

        Spec: JMS 2.0 §11.2.6.
        """
        connection = self._connection
        if connection._ownership.is_inherited:
            return
        self._session._check_not_in_callback("close")
        thread = threading.get_ident()
        with connection._lock:
            if self._is_closing and self._closing != thread:
                return
            self._is_closing, self._closing = True, thread
        try:
            self._close()
        except Exception:
            self._closing = 0
            raise
        self._closing = 0

    def _close(self) -> None:
        connection = self._connection
        try:
            self._session.close()
        finally:
            with connection._lock:
                self._contexts.discard(self)
                is_last = not self._contexts
            if is_last:
                connection.close()

    def _close_after(self, error: BaseException) -> None:
        self._session._loop_failed(error)
        self.close()

    def _check_open(self, doing: str) -> None:
        self._session._check_open(doing)

    def _using(self, doing: str) -> Session:
        """Return the session; from now on the client identifier cannot be set."""
        self._check_open(doing)
        self._connection._is_used = True
        return self._session
