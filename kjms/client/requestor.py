"""Requestors: send a request and wait for its reply, on a temporary destination of their own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar

from kjms.client.closing import AutoCloseable
from kjms.client.consumer import seconds_of
from kjms.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.errors import IllegalStateException, InvalidDestinationException, shown

if TYPE_CHECKING:
    from kjms.client.consumer import MessageConsumer
    from kjms.client.session import Session
    from kjms.destinations import Destination
    from kjms.message import Message

__all__ = ["QueueRequestor", "TopicRequestor"]

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
