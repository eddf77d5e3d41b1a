"""The partitions that a reader holds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.delivery import AssignedPartition
from kjms.engine.tuning import DEFAULTS
from kjms.mapping import decode
from kjms.txn.metadata import State


def test_a_transfer_partition_is_no_part_of_the_partition_with_its_number() -> None:
    """When a partition goes to another member of the group, the transfer partition that has its number stays."""
    names: Any = dict.fromkeys(["identity", "recall", "end_transactions", "engine", "group"])
    aside: Any = SimpleNamespace(topic="q.kjms.overflow", handover="q.kjms.handover", tuning=DEFAULTS, **names)
    holdings = Assignment("q", "q", aside, decode, lambda failure: None)
    partitions = {
        topic: AssignedPartition(topic, 1, State(0, 0, (), 0), is_transfer=topic == "q.kjms.handover")
        for topic in ("q", "q.kjms.overflow", "q.kjms.handover")
    }
    for partition in partitions.values():
        holdings.add(partition)
    both = [partitions["q"], partitions["q.kjms.overflow"]]
    assert holdings.of(1) == both
    assert holdings.of(2) == []
    assert holdings.drop(1) == both
    assert [partition.is_held for partition in partitions.values()] == [False, False, True]
    assert list(holdings) == [partitions["q.kjms.handover"]]
