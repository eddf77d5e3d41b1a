"""Requestors: send requests and wait for their replies, on a temporary destination of their own."""

from __future__ import annotations

import concurrent.futures
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kjms.client.closing import AutoCloseable
from kjms.client.consumer import seconds_of
from kjms.client.creating import message_of
from kjms.client.replies import PendingReplies, failure_in
from kjms.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import IllegalStateException, InvalidDestinationException, shown
from kjms.options import SessionMode

if TYPE_CHECKING:
    from kjms.client.connection_factory import ConnectionFactory
    from kjms.client.consumer import MessageConsumer
    from kjms.client.session import Session
    from kjms.destinations import Destination
    from kjms.message import Message

__all__ = ["QueueRequestor", "Requestor", "TopicRequestor"]

R = TypeVar("R", TemporaryQueue, TemporaryTopic)


class _Requestor(AutoCloseable, Generic[R]):
    """What both requestors do.

    A reply that comes after its request was given up is lost: the next request has a reply destination of its own.
    """

    def __init__(self, session: Session, destination: Destination) -> None:
        if session.transacted:
            raise IllegalStateException(
                "a requestor's session must not be transacted: it would send a request only at the commit"
            )
        self._session = session
        self._producer = session.create_producer(destination)
        self._replies: R
        self._consumer: MessageConsumer
        self._replies, self._consumer = self._open()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} to {self._producer._destination!r}: {'closed' if self._is_closed else 'open'}>"

    def _create(self) -> R:
        raise NotImplementedError

    def _open(self) -> tuple[R, MessageConsumer]:
        replies = self._create()
        return replies, self._session.create_consumer(replies)

    def request(self, message: Message, timeout: int | timedelta | None = None) -> Message | None:
        """Send *message* and return the first reply; its JMSReplyTo is set by this call.

        The connection must have been started.

        Args:
            message: The request.
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Returns:
            The reply; None when the time was over, or the requestor was closed meanwhile.

        Raises:
            IllegalStateException: The requestor is closed, or another thread is using the session.
            JMSException: The request could not be sent.
            ValueError: *timeout* is negative.
        """
        if self._is_closed:
            raise IllegalStateException(f"request: this {type(self).__name__} is closed")
        seconds_of(timeout)  # a wrong one is refused before the request is sent
        message.jms_reply_to = self._replies
        self._producer.send(message)
        try:
            reply = self._consumer.receive(timeout)
        except IllegalStateException:
            if not self._is_closed:  # else it was closed since the request was sent
                raise
            return None
        if reply is None and not self._is_closed:
            self._consumer.close()
            self._replies.delete()
            self._replies, self._consumer = self._open()
        return reply

    def close(self) -> None:
        """Close the requestor with its session; its reply destination is deleted.

        Raises:
            IllegalStateException: A message listener or a completion listener of the session called it.
        """
        if not self._is_closed:
            self._is_closed = True
            self._session.close()
            if not self._session._connection._ownership.is_inherited:
                self._replies.delete()


class QueueRequestor(_Requestor[TemporaryQueue]):
    """Sends requests to a queue and receives their replies from a temporary queue.

    Args:
        session: A session that is not transacted, for nothing else; with AUTO_ACKNOWLEDGE, say.
        queue: Where requests go.

    Raises:
        InvalidDestinationException: *queue* is no queue, or there is none of that name, and it may not be created.
        IllegalStateException: The session is transacted or closed.

    Spec: JMS 2.0 §5.10.
    """

    def __init__(self, session: Session, queue: Queue) -> None:
        if not isinstance(queue, Queue):
            raise InvalidDestinationException(f"QueueRequestor: requests go to a Queue, not to {shown(queue)}")
        super().__init__(session, queue)

    def _create(self) -> TemporaryQueue:
        return self._session.create_temporary_queue()


class TopicRequestor(_Requestor[TemporaryTopic]):
    """Sends requests to a topic and receives the first reply to each from a temporary topic.

    Args:
        session: A session that is not transacted, for nothing else; with AUTO_ACKNOWLEDGE, say.
        topic: Where requests go.

    Raises:
        InvalidDestinationException: *topic* is no topic, or there is none of that name, and it may not be created.
        IllegalStateException: The session is transacted or closed.

    Spec: JMS 2.0 §6.14.
    """

    def __init__(self, session: Session, topic: Topic) -> None:
        if not isinstance(topic, Topic):
            raise InvalidDestinationException(f"TopicRequestor: requests go to a Topic, not to {shown(topic)}")
        super().__init__(session, topic)

    def _create(self) -> TemporaryTopic:
        return self._session.create_temporary_topic()


class Requestor(AutoCloseable):
    """Sends requests and returns their replies, to any number of threads at once.

    It has a connection of its own, and one temporary queue for the replies to all requests. A reply names its request
    by the request's JMSCorrelationID or JMSMessageID.

    Args:
        factory: Makes the connection.
        user: The name for SASL; None: the one in the factory, if any.
        password: The password for it.

    Raises:
        JMSSecurityException: The broker refused the credentials.
        JMSException: No broker answered within the send timeout.

    Spec: JMS 2.0 §3.4.5, §3.4.6; `QueueRequestor` (§5.10) is for one request at a time.
    """

    def __init__(self, factory: ConnectionFactory, user: str | None = None, password: str | None = None) -> None:
        self._connection = factory.create_connection(user, password)
        try:
            session = self._connection.create_session(SessionMode.DUPS_OK_ACKNOWLEDGE)
            self._replies = session.create_temporary_queue()
            session.create_consumer(self._replies).message_listener = self._arrived
            self._producer = self._connection.create_session().create_producer()
            self._connection.start()
        except BaseException:
            self._connection.close()
            raise
        self._pending: PendingReplies[concurrent.futures.Future[Message]] = PendingReplies()
        self._lock = threading.Lock()  # for sending
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Requestor: {'closed' if self._is_closed else f'{len(self._pending)} requests wait'}>"

    @property
    def late_replies(self) -> int:
        """How many replies were dropped, because the request that they name did not wait any more."""
        return self._pending.late

    def request(self, destination: Destination, value: Any, timeout: int | timedelta | None = None) -> Message:
        """Send *value* to *destination* and return the reply to it.

        Args:
            destination: Where to.
            value: A message, whose JMSCorrelationID and JMSReplyTo are set; or the body of one, as for
                `kjms.JMSProducer.send`.
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Raises:
            TimeoutError: No reply came in that time.
            ReplyException: The reply says that the service raised an exception.
            InvalidDestinationException: *destination* is none, or Kafka has no such topic.
            MessageFormatException: No message can carry *value*.
            IllegalStateException: The requestor is closed, or was closed meanwhile.
            JMSException: Kafka did not confirm the request within the send timeout.
            ValueError: *timeout* is negative.
        """
        seconds = seconds_of(timeout)
        message = message_of(value)
        reply: concurrent.futures.Future[Message] = concurrent.futures.Future()
        number = self._pending.add(message, self._replies, reply)
        try:
            with self._lock:
                if self._is_closed:
                    raise IllegalStateException("request: this Requestor is closed")
                self._producer.send(message, destination, completion_listener=_Sent(reply))
            return reply.result(seconds)
        except concurrent.futures.TimeoutError:  # which is not Python's own in 3.10
            raise TimeoutError(f"request: no reply of {destination} within {seconds or 0:g} s") from None
        finally:
            self._pending.discard(number)

    def _arrived(self, reply: Message) -> None:
        waiting = self._pending.take(reply)
        if waiting is None or waiting.done():
            return
        failed = failure_in(reply)
        if failed is None:
            waiting.set_result(reply)
        else:
            waiting.set_exception(failed)

    def close(self) -> None:
        """Close the requestor with its connection; requests that wait raise IllegalStateException."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        try:
            self._connection.close()
        finally:
            for each in [each for each in self._pending.take_all() if not each.done()]:
                each.set_exception(IllegalStateException("request: the Requestor was closed before the reply came"))


class _Sent:
    """What becomes of the send of a request, as a completion listener: the request waits for no reply if it failed."""

    __slots__ = ("_reply",)

    def __init__(self, reply: concurrent.futures.Future[Message]) -> None:
        self._reply = reply

    def on_completion(self, message: Message) -> None:
        """Do nothing: the reply comes, or has come."""

    def on_exception(self, message: Message, exception: Exception) -> None:
        """Raise *exception* where the request waits."""
        if not self._reply.done():
            self._reply.set_exception(exception)
