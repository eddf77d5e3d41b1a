"""One cluster as one user sees it: its figures, kept up to date, and calls of its operations."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from kjms.console._history import History
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.child_process import Calls, Progress

__all__ = ["Cluster", "Unreachable"]

_log = logging.getLogger("kjms.console")

ASK_SECONDS: Final = 40.0  # longer than any search of one page
AGAIN_SECONDS: Final = 5.0  # at the most, from one failure to the next question
SEARCHES: Final = 4  # at a time: they may read whole queues
SEARCHING: Final = frozenset({"body", "count", "dead_letters", "find", "history", "message"})
LONG_SECONDS: Final = 60.0  # pages say so when a count takes longer
QUEUE: Final = "queue"
SUBSCRIPTION: Final = "subscription"


class Unreachable(JMSException):
    """The cluster does not answer."""


class Cluster:
    """The figures of a cluster, and its operations; used in the event loop's thread.

    Args:
        calls: Calls `kjms.console._operations.Operations`.
        interval: Seconds from one count to the next.
        estimate: Whether the figures are upper bounds.

    Attributes:
        history: The figures of the last hour.
        queues: The last figures of queues; None: there are none yet.
        subscriptions: Those of subscriptions.
        counted_at: When these were counted, in seconds since the epoch.
        away_since: When the cluster was found to be away; None: it answers, or was not asked yet.
        failure: Why.
        is_exact: Whether messages have been counted: the first figures are upper bounds.
        is_closed: Whether it was closed.
    """

    def __init__(self, calls: Calls, interval: float, *, estimate: bool) -> None:
        self._calls = calls
        self._interval = interval
        self._estimate = estimate
        self.history = History()
        self.queues: list[dict[str, Any]] | None = None
        self.subscriptions: list[dict[str, Any]] = []
        self.counted_at = 0.0
        self.away_since: float | None = None
        self.failure = ""
        self.is_exact = False
        self.is_closed = False
        self._searches = asyncio.Semaphore(SEARCHES)
        self._task: asyncio.Task[None] | None = None
        self._count_now = asyncio.Event()

    def start(self) -> None:
        """Begin to count."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kjms-console-figures")

    async def close(self) -> None:
        """Count no more, and disconnect."""
        self.is_closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await asyncio.to_thread(self._calls.close)

    def count_soon(self) -> None:
        """Count at once: something was changed."""
        self._count_now.set()

    async def ask(self, method: str, *arguments: Any, seconds: float | None = ASK_SECONDS, **named: Any) -> Any:
        """Return what an operation returns.

        Raises:
            Unreachable: The cluster is away, or does not answer in time.
            JMSException: The operation failed.
        """
        if self.away_since is not None and method != "connect":
            raise Unreachable(f"the cluster is unreachable: {self.failure}")
        async with self._searches if method in SEARCHING else contextlib.nullcontext():
            return await self._ask(method, *arguments, seconds=seconds, **named)

    async def _ask(
        self, method: str, *arguments: Any, seconds: float | None, progress: Progress | None = None, **named: Any
    ) -> Any:
        found = await asyncio.to_thread(self._calls.submit, method, *arguments, progress=progress, **named)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(found), seconds)
        except asyncio.TimeoutError:
            raise Unreachable(f"no answer from the cluster within {seconds:g} s") from None

    async def _run(self) -> None:
        while True:
            self._count_now.clear()
            await self._count()
            seconds = self._interval if self.away_since is None else min(self._interval, AGAIN_SECONDS)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._count_now.wait(), seconds)

    async def _count(self) -> None:
        # The first figures need no reading, so that a page with them comes at once.
        is_estimate = self._estimate or self.queues is None
        try:
            found = await self._ask("figures", seconds=None, estimate=is_estimate)
        except Exception as error:
            self._failed(error)
            return
        if self.away_since is not None:
            _log.info("the cluster answers again")
        self.away_since, self.failure = None, ""
        self.queues, self.subscriptions = found["queues"], found["subscriptions"]
        self.counted_at = time.time()
        if is_estimate and not self._estimate:
            self._count_now.set()
            return
        self.is_exact = not is_estimate
        self.history.add(
            self.counted_at,
            [(key(QUEUE, each["name"]), each) for each in self.queues]
            + [(key(SUBSCRIPTION, each["name"], each["client_id"]), each) for each in self.subscriptions],
        )

    def _failed(self, error: Exception) -> None:
        self.failure = str(error) if isinstance(error, JMSException) else f"{type(error).__name__}: {error}"
        if self.away_since is None:
            self.away_since = time.time()
            is_known = isinstance(error, JMSException)
            _log.error("the cluster could not be asked: %s; tried again", self.failure, exc_info=not is_known)

    def check(self) -> str:
        """Return when messages were counted last; a check of readiness for `kjms.health`.

        Raises:
            Unhealthy: The cluster does not answer.
        """
        from kjms.health import Unhealthy

        if self.away_since is not None or self.queues is None:
            raise Unhealthy(self.failure or "nothing was counted yet")
        return f"{len(self.queues)} queues, counted {time.time() - self.counted_at:.0f} s ago"

    def queue(self, name: str) -> dict[str, Any] | None:
        """Return the last figures of a queue; None: there is no such queue."""
        return next((each for each in self.queues or () if each["name"] == name), None)

    def subscription(self, name: str, client_id: str) -> dict[str, Any] | None:
        """Return the last figures of a subscription; None: there is no such subscription."""
        return next(
            (each for each in self.subscriptions if (each["name"], each["client_id"] or "") == (name, client_id)), None
        )

    @property
    def gap(self) -> float:
        """Seconds without figures that interrupt a plot: seldom counts do not."""
        return max(LONG_SECONDS, 2.5 * self._interval)

    @property
    def is_late(self) -> bool:
        """Whether the figures are old, because the count takes long."""
        return 0 < self.counted_at < time.time() - self._interval - LONG_SECONDS


def key(kind: str, name: str, client_id: str | None = None) -> str:
    """Return what the history calls a queue or subscription."""
    return "\n".join((kind, name, client_id or ""))
