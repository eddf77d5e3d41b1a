"""When a lost cluster is reported."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from kjms.engine.outage import CloseTimeout, OutageDetector, level_of
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


class Stuck:
    """A thread that ends when it is let."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.thread = threading.Thread(target=self.may_end.wait, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.may_end.set()
        self.thread.join()


@pytest.fixture
def stuck() -> Iterator[list[Stuck]]:
    stuck = [Stuck() for _ in range(3)]
    yield stuck
    for each in stuck:
        each.end()


def test_in_an_outage_all_threads_together_are_waited_for_a_moment(stuck: list[Stuck]) -> None:
    """The first one uses up the second that there is; those after it are not waited for at all."""
    timeout = CloseTimeout(lambda: True)
    begun = time.monotonic()
    assert [timeout.join(each.thread, 60) for each in stuck] == [False, False, False]
    assert time.monotonic() - begun < 60


def test_an_outage_is_noticed_while_a_thread_is_waited_for(stuck: list[Stuck]) -> None:
    looks = iter([False, False])
    timeout = CloseTimeout(lambda: next(looks, True))
    begun = time.monotonic()
    assert not timeout.join(stuck[0].thread, 60)
    assert time.monotonic() - begun < 60
    assert next(looks, None) is None


def test_without_an_outage_a_thread_gets_its_time(stuck: list[Stuck]) -> None:
    """One that ends is waited for; one that does not, as long as was said."""
    looks = 0

    def is_out() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            stuck[0].may_end.set()
        return False

    assert CloseTimeout(is_out).join(stuck[0].thread, 60)
    assert not CloseTimeout().join(stuck[1].thread, 0.01)


def test_a_thread_that_has_ended_is_not_waited_for(stuck: list[Stuck]) -> None:
    """Not even when the moment of an outage is over."""
    timeout = CloseTimeout(lambda: True)
    timeout.join(stuck[0].thread, 60)
    stuck[1].end()
    assert timeout.join(stuck[1].thread, 60)


def test_an_outage_is_suspected_until_a_broker_answers(cluster: Cluster) -> None:
    assert not cluster.outage.is_suspected
    cluster.lose()
    assert cluster.outage.is_suspected
    cluster.come_back()
    assert not cluster.outage.is_suspected


@pytest.mark.parametrize("code", ["_TRANSPORT", "_DESTROY"])
def test_what_fails_for_an_outage_is_logged_for_developers_only(code: str) -> None:
    """The engine reports the outage itself; a closed connection is no failure."""
    assert level_of(JMSException("look up a topic", code), logging.WARNING) == logging.DEBUG
    assert level_of(JMSException("look up a topic", "TOPIC_AUTHORIZATION_FAILED"), logging.WARNING) == logging.WARNING
