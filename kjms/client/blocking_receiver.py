"""Receiving in the application's thread, which waits for the message."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kjms.client.acknowledge_modes import NotYetError
from kjms.engine import STREAK
from kjms.errors import IllegalStateException, JMSException

if TYPE_CHECKING:
    from kjms.client.listener_thread import ListenerThread
    from kjms.client.message_listener import MessageListener
    from kjms.client.session_connection import SessionConnection
    from kjms.client.session_core import SessionCore
    from kjms.destinations import Destination
    from kjms.engine import ConsumerSlot, Delivery
    from kjms.message import Message

__all__ = ["BlockingReceiver"]


class Receiving(Protocol):
    """The consumer that a message is for."""

    _destination: Destination
    _slot: ConsumerSlot
    _listener: MessageListener | None
    _is_closed: bool

    def _check_open(self, doing: str) -> None:
        """Raise IllegalStateException where it is closed."""


class BlockingReceiver:
    """Waits for the messages of one session's consumers.

    Args:
        number: The session's.
        core: The session's.
        listeners: The session's; while there are any, their thread alone receives.
        wakeup: Set when there may be a message, or a consumer closes.
        connection: The session's.
    """

    def __init__(
        self,
        number: int,
        core: SessionCore,
        listeners: ListenerThread,
        wakeup: threading.Event,
        connection: SessionConnection,
    ) -> None:
        self._number = number
        self._core = core
        self._listeners = listeners
        self._wakeup = wakeup
        self._connection = connection

    def receive(
        self,
        consumer: Receiving,
        seconds: float | None,
        read: Callable[[Message], None] | None = None,
        *,
        is_loop: bool = False,
    ) -> Message | None:
        """Return the next message for *consumer*; None when the time is over, or it was closed meanwhile.

        Args:
            consumer: The consumer.
            seconds: How long to wait; None: without limit.
            read: Reads the message first; if it raises, the session's mode decides what becomes of the message.
            is_loop: Whether the message is for a loop over the consumer.
        """
        if consumer._is_closed:
            consumer._check_open("receive")
        if consumer._listener is not None:
            raise JMSException("receive: this consumer has a message listener (JMS 2.0 §4.5.2)")
        if self._listeners.listening:
            raise IllegalStateException(
                f"receive: session {self._number} has message listeners, and is their thread's (JMS 2.0 §4.4.6)"
            )
        core, slot = self._core, consumer._slot
        acknowledgement = core.acknowledgement
        guard = core.guard
        if core.interrupted and (again := core.after_interrupt(slot, read)) is not None:
            return again
        try:
            guard.acquire("receive")
            try:
                if acknowledgement.asks and not acknowledgement.before_next(slot, seconds):
                    raise core.overrun("receive")
                deliver = core.delivery(read, is_loop=is_loop) if is_loop or read else acknowledgement.received
                is_next = slot.streak < STREAK or seconds == 0 or bool(slot.batch)
                found = core.take(slot, consumer._destination, deliver) if is_next else None
                message = found[1] if found else self._wait(consumer, seconds, deliver, is_next=is_next)
            finally:
                guard.release()
        except NotYetError:
            return None
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C, at any point of it
                core.was_interrupted(slot)
            core.arriving = None
            raise
        core.arriving = None  # the program has it: from here on no handler of a signal runs before it does
        return message

    def _wait(
        self,
        consumer: Receiving,
        seconds: float | None,
        deliver: Callable[[Delivery, Message], None],
        *,
        is_next: bool = True,
    ) -> Message | None:
        slot = consumer._slot
        deadline = None if seconds is None else time.monotonic() + seconds
        is_waiting = False
        if not is_next:
            self._wakeup.clear()
            is_waiting = slot.wait_behind_others()
        while True:
            try:
                slot.reader.refusal.check()
            except JMSException:
                slot.rest()
                raise
            if is_waiting:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0 and is_next:
                    slot.rest()
                    return None
                self._wakeup.wait(left)
                is_next = True
            is_waiting = True
            self._wakeup.clear()  # after that, the take finds what came before
            found = self._core.take(slot, consumer._destination, deliver)
            if found is not None:
                return found[1]
            if consumer._is_closed or not slot.is_open or self._connection._is_closing:
                return None
