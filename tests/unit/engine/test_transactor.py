"""What the engine's transactional producers say when Kafka does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from kjms.engine.delayed.partition import PartitionProducer
from kjms.engine.kafka import serve, serve_no_more
from kjms.engine.transactions.errors import AbortedError
from kjms.engine.transactions.plan import Copy, Move
from kjms.engine.transactions.sync_relocator import SyncRelocator
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.mapping.names import BOOKKEEPING

ADDRESS = "stuck.invalid:1"


class StuckProducer:
    """A producer whose records to one topic are never confirmed."""

    def __init__(self, stuck: str) -> None:
        self.stuck = stuck
        self.is_connected = False
        self.waiting = 0
        self.reports: list[Callable[..., None]] = []

    def produce(self, topic: str, *_: object, on_delivery: Callable[..., None], **__: object) -> None:
        self.waiting += 1
        if topic != self.stuck:
            self.reports.append(on_delivery)

    def flush(self, seconds: float) -> int:
        for report in self.reports:
            report(None, self)
            self.waiting -= 1
        self.reports.clear()
        return self.waiting

    def list_topics(self, *_: object) -> SimpleNamespace:
        self.is_connected = True
        return SimpleNamespace(brokers={1: "stuck.invalid:1"})

    def init_transactions(self, *_: object) -> None:
        assert self.is_connected  # else it may look for its coordinator half a second later

    def begin_transaction(self, *_: object) -> None: ...

    abort_transaction = begin_transaction

    def __len__(self) -> int:
        return self.waiting

    def poll(self, _seconds: float) -> None:
        self.flush(0)

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    offset = partition


@contextmanager
def stuck_for(topic: str) -> Iterator[None]:
    """Let producers be made whose records to *topic* are never confirmed."""

    class Clients:
        def producer(self, _config: object) -> Any:
            return StuckProducer(topic)

        consumer = admin = producer

    serve(ADDRESS, Clients())
    try:
        yield
    finally:
        serve_no_more(ADDRESS)


class Unplanned:
    """A settler whose plan fails, after it has noted some of the copies."""

    is_kept = True

    def __init__(self) -> None:
        self.client = self.committer = self
        self.noted: list[object] = []

    def held(self, _seconds: float) -> Any:
        return nullcontext()

    def plan(self, made: list[object], _deliveries: object) -> Any:
        self.noted += made[:1]
        raise JMSException("the overflow of partition 1 of orders is read elsewhere now")

    def unplan(self, made: list[object]) -> None:
        self.noted = [each for each in self.noted if each not in made]


def test_what_a_plan_noted_before_it_failed_is_taken_back() -> None:
    """The copies are aborted: their partition would otherwise wait for them as long as it is held."""
    settler, record = Unplanned(), KafkaRecord(None, b"", [], 0)
    moves = [Move("a message", lambda *_: Copy("orders", 0, record), to=("orders", 0)) for _ in range(2)]
    with stuck_for("nothing"):
        relocator = SyncRelocator({"bootstrap.servers": ADDRESS}, "any", Tuning(flush_seconds=0.1))
        with pytest.raises(AbortedError, match="read elsewhere now"):
            relocator.move(settler, moves)  # type: ignore[arg-type]
    assert settler.noted == []


def test_the_topic_that_is_not_confirmed_is_named() -> None:
    """A transaction whose mark is not confirmed says so of kjms.bookkeeping, not of the message's destination."""
    with stuck_for(BOOKKEEPING):
        line = PartitionProducer({"bootstrap.servers": ADDRESS}, "any", Tuning(flush_seconds=0.1))
        line.open()
        record = KafkaRecord(None, b"", [], 0)
        with pytest.raises(AbortedError) as raised:
            line.write([Copy("orders", 0, record), Copy(BOOKKEEPING, 0, record)])
    assert f"write to {BOOKKEEPING!r}: not confirmed within" in str(raised.value.cause)
    assert "min.insync.replicas" in str(raised.value.cause)
