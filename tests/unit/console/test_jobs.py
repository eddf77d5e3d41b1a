"""Changes that run for long: they can be ended, none is lost, and the outcome of each is recorded."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from kjms.child_process import ThisProcess
from kjms.console import _actions as actions
from kjms.console import _jobs
from kjms.console._access import Visitor
from kjms.console._cluster import Cluster
from kjms.console._jobs import Audit, Jobs
from kjms.console._plots import sparkline
from kjms.errors import JMSException, ResourceAllocationException

PURGE = actions.Request(actions.ACTIONS["purge"], actions.Place("orders"))
SEND = actions.Request(actions.ACTIONS["send"], target="orders")


class Slow:
    """Operations of which a purge takes until it is ended, or until the test is over, and is deaf if so wanted."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.is_deaf = False
        self.failures = 0
        self.failure: Exception | None = None

    def figures(self, *, estimate: bool) -> dict[str, Any]:
        self.failures -= 1
        if self.failures >= 0:
            raise JMSException("the cluster is away")
        return {"queues": [], "subscriptions": []}

    def change(self, *_: Any, progress: Callable[[Any], object]) -> dict[str, Any]:
        done = 0
        while not self.is_over.wait(0.001):
            done += 1
            if not self.is_deaf:
                progress((done, None))
            if self.failure is not None:
                raise self.failure
        return {"changed": done}

    def send(self, *_: Any) -> dict[str, Any]:
        return {"changed": 1}

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.is_over.set()


def run(slow: Slow, path: Path, steps: Callable[[Jobs, Visitor, Cluster], Awaitable[None]]) -> list[tuple[str, Any]]:
    """Run *steps*, end the console, and return event and state of each line of the audit log."""

    async def running() -> None:
        audit = Audit(path)
        jobs, cluster = Jobs(audit), Cluster(ThisProcess(lambda: slow), 60.0, estimate=True)
        await steps(jobs, Visitor("ann", "operate", "127.0.0.1", cluster), cluster)
        await cluster.close()
        await jobs.close()
        audit.close()

    asyncio.run(running())
    lines = map(json.loads, path.read_text("utf-8").splitlines())
    return [(each["event"], each.get("state")) for each in lines]


def test_a_change_is_ended(slow: Slow, tmp_path: Path) -> None:
    """A change that is ended says how far it came, and the audit log by which user it was ended, once."""

    async def steps(jobs: Jobs, visitor: Visitor, _: Cluster) -> None:
        job = jobs.begin(visitor, PURGE)
        while not job.done:
            await asyncio.sleep(0)
        jobs.end(visitor, job)
        jobs.end(visitor, job)
        await job.finished.wait()
        assert job.result["changed"] >= 1

    recorded = run(slow, tmp_path / "audit.jsonl", steps)
    assert recorded == [("purge", "begun"), ("end", None), ("purge", "ended")]


def test_a_change_that_fails_says_how_far_it_came(slow: Slow, tmp_path: Path) -> None:
    """The number of messages that were processed before a failure is in the result and in the audit log."""
    slow.failure = JMSException("the broker is away")

    async def steps(jobs: Jobs, visitor: Visitor, _: Cluster) -> None:
        job = jobs.begin(visitor, PURGE)
        await job.finished.wait()
        assert (job.result, job.status, job.error) == ({"changed": 1}, 502, "the broker is away")

    assert run(slow, tmp_path / "audit.jsonl", steps) == [("purge", "begun"), ("purge", "failed")]
    assert json.loads((tmp_path / "audit.jsonl").read_text("utf-8").splitlines()[-1])["changed"] == 1


def test_a_running_change_is_not_forgotten(slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many short changes push no running one out of the list; too many that run are refused."""
    monkeypatch.setattr(_jobs, "KEPT", 3)

    async def steps(jobs: Jobs, visitor: Visitor, _: Cluster) -> None:
        running = [jobs.begin(visitor, PURGE) for _ in range(_jobs.MOST_RUNNING - 1)]
        short = []
        for _ in range(5):
            short.append(jobs.begin(visitor, SEND))
            await short[-1].finished.wait()
        assert all(jobs.get(each.number) is each for each in running)
        assert jobs.get(short[0].number) is None
        running.append(jobs.begin(visitor, PURGE))
        with pytest.raises(ResourceAllocationException, match="run already"):
            jobs.begin(visitor, SEND)
        for each in running:
            jobs.end(visitor, each)
        await asyncio.gather(*(each.finished.wait() for each in running))

    recorded = run(slow, tmp_path / "audit.jsonl", steps)
    assert recorded.count(("purge", "ended")) == _jobs.MOST_RUNNING


def test_the_outcome_of_each_change_is_recorded_when_the_console_ends(
    slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that the cluster does not end in time is recorded as failed, before the audit log is closed."""
    monkeypatch.setattr(_jobs, "CLOSE_SECONDS", 0.05)
    slow.is_deaf = True

    async def steps(jobs: Jobs, visitor: Visitor, _: Cluster) -> None:
        jobs.begin(visitor, PURGE)
        await jobs.begin(visitor, SEND).finished.wait()

    recorded = run(slow, tmp_path / "audit.jsonl", steps)
    assert recorded == [("purge", "begun"), ("send", "begun"), ("send", "done"), ("purge", "failed")]
    assert "before it knew" in (tmp_path / "audit.jsonl").read_text("utf-8")


def test_a_cluster_that_is_away_is_asked_again_soon(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    """However seldom the messages are counted, a failure is followed by another try within seconds."""
    monkeypatch.setattr("kjms.console._cluster.AGAIN_SECONDS", 0.01)

    async def watched() -> bool:
        cluster = Cluster(ThisProcess(lambda: slow), 3_600.0, estimate=True)
        slow.failures = 2
        cluster.start()
        while cluster.queues is None:
            await asyncio.sleep(0.001)
        await cluster.close()
        return cluster.away_since is None

    assert asyncio.run(watched())


def test_seldom_counts_are_one_line_of_a_plot() -> None:
    """A line is interrupted by missing figures, and not by a long interval."""
    points = [(1_000.0 * number, 1.0) for number in range(3)]
    for gap, lines in ((60.0, 3), (2_500.0, 1)):
        assert str(sparkline(points, 3_000.0, gap)).count("<path") == lines
