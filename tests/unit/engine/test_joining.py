"""How long a consumer polls while it joins its group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kjms.engine.consumer import membership
from kjms.engine.consumer.membership import JOIN_SECONDS, POLL_SECONDS, Membership

LONG = 0.5


class Joining:
    """A `Membership`, its Kafka consumer, which notes how long polls may last, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.polled: list[float] = []
        monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.membership = Membership()
        self.membership.subscribe(self, "q", on_assign=_follow, on_revoke=_follow, on_lost=_follow)  # type: ignore[arg-type]

    def subscribe(self, _topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.assign, self.revoke = on_assign, on_revoke

    def poll(self, seconds: float) -> None:
        self.polled.append(seconds)

    def poll_once(self) -> float:
        self.membership.poll(self, LONG)  # type: ignore[arg-type]
        return self.polled[-1]


def _follow(_consumer: Any, _partitions: Any) -> None:
    """Do nothing."""


@pytest.fixture
def joining(monkeypatch: pytest.MonkeyPatch) -> Joining:
    """A consumer that has just asked to join."""
    return Joining(monkeypatch)


def test_polls_are_short_until_the_first_partitions_are_assigned(joining: Joining) -> None:
    """What the callback has put off waits for the end of the poll; a later rebalance does not shorten polls."""
    assert joining.poll_once() == POLL_SECONDS
    joining.assign(joining, [])  # other members have all of them
    assert joining.poll_once() == LONG
    joining.revoke(joining, [])
    assert joining.poll_once() == LONG


def test_a_consumer_that_cannot_join_does_not_poll_often(joining: Joining) -> None:
    """The cluster may be away for hours."""
    joining.now += JOIN_SECONDS
    assert joining.poll_once() == LONG


def test_a_poll_that_is_shorter_stays_so(joining: Joining) -> None:
    """As where another thread waits for the client."""
    joining.membership.poll(joining, 0)  # type: ignore[arg-type]
    assert joining.polled == [0]
