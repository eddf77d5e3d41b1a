"""Which links of a session get the next messages, and when a session waits for the loop."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from kjms import TextMessage
from kjms.gateway import _sources
from kjms.gateway._source import LinkSource, Outcome
from kjms.gateway._sources import LinkSources
from kjms.gateway._transactions import Transactions


class Slot:
    """Where a consumer's messages come from: no other process wants them."""

    has_rivals_elsewhere = False


class Consumer:
    """A consumer of messages that are all there."""

    _is_closed = False
    _destination = "queue"
    _slot = Slot()

    def __init__(self, count: int) -> None:
        self.texts = deque(str(number) for number in range(count))


class Session:
    """A session that notes what becomes of its messages."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, int]] = []

    def poll(self, consumer: Consumer) -> tuple[Any, Any] | None:
        if not consumer.texts:
            return None
        message = TextMessage(consumer.texts.popleft())
        return message, message

    def accept(self, deliveries: list[Any], transaction: object = None) -> None:
        self.outcomes.append(("accept", len(deliveries)))

    def release(self, deliveries: list[Any], link: int | None = None, *, is_limited: bool = True) -> bool:
        self.outcomes.append(("release", len(deliveries)))
        return False

    def fail(self, deliveries: list[Any], cause: str) -> None:
        self.outcomes.append((f"fail: {cause}", len(deliveries)))

    def cannot_deliver(self, deliveries: list[Any], cause: str) -> None:
        self.outcomes.append((f"cannot deliver: {cause}", len(deliveries)))

    def lose(self, deliveries: list[Any], cause: str) -> None:
        self.outcomes.append((f"lose: {cause}", len(deliveries)))

    def give_up(self, deliveries: list[Any]) -> None:
        self.outcomes.append(("give up", len(deliveries)))

    def reject(self, deliveries: list[Any], cause: str) -> None:
        self.outcomes.append((f"reject: {cause}", len(deliveries)))

    def flush(self) -> None:
        self.outcomes.append(("flush", 0))

    def rest(self, consumer: Consumer) -> None:
        self.outcomes.append(("rest", 0))


class Sink:
    """A link that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.is_drained = False

    def send(self, batch: list[Any]) -> None:
        self.got += batch

    def drained(self) -> None:
        self.is_drained = True

    def fail(self, failure: Exception) -> None:
        raise failure


def served(kind: type[LinkSources] = LinkSources) -> tuple[LinkSources, Any]:
    session: Any = Session()
    return kind(session, Transactions(session, 1000), lambda call, *values: call(*values)), session


def link(sources: LinkSources, count: int, limit: int, *, is_draining: bool = False) -> LinkSource:
    sink: Any = Sink()
    source = LinkSource(sink, is_settled=False, max_unsettled=1000)
    source.consumer = Consumer(count)  # type: ignore[assignment]
    sources._sources.append(source)
    sources.request(source, limit, is_draining=is_draining)
    return source


def got(source: LinkSource) -> int:
    return len(source.sink.got)  # type: ignore[attr-defined]


def test_a_link_whose_drain_found_nothing_comes_before_one_that_was_just_served() -> None:
    """Clients drain to learn that there is no message, as in `receiveNoWait`; the link has waited since it asked."""
    sources, _ = served()
    first, second = link(sources, 0, 1, is_draining=True), link(sources, 0, 1)
    texts = first.consumer.texts = second.consumer.texts = deque[str]()  # type: ignore[union-attr]
    sources.serve()
    assert first.sink.is_drained  # type: ignore[attr-defined]
    texts.append("a")
    sources.serve()
    sources.request(second, 2, is_draining=False)
    sources.request(first, 1, is_draining=False)
    texts.append("b")
    sources.serve()
    assert (got(first), got(second)) == (1, 1)
    sources.request(first, 2, is_draining=False)
    texts.append("c")
    sources.serve()
    assert (got(first), got(second)) == (1, 2)


def test_links_take_turns() -> None:
    """Links get a message each in turn, as many as their clients asked for."""
    sources, _ = served()
    first, second = link(sources, 5, 2), link(sources, 5, 4)
    assert not sources.serve()
    assert (got(first), got(second)) == (2, 4)
    assert first.turn < second.turn


def test_a_drained_link_reports_that_there_is_nothing_more() -> None:
    """A client that asks only for what there is gets that, and the end of it."""
    sources, _ = served()
    source = link(sources, 3, 10, is_draining=True)
    assert sources.next_look() == _sources.LOOK_SECONDS
    sources.serve()
    assert got(source) == 3
    assert source.sink.is_drained  # type: ignore[attr-defined]
    assert sources.next_look() is None


@pytest.mark.parametrize(
    ("outcome", "noted"),
    [
        (Outcome.ACCEPTED, [("accept", 2), ("flush", 0)]),
        (Outcome.RELEASED, [("release", 2)]),
        (Outcome.FAILED, [("fail: why", 2)]),
        (Outcome.REJECTED, [("reject: why", 2)]),
        (Outcome.UNDELIVERABLE, [("cannot deliver: why", 2)]),
        (Outcome.LOST, [("lose: why", 2)]),
        (Outcome.CUT_OFF, [("give up", 2)]),
    ],
)
def test_outcomes_reach_the_session(outcome: Outcome, noted: list[tuple[str, int]]) -> None:
    """Each outcome has its call, and accepted messages are durable when the client waits for that."""
    sources, session = served()
    source = link(sources, 2, 2)
    sources.serve()
    assert source.unsettled == 2
    sources.settle(source, outcome, [object(), object()], None, "why", is_flushed=True)  # type: ignore[list-item]
    assert session.outcomes == noted
    assert source.unsettled == 0
    assert bool(source.pauses_until) == (outcome is Outcome.FAILED)


class CatchingUp(LinkSources):
    """Sources whose loop takes all bytes at the first look at them, before the session notes that it is held up."""

    looks = 0

    @property
    def consumed(self) -> int:
        self.looks += 1
        return 0 if self.looks == 1 else self._produced

    @consumed.setter
    def consumed(self, value: int) -> None:
        self.looks = 0


def test_a_session_is_not_held_up_by_a_loop_that_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that takes the last bytes while the session decides to wait finds no session to wake."""
    monkeypatch.setattr(_sources, "UNSENT_BYTES", 10)
    sources, _ = served(CatchingUp)
    source = link(sources, 1, 1)
    sources._produced = 11
    sources.serve()
    assert not sources.is_held_up
    assert got(source) == 1
