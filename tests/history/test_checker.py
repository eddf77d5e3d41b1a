"""The checker finds each broken promise in a history written by hand, and accepts the history that keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.history.checker import anomalies
from tests.history.history import Call, Disturbance, History, Kind, Outcome, Rules, Sent

ALL = {None: lambda key: True, "k = 1": lambda key: key == 1}


class Story:
    """Writes a history, a call after the other, each a tenth of a second long."""

    def __init__(self, *, is_calm: bool = True) -> None:
        self.history = History(Rules(ALL, is_calm=is_calm, is_priority_kept=True), left={})
        self.now = 0.0

    def call(self, kind: Kind, session: str, *messages: str, seconds: float = 0.1, **about: object) -> Call:
        self.now += 0.1
        about = {"what": kind.value, "outcome": Outcome.DONE, **about}
        call = Call(
            kind, process=session.partition(".")[0], session=session, begin=self.now, messages=messages, **about
        )  # type: ignore[arg-type]
        self.now += seconds
        call.end = self.now
        self.history.calls.append(call)
        return call

    def send(self, *names: str, session: str = "p0.s", outcome: Outcome = Outcome.DONE, **about: object) -> None:
        for name in names:
            sequence = len(self.history.sent) + 1
            self.history.sent[name] = Sent(name, session, sequence, **about)  # type: ignore[arg-type]
            self.call(Kind.SEND, session, name, outcome=outcome)

    def receive(self, name: str, session: str = "p0.r", *, count: int = 1, **about: object) -> Call:
        more = {"consumer": 0, "count": count, "is_redelivered": count > 1, **about}
        return self.call(Kind.RECEIVE, session, name, **more)

    def settle(self, *names: str, session: str = "p0.r", **about: object) -> Call:
        return self.call(Kind.SETTLE, session, *names, **about)

    def give_back(self, *names: str, session: str = "p0.r") -> None:
        self.call(Kind.GIVE_BACK, session, *names)

    def found(self) -> set[str]:
        return {each.name for each in anomalies(self.history)}


def test_a_history_without_a_fault() -> None:
    """Nothing is found where every message is sent, delivered, given back, delivered again with a mark, and settled."""
    story = Story()
    story.send("a", "b")
    story.receive("a")
    story.give_back("a")
    story.receive("a", count=2)
    story.settle("a")
    story.receive("b")
    story.settle("b")
    assert not story.found()


def lost(story: Story) -> None:
    story.send("a")


def settled_and_delivered(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a")
    story.receive("a", count=2)


def settled_and_left(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a")
    story.history.left = {"a": 2}


def aborted(story: Story) -> None:
    story.send("a", outcome=Outcome.UNDONE)
    story.receive("a")


def too_early(story: Story) -> None:
    story.send("a", delay=30.0)
    story.receive("a")
    story.settle("a")


def dead_at_once(story: Story) -> None:
    story.history.rules.max_deliveries = 2
    story.send("a")
    story.receive("a")
    story.give_back("a")
    story.history.dead["a"] = 1


def dead_too_late(story: Story) -> None:
    story.history.rules.max_deliveries = 1
    story.send("a")
    for count in (1, 2):
        story.receive("a", count=count)
        story.give_back("a")
    story.history.dead["a"] = 1


def two_dead_letters(story: Story) -> None:
    story.history.rules.max_deliveries = 1
    story.send("a")
    story.receive("a")
    story.give_back("a")
    story.history.dead["a"] = 2


def settled_and_dead(story: Story) -> None:
    story.history.rules.max_deliveries = 1
    story.send("a")
    story.receive("a")
    story.settle("a")
    story.history.dead["a"] = 1


def mismatch(story: Story) -> None:
    story.send("a", key=2)
    story.receive("a", selector="k = 1")
    story.settle("a")


def contradiction(story: Story) -> None:
    story.send("a")
    story.receive("a", count=1, is_redelivered=True)
    story.settle("a")


def unmarked(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.give_back("a")
    story.receive("a")
    story.settle("a")


def wrong_count(story: Story) -> None:
    story.send("a")
    story.receive("a", count=2)
    story.settle("a")


def two_consumers(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.receive("a", "p0.other", count=2)
    story.settle("a")


def group_of_two(story: Story) -> None:
    story.send("a", "b", group="g")
    story.receive("a")
    story.receive("b", "p0.other")
    story.settle("a")
    story.settle("b", session="p0.other")


def turned(story: Story) -> None:
    story.send("a", "b")
    for name in ("b", "a"):
        story.receive(name)
        story.settle(name)


def not_urgent(story: Story) -> None:
    story.send("a", priority=4)
    story.send("b", priority=9)
    story.now += 2
    story.receive("a", seconds=2)
    story.settle("a")
    story.receive("b")
    story.settle("b")


def waiting(story: Story) -> None:
    story.send("a")
    story.call(Kind.RECEIVE, "p0.r", seconds=30, timeout=30, consumer=0)
    story.receive("a")
    story.settle("a")


def endless(story: Story) -> None:
    story.call(Kind.OTHER, "p0.r", what="close", seconds=100)


def raised(story: Story) -> None:
    story.call(Kind.OTHER, "p0.r", what="close", error="JMSException()", outcome=Outcome.UNKNOWN)


def committed_without_output(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a", outputs=("a>1",))


def committed_and_left(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a", outputs=("a>1",), outcome=Outcome.UNKNOWN)
    story.history.outputs = Counter({"a>1": 1})
    story.history.left = {"a": 2}


def half_of_a_transaction(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a", outputs=("a>1", "a>2"))
    story.history.outputs = Counter({"a>1": 1})


def output_twice(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a", outputs=("a>1",))
    story.history.outputs = Counter({"a>1": 2})


def two_commits(story: Story) -> None:
    story.send("a")
    for session in ("p0.r", "p1.r"):
        story.receive("a", session, count=1 + (session == "p1.r"))
        story.settle("a", session=session, outputs=(f"a>{session}",), outcome=Outcome.UNKNOWN)
    story.history.outputs = Counter({"a>p0.r": 1, "a>p1.r": 1})
    story.history.killed = {"p0": 0.5}
    story.history.rules.is_calm = False


BROKEN: dict[Callable[[Story], None], str] = {
    lost: "lost write",
    settled_and_delivered: "delivery after settlement",
    settled_and_left: "delivery after settlement",
    aborted: "aborted read",
    too_early: "early",
    dead_at_once: "dead letter",
    dead_too_late: "dead letter",
    two_dead_letters: "dead twice",
    settled_and_dead: "dead and not dead",
    mismatch: "selector",
    contradiction: "contradictory mark",
    unmarked: "unmarked repeat",
    wrong_count: "count",
    two_consumers: "with two consumers",
    group_of_two: "group of two consumers",
    turned: "order",
    not_urgent: "priority",
    waiting: "lost wake-up",
    endless: "slow call",
    raised: "error",
    committed_without_output: "lost output",
    committed_and_left: "torn transaction",
    half_of_a_transaction: "torn transaction",
    output_twice: "doubled output",
    two_commits: "committed twice",
}


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_each_broken_promise_is_found(tell: Callable[[Story], None]) -> None:
    """A history that breaks a promise is found to break that one."""
    story = Story()
    tell(story)
    assert BROKEN[tell] in story.found()


def test_what_is_unknown_is_not_held_against_kjms() -> None:
    """A send, a settlement and a commit without an answer may have happened or not."""
    for left, outputs in (({"a": 2}, {}), ({}, {"b>1": 1})):
        story = Story(is_calm=False)
        story.send("a", outcome=Outcome.UNKNOWN)
        story.send("b")
        story.receive("b")
        story.settle("b", outputs=("b>1",), outcome=Outcome.UNKNOWN)
        story.history.left = {**left, **({} if outputs else {"b": 2})}
        story.history.outputs = Counter(outputs)
        assert not story.found()


def test_a_process_that_stood_still_may_not_know_that_its_messages_moved() -> None:
    """What a paused process had fetched may come to its program after another process has settled it; otherwise not."""
    for disturbances, found in (([Disturbance(0.5, 3.0, "p1", "pause")], set()), ([], {"delivery after settlement"})):
        story = Story(is_calm=False)
        story.history.disturbances = disturbances
        story.send("a")
        story.receive("a")
        story.settle("a")
        story.now += 1
        story.receive("a", "p1.r", count=2)
        assert story.found() == found
