"""The checker finds each broken promise in a history written by hand, and accepts the history that keeps it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.history.checker import anomalies
from tests.history.history import Call, Disturbance, History, Kind, Outcome, Rules, Sent, of_processes
from tests.history.test_promises import known

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


def from_nowhere(story: Story) -> None:
    story.receive("a")


def output_from_nowhere(story: Story) -> None:
    story.history.outputs = Counter({"a>1": 1})


def still_there(story: Story) -> None:
    story.history.rules.is_drained = True
    story.send("a")
    story.history.left = {"a": 1}


def settled_too_late(story: Story) -> None:
    story.history.rules = of_processes()
    story.send("a")
    story.receive("a")
    story.receive("a", "p1.r", count=2)
    story.settle("a", what="acknowledge")


def aborted_output(story: Story) -> None:
    story.call(Kind.GIVE_BACK, "p0.r", "a", what="rollback", outputs=("a>1",))
    story.history.outputs = Counter({"a>1": 1})


def refused_output(story: Story) -> None:
    story.call(Kind.SETTLE, "p0.r", "a", what="commit", outputs=("a>1",), outcome=Outcome.UNDONE)
    story.history.outputs = Counter({"a>1": 1})


def repeated_without_a_reason(story: Story) -> None:
    story.history.rules = of_processes(is_explained=True)
    story.send("a")
    story.receive("a")
    story.receive("a", "p1.r", count=2)


def needlessly_marked(story: Story) -> None:
    story.history.rules = of_processes(needless=0.4)
    story.send("a", "b")
    story.receive("a", count=2)
    story.receive("b")
    story.settle("a", "b")


def stored_before(story: Story) -> None:
    story.send("a")
    for name in ("a@0", "a@0 marked"):
        story.receive("a", count=1 + (name != "a@0"))
        story.settle("a", what="store", outputs=(name,), overwrites="batch 0")
    story.history.outputs = Counter({"a@0": 1, "a@0 marked": 1})


def sent_in_another_order(story: Story) -> None:
    story.send("a", "b")
    for name in ("a", "b"):
        story.receive(name)
        story.settle(name, outputs=(f"{name}>1",))
    story.history.outputs = Counter({"a>1": 1, "b>1": 1})
    story.history.places = {"a>1": (0, 8), "b>1": (0, 7)}


def sent_to_two_partitions(story: Story) -> None:
    sent_in_another_order(story)
    story.history.places = {"a>1": (0, 7), "b>1": (1, 8)}


def received_in_another_order(story: Story) -> None:
    story.history.rules = of_processes()
    turned(story)
    story.history.places = {"a": (0, 1), "b": (0, 2)}


def redelivered_in_another_order(story: Story) -> None:
    story.history.rules = of_processes()
    story.send("a", "b")
    for count, names in ((1, "ab"), (2, "ba")):
        for name in names:
            story.receive(name, count=count)
        (story.give_back if count == 1 else story.settle)("a", "b")
    story.history.places = {"a": (0, 1), "b": (0, 2)}


def redelivered_though_it_never_came_late(story: Story) -> None:
    redelivered_in_another_order(story)
    for call in story.history.calls:
        call.count = min(call.count, 1)
        call.is_redelivered = False
    story.history.places = {"a": (0, 2), "b": (0, 1)}


def killed_without_an_excuse(story: Story) -> None:
    excused(story)
    story.history.rules.zombie = 12.0
    story.history.rules.waiting = story.history.rules.call = 60.0


def settled_while_another_received(story: Story) -> None:
    story.history.rules = of_processes()
    story.send("a")
    story.receive("a")
    begin = story.now
    story.settle("a", what="acknowledge")
    story.now += 1
    story.receive("a", "p1.r", count=2).begin = begin - 0.05  # no pause lies between: it came when it ended


def left_without_a_mark(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.give_back("a")
    story.history.left = {"a": 1}


def unmarked_at_the_same_time(story: Story) -> None:
    received_at_the_same_time(story)
    story.history.rules.is_calm = True


def unmarked_in_another_process(story: Story) -> None:
    story.history.rules.is_calm = False
    story.send("a")
    for session in ("p0.r", "p1.r"):
        story.receive("a", session)
    story.settle("a", session="p1.r")


def left_from_nowhere(story: Story) -> None:
    story.history.left = {"a": 1}


def dead_from_nowhere(story: Story) -> None:
    story.history.dead["a"] = 1


def lost_with_its_transaction(story: Story) -> None:
    story.history.rules = of_processes(is_drained=True)
    story.send("a")
    story.receive("a")
    story.settle("a", what="commit", outputs=("a>1",), outcome=Outcome.UNKNOWN)


def disturbed_at_another_time(story: Story) -> None:
    repeated_without_a_reason(story)
    story.history.disturbances = [
        Disturbance(0.1, 0.2, "p0", "before"),
        Disturbance(9.0, 9.1, "p0", "after"),
        Disturbance(0.35, 0.4, "p9", "another process"),
    ]


def waiting_for_what_came_back(story: Story) -> None:
    story.send("a")
    story.receive("a", "p0.other")
    story.give_back("a", session="p0.other")
    story.call(Kind.OTHER, "p0.other", what="close consumer", consumer=0)
    story.call(Kind.RECEIVE, "p0.r", seconds=30, timeout=30, consumer=0)
    story.receive("a", count=2)
    story.settle("a")


def waiting_for_what_was_given_back_to_itself(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.give_back("a")
    story.call(Kind.RECEIVE, "p0.r", seconds=30, timeout=30, consumer=0)
    story.receive("a", count=2)
    story.settle("a")


def failed(story: Story) -> None:
    story.history.failures = ["p0 ended by itself"]


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
    from_nowhere: "never sent",
    output_from_nowhere: "never sent",
    still_there: "left over",
    settled_too_late: "stale settlement",
    aborted_output: "aborted read",
    refused_output: "aborted read",
    repeated_without_a_reason: "unexplained repeat",
    needlessly_marked: "needless mark",
    stored_before: "overwritten output",
    sent_in_another_order: "order",
    sent_to_two_partitions: "order",
    received_in_another_order: "order",
    redelivered_in_another_order: "redelivery order",
    redelivered_though_it_never_came_late: "redelivery order",
    killed_without_an_excuse: "unmarked repeat",
    settled_while_another_received: "delivery after settlement",
    left_without_a_mark: "unmarked repeat",
    unmarked_at_the_same_time: "unmarked repeat",
    unmarked_in_another_process: "unmarked repeat",
    left_from_nowhere: "never sent",
    dead_from_nowhere: "never sent",
    lost_with_its_transaction: "lost write",
    disturbed_at_another_time: "unexplained repeat",
    waiting_for_what_came_back: "lost wake-up",
    waiting_for_what_was_given_back_to_itself: "lost wake-up",
    failed: "failure",
}


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_each_broken_promise_is_found(tell: Callable[[Story], None]) -> None:
    """A history that breaks a promise is found to break that one."""
    story = Story()
    tell(story)
    assert BROKEN[tell] in story.found()


def not_confirmed(story: Story) -> None:
    story.send("a", outcome=Outcome.UNKNOWN)


def settled_and_not_confirmed(story: Story) -> None:
    settled_and_delivered(story)
    next(call for call in story.history.calls if call.kind is Kind.SETTLE).outcome = Outcome.UNKNOWN
    story.history.rules.is_calm = False


def aborted_and_not_delivered(story: Story) -> None:
    story.send("a", outcome=Outcome.UNDONE)


def on_time(story: Story) -> None:
    story.send("a", delay=30.0)
    story.now += 30
    story.receive("a")
    story.settle("a")


def dead_in_time(story: Story) -> None:
    story.history.rules.max_deliveries = 2
    story.send("a")
    for count in (1, 2):
        story.receive("a", count=count)
        story.give_back("a")
    story.history.dead["a"] = 1


def match(story: Story) -> None:
    story.send("a", key=1)
    story.receive("a", selector="k = 1")
    story.settle("a")


def one_after_the_other(story: Story) -> None:
    story.send("a", "b", group="g")
    story.receive("a")
    story.settle("a")
    story.receive("b", "p0.other")
    story.settle("b", session="p0.other")


def urgent_too_late_to_overtake(story: Story) -> None:
    story.send("a", priority=4)
    story.send("b", priority=9)
    for name in ("a", "b"):
        story.receive(name)
        story.settle(name)


def a_short_wait(story: Story) -> None:
    story.send("a")
    story.call(Kind.RECEIVE, "p0.r", seconds=7, timeout=7, consumer=0)
    story.receive("a")
    story.settle("a")


def a_long_call(story: Story) -> None:
    story.call(Kind.OTHER, "p0.r", what="close", seconds=59)


def whole_transaction(story: Story) -> None:
    story.send("a")
    story.receive("a")
    story.settle("a", outputs=("a>1", "a>2"))
    story.history.outputs = Counter({"a>1": 1, "a>2": 1})


def settled_before_the_other(story: Story) -> None:
    story.history.rules = of_processes(writing=1.0)
    story.send("a")
    story.receive("a")
    story.receive("a", "p1.r", count=2, seconds=0.5).begin = 0.0  # written down late: it may have come first
    story.settle("a", what="acknowledge")


def repeated_after_a_kill(story: Story) -> None:
    repeated_without_a_reason(story)
    story.history.killed = {"p0": 0.45}
    story.settle("a", session="p1.r")


def repeated_after_a_refusal(story: Story) -> None:
    story.history.rules = of_processes(is_explained=True)
    story.send("a")
    story.receive("a")
    story.settle("a", outcome=Outcome.UNDONE)
    story.receive("a", "p1.r", count=2)
    story.settle("a", session="p1.r")


def some_marked(story: Story) -> None:
    needlessly_marked(story)
    story.history.rules.needless = 0.5


def marked_after_a_kill(story: Story) -> None:
    needlessly_marked(story)
    story.history.killed = {"p7": 0.1}


def stored_again(story: Story) -> None:
    story.history.rules = of_processes(is_drained=True)
    stored_before(story)
    del story.history.outputs["a@0"]
    for call in story.history.calls:
        call.outcome = Outcome.UNKNOWN if call.overwrites else call.outcome


def sent_in_order(story: Story) -> None:
    sent_in_another_order(story)
    story.history.places = {"a>1": (0, 7), "b>1": (0, 8)}


def came_back_late(story: Story) -> None:
    received_in_another_order(story)
    for call in story.history.calls:
        call.is_back = call.kind is Kind.RECEIVE and call.messages == ("a",)


def of_two_partitions(story: Story) -> None:
    redelivered_in_another_order(story)
    story.history.places = {"a": (0, 1), "b": (1, 2)}


def excused(story: Story) -> None:
    story.history.rules = of_processes()
    story.send("a")
    story.receive("a")
    story.history.killed = {"p0": story.now - 0.01}
    story.receive("a", "p1.r")
    story.settle("a", session="p1.r")


def dropped_with_another(story: Story) -> None:
    story.history.rules = of_processes(max_deliveries=2, unseen=1)
    story.send("a")
    story.receive("a")
    story.history.killed, story.history.killers = {"p0": story.now}, {"p0": "a"}
    story.history.dead["a"] = 1


def nothing_has_looked(story: Story) -> None:
    story.send("a", "b")
    story.receive("b")
    story.settle("b", outputs=("b>1",))
    story.history.left = None


def urgent_and_out_of_reach(story: Story) -> None:
    not_urgent(story)
    story.history.rules.is_priority_kept = False


def settled_by_a_process_that_did_not_know(story: Story) -> None:
    settled_too_late(story)
    story.history.rules.zombie = 12.0


def received_at_the_same_time(story: Story) -> None:
    story.history.rules.is_calm = False
    story.send("a")
    story.receive("a")
    story.receive("a", "p1.r").begin = 0.2  # it may have been dispatched first
    story.settle("a")


def waited_for_what_is_not_sent(story: Story) -> None:
    story.call(Kind.RECEIVE, "p0.r", seconds=30, timeout=30, consumer=0)
    story.send("a")
    story.receive("a")
    story.settle("a")


def refused_before_the_process_fell(story: Story) -> None:
    story.history.rules = of_processes(max_deliveries=2, unseen=1)
    story.send("a")
    story.receive("a")
    story.settle("a", what="acknowledge", outcome=Outcome.UNDONE)
    story.history.killed, story.history.killers = {"p0": story.now + 1}, {"p0": "other"}
    story.history.dead["a"] = 1


def perhaps_lost_with_its_transaction(story: Story) -> None:
    lost_with_its_transaction(story)
    story.history.rules.is_drained = False


def turned_without_an_order(story: Story) -> None:
    turned(story)
    story.history.rules.is_ordered = False


def turned_by_a_delay(story: Story) -> None:
    turned(story)
    story.history.sent["a"].delay = 0.1


def turned_and_sent_again(story: Story) -> None:
    turned(story)
    story.history.calls[0].outcome = Outcome.UNKNOWN


def redelivered_and_not_committed(story: Story) -> None:
    redelivered_in_another_order(story)
    story.history.calls[-1].outcome = Outcome.UNKNOWN


def redelivered_and_given_back(story: Story) -> None:
    story.history.rules = of_processes()
    story.send("a", "b")
    for count, names in ((1, "ab"), (2, "ba"), (3, "ba")):
        for name in names:
            story.receive(name, count=count)
        (story.give_back if count < 3 else story.settle)("a", "b")
    story.history.places = {"a": (0, 1), "b": (0, 2)}


def disturbed_in_time(story: Story) -> None:
    repeated_without_a_reason(story)
    story.history.disturbances = [Disturbance(0.35, 0.4, "p0", "lost a partition")]
    story.settle("a", session="p1.r")


def wait(story: Story, session: str = "p0.r", **about: object) -> None:
    story.call(Kind.RECEIVE, session, seconds=30, timeout=30, consumer=0, **about)


def waited_while_another_had_it(story: Story) -> None:
    story.send("a")
    story.receive("a", "p0.other")
    wait(story)
    story.settle("a", session="p0.other")


def waited_for_what_does_not_match(story: Story) -> None:
    story.send("a", key=2)
    wait(story, selector="k = 1")
    story.receive("a")
    story.settle("a")


def waited_for_one_of_a_group(story: Story) -> None:
    story.send("a", group="g")
    wait(story)
    story.receive("a")
    story.settle("a")


def waited_for_a_dead_letter(story: Story) -> None:
    story.history.rules.max_deliveries = 1
    story.send("a")
    story.receive("a")
    story.give_back("a")
    story.history.dead["a"] = 1
    wait(story)


def waited_while_it_was_back_at_another(story: Story) -> None:
    story.send("a")
    story.receive("a", "p0.other")
    story.give_back("a", session="p0.other")
    wait(story)
    story.receive("a", "p0.other", count=2)
    story.settle("a", session="p0.other")


def waited_beside_a_disturbance(story: Story) -> None:
    waiting(story)
    story.history.disturbances = [Disturbance(20.0, 25.0, "p0", "a thread stands still")]


def urgent_for_another_selector(story: Story) -> None:
    story.send("a", priority=4, key=1)
    story.send("b", priority=9, key=2)
    story.now += 2
    story.receive("a", seconds=2, selector="k = 1")
    story.settle("a")
    story.receive("b")
    story.settle("b")


NEARLY_BROKEN = (
    waited_while_another_had_it,
    waited_for_what_does_not_match,
    waited_for_one_of_a_group,
    waited_for_a_dead_letter,
    waited_while_it_was_back_at_another,
    waited_beside_a_disturbance,
    urgent_for_another_selector,
    redelivered_and_not_committed,
    redelivered_and_given_back,
    disturbed_in_time,
    perhaps_lost_with_its_transaction,
    turned_without_an_order,
    turned_by_a_delay,
    turned_and_sent_again,
    refused_before_the_process_fell,
    nothing_has_looked,
    urgent_and_out_of_reach,
    settled_by_a_process_that_did_not_know,
    received_at_the_same_time,
    waited_for_what_is_not_sent,
    not_confirmed,
    settled_and_not_confirmed,
    aborted_and_not_delivered,
    on_time,
    dead_in_time,
    match,
    one_after_the_other,
    urgent_too_late_to_overtake,
    a_short_wait,
    a_long_call,
    whole_transaction,
    settled_before_the_other,
    repeated_after_a_kill,
    repeated_after_a_refusal,
    some_marked,
    marked_after_a_kill,
    stored_again,
    sent_in_order,
    came_back_late,
    of_two_partitions,
    excused,
    dropped_with_another,
)


@pytest.mark.parametrize("tell", NEARLY_BROKEN, ids=lambda tell: tell.__name__)
def test_what_nearly_breaks_a_promise_is_not_found(tell: Callable[[Story], None]) -> None:
    """A history that differs from a broken one by what makes it right has no anomaly."""
    story = Story()
    tell(story)
    assert story.found() == set()


def test_a_second_unmarked_message_of_a_stopped_session_has_no_excuse() -> None:
    """One message may come again unmarked after its session was killed, and no other."""
    story = Story()
    story.history.rules = of_processes()
    story.send("a", "b")
    story.history.killed = {"p0": story.now}
    for session in ("p0.r", "p1.r"):
        for name in ("a", "b"):
            story.receive(name, session)
    story.settle("a", "b", session="p1.r")
    assert [each.messages for each in anomalies(story.history)] == [("b", "a")]


def test_a_dead_letter_that_fell_with_another_message() -> None:
    """A delivery that ended because another message killed the process does not count for a dead letter."""
    story = Story()
    dropped_with_another(story)
    story.history.killers = {"p0": "other"}
    assert story.found() == {"dead letter"}


def test_every_anomaly_has_a_history() -> None:
    """Each name that the checker can find is found by one of the histories above."""
    assert set(BROKEN.values()) == known()


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
