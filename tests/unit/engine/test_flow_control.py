"""How long the consumer thread polls: other threads wait for the client meanwhile, and closing waits as well."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kjms.engine.consumer import flow_control
from kjms.engine.consumer.flow_control import IDLE_POLL_SECONDS, SHORT_POLL_SECONDS, FlowControl
from kjms.engine.consumer.offset_committer import TICK_SECONDS

HOUR = 3_600.0


class Flow:
    """A `FlowControl` of parts that hold nothing, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(flow_control, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.dispatcher = SimpleNamespace(
            is_awaited=True,
            in_flight=0,
            held=0,
            kept_back=0,
            delayed=SimpleNamespace(next_due=0),
            sharing=SimpleNamespace(peers=()),
            selector_queues=SimpleNamespace(is_waiting=True, is_rotating=False),
        )
        self.in_flight = SimpleNamespace(is_active=False)
        self.client = SimpleNamespace(waiting=0)
        self.tuning = SimpleNamespace(wall_clock=lambda: self.now)
        lock = threading.RLock()
        parts: Any = (
            self.dispatcher,
            SimpleNamespace(limit=100),
            self.in_flight,
            SimpleNamespace(is_wanted=False, urgent=0),
            self.client,
            SimpleNamespace(is_closed=False),
            None,
            self.tuning,
        )
        self.control = FlowControl(*parts, lock, threading.Condition(lock))

    def poll_after(self, seconds: float) -> float:
        self.now += seconds
        return self.control.poll_seconds()


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> Flow:
    """Parts where a consumer waits and nothing happens."""
    return Flow(monkeypatch)


def test_a_poll_lasts_longer_the_longer_nothing_happens(flow: Flow) -> None:
    """An idle process costs little; closing a consumer soon after a message is quick."""
    assert flow.poll_after(0) == TICK_SECONDS
    assert flow.poll_after(1) == TICK_SECONDS
    assert TICK_SECONDS < flow.poll_after(5) < IDLE_POLL_SECONDS
    assert flow.poll_after(HOUR) == IDLE_POLL_SECONDS


@pytest.mark.parametrize("where", ["in_flight", "held"])
def test_a_poll_is_short_where_a_commit_may_be_near(flow: Flow, where: str) -> None:
    """Other threads commit between the polls."""
    flow.in_flight.is_active = True
    setattr(flow.dispatcher, where, 1)
    assert flow.poll_after(HOUR) == SHORT_POLL_SECONDS
    assert flow.poll_after(0.1) == SHORT_POLL_SECONDS
    setattr(flow.dispatcher, where, 0)
    assert flow.poll_after(1) == TICK_SECONDS


def test_a_message_that_stays_in_flight_costs_few_polls(flow: Flow) -> None:
    """A session that thinks for a second waits 20 ms longer for its commit, and one that was busy waits 5 ms."""
    flow.in_flight.is_active = True
    flow.dispatcher.in_flight = 1
    assert flow.poll_after(HOUR) == SHORT_POLL_SECONDS
    assert SHORT_POLL_SECONDS < flow.poll_after(1) < TICK_SECONDS
    assert flow.poll_after(HOUR) == TICK_SECONDS
    flow.client.waiting = {1}
    flow.control.wait_for_demand()
    assert flow.poll_after(0.1) == SHORT_POLL_SECONDS


def test_a_poll_is_short_while_a_consumer_has_a_batch(flow: Flow) -> None:
    """Others get the rest of the batch soon after the consumer is found to be stuck."""
    flow.dispatcher.in_flight = 1
    flow.dispatcher.selector_queues.is_rotating = True
    assert flow.poll_after(HOUR) == SHORT_POLL_SECONDS


def test_a_poll_is_short_after_messages_were_dispatched(flow: Flow) -> None:
    """They were settled meanwhile, and more will come."""
    flow.in_flight.is_active = True
    assert flow.poll_after(HOUR) == SHORT_POLL_SECONDS
    assert flow.poll_after(0) == TICK_SECONDS


def test_messages_that_match_no_consumer_keep_polls_from_getting_long(flow: Flow) -> None:
    """A consumer, or another process, may come that wants them."""
    flow.dispatcher.kept_back = 1
    assert flow.poll_after(HOUR) == TICK_SECONDS


def test_peers_keep_polls_from_getting_long(flow: Flow) -> None:
    """What is handed over to them needs the client."""
    flow.dispatcher.sharing.peers = ("peer",)
    assert flow.poll_after(HOUR) == TICK_SECONDS


def test_a_thread_that_waited_for_the_client_keeps_polls_from_getting_long(flow: Flow) -> None:
    """It may soon need the client again."""
    assert flow.poll_after(HOUR) == IDLE_POLL_SECONDS
    flow.client.waiting = {1}
    flow.control.wait_for_demand()
    flow.client.waiting = set()
    assert flow.poll_after(1) == TICK_SECONDS


def test_a_poll_ends_when_a_message_is_due(flow: Flow) -> None:
    """However long nothing has happened."""
    flow.dispatcher.kept_back = 1
    flow.now += HOUR
    flow.dispatcher.delayed.next_due = (flow.now + TICK_SECONDS / 2) * 1_000
    assert flow.poll_after(0) == pytest.approx(TICK_SECONDS / 2)


def test_nothing_is_waited_for_where_no_consumer_waits(flow: Flow) -> None:
    """The thread waits where sessions can wake it."""
    flow.dispatcher.is_awaited = False
    assert flow.poll_after(HOUR) == 0
