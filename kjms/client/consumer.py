"""Receiving messages: from a queue or a subscription, one by one, by listener, or in a ``for`` loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import get_ident
from typing import TYPE_CHECKING, Protocol

from kjms.client.closing import AutoCloseable
from kjms.client.message_listener import MessageListener, called_as_listener
from kjms.errors import IllegalStateException
from kjms.options import LONGEST_WAIT, seconds_to_wait

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine import ConsumerSlot
    from kjms.message import Message

__all__ = ["MessageConsumer", "seconds_of"]


def seconds_of(timeout: int | timedelta | None) -> float | None:
    """Return *timeout*, which a receive was given in milliseconds, in seconds; None is without limit (JMS 2.0 §4.5.1).

    Raises:
        ValueError: It is negative.
    """
    if type(timeout) is int and 0 <= timeout <= LONGEST_WAIT:  # what nearly all are
        return timeout / 1000 or None
    return None if timeout is None else seconds_to_wait(timeout, "timeout") or None


class ConsumerSession(Protocol):
    """What a consumer uses of its session."""

    def _receive(
        self,
        consumer: MessageConsumer,
        seconds: float | None,
        read: Callable[[Message], None] | None = None,
        *,
        is_loop: bool = False,
    ) -> Message | None:
        """Return the next message for *consumer*, waiting for it."""

    def _check_own(self, doing: str) -> None:
        """Raise IllegalStateException in a fork of the session's process."""

    def _check_no_listener(self) -> None:
        """Raise IllegalStateException if the session has a listener for all its consumers."""

    def _listeners_changed(self, *, is_replaced: bool) -> None:
        """Call the listeners that there are now; wait for one that *is_replaced*."""

    def _loop_failed(self, error: BaseException, slot: ConsumerSlot | None = None) -> None:
        """Note that *error* leaves the ``with`` statement of the consumer of *slot*."""

    def _close_consumer(self, consumer: MessageConsumer) -> None:
        """Close *consumer*."""


class MessageConsumer(AutoCloseable):
    """Receives the messages of one destination; made by `kjms.Session.create_consumer`.

    Spec: JMS 2.0 §4.5.
    """

    def __init__(self, session: ConsumerSession, destination: Destination, slot: ConsumerSlot) -> None:
        self._session = session
        self._destination = destination
        self._slot = slot
        self._listener: MessageListener | None = None
        self._looper: object = None  # the thread, or asyncio's task, whose loop had a message last
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "listening" if self._listener else "open"
        return f"<{type(self).__name__} on {self._destination!r}: {state}>"

    @property
    def message_selector(self) -> str | None:
        """The selector that the consumer was made with, or None (JMS 2.0 §3.8.1)."""
        self._check_open("message_selector")
        return (self._slot.selector.text or None) if self._slot.selector is not None else None

    @property
    def message_listener(self) -> MessageListener | None:
        """What is called for each message, by the session's own thread; None takes it away (JMS 2.0 §4.5.2).

        A listener that raises gets the message again at once, marked as redelivered (AUTO and DUPS_OK).
        """
        self._check_open("message_listener")
        return self._listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._check_open("message_listener")
        chosen = called_as_listener(listener)
        if chosen is not None:
            self._session._check_no_listener()
        is_replaced, self._listener = self._listener is not None, chosen
        self._session._listeners_changed(is_replaced=is_replaced)

    def receive(self, timeout: int | timedelta | None = None) -> Message | None:
        """Return the next message, waiting for it.

        With AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE, the message is acknowledged when this call has returned it. Where
        a crash of the program must bring it again, use a listener or a loop over the consumer.

        Args:
            timeout: How long to wait, in milliseconds; None or 0: without limit.

        Returns:
            The message; None when the time was over, or the consumer was closed meanwhile.

        Raises:
            IllegalStateException: The consumer is closed, or its session has a listener, or another thread is using it.
            JMSException: The consumer has a listener, or the last message's acknowledgement failed.
            ValueError: *timeout* is negative.

        Spec: JMS 2.0 §4.4.11, §4.5.1.
        """
        return self._session._receive(self, None if timeout is None else seconds_of(timeout))

    def receive_no_wait(self) -> Message | None:
        """Return the next message if one is at hand, else None (JMS 2.0 §4.5.1)."""
        return self._session._receive(self, 0.0)

    def _receive(self, seconds: float | None, read: Callable[[Message], None] | None = None) -> Message | None:
        return self._session._receive(self, seconds, read)

    def __iter__(self) -> Iterator[Message]:
        """Return the messages one by one, waiting for each, until the consumer is closed.

        With AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE, a message is acknowledged when the consumer is asked for the next
        one, or when the loop's own thread closes the consumer, its session or its connection. When another thread does,
        or an exception leaves the ``with`` statement of one of them, the message is not acknowledged: it is delivered
        again, marked and counted.
        """
        while not self._is_closed:
            self._looper = get_ident()  # before, for no handler of a signal runs between the receive and the loop
            message = self._session._receive(self, None, is_loop=True)
            if message is None:
                return
            yield message
        self._session._check_own("receive")

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            self._session._check_own(doing)
            raise IllegalStateException(f"{doing}: this consumer of {self._destination} is closed (JMS 2.0 §4.5.3)")

    def close(self) -> None:
        """Close the consumer; a receive that waits returns None. Messages it did not get go to others.

        Raises:
            IllegalStateException: The consumer's own listener called it.

        Spec: JMS 2.0 §4.5.3.
        """
        if not self._is_closed:
            self._session._close_consumer(self)

    def _close_after(self, error: BaseException) -> None:
        self._session._loop_failed(error, self._slot)
        self.close()
