"""What waits between a client, the event loop and a session: outcomes, calls, transactions, names."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kjms.errors import IllegalStateException, JMSException, ResourceAllocationException
from kjms.gateway import _names
from kjms.gateway._calls import CallQueue
from kjms.gateway._names import LinkNames
from kjms.gateway._outcomes import OutcomeQueue
from kjms.gateway._source import Outcome
from kjms.gateway._transactions import Transactions, UnknownTransaction


class Worker:
    """A session that notes the outcomes that it gets."""

    def __init__(self) -> None:
        self.settled: list[tuple[Any, ...]] = []

    def settle(self, source: object, outcome: Outcome, deliveries: list[Any], *rest: Any) -> None:
        self.settled.append((source, outcome, *deliveries))


def test_like_outcomes_are_passed_on_together_and_in_order() -> None:
    """Outcomes are grouped while nothing differs; one that the client waits for stays alone."""
    queue, worker = OutcomeQueue(), Worker()
    some: Any = worker
    source: Any = "source"

    def add(number: Any, outcome: Outcome = Outcome.ACCEPTED, then: Any = None) -> None:
        queue.add(some, source, outcome, None, "", number, then)

    add(1)
    add(2)
    add(3, Outcome.RELEASED)
    add(4, then=print)
    add(5, then=print)
    queue.flush()
    queue.flush()
    accepted = ("source", Outcome.ACCEPTED)
    assert worker.settled == [(*accepted, 1, 2), ("source", Outcome.RELEASED, 3), (*accepted, 4), (*accepted, 5)]


def test_calls_of_other_threads_are_made_in_order_in_the_loop() -> None:
    """All calls that are there are made in the loop's thread before what follows them."""
    made: list[Any] = []

    async def run() -> None:
        done = asyncio.Event()

        def make(call: Any, *values: Any) -> None:
            made.append((threading.current_thread() is threading.main_thread(), *values))

        def then() -> None:
            if len(made) == 100:
                done.set()

        queue = CallQueue(make, then)
        poster = threading.Thread(target=lambda: [queue.post(print, number) for number in range(100)])
        poster.start()
        await asyncio.wait_for(done.wait(), 10)
        poster.join()

    asyncio.run(run())
    assert made == [(True, number) for number in range(100)]


class Transacted:
    """A transaction that notes its end."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def forget_sent(self) -> None:
        self.events.append("forget")

    def rollback(self) -> None:
        self.events.append("rollback")


class Session:
    """A session whose commits end as they are to."""

    failure: JMSException | None = None

    def __init__(self) -> None:
        self.made: list[Transacted] = []

    def begin(self) -> Transacted:
        self.made.append(Transacted())
        return self.made[-1]

    def end_well(self, transaction: Transacted) -> JMSException | None:
        transaction.events.append("commit")
        return self.failure


def transactions() -> tuple[Transactions, Session]:
    session = Session()
    some: Any = session
    made = Transactions(some, 10)
    made.begin(b"1")
    return made, session


def test_a_transaction_commits_once() -> None:
    """A discharge ends the transaction; a second one finds none."""
    open_, session = transactions()
    open_.discharge(b"1", is_commit=True)
    assert session.made[0].events == ["commit"]
    with pytest.raises(UnknownTransaction):
        open_.discharge(b"1", is_commit=False)


def test_a_transaction_marked_rollback_only_cannot_commit() -> None:
    """What was sent in it is dropped, and its commit reports the first failure."""
    open_, session = transactions()
    first, second = JMSException("first"), JMSException("second")
    open_.mark_rollback_only(b"1", first)
    open_.mark_rollback_only(b"1", second)
    with pytest.raises(JMSException, match="first"):
        open_.with_room(b"1", 1)
    with pytest.raises(JMSException, match="first"):
        open_.discharge(b"1", is_commit=True)
    assert session.made[0].events[-1] == "rollback"
    assert "commit" not in session.made[0].events


def test_a_transaction_has_room_for_so_much() -> None:
    """The message that makes it too large is refused."""
    open_, session = transactions()
    assert open_.with_room(b"1", 10) is session.made[0]  # type: ignore[comparison-overlap]
    with pytest.raises(ResourceAllocationException):
        open_.with_room(b"1", 1)


def test_a_commit_that_failed_is_rolled_back() -> None:
    """What could not be committed is rolled back, and the failure reported."""
    open_, session = transactions()
    session.failure = JMSException("no")
    with pytest.raises(JMSException, match="no"):
        open_.discharge(b"1", is_commit=True)
    assert session.made[0].events == ["commit", "rollback"]


class Link:
    """A link that notes when it has its name."""

    def __init__(self, session: str, *, replaces: bool = True) -> None:
        self.link_name = "name"
        self.name: Any = None
        self.session = session
        self.is_leaving = False
        self.has_name = False
        self._replaces = replaces

    def replaces(self, other: Any) -> bool:
        return self._replaces

    def named(self) -> None:
        self.has_name = True

    def steal(self, *, is_attached: bool) -> None:
        self.is_leaving = True


def test_a_later_link_gets_the_name_when_the_earlier_one_is_gone() -> None:
    """The later link makes the earlier one leave, and waits for that; so does the end of its session."""
    names = LinkNames()
    first, second, third = Link("a"), Link("b"), Link("c")
    for link in (first, second, third):
        names.enter(link, "name")
    assert (first.has_name, second.has_name, third.has_name) == (True, False, False)
    assert first.is_leaving
    assert second.is_leaving
    names.leave(second)
    names.leave_all("a")
    assert third.has_name
    names.leave_all("c")
    names.leave(third)
    assert repr(names) == "<LinkNames: 0 in use>"


def test_a_link_that_wants_something_else_does_not_get_the_name() -> None:
    """The link that has the name keeps it."""
    names, first = LinkNames(), Link("a")
    names.enter(first, "name")
    with pytest.raises(IllegalStateException):
        names.enter(Link("b", replaces=False), "name")
    assert not first.is_leaving


def test_a_gateway_remembers_the_latest_global_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers that come without end cost no more memory than a number of names."""
    monkeypatch.setattr(_names, "MOST_GLOBAL", 2)
    names = LinkNames()
    for container in ("a", "b", "a", "c"):
        names.attached_to_global(container, "sub")
    assert [names.knows_global(container, "sub") for container in "abc"] == [True, False, True]
    assert not names.knows_global("a", "other")
