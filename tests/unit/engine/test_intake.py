"""Records that are put off until the session that asks next takes them in, and where that may not be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kjms.destinations import Queue
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.engine.consumer.intake import RecordIntake
from kjms.selector import parse_selector
from kjms.txn.metadata import State
from tests.unit.engine.records import EMPTY, Record, partition_from


class Arrived(Record):
    """A record that a consumer read."""

    def error(self) -> Any:
        return None


class Intake:
    """A `RecordIntake` of the topic ``t``, of which partition 0 is held, with a dispatcher."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(Queue("t"), keeps_unmatched=True, limit=100, batch=10)
        self.assignment = Assignment("t", "t", "t.overflow", "g", "e", self.dispatcher)
        self.partition = partition_from(0)
        self.assignment.add(self.partition)
        self.intake = RecordIntake(self.assignment, self.dispatcher, 100, lambda error: None)

    def slot(self, selector: str | None = None) -> ConsumerSlot:
        """Return the slot of a consumer that waits."""
        reader: Any = self
        slot = ConsumerSlot(reader, None if selector is None else parse_selector(selector), threading.Event())
        self.dispatcher.join(slot)
        assert self.dispatcher.take(slot) is None
        return slot

    def put_off(self, *offsets: int, priority: int = 4) -> bool:
        records: Any = [Arrived(offset, None, priority) for offset in offsets]
        return self.intake.put_off(records)

    def taken(self, slot: ConsumerSlot) -> list[int]:
        self.intake.take_in()
        found = []
        while (delivery := self.dispatcher.take(slot)) is not None:
            found.append(delivery.offset)
        return found


def test_a_session_that_is_alone_takes_records_in() -> None:
    """It is woken; until it asks, the records are as if they had not been read."""
    intake = Intake()
    slot = intake.slot()
    assert intake.put_off(0, 1, 2)
    assert slot.wakeup.is_set()
    assert (intake.dispatcher.held, intake.partition.settlement.position) == (0, 0)
    assert intake.put_off(3)
    assert intake.taken(slot) == [0, 1, 2, 3]
    assert intake.partition.settlement.position == 4


def test_an_urgent_message_among_them_overtakes() -> None:
    """All that was put off is taken in before any of it is dispatched."""
    intake = Intake()
    slot = intake.slot()
    intake.put_off(0, 1)
    intake.put_off(2, priority=9)
    assert intake.taken(slot) == [2, 0, 1]
    assert not intake.put_off(3)  # from now on, what comes is looked at when it comes


def other_selector(intake: Intake) -> None:
    intake.slot("n > 1")


def other_consumer(intake: Intake) -> None:
    intake.slot()


def transfer_partition(intake: Intake) -> None:
    intake.assignment.add(AssignedPartition("t.handover", 0, EMPTY, is_transfer=True))


def settled_run(intake: Intake) -> None:
    intake.assignment.add(AssignedPartition("t", 1, State(0, 0, (), 1_000)))


@pytest.mark.parametrize("disturb", [other_selector, other_consumer, transfer_partition, settled_run])
def test_records_are_taken_in_at_once_where_more_than_the_order_decides(disturb: Callable[[Intake], None]) -> None:
    """Another consumer may want them, another process gave them, or the next ones need not be fetched."""
    intake = Intake()
    intake.slot()
    disturb(intake)
    assert not intake.put_off(0)


def test_records_are_taken_in_at_once_where_no_consumer_is_started() -> None:
    """No session would ask for them; a consumer with a selector alone does not want them all."""
    intake = Intake()
    assert not intake.put_off(0)
    intake.slot("n > 1")
    assert not intake.put_off(0)


def test_what_was_put_off_of_a_lost_partition_is_dropped() -> None:
    """Another process has the partition now."""
    intake = Intake()
    slot = intake.slot()
    intake.put_off(0, 1)
    intake.assignment.remove(intake.partition)
    assert intake.taken(slot) == []
