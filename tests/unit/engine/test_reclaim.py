"""Ctrl-C at every call of the code that gives messages to a program and settles them: none is lost, none is stuck."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Sequence
from typing import Any

import pytest

from kjms.client.acknowledge_modes import Client, Individual
from kjms.destinations import Queue
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import Delivery, Receipt, Slot
from kjms.engine.consumer.in_flight import InFlight
from kjms.engine.transactions.group_committer import SessionTransaction
from kjms.errors import JMSException
from tests.helpers import interrupted_at
from tests.unit.engine.records import Source

MESSAGES = 12


class Settling(Source):
    """A source that settles messages, too, and takes them back."""

    def __init__(self, batch: int) -> None:
        super().__init__(MESSAGES, batch)
        self.lock = threading.RLock()
        self.in_flight = InFlight(self.dispatcher, lambda: 0)

    def slot(self, selector: str | None = None) -> ConsumerSlot:
        slot = super().slot(selector)
        slot.is_started = True
        return slot

    def settle(self, deliveries: Sequence[Delivery], *, is_urgent: bool = False) -> list[Receipt]:
        with self.lock:
            return self.in_flight.settle(deliveries)

    def flush(self, timeout: float = 0, receipts: Sequence[Receipt] = ()) -> int:
        return 0

    def give_back(self, deliveries: Collection[Delivery], **how: Any) -> None:
        with self.lock:
            self.in_flight.give_back(deliveries, **how)

    def reclaim(self, slot: Slot, kept: Collection[Delivery]) -> None:
        with self.lock:
            self.in_flight.reclaim(slot, kept, [self.partition])

    @property
    def settled(self) -> set[int]:
        """The offsets that a commit would tell to be settled."""
        state = self.partition.settlement.snapshot().state
        unsettled = {offset for first, past in state.runs for offset in range(first, past)}
        return set(range(state.known)) - unsettled


class Redelivery:
    """Lets no message become a dead letter."""

    due = None

    def was_last(self, delivery: Delivery, error: BaseException | None, *, is_rejected: bool = False) -> bool:
        return False


def consume(slot: ConsumerSlot, mode: Client, seen: list[int]) -> None:
    """Take all messages, as `BlockingReceiver.receive` does; acknowledge every third, and those before it in CLIENT."""
    while True:
        try:
            delivery = slot.poll()
            if delivery is None:
                return
            message = delivery.message(Queue("q"))
            mode.received(delivery, message)
        except KeyboardInterrupt:
            slot.reader.reclaim(slot, mode.held)
            raise
        seen.append(delivery.offset)
        if len(seen) % 3 == 0:
            message.acknowledge()


@pytest.mark.parametrize("batch", [0, 5])
@pytest.mark.parametrize("kind", [Client, Individual])
def test_an_interrupted_program_loses_no_message_and_holds_none_back(kind: type[Client], batch: int) -> None:
    """Wherever it is interrupted: what it has not seen is unsettled, and the next consumer gets all that is."""
    points = 0
    for number in itertools.count():
        source, redelivery = Settling(batch), Redelivery()
        slot, mode, seen = source.slot(), kind(redelivery), list[int]()
        with interrupted_at(number) as came:
            consume(slot, mode, seen)
        assert source.settled <= set(seen), f"point {number}: settled and not seen"
        mode.close()
        before = source.settled
        source.dispatcher.leave(slot)
        other, rest = source.slot(), list[Delivery]()
        while (delivery := other.poll()) is not None:
            rest.append(delivery)
        assert before | {each.offset for each in rest} == set(range(MESSAGES)), f"point {number}: held back"
        source.settle(rest)
        assert source.partition.settlement.committed_offset == MESSAGES
        assert source.settled == set(range(MESSAGES))
        assert source.dispatcher.in_flight >= 0
        if not came[0]:
            break
        points += 1
    assert points > 100


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("failure", [None, JMSException("not committed")])
def test_an_interrupted_commit_that_fails_gives_the_messages_back(failure: JMSException | None, is_late: bool) -> None:
    """The session does not wait for the outcome any more, so nothing else would; what was committed stays settled."""
    source = Settling(5)
    slot = source.slot()
    received = [delivery for delivery in (slot.poll() for _ in range(3)) if delivery is not None]
    work = SessionTransaction([], received)
    if is_late:
        work.abandon()
        work.end(failure)
    else:
        work.end(failure)
        work.abandon()
    source.dispatcher.leave(slot)
    other, rest = source.slot(), list[int]()
    while (delivery := other.poll()) is not None:
        rest.append(delivery.offset)
    assert rest == list(range(0 if failure else 3, MESSAGES))
