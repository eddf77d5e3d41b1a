"""What a transaction has written: where each copy is, and what was not confirmed."""

from __future__ import annotations

from typing import Any

import pytest

from kjms.engine.kafka import KafkaError, TopicPartition
from kjms.engine.transactions.plan import NOWHERE, Move
from kjms.engine.transactions.written import Written
from kjms.mapping import ANY_PARTITION


class Report:
    """What a delivery report tells of a record."""

    def __init__(self, topic: str, partition: int, offset: int | None) -> None:
        self._place = topic, partition, offset

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int | None:
        return self._place[2]


def report(written: Written, *place: Any, error: KafkaError | None = None) -> None:
    written.report(error, Report(*place))  # type: ignore[arg-type]


def moves(count: int) -> list[Move[Any]]:
    return [Move[Any](number, lambda _, __: None) for number in range(count)]  # type: ignore[arg-type]


def test_each_copy_is_where_it_was_written_in_turn() -> None:
    """The offsets of a partition, in their order, are those of its copies; another partition has its own."""
    written, (first, second, third) = Written(), moves(3)
    for move, partition in ((first, 0), (second, 1), (third, 0)):
        written.add("overflow", partition, move)
    for place in ((1, 40), (0, 8), (0, 7)):  # whatever the order of the reports
        report(written, "overflow", *place)
    written.note_places()
    assert [move.place for move in (first, second, third)] == [(0, 7), (1, 40), (0, 8)]
    assert written.unconfirmed() == []
    assert written.place_of_first() == TopicPartition("overflow", 0, 7)


def test_where_the_client_chooses_the_partition_a_copy_has_no_place() -> None:
    """Such a copy is another queue's. The transaction shows at any record of the first topic."""
    written, (move,) = Written(), moves(1)
    written.add("dead", ANY_PARTITION, move)
    written.add("other", 0, None)
    report(written, "other", 0, 5)
    assert written.unconfirmed() == ["dead"]
    assert written.place_of_first() is None
    report(written, "dead", 3, 9)
    written.note_places()
    assert move.place == NOWHERE
    assert written.place_of_first() == TopicPartition("dead", 3, 9)


def test_a_copy_without_a_report_is_not_taken_for_another_one() -> None:
    """All are confirmed before their places are noted; else it is an error."""
    written = Written()
    for move in moves(2):
        written.add("overflow", 0, move)
    report(written, "overflow", 0, 7)
    assert written.unconfirmed() == ["overflow"]
    with pytest.raises(ValueError, match="zip"):
        written.note_places()


def test_what_is_not_stored_is_a_failure_of_its_topic() -> None:
    """With an error, and without an offset, which proves that it is stored."""
    written, error = Written(), KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
    for topic in ("orders", "orders", "audit"):
        written.add(topic, 0, None)
    report(written, "orders", 0, 1)
    report(written, "orders", 0, None, error=error)
    report(written, "audit", 0, None)
    (first, why), (second, unknown) = written.failures
    assert (first, why, second) == ("orders", error, "audit")
    assert "outcome unknown" in str(unknown)
    assert list(written.topics) == ["orders", "audit"]
