"""What a supervisor and its processes say to each other, by a socket that ends with either of them."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator
from typing import Final

__all__ = ["END_NOW", "END_SECONDS", "READY", "inherited_control", "signals_blocked", "take_over_signals"]

READY: Final = b"R"  # of a process: its listeners consume
END_NOW: Final = b"E"  # to a process: the grace period is over
END_SECONDS: Final = 10.0  # after the grace period, to close: what that may take while no broker answers

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Let a process that is started here begin with signals blocked, until `take_over_signals`: none is lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take_over_signals() -> None:
    """Leave Ctrl-C and hang-ups of the terminal to the supervisor, and get what was blocked meanwhile."""
    for number in {*SIGNALS} - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def inherited_control(descriptor: int) -> socket.socket:
    """Return the socket of a process that a supervisor started; what the process starts does not inherit it."""
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    control.setblocking(False)
    return control
