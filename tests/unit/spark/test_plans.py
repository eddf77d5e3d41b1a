"""Plans of batches that Spark consumes: what is written of them, and what a restart makes of it; no Spark in it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.spark._former import FormerBatches
from kjms.spark._plans import Kept, Plan, Processed, Run, runs_below
from kjms.txn.metadata import History

PLAN = Plan([Run("q", 0, 5, 9, 0)], [Run("q", 0, 5, 8, 0), Run("q", 0, 8, 9, 1)])


class Partition:
    """A partition as a delivery knows it."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic = topic
        self.number = number


class Record:
    """A record that was sent to a place."""

    def __init__(self, topic: str, number: int, offset: int) -> None:
        self.topic = lambda: topic
        self.partition = lambda: number
        self.offset = lambda: offset


class Delivery:
    """A delivery that was read at one place, and was sent to another, or to the same."""

    def __init__(self, read: tuple[str, int, int], sent: tuple[str, int, int], history: History) -> None:
        self.partition = Partition(*read[:2])
        self.offset = read[2]
        self.record = Record(*sent)
        self.count = history.deliveries + 1
        self.counted = self.count - history.uncounted


class Plans:
    """Plans in memory."""

    def __init__(self, kept: dict[int, Kept]) -> None:
        self.kept = kept

    def batches(self) -> list[int]:
        return sorted(self.kept)

    def read(self, batch: int) -> Kept | None:
        return self.kept.get(batch)

    def forget(self, batch: int) -> None:
        del self.kept[batch]


def offsets(runs: list[Run]) -> list[tuple[str, int, int, int]]:
    return [(run.topic, run.number, offset, run.deliveries) for run in runs for offset in range(run.first, run.past)]


places = st.tuples(st.sampled_from(["q", "q.kjms.handover"]), st.integers(0, 1), st.integers(0, 12))


@given(st.dictionaries(places, st.integers(0, 1), min_size=1))
def test_a_plan_says_of_each_message_where_it_is(found: dict[tuple[str, int, int], int]) -> None:
    """The runs of a plan are the places of its messages, with their deliveries, also after writing and reading it."""
    deliveries = [Delivery(place, ("q", 7, at), History(n)) for at, (place, n) in enumerate(found.items())]
    plan = Plan.read(Plan.of(deliveries).written())  # type: ignore[arg-type]
    assert offsets(list(plan.runs)) == sorted((*place, n) for place, n in found.items())
    assert offsets(list(plan.sent)) == [("q", 7, at, n) for at, n in enumerate(found.values())]
    assert plan.count == len(found)
    with_gaps = zip(plan.runs, plan.runs[1:], strict=False)
    assert not any(a[:2] == b[:2] and a.past == b.first and a.deliveries == b.deliveries for a, b in with_gaps)


def test_deliveries_that_do_not_count_are_told_to_executors_alone() -> None:
    """What possibly was a delivery is shown to the function, and is none for the redelivery policy."""
    plan = Plan.of([Delivery(("q", 0, 1), ("q", 0, 1), History(1, 1))])  # type: ignore[list-item]
    assert (plan.runs[0].deliveries, plan.sent[0].deliveries) == (1, 0)


def test_a_plan_of_a_later_version_is_refused() -> None:
    """A driver does not guess what a later one planned."""
    later = PLAN.written().replace('"version": 1', '"version": 2')
    with pytest.raises(ValueError, match="version 2; this kjms reads versions up to 1"):
        Plan.read(later)


def test_what_a_batch_had_is_not_processed_again() -> None:
    """Of a processed batch each message is settled or fails when it comes again; others are new."""
    done = Processed(PLAN, {("q", 0, 6): "bad", ("q", 0, 8): "worse"})
    assert [done.outcome(("q", 0, offset), 0) for offset in (4, 5, 6, 9)] == [None, "", "bad", None]
    assert done.outcome(("q", 1, 5), 0) is None
    assert done.left == 2


def test_a_row_that_failed_and_comes_again_is_processed() -> None:
    """A failure that the redelivery policy knows already is not counted a second time."""
    done = Processed(PLAN, {("q", 0, 6): "bad", ("q", 0, 8): "worse"})
    assert [done.outcome(("q", 0, 6), 1), done.outcome(("q", 0, 8), 1), done.outcome(("q", 0, 8), 2)] == [
        None,
        "worse",
        None,
    ]


def test_a_batch_is_forgotten_when_all_of_it_is_settled() -> None:
    """Plans are kept until Spark does not run their batches again, and nothing that they had can come again."""
    plans = Plans({1: Kept(PLAN, {}), 2: Kept(PLAN), 3: Kept(PLAN)})
    unsettled: list[tuple[str, int, int, int]] = [("q", 0, 8, 20)]
    former = FormerBatches(plans, lambda: unsettled)  # type: ignore[arg-type]
    former.forget_before(3)
    assert plans.batches() == [1, 3]  # 2 was settled in its course
    for offset in range(5, 9):
        assert former.outcome(("q", 0, offset), 0) == ""
    former.forget_before(3)
    assert plans.batches() == [3]
    assert not former


@pytest.mark.parametrize(
    ("unsettled", "left"), [([("q", 0, 9, 20)], []), ([("q", 1, 0, 20)], []), ([("q", 0, 8, 9)], [1]), (None, [1])]
)
def test_a_batch_is_forgotten_when_others_have_settled_it(
    unsettled: list[tuple[str, int, int, int]] | None, left: list[int]
) -> None:
    """What other consumers settled does not come again; where messages were moved, that is not known."""
    plans = Plans({1: Kept(PLAN, {})})
    FormerBatches(plans, lambda: unsettled).forget_before(3)  # type: ignore[arg-type]
    assert plans.batches() == left


def test_a_batch_is_cut_off_after_so_many_runs() -> None:
    """Messages beyond the first runs go back, so that the table of runs stays small."""
    found = [("a", 0, 1), ("a", 0, 3), ("a", 0, 4), ("b", 0, 5), ("b", 1, 6)]
    assert list(runs_below(found, 3)) == [True, True, True, True, False]
