"""The settlement of one partition, held against a model that is too simple to be wrong."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kjms.txn.states import PartitionSettlement


class Model:
    """Every offset that was read, and which of them are settled."""

    def __init__(self, base: int) -> None:
        self.start = base
        self.read: list[int] = []
        self.settled: set[int] = set()

    @property
    def base(self) -> int:
        open_offsets = [offset for offset in self.read if offset not in self.settled]
        if open_offsets:
            return open_offsets[0]
        return self.read[-1] + 1 if self.read else self.start


@given(
    start=st.integers(0, 50),
    gaps=st.lists(st.integers(1, 4), max_size=40),
    choices=st.lists(st.tuples(st.booleans(), st.integers(0, 1_000)), max_size=120),
)
def test_the_base_is_the_oldest_message_that_is_not_settled(
    start: int, gaps: list[int], choices: list[tuple[bool, int]]
) -> None:
    """Whatever the order of reading and settling, and whatever holes the offsets have."""
    settlement, model = PartitionSettlement(start), Model(start)
    offset = start
    for reads, pick in choices:
        if reads and gaps:
            settlement.read(offset)
            model.read.append(offset)
            offset += gaps.pop()
        elif model.read:
            chosen = model.read[pick % len(model.read)]
            settlement.settle(chosen)
            model.settled.add(chosen)
        assert settlement.base == model.base
        assert settlement.unsettled == len(model.read) - len(model.settled)


def test_a_first_read_beyond_the_base_needs_no_commit() -> None:
    """A partition whose base Kafka knows, but not this reader, is dirty only once a message is settled."""
    settlement = PartitionSettlement(-1)
    settlement.read(12)
    assert not settlement.is_dirty
    settlement.settle(12)
    assert settlement.is_dirty
    assert settlement.base == 13


def test_settling_what_was_never_read_changes_nothing() -> None:
    """A late acknowledgement of a message before the base is no news."""
    settlement = PartitionSettlement(5)
    settlement.settle(3)
    settlement.read(5)
    settlement.settle(4)
    assert settlement.base == 5
