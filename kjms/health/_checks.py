"""Checks: functions that say how a part of the program is, or raise."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from kjms.checking import checked

if TYPE_CHECKING:
    from kjms import Connection

__all__ = ["Check", "Heartbeat", "Unhealthy", "cluster", "event_loop"]

LOOP_SECONDS: Final = 1.5  # less than the health server waits for a check, so that the message names the loop

Check: TypeAlias = Callable[[], str]
"""A function without arguments that returns a short text, such as ``"connected to kafka-1:9092"``, while its part of
the program is healthy, and raises while it is not: `Unhealthy` with the reason; any other exception counts, too."""


class Unhealthy(Exception):
    """A part of the program is not healthy; the text says why, for the person on call."""


class Heartbeat:
    """A check that a loop makes progress: the loop calls `beat` in each round.

    Args:
        limit: Seconds without a beat after which the loop counts as stuck. Choose more than the longest step of a round
            can take, timeouts included: liveness that fails has the process killed.
        clock: Returns seconds; for tests.

    Example:
        >>> heart = Heartbeat(60, clock=iter([0.0, 5.0, 90.0]).__next__)
        >>> heart()
        'last round 5.0 s ago'
        >>> heart()
        Traceback (most recent call last):
        kjms.health._checks.Unhealthy: last round 90.0 s ago, limit 60 s
    """

    @checked
    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._last = clock()

    def beat(self) -> None:
        """Note that the loop made progress; from any thread."""
        self._last = self._clock()

    def __call__(self) -> str:
        """Return how long ago the last round was.

        Raises:
            Unhealthy: It was longer ago than the limit.
        """
        seconds = self._clock() - self._last
        text = f"last round {seconds:.1f} s ago"
        if seconds > self._limit:
            raise Unhealthy(f"{text}, limit {self._limit:g} s")
        return text


def cluster(connection: Connection) -> Check:
    """Return a check that the Kafka cluster of a connection is there.

    The check asks nothing of Kafka: it reports the outages that the connection's engine has detected. An outage is
    detected after some seconds without any broker, so a broker that restarts does not fail the check.

    Args:
        connection: An open connection; other connections with the same settings share its engine.
    """
    from kjms.client.engine_access import engine_of

    engine = engine_of(connection)
    servers = engine.options.bootstrap_servers

    def check() -> str:
        if engine.monitor.outage.is_reported:
            raise Unhealthy(f"no broker of {servers} answers")
        return f"connected to {servers}"

    return check


@checked
def event_loop(loop: asyncio.AbstractEventLoop, timeout: float = LOOP_SECONDS) -> Check:
    """Return a check that an event loop runs what it is given.

    Args:
        loop: The loop, which runs in another thread than the check.
        timeout: Seconds that a callback may wait until the loop calls it.
    """

    def check() -> str:
        answered: concurrent.futures.Future[None] = concurrent.futures.Future()
        begin = time.monotonic()
        try:
            loop.call_soon_threadsafe(answered.set_result, None)
            answered.result(timeout)
        except concurrent.futures.TimeoutError:
            raise Unhealthy(f"the event loop has not answered for {timeout:g} s") from None
        except RuntimeError:
            raise Unhealthy("the event loop is closed") from None
        return f"the event loop answers in {(time.monotonic() - begin) * 1000:.0f} ms"

    return check
