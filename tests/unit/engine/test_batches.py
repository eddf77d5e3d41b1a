"""Messages that are dispatched to one consumer at once, and what is taken back of them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kjms.engine.consumer.delivery import Delivery
from kjms.txn.delivery_states import RETURN, DeliveryState
from tests.helpers import WAIT_SECONDS
from tests.unit.engine.records import Record, Source, arrive, partition_from


def test_a_session_takes_a_batch_without_asking() -> None:
    """The first message brings a batch of those behind it: they are in flight, and no one else gets them."""
    source = Source(30)
    slot = source.slot()
    first = slot.poll()
    assert first is not None
    assert first.offset == 0
    assert [delivery.offset for delivery in slot.batch] == list(range(1, 11))
    assert {delivery.state for delivery in slot.batch} == {DeliveryState.DISPATCHED}
    assert (source.dispatcher.held, source.dispatcher.in_flight, len(source.dispatcher.batches)) == (19, 11, 10)
    assert source.partition.settlement.dispatched == 11
    source.lock.acquire()  # it is not needed
    assert [delivery.offset for delivery in (slot.poll() for _ in range(10)) if delivery] == list(range(1, 11))


def test_a_batch_ends_where_more_than_the_order_decides() -> None:
    """A message group, another priority, a second consumer and another selector take what follows out of the batch."""
    source = Source(5)
    for offset, key, priority in ((5, b"group", 4), (6, None, 4), (7, None, 9)):
        delivery = Delivery(Record(offset, key, priority), source.partition, offset, offset)
        source.partition.settlement.read(offset, delivery)
        source.dispatcher.arrive(delivery)
    slot = source.slot()
    taken = [slot.poll() for _ in range(8)]
    assert [delivery.offset for delivery in taken if delivery] == [7, 0, 1, 2, 3, 4, 5, 6]
    assert not slot.batch
    source = Source(30)
    slot = source.slot()
    slot.poll()
    other = source.slot()
    assert not slot.batch
    assert [delivery.offset for delivery in (other.poll(), slot.poll(), other.poll()) if delivery] == [1, 2, 3]
    source.dispatcher.leave(other)
    assert slot.poll() is not None
    assert slot.batch
    source.slot("n > 3")
    assert not slot.batch
    assert source.dispatcher.held == 30 - 5


def test_what_a_session_keeps_of_a_batch_is_known_when_it_has_the_next_one() -> None:
    """A commit says what the session has, also of batches that began and ended since the last commit."""
    source = Source(30, batch=5)
    slot = source.slot()
    kept = [delivery.offset for delivery in (slot.poll() for _ in range(16)) if delivery]
    assert kept == list(range(16))
    source.dispatcher.batches.note_taken()
    assert source.partition.settlement.taken == set(kept)


def test_a_batch_ends_near_the_dispatch_limit() -> None:
    """What a crash marks as redelivered stays small: a batch goes up to the limit only once a new one is wanted."""
    source = Source(30, batch=20)
    settlement = source.partition.settlement
    settlement.dispatch_limit, source.partition.extend_at = 16, 8
    slot = source.slot()
    taken = [source.take(slot) for _ in range(8)]
    assert [delivery.offset for delivery in taken if delivery] == list(range(8))
    assert not slot.batch
    assert not source.dispatcher.wants_dispatch_limit
    assert not source.partition.needs_dispatch_limit  # a commit of the session may come before it is near
    assert source.take(slot) is not None
    assert source.dispatcher.wants_dispatch_limit
    assert source.partition.needs_dispatch_limit
    assert [delivery.offset for delivery in slot.batch] == list(range(9, 16))
    assert settlement.dispatched == 16
    taken = [source.take(slot) for _ in range(8)]
    assert [delivery.offset for delivery in taken if delivery] == list(range(9, 16))
    assert settlement.requests == {16}


def test_a_batch_has_messages_of_several_partitions() -> None:
    """Each of them is dispatched up to its last message in the batch, and no farther than its own limit."""
    source = Source(4, batch=20)
    other = partition_from(4)
    arrive(source.dispatcher, other, 4, start=4)
    other.settlement.dispatch_limit = other.extend_at = 7
    slot = source.slot()
    assert source.take(slot) is not None
    assert [each.offset for each in slot.batch if each.partition is source.partition] == [1, 2, 3]
    assert [each.offset for each in slot.batch if each.partition is other] == [4, 5, 6]
    assert (source.partition.settlement.dispatched, other.settlement.dispatched) == (4, 7)


def test_an_urgent_message_overtakes_a_batch() -> None:
    """A message of a higher priority that arrives is the next one."""
    source = Source(30)
    slot = source.slot()
    slot.poll()
    delivery = Delivery(Record(30, None, 9), source.partition, 30, 30)
    source.partition.settlement.read(30, delivery)
    source.dispatcher.arrive(delivery)
    assert slot.poll() is delivery
    assert [taken.offset for taken in (slot.poll() for _ in range(29)) if taken] == list(range(1, 30))


def test_a_batch_of_less_urgent_messages_is_overtaken_by_usual_ones() -> None:
    """A message of the default priority that arrives, alone or in a run, is the next one."""
    source = Source(1)
    slot = source.slot()
    for offset in range(1, 6):
        delivery = Delivery(Record(offset, None, 1), source.partition, offset, offset)
        source.partition.settlement.read(offset, delivery)
        source.dispatcher.arrive(delivery)
    assert [taken.offset for taken in (slot.poll(), slot.poll()) if taken] == [0, 1]
    assert len(slot.batch) == 4
    arrive(source.dispatcher, source.partition, 1, start=6)
    assert [taken.offset for taken in (slot.poll(), slot.poll()) if taken] == [6, 2]
    assert slot.batch
    run = [Delivery(Record(offset), source.partition, offset, offset) for offset in (7, 8)]
    source.partition.settlement.read_run(7, run)
    source.dispatcher.arrive_run(run)
    assert [taken.offset for taken in (slot.poll() for _ in range(5)) if taken] == [7, 8, 3, 4, 5]


def test_a_message_that_is_due_overtakes_a_batch() -> None:
    """It is older."""
    source = Source(30)
    slot = source.slot()
    late = slot.poll()
    assert late is not None
    source.dispatcher.in_flight -= 1
    late.state, late.due = RETURN[late.state], 1_000
    source.dispatcher.put_back([late])
    slot.poll()
    assert slot.batch
    source.dispatcher.release(999)
    assert slot.batch
    source.dispatcher.release(1_000)
    assert [taken.offset for taken in (slot.poll(), slot.poll()) if taken] == [0, 2]


def test_what_a_batch_has_left_goes_back_when_its_consumer_leaves() -> None:
    """The messages are ready again, undelivered and in their order."""
    source = Source(30)
    slot = source.slot()
    slot.poll()
    slot.poll()
    source.dispatcher.leave(slot)
    assert (source.dispatcher.in_flight, len(source.dispatcher.batches)) == (2, 0)
    other = source.slot()
    taken = [delivery for delivery in (other.poll() for _ in range(28)) if delivery]
    assert [delivery.offset for delivery in taken] == list(range(2, 30))
    assert {delivery.count for delivery in taken} == {1}


def test_a_stale_batch_waits_for_the_source() -> None:
    """After its time the session asks the source, which knows whether the partitions are still held."""
    source = Source(30)
    slot = source.slot()
    slot.poll()
    slot.batch_until = 0.0
    batch = list(slot.batch)
    assert slot.poll() is batch[0]
    assert slot.batch_until > time.monotonic()
    assert slot.poll() is batch[1]


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let threads alternate after a few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_switches")
def test_each_message_of_a_batch_is_removed_once() -> None:
    """While one thread takes from batches and another one takes them back, each message comes once, in order."""
    messages = 5_000
    source = Source(messages, batch=100)
    slot = source.slot()
    taken: list[int] = []
    enough = threading.Event()

    def take() -> None:
        while (delivery := slot.poll()) is not None:
            taken.append(delivery.offset)
            if len(taken) == messages // 2:
                enough.wait(WAIT_SECONDS)  # in the middle of a batch

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    recalls = 0
    while thread.is_alive():
        with source.lock:
            recalls += bool(slot.batch)
            source.dispatcher.batches.recall()
        if recalls:
            enough.set()
    assert recalls > 0
    assert taken == list(range(messages))
