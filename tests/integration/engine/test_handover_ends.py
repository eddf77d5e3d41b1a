"""A handover that ends while its thread is about to look after it, or of a process that was killed."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from kjms import Connection, Queue
from kjms.engine.consumer.transfer_reading import TransferReading
from kjms.engine.handover import transfer
from kjms.engine.handover.handover import Handover
from kjms.engine.handover.peers import read_interest, write_interest
from kjms.engine.handover.transfer import TransferPartitions
from kjms.engine.kafka import open_producer
from kjms.mapping.names import interest, queue_group
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, apart, consume, send, stored_records, take, wait_for


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    """A Kafka in memory."""
    with MemoryKafka() as kafka:
        yield kafka


def wants(kafka: MemoryKafka, queue: Queue) -> list[dict[str, Any]]:
    """Return what processes have published that they want of *queue*, oldest first."""
    records = stored_records(kafka.bootstrap_servers, interest(queue.queue_name, queue_group(queue.queue_name)))
    return [read_interest(record.value()) for record in records]


def share(kafka: MemoryKafka, queue: Queue, first: Connection, second: Connection) -> None:
    """Let two processes, as it were, hand messages of the only partition of *queue* over."""
    send(first, queue, *map(str, range(20)))
    one = consume(first, queue)
    take(one, 1)
    other = consume(second, queue)
    take(other, 1)
    wait_for(lambda: len({each["engine"] for each in wants(kafka, queue)}) == 2)


def test_a_process_that_has_left_publishes_no_more(
    kafka: MemoryKafka, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last that a process says of a queue is that it takes part no more, though its thread was about to look."""
    ended, ticked, tick, end = threading.Event(), threading.Event(), Handover.tick, Handover.end
    with apart(kafka.bootstrap_servers) as first, apart(kafka.bootstrap_servers) as second:
        share(kafka, queue, first, second)
        closing, is_first = threading.Thread(target=second.close), threading.Lock()  # which the first tick keeps
        late: list[Handover] = []

        def note_end(handover: Handover) -> None:
            end(handover)
            late.append(handover)
            ended.set()
            assert ticked.wait(WAIT_SECONDS)

        def tick_late(handover: Handover, now: float) -> None:
            if is_first.acquire(blocking=False):
                closing.start()
            assert ended.wait(WAIT_SECONDS)
            for each in late:
                tick(each, now)
            ticked.set()
            if handover not in late:
                tick(handover, now)

        monkeypatch.setattr(Handover, "end", note_end)
        monkeypatch.setattr(Handover, "tick", tick_late)
        assert ticked.wait(WAIT_SECONDS)
        closing.join()
        said = wants(kafka, queue)
    assert_last_is_leaving(said)
    assert [record.message for record in caplog.records if record.name == "kjms.handover"] == []


def test_a_process_that_leaves_while_it_looks_for_left_messages_claims_none(
    kafka: MemoryKafka, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that a process found, while it left, without a holder is free for the others at once.

    A claim after the process's leave would hold for its lease, half a minute or more, and no process would read there.
    """
    ended, looked, end = threading.Event(), threading.Event(), Handover.end
    with apart(kafka.bootstrap_servers) as first, apart(kafka.bootstrap_servers) as second:
        share(kafka, queue, first, second)
        closing, is_first = threading.Thread(target=first.close), threading.Lock()

        def note_end(handover: Handover) -> None:
            end(handover)
            ended.set()
            assert looked.wait(WAIT_SECONDS)

        def find_late(_: TransferReading, _topic: str, numbers: Collection[int], _known: object) -> set[int]:
            if is_first.acquire(blocking=False):
                closing.start()
                assert ended.wait(WAIT_SECONDS)
            return set(numbers)

        sweep = TransferPartitions.sweep

        def sweep_late(transfers: TransferPartitions, now: float) -> None:
            sweep(transfers, now)
            if ended.is_set():
                looked.set()

        monkeypatch.setattr(Handover, "end", note_end)
        monkeypatch.setattr(TransferReading, "find_unread", find_late)
        monkeypatch.setattr(TransferPartitions, "sweep", sweep_late)
        assert looked.wait(WAIT_SECONDS)
        closing.join()
        said = wants(kafka, queue)
    assert_last_is_leaving(said)


def test_what_a_killed_process_left_is_looked_for_when_its_lease_ends(
    kafka: MemoryKafka, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the next of the looks that a process takes every few seconds."""
    looked = SimpleQueue[Collection[int]]()

    def find(_: TransferReading, _topic: str, numbers: Collection[int], _known: object) -> set[int]:
        looked.put(numbers)
        return set()

    with apart(kafka.bootstrap_servers) as first, apart(kafka.bootstrap_servers) as second:
        share(kafka, queue, first, second)
        monkeypatch.setattr(transfer, "SWEEP_SECONDS", math.inf)  # no look without a reason
        monkeypatch.setattr(TransferReading, "find_unread", find)
        killed = write_interest("killed", {"lease": 1, "idle": False, "partition": -1, "partitions": [*range(8)]})
        producer = open_producer({"bootstrap.servers": kafka.bootstrap_servers})
        producer.produce(interest(queue.queue_name, queue_group(queue.queue_name)), killed)
        producer.flush()
        assert looked.get(timeout=WAIT_SECONDS)


def assert_last_is_leaving(said: list[dict[str, Any]]) -> None:
    """Assert that one process has left, and has said nothing after that."""
    gone = {each["engine"] for each in said if each.get("leaving")}
    assert len(gone) == 1
    assert all([each for each in said if each["engine"] == engine][-1].get("leaving") for engine in gone)
