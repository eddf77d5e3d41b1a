"""A round is judged, shown by the smallest history that has its anomaly, and void where it saw too little."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.history.checker import Anomaly, anomalies
from tests.history.history import Disturbance, Kind, Outcome, of_processes
from tests.history.report import Void, account, counts, judged, minimal, report
from tests.history.test_checker import Story, waiting


def busy(*, transaction: int = 1) -> Story:
    """Return a story of forty messages in transactions of so many, all of which are right."""
    story = Story()
    story.history.rules = of_processes(is_drained=True)
    names = [f"m{number}" for number in range(40)]
    story.send(*names)
    for start in range(0, 40, transaction):
        some = names[start : start + transaction]
        for name in some:
            story.receive(name)
        outputs = tuple(f"{name}>1" for name in some)
        story.settle(*some, what="commit", outputs=outputs)
        story.history.outputs.update(outputs)
    return story


def test_a_round_that_saw_enough_and_broke_nothing() -> None:
    """It has no anomalies, and its messages, deliveries and marks are counted."""
    story = busy()
    assert judged(story.history, least=40) == []
    assert counts(story.history) == (40, 40, 0)
    assert [*report(story.history, [], "again")] == []


def test_a_round_that_saw_too_little_is_void() -> None:
    """It says so by an error, which is no pass."""
    with pytest.raises(Void, match="void: 40 messages were sent and delivered, and a round needs 41"):
        judged(busy().history, least=41)


def test_messages_that_were_not_delivered_do_not_count() -> None:
    """What was sent without an answer, or delivered to none, says nothing."""
    story = Story(is_calm=False)
    story.send("a", outcome=Outcome.UNKNOWN)
    story.receive("a")
    story.settle("a")
    story.send("b")
    story.history.left = {"b": 1}
    with pytest.raises(Void, match="void: 0 messages"):
        judged(story.history, least=1)


def test_a_broken_round_is_not_void() -> None:
    """A round that lost what it sent is bad, though it delivered nothing."""
    story = Story()
    story.send("a")
    assert [each.name for each in judged(story.history, least=1_000)] == ["lost write"]


def test_the_smallest_history_is_the_life_of_the_message() -> None:
    """Of forty messages, the one that was delivered again is shown: its send, its deliveries, its settlement."""
    story = busy()
    story.receive("m7", "p1.r", count=2)
    (anomaly,) = anomalies(story.history)
    assert [call.kind for call in minimal(story.history, anomaly).calls] == [
        Kind.SEND,
        Kind.RECEIVE,
        Kind.SETTLE,
        Kind.RECEIVE,
    ]


def test_of_a_transaction_what_is_torn_is_shown() -> None:
    """One output that is there and one that is not are shown; the others are counted."""
    story = busy(transaction=20)
    del story.history.outputs["m25>1"]
    anomaly = next(each for each in anomalies(story.history) if each.name == "torn transaction")
    (commit,) = (call for call in minimal(story.history, anomaly).calls if call.kind is Kind.SETTLE)
    assert (commit.messages, commit.outputs, commit.others) == (("m20", "m25"), ("m20>1", "m25>1"), 18)
    shown = "\n".join(account(story.history, anomaly))
    assert "commit m20 m25 and 18 others -> m20>1 m25>1" in shown
    assert "m20>1: in the target 1 times" in shown


def test_calls_without_a_message_are_shown_where_they_are_needed() -> None:
    """A lost wake-up needs the receive that waited, and of other receives none."""
    story = Story()
    for _ in range(8):
        story.call(Kind.RECEIVE, "p0.r", timeout=1, consumer=0)
    waiting(story)
    anomaly = next(each for each in anomalies(story.history) if each.name == "lost wake-up")
    whats = [(call.kind, call.messages) for call in minimal(story.history, anomaly).calls]
    assert whats == [(Kind.SEND, ("a",)), (Kind.RECEIVE, ()), (Kind.RECEIVE, ("a",)), (Kind.SETTLE, ("a",))]


def test_disturbances_and_kills_of_the_processes_are_shown() -> None:
    """What happened to a process that had the message is shown, and what happened to others is not."""
    story = busy()
    story.receive("m7", "p1.r", count=2)
    story.history.killed = {"p0": 9.0, "p9": 9.0}
    story.history.disturbances = [Disturbance(8.0, 9.0, name, f"pause {name}") for name in ("p1", "p8")]
    story.history.disturbances.append(Disturbance(8.0, 9.0, "", "the broker is away"))
    shown = "\n".join(account(story.history, next(iter(anomalies(story.history)))))
    assert "p0       * killed" in shown
    assert "pause p1" in shown
    assert "the broker is away" in shown
    assert "p9" not in shown
    assert "p8" not in shown


def test_a_report_counts_and_says_how_to_play_again() -> None:
    """It names each anomaly, and shows the first of each name with their histories."""
    story = busy()
    for name in ("m1", "m2", "m3"):
        story.receive(name, "p1.r", count=2)
    found = anomalies(story.history)
    lines = [*report(story.history, found, "chores.py crash --seed 7")]
    assert lines[0] == "3 delivery after settlement; again: chores.py crash --seed 7"
    assert sum(line.startswith("delivery after settlement: ") for line in lines) == 3
    assert Counter(line.split()[-1] for line in lines if " send " in line) == Counter({"m1": 1, "m2": 1})


def test_an_anomaly_that_a_part_cannot_have_is_shown_whole() -> None:
    """Where the checker does not find it, nothing is left out."""
    story = busy()
    assert minimal(story.history, Anomaly("no such", "", ("m1",))) is story.history
