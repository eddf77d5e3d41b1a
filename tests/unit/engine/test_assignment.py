"""The partitions that a group consumer holds."""

from __future__ import annotations

from kjms import Queue
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.delivery import AssignedPartition
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.txn.metadata import State


def test_a_transfer_partition_is_no_part_of_the_partition_with_its_number() -> None:
    """When a partition goes to another member of the group, the transfer partition that has its number stays."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=1)
    assignment = Assignment("q", "q", "q.kjms.overflow", "group", "engine", dispatcher)
    partitions = {
        topic: AssignedPartition(topic, 1, State(0, 0, (), 0), is_transfer=topic == "q.kjms.handover")
        for topic in ("q", "q.kjms.overflow", "q.kjms.handover")
    }
    for partition in partitions.values():
        assignment.add(partition)
    both = [partitions["q"], partitions["q.kjms.overflow"]]
    assert assignment.of(1) == both
    assert assignment.of(2) == []
    assert assignment.drop(1) == both
    assert [partition.is_held for partition in partitions.values()] == [False, False, True]
    assert list(assignment) == [partitions["q.kjms.handover"]]
