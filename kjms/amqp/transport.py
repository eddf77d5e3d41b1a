"""Connect proton's engine to a socket in asyncio, for the gateway's clients and for the bridge's broker.

The engine does no I/O: it takes the bytes that came, and returns events and the bytes to send.

proton's objects count their references without a lock, and its C functions run without the interpreter's. So only the
loop's thread may use them, and free them. That includes the last reference to a Python object of proton's, which must
neither be in another thread's hands nor in a cycle, which the garbage collector frees in whichever thread it runs.
Their order matters, too: when the last reference to a link goes after its session was freed and the session's end was
sent, while the connection lives, `pn_decref` uses the link after it has freed it (proton 0.40).
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from proton import Collector, Connection

if TYPE_CHECKING:
    from proton import Transport

__all__ = ["EngineProtocol"]

LOWEST_TICK: Final = 0.01


class EngineProtocol(asyncio.Protocol):
    """A connection with an engine behind it; all of it is used in the event loop's thread."""

    def __init__(self) -> None:
        self._engine = Connection()
        self._collector = Collector()
        self._engine.collect(self._collector)
        self.is_congested = False  # whether the other side reads too slowly
        self._tcp: asyncio.Transport | None = None
        self._transport: Transport | None = None  # the engine's; none before there is something for it
        self._timer: asyncio.TimerHandle | None = None
        self._is_released = False

    # What the gateway and the bridge add.

    def _dispatch(self) -> None:
        """Handle the engine's events."""
        raise NotImplementedError

    def _fill(self) -> None:
        """Give the engine more to send, if there is more."""

    def _wrote(self, size: int) -> None:
        """Note that so many bytes were sent."""

    @property
    def is_ended(self) -> bool:
        """Whether the connection has ended, so that no timer is needed any more."""
        raise NotImplementedError

    # What they share.

    def pause_writing(self) -> None:
        """Note that the other side reads too slowly."""
        self.is_congested = True

    def resume_writing(self) -> None:
        """Note that it has caught up."""
        self.is_congested = False
        self.flush()

    def _push(self, data: bytes) -> None:
        """Give the engine what came.

        Raises:
            TransportException: It is no AMQP.
        """
        transport = self._transport
        assert transport is not None
        position = 0
        while position < len(data):
            capacity = transport.capacity()
            if capacity <= 0:
                break  # the engine takes no more, and an event says why
            piece = data[position : position + capacity]
            transport.push(piece)
            position += len(piece)
            self._dispatch()

    def flush(self) -> None:
        """Send what the engine has to send, and see to it that its next tick comes in time."""
        transport, tcp = self._transport, self._tcp
        if transport is None or tcp is None:
            return
        self._fill()
        deadline = transport.tick(time.monotonic())
        while not self.is_congested:
            pending = transport.pending()
            if pending < 0:
                tcp.close()
                break
            if pending == 0:
                break
            tcp.write(transport.peek(pending))
            self._wrote(pending)
            transport.pop(pending)
            self._dispatch()
            self._fill()
        if deadline and not self.is_ended:
            self._set_timer(deadline)
        else:
            self._stop_timer()

    def release(self) -> None:
        """Free the engine with all that it has, in this thread, which is the loop's; once is enough.

        What is still referred to lives on, so this comes after everything else has let go of the engine's objects.
        """
        if self._is_released:
            return
        self._is_released = True
        self._stop_timer()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.unbind()
        self._collector.release()
        self._engine.free()
        del transport, self._collector, self._engine

    def _set_timer(self, deadline: float) -> None:
        """Tick at *deadline*, or before; traffic puts the deadline off, and the timer stays: the next tick sets it."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(deadline, loop.time() + LOWEST_TICK), self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        if not self.is_ended:
            self._dispatch()
            self.flush()
            self._dispatch()
