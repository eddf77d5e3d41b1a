"""When a lost cluster is told of."""

from __future__ import annotations

import threading

import pytest

from kjms.engine import _outage
from kjms.engine._outage import Outage
from kjms.errors import JMSException


class Cluster:
    """A cluster that answers, or does not."""

    def __init__(self) -> None:
        self.answers = False
        self.asked = threading.Event()
        self.told: list[JMSException] = []
        self.outage = Outage("outage", self.connect, self.told.append)

    def connect(self, _seconds: float) -> None:
        self.asked.set()
        if not self.answers:
            raise JMSException("no broker answers")

    def lost(self) -> JMSException:
        """Report a loss, and wait until it is clear what it was."""
        failure = JMSException("all brokers are down")
        self.outage.suspect(failure)
        assert self.outage._thread is not None
        self.outage._thread.join(20)
        return failure


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(_outage, "PATIENCE_SECONDS", 0.05)
    return Cluster()


@pytest.mark.requirement("JMS-4.3.8-4", "NEV-187")
def test_a_cluster_that_answers_was_not_lost(cluster: Cluster) -> None:
    """A connection that could be made again is nobody's business."""
    cluster.answers = True
    cluster.lost()
    assert cluster.asked.is_set()
    assert cluster.told == []


def test_an_outage_is_told_once(cluster: Cluster) -> None:
    """Each failed attempt to reconnect is reported as a loss; they are one outage, until there was none for a while."""
    first = cluster.lost()
    cluster.lost()
    assert cluster.told == [first]
    cluster.outage._last -= _outage.SAME_SECONDS
    second = cluster.lost()
    assert cluster.told == [first, second]


def test_after_the_end_nobody_asks(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends the attempts, and later losses are the clients' own doing."""
    monkeypatch.setattr(_outage, "PATIENCE_SECONDS", 60.0)
    cluster.outage.suspect(JMSException("all brokers are down"))
    assert cluster.asked.wait(20)
    cluster.outage.close()
    cluster.asked.clear()
    cluster.outage.suspect(JMSException("closing"))
    assert not cluster.asked.is_set()
    assert cluster.told == []
