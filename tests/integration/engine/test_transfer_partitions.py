"""Messages of a queue go to consumers that match, in any process: selectors, busy owners, ends of all kinds.

Two connections with different Kafka settings have engines of their own, and so are to each other as processes are.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, Queue, Session
from kjms.engine.consumer.handover_support import STUCK_SECONDS
from kjms.engine.kafka import TopicPartition
from kjms.testing.engine import source_of
from kjms.txn.metadata import read_state
from tests.helpers import WAIT_MS, Busy, Desk, Eventually, consume, owner_of, send, text

Process = Callable[..., Connection]


@pytest.fixture
def process(desk: Desk) -> Process:
    """A function that returns a started connection that hands over, as another process would have."""
    return functools.partial(desk.connect, is_apart=True, hand_over=True)


@pytest.fixture
def reader(process: Process, queue: Queue, eventually: Eventually) -> Iterator[Any]:
    """The group consumer of a process that reads its transfer partition, since the owner's consumer is busy."""
    here = owner_of(process(), queue, mode=Session.CLIENT_ACKNOWLEDGE)
    with Busy(here):
        there = consume(process(), queue)
        send(here._session._connection, queue, "a", "b")
        assert text(there.receive(WAIT_MS)) in {"a", "b"}
        reader: Any = source_of(there)
        eventually(lambda: reader._handover.handover._transfers.open)
        yield reader


def test_a_transfer_partition_is_free_when_no_commit_for_it_is_under_way(reader: Any, eventually: Eventually) -> None:
    """A process publishes that a transfer partition is free when its own last commit has ended, not before."""
    handover = reader._handover.handover
    number = next(iter(handover._transfers.open))
    said: list[list[int]] = []
    publish = handover._interest.publish

    def listen(interest: dict[str, Any], *given: Any) -> None:
        said.append(interest.get("partitions", []))
        publish(interest, *given)

    handover._interest.publish = listen
    with reader.relocations.client.held(20):  # as by a thread that commits
        with reader.lock:
            handover._interest.valid_until = 0.0
            assert not reader.relocations.plan([], [])[0]  # it is given up before anything more is committed for it
            assert not handover._transfers.open
            handover.publish()
        with reader.lock:
            handover.publish()
        assert len(said) >= 2
        assert all(number in claimed for claimed in said)
    eventually(lambda: not handover._transfers.releasing)
    with reader.lock:
        handover._transfers.number = -1
        handover.publish()
    assert number not in said[-1]


def test_what_others_write_after_a_process_has_left_was_not_delivered(reader: Any, eventually: Eventually) -> None:
    """They learn later that it is gone. The next holder marks what stands before the dispatch limit in Kafka."""
    (partition,) = reader._handover.handover._transfers.open.values()
    settlement, overflow = partition.settlement, reader.relocations._overflow
    eventually(lambda: not (settlement.unsettled or settlement.is_dirty))
    reader.close()
    (known,) = overflow.topics.committed(overflow.group, [TopicPartition(partition.topic, partition.number)])
    state = read_state(known.metadata, known.offset)
    assert state.dispatch_limit <= state.committed_offset


def test_what_others_write_to_a_partition_that_was_released_was_not_delivered(
    reader: Any, eventually: Eventually
) -> None:
    """It is empty then, and others write to it before they learn of that, or when it is claimed anew."""
    transfers = reader._handover.handover._transfers
    (partition,) = transfers.open.values()
    settlement, overflow = partition.settlement, reader.relocations._overflow
    eventually(lambda: not (settlement.unsettled or settlement.is_dirty))

    def is_released() -> bool:
        transfers.close_idle(time.monotonic() + 60, is_needed=lambda: False)
        return partition not in transfers.open.values()

    eventually(is_released)
    (known,) = overflow.topics.committed(overflow.group, [TopicPartition(partition.topic, partition.number)])
    state = read_state(known.metadata, known.offset)
    assert state.dispatch_limit <= state.committed_offset


def test_a_process_whose_consumer_is_stuck_extends_no_claim(reader: Any, eventually: Eventually) -> None:
    """Other processes get what was handed over to a process that hangs in a call to Kafka, when its claim is over."""
    handover = reader._handover.handover
    with reader.relocations.client.held(20), reader.lock:
        published = handover._interest.published_at
        reader._stall.seen -= 2 * STUCK_SECONDS  # the thread waits for the client, as behind a commit that hangs
        handover.publish()
        assert handover._interest.published_at == published
    eventually(lambda: handover._interest.published_at > published)


def test_a_claim_that_expires_while_its_partition_is_opened_opens_none(
    process: Process, queue: Queue, eventually: Eventually
) -> None:
    """Kafka may delay a process while it opens its transfer partition; by then, another one may have it."""
    here = owner_of(process(), queue, mode=Session.CLIENT_ACKNOWLEDGE)
    with Busy(here):
        there = consume(process(), queue)
        reader: Any = source_of(there)
        fetch = reader._handover.fetch
        restorer = fetch.restorer
        held: list[bool] = []

        def restore(consumer: Any, wanted: Any, *more: Any) -> Any:
            found = type(restorer).restore(restorer, consumer, wanted, *more)
            if wanted and wanted[0][0] == reader._handover.handover._transfers.topic and not held:
                reader._handover.handover._interest.valid_until = 0.0
                held.append(True)
            return found

        restorer.restore = restore
        hold = fetch.hold
        opened: list[list[Any]] = []

        def watched(consumer: Any, restored: Any, *more: Any) -> None:
            hold(consumer, restored, *more)
            if restored and restored[0].is_transfer:
                opened.append([partition for partition in restored if partition in reader._assignment])

        fetch.hold = watched
        send(here._session._connection, queue, "a", "b")
        assert text(there.receive(WAIT_MS)) in {"a", "b"}  # from the partition that it claims next
        eventually(lambda: len(opened) > 1)
        assert opened[0] == []
        assert len(opened[1]) == 1
