"""A process of a supervisor: its state, and what it says."""

from __future__ import annotations

import contextlib
import enum
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from kjms.worker._control import END_NOW, END_SECONDS, READY, signals_blocked

__all__ = ["NEXT", "Event", "Process", "State"]


class State(enum.Enum):
    """Where a process is."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"
    ENDED = "ended"


class Event(enum.Enum):
    """What happens to a process."""

    READY = "ready"
    STOP = "stop"
    ENDED = "ended"


NEXT: Final[Mapping[tuple[State, Event], State]] = {
    (State.STARTING, Event.READY): State.SERVING,
    (State.STARTING, Event.STOP): State.STOPPING,
    (State.STARTING, Event.ENDED): State.ENDED,
    (State.SERVING, Event.STOP): State.STOPPING,
    (State.SERVING, Event.ENDED): State.ENDED,
    (State.STOPPING, Event.READY): State.STOPPING,
    (State.STOPPING, Event.STOP): State.STOPPING,
    (State.STOPPING, Event.ENDED): State.ENDED,
}


class Process:
    """One process that runs the application.

    Args:
        command: The command; the number of the control socket is added to it.
        number: The place that it has among the others, for the log.
        now: The time, in seconds of the monotonic clock.

    Attributes:
        control: The socket that the process says on that it is ready.
        served_at: When it became ready, or None.
        kill_at: When it is killed, or None.
        was_killed: Whether it had to be killed.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, command: Sequence[str], number: int, now: float) -> None:
        self.number = number
        self.state = State.STARTING
        self.started_at = now
        self.served_at: float | None = None
        self.kill_at: float | None = None
        self.was_killed = False
        self.control, theirs = socket.socketpair()
        self.control.setblocking(False)
        try:
            with signals_blocked():
                self._process = subprocess.Popen([*command, str(theirs.fileno())], pass_fds=[theirs.fileno()])
        except BaseException:
            self.control.close()
            raise
        finally:
            theirs.close()

    def __str__(self) -> str:
        return f"process {self.number} (pid {self.pid})"

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; minus the signal's number if one ended it; None while it runs."""
        return self._process.poll()

    @property
    def ending(self) -> str:
        """How it ended, for people."""
        code = self.exit_code
        if code is None or code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"

    def move(self, event: Event) -> None:
        """Note that *event* happened."""
        self.state = NEXT[self.state, event]

    def read(self, now: float) -> bool:
        """Read what the process says; return whether it may say more."""
        try:
            said = self.control.recv(64)
        except BlockingIOError:
            return True
        except OSError:
            said = b""
        if READY in said and self.state is not State.ENDED:
            self.served_at = now
            self.move(Event.READY)
        return bool(said)

    def stop(self, now: float, grace: float) -> None:
        """Have it end within *grace* seconds; a second call changes nothing."""
        if self.state in {State.STARTING, State.SERVING}:
            self.move(Event.STOP)
            self.kill_at = now + grace + END_SECONDS
            self._process.terminate()

    def end_now(self, now: float) -> None:
        """End the grace period of a process that stops."""
        if self.state is State.STOPPING and self.kill_at is not None:
            self.kill_at = min(self.kill_at, now + END_SECONDS)
            with contextlib.suppress(OSError):  # it has ended
                self.control.send(END_NOW)

    def kill_if_due(self, now: float) -> bool:
        """Kill it if its time is over; return whether that was now."""
        if self.kill_at is None or now < self.kill_at or self.was_killed:
            return False
        self.was_killed = True
        self._process.kill()
        return True

    def ended(self) -> None:
        """Note that it has ended."""
        self.move(Event.ENDED)
        self.control.close()
