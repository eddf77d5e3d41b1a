"""Take records in: what each one is, whether it is to be delivered, and what happened to its message before."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.engine.admin.topics import NOT_READY
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.kafka import KafkaError, KafkaMessage, jms_error
from kjms.errors import JMSException, JMSSecurityException
from kjms.mapping.delayed import place_of
from kjms.mapping.relocated import original
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.transactions.deduplicator import Deduplicator

__all__ = ["NOTHING", "RecordIntake"]

_log = logging.getLogger("kjms.consumer")

LOOK_AHEAD: Final = 10  # times the prefetch are looked through where some messages are more urgent than others
LOOK_AHEAD_BYTES: Final = 32_000_000  # if the messages are no larger than that together
NOTHING: Final[Mapping[int, int]] = {}


class RecordIntake:
    """Makes deliveries of records, and hands them to the dispatcher; its caller holds the lock of the source.

    Args:
        assignment: The partitions that are held.
        dispatcher: Where the messages wait.
        prefetch: How many messages are held ready.
        on_error: Receives errors that only the connection's exception listener can report.
        delayed_before: Of a subscription: which delayed messages were sent before there was one, as the offset where
            each partition that they waited in ended then. They are none of its messages.
        repeats: Knows what was there already, and is not to be delivered; None: everything is delivered.

    Attributes:
        limit: As many messages are held ready; more than the prefetch where priorities tell them apart.
        is_suspicious: Whether something came that a topic made again explains.
    """

    def __init__(
        self,
        assignment: Assignment,
        dispatcher: Dispatcher,
        prefetch: int,
        on_error: Callable[[JMSException], None],
        delayed_before: Mapping[int, int] = NOTHING,
        repeats: Deduplicator | None = None,
    ) -> None:
        self.limit = prefetch
        self.is_suspicious = False
        self._assignment = assignment
        self._dispatcher = dispatcher
        self.prefetch = prefetch
        self._on_error = on_error
        self._delayed_before = dict(delayed_before)
        self._repeats = repeats
        self._orders = itertools.count()

    def arrived(self, records: Sequence[KafkaMessage]) -> tuple[bool, JMSSecurityException | None]:
        """Take in *records*; return whether some are of transfer partitions, and whether the broker denies access."""
        assignment = self._assignment
        topic, looks_at_each = assignment.topic, self._repeats is not None or bool(self._delayed_before)
        has_transfers = False
        denial = None
        partition, run, past = None, list[Delivery](), -1  # records of one partition that follow each other
        for record in records:
            error = record.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    self._reached_end(record)
                else:
                    denial = self._report(error) or denial
                continue
            record_topic, number, offset = record.topic(), record.partition(), record.offset()
            if offset != past or partition is None or number != partition.number or record_topic != partition.topic:
                self._take_run(partition, run)
                partition, run = assignment.get(record_topic, number), []
                if partition is None:
                    continue
                has_transfers = has_transfers or partition.is_transfer
            past = offset + 1
            delivery = Delivery(record, partition, offset, next(self._orders))
            if looks_at_each or record_topic != topic:
                self._take(partition, delivery)
            else:
                run.append(delivery)
        self._take_run(partition, run)
        if self._dispatcher.ranking.is_needed:
            self._look_ahead(records)
        return has_transfers, denial

    def _take_run(self, partition: AssignedPartition | None, run: list[Delivery]) -> None:
        """Take in *run*, which is of the topic itself: at once, where all of it is new."""
        if partition is None or not run:
            return
        settlement = partition.settlement
        if run[0].offset < settlement.histories_end or not settlement.read_run(run[0].offset, run):
            for delivery in run:
                self._take(partition, delivery)
        else:
            self._dispatcher.arrive_run(run)

    def _take(self, partition: AssignedPartition, delivery: Delivery) -> None:
        """Take in *delivery*, if it is to be delivered, with what happened to its message before."""
        repeats, settlement, record, offset = self._repeats, partition.settlement, delivery.record, delivery.offset
        is_repeat = repeats is not None and partition.topic == self._assignment.topic and repeats.sees(record)
        if not settlement.read(offset, delivery):
            self.is_suspicious = self.is_suspicious or offset < settlement.position - 1
            return
        if is_repeat or (self._delayed_before and self._is_too_old(record)):
            settlement.settle(offset)
            return
        if partition.is_overflow:
            delivery.record, told = original(record)
            if told != NEVER:
                delivery.attempts.recorded = told
                delivery.restore(told)
            if repeats is not None:
                repeats.sees(delivery.record)
        if offset < settlement.histories_end:
            noted = settlement.noted(offset)
            if noted is not None:
                delivery.restore(noted)
            elif delivery.count == 1:
                delivery.restore(settlement.history(offset))
                if delivery.count > 1:
                    delivery.attempts.cause = "previous consumer terminated unexpectedly"
        self._dispatcher.arrive(delivery)

    def arrived_early(self, record: KafkaMessage, due: int) -> bool:
        """Take in *record*, which is *due* later; return whether it waits for its time now."""
        partition = self._assignment.get(record.topic(), record.partition())
        assert partition is not None
        delivery = Delivery(record, partition, record.offset(), next(self._orders))
        if not partition.settlement.read(record.offset(), delivery):
            return False
        delivery.due = due
        self._dispatcher.arrive(delivery)
        return True

    def _look_ahead(self, records: Sequence[KafkaMessage]) -> None:
        """Hold more ready, within bounds, so that urgent messages are found farther behind."""
        largest = max(len(record.value() or b"") for record in records)
        self.limit = max(self.prefetch, min(LOOK_AHEAD * self.prefetch, LOOK_AHEAD_BYTES // (largest + 1)))

    def _is_too_old(self, record: KafkaMessage) -> bool:
        """Return whether *record* was sent, with a delay, before there was the subscription (JMS 2.0 §4.12)."""
        place = place_of(record)
        return place is not None and place[1] < self._delayed_before.get(place[0], 0)

    def _reached_end(self, record: KafkaMessage) -> None:
        partition, offset = self._assignment.get(record.topic(), record.partition()), record.offset()
        if partition is not None and offset is not None:
            partition.read_to = max(partition.read_to, offset)

    def _report(self, error: KafkaError) -> JMSSecurityException | None:
        """Report *error*, or return it if it denies access: the thread begins anew then."""
        self.is_suspicious = self.is_suspicious or error.code() in NOT_READY
        assignment = self._assignment
        failure = jms_error(error, f"read {assignment.name}", to="Read", topic=assignment.topic, group=assignment.group)
        if isinstance(failure, JMSSecurityException):
            return failure
        _log.warning("%s", failure)
        if not error.retriable():
            self._on_error(failure)
        return None
