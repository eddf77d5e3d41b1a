"""When a lost cluster is reported."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kjms.engine.outage import OutageDetector
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from tests.helpers import Eventually


class Cluster:
    """A cluster that answers, or does not."""

    def __init__(self, seconds: float = 0.05) -> None:
        self.answers = False
        self.asked = threading.Event()
        self.lost: list[JMSException] = []
        self.recovered: list[JMSException] = []
        self.outage = OutageDetector(
            "outage",
            self.connect,
            self.lost.append,
            lambda failure, _: self.recovered.append(failure),
            Tuning(outage_seconds=seconds, outage_pause_seconds=0.001),
        )

    def connect(self, _seconds: float) -> None:
        self.asked.set()
        if not self.answers:
            raise JMSException("no broker answers")

    def lose(self) -> JMSException:
        """Report a loss."""
        failure = JMSException("all brokers are down")
        self.outage.suspect(failure)
        return failure

    def come_back(self) -> None:
        """Answer, and wait until that was noticed."""
        self.answers = True
        assert self.outage.thread is not None
        self.outage.thread.join(20)
        assert not self.outage.thread.is_alive()
        self.answers = False


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    cluster.outage.close()


@pytest.mark.requirement("JMS-4.3.8-4", "NEV-187")
def test_a_cluster_that_answers_was_not_lost(cluster: Cluster) -> None:
    """Report nothing of a connection that could be made again at once."""
    cluster.answers = True
    cluster.lose()
    cluster.come_back()
    assert cluster.asked.is_set()
    assert (cluster.lost, cluster.recovered) == ([], [])


def test_an_outage_and_its_end_are_reported_once(cluster: Cluster, eventually: Eventually) -> None:
    """Each failed attempt to reconnect is reported as a loss; until a broker answers they are one outage."""
    first = cluster.lose()
    eventually(lambda: cluster.lost == [first])
    cluster.lose()
    assert cluster.recovered == []
    cluster.come_back()
    assert (cluster.lost, cluster.recovered) == ([first], [first])
    second = cluster.lose()
    eventually(lambda: cluster.lost == [first, second])
    cluster.come_back()
    assert cluster.recovered == [first, second]


def test_after_the_end_nothing_is_asked() -> None:
    """Closing ends the attempts, and later losses are the clients' own doing."""
    cluster = Cluster(60.0)
    cluster.lose()
    assert cluster.asked.wait(20)
    cluster.outage.close()
    cluster.asked.clear()
    cluster.lose()
    assert not cluster.asked.is_set()
    assert (cluster.lost, cluster.recovered) == ([], [])
