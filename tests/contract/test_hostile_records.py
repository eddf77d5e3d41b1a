"""Any program with the right to write to kjms's own topics may write anything there: each such record is skipped.

It is counted and logged once, with its topic, partition and offset, and what comes after it is read.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from kjms import ConnectionFactory, InvalidDestinationException, Queue, TemporaryQueue, Topic
from kjms.admin import Admin
from kjms.engine.kafka import NewTopic, open_admin, open_producer
from kjms.mapping.names import BOOKKEEPING, REDELIVERIES, REGISTRY, delayed, interest, queue_group
from kjms.testing.engine import consumer_statistics, statistics
from tests.helpers import (
    WAIT_MS,
    WAIT_SECONDS,
    Desk,
    Eventually,
    consume,
    owner_of,
    send,
    stored_records,
    text,
    texts,
    topics,
    wait_for,
)

Forge = Callable[..., int]

DELETED = [("kjms-deleted", b"1")]
DEEP = b"[" * 2_000
TOMORROW = timedelta(days=1)


@pytest.fixture
def desk(alone: Any) -> Iterator[Desk]:
    """Connections to a Kafka that has no other tests' topics."""
    with contextlib.ExitStack() as stack:
        yield Desk(alone.bootstrap_servers, stack)


@pytest.fixture
def forge(alone: Any) -> Forge:
    """A function that writes a record to a Kafka topic, as a program without kjms does, and returns its offset."""
    producer = open_producer({"bootstrap.servers": alone.bootstrap_servers, "linger.ms": 0})

    def forge(
        topic: str, value: bytes | None, *, key: bytes | None = None, headers: Any = (), partition: int = 0
    ) -> int:
        written: list[int] = []
        wait_for(lambda: topic in topics(alone.bootstrap_servers))
        producer.produce(
            *(topic, value, key, partition),
            headers=list(headers),
            on_delivery=lambda error, record: written.append(-1 if error else record.offset() or 0),
        )
        assert producer.flush(WAIT_SECONDS) == 0
        assert written[0] >= 0
        return written[0]

    return forge


def warnings(caplog: pytest.LogCaptureFixture, topic: str, offset: int, partition: int = 0) -> list[str]:
    """Return the reasons for which a record was skipped, of each time that it was logged."""
    begin = f"skipped the record {topic}[{partition}]@{offset}: "
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [each.removeprefix(begin) for each in found if each.startswith(begin)]


def test_the_registry_is_read_beyond_what_is_no_record_of_it(
    desk: Desk, forge: Forge, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Subscriptions are opened, found and ended as if those records were not there."""
    first = desk.session().create_shared_durable_consumer(topic, "first")
    resource = json.dumps(["durable", None, "second"], separators=(",", ":"))
    forged = {
        b"use:a": DEEP,
        b"definition:a": json.dumps({"version": 1, "resource": resource, "engine": "e", "starts": [10**400]}).encode(),
        b"definition:b": json.dumps({"version": 1, "resource": resource, "engine": "e", "selector": [[]]}).encode(),
        b"definition:c": b'{"version":1,"resource":"7","engine":"e"}',
        b"alive:x": b'{"a":' * 2_000,
        b"\xff": b"\xff",
        b"ask:x": b"1" * 5_000,
    }
    offsets = [forge(REGISTRY, value, key=key) for key, value in forged.items()]
    second = desk.session().create_shared_durable_consumer(topic, "second")
    desk.send(topic, "hello")
    assert [text(each.receive(WAIT_MS)) for each in (first, second)] == ["hello", "hello"]
    with Admin(ConnectionFactory(desk.servers)) as admin:
        assert [each.name for each in admin.subscriptions()] == ["first", "second"]
    second.close()
    desk.session().unsubscribe("second")
    assert [len(warnings(caplog, REGISTRY, offset)) for offset in offsets] == [1] * len(forged)
    assert dict(statistics(desk.connection).skipped) == {REGISTRY: len(forged)}


def test_a_handover_goes_on_beside_interest_that_is_none(
    desk: Desk, forge: Forge, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages go to the consumers that match them, in other processes, whatever else is in the log of interest."""
    home, away = (desk.connect(is_apart=True, hand_over=True) for _ in range(2))
    here = owner_of(home, queue, "kind = 'first'")
    there = consume(away, queue, "kind = 'second'")
    send(home, queue, "a", properties={"kind": "second"})
    assert text(there.receive(WAIT_MS)) == "a"
    log = interest(queue.queue_name, queue_group(queue.queue_name))
    name = statistics(home).name
    said = {"version": 1, "engine": "forged"}
    forged = [
        DEEP,
        json.dumps({**said, "selectors": [[]]}).encode(),
        json.dumps({**said, "lease": 10**400}).encode(),
        json.dumps({**said, "lease": 1e300}).encode(),
        json.dumps({**said, "lease": 5, "partitions": [10**30]}).encode(),
        json.dumps({**said, "engine": name, "lease": 9, "partitions": [0], "published_at": 1 << 60}).encode(),
    ]
    offsets = [forge(log, value) for value in forged]
    for each in ("b", "c"):
        send(home, queue, each, properties={"kind": "second"})
        assert text(there.receive(WAIT_MS)) == each
    eventually(lambda: dict(statistics(home).skipped).get(log) == len(forged))
    assert here.receive(WAIT_MS) is not None
    handover = consumer_statistics(here).handover
    assert handover is not None
    assert handover.peers == 1
    assert [len(warnings(caplog, log, offset)) >= 1 for offset in offsets] == [True] * len(forged)


def test_redeliveries_are_shown_beside_records_that_tell_of_none(
    desk: Desk, forge: Forge, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """The history of a message has its own events, and the others count as skipped."""
    [message] = desk.send(queue, "hello")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "hello"
    session.rollback()
    assert text(consumer.receive(WAIT_MS)) == "hello"
    session.commit()
    session.close()
    own = json.dumps(message.jms_message_id).encode()
    said = {"event": "redelivery", "time": 1, "destination": "queue://a", "group": "g", "delivery": 1, "cause": "x"}
    forged = [
        DEEP + own,
        json.dumps({**said, "message_id": message.jms_message_id, "time": 10**18}).encode(),
        json.dumps({**said, "message_id": message.jms_message_id, "event": ["x"]}).encode(),
        json.dumps({**said, "message_id": [message.jms_message_id]}).encode(),
    ]
    with Admin(ConnectionFactory(desk.servers)) as admin:
        eventually(lambda: admin.redeliveries(message.jms_message_id or ""))
        offsets = [forge(REDELIVERIES, value) for value in forged]
        for _ in range(2):
            events = admin.redeliveries(message.jms_message_id or "")
            assert [each.event for each in events] == ["redelivery"]
    assert [len(warnings(caplog, REDELIVERIES, offset)) for offset in offsets] == [1] * len(forged)


def test_figures_and_settlement_do_without_copies_that_cannot_be_read(
    desk: Desk, forge: Forge, queue: Queue, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """Queues are counted, and their consumers begin, as if the records in the bookkeeping were not there."""
    desk.send(queue, "a", "b")
    key = f"{queue_group(queue.queue_name)}\n{queue.queue_name}\n0".encode()
    forged = [
        (key, "٣ kjms/1".encode()),
        (key, b"9" * 5_000),
        (key, b"\xff"),
        (b"\xff", b"1"),
        (b"group\ntopic\n" + b"9" * 5_000, b"1"),
    ]
    offsets = [forge(BOOKKEEPING, value, key=key) for key, value in forged]
    with Admin(ConnectionFactory(desk.servers)) as admin:
        eventually(lambda: (queue.queue_name, 2) in [(each.name, each.depth) for each in admin.queues()])
    consumer = desk.session().create_consumer(queue)
    assert texts(consumer, 2) == ["a", "b"]
    assert [len(warnings(caplog, BOOKKEEPING, offset)) for offset in offsets] == [1] * len(forged)


NO_NOTES = {"deep": DEEP, "later": b"[0, 99]", "long": b"[" + b"9" * 5_000 + b"]", "truth": b"[true]", "bytes": b"\xff"}


@pytest.mark.parametrize("value", NO_NOTES.values(), ids=NO_NOTES)
@pytest.mark.parametrize("word", [b"moved", b"cancelled", b"cancel", b"deliver"])
def test_a_note_that_cannot_be_is_skipped(
    desk: Desk, forge: Forge, queue: Queue, word: bytes, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages that wait for their time come at it."""
    if word in (b"cancel", b"deliver") and value == NO_NOTES["later"]:
        value = b"[-1]"  # a request may be about what is not there
    consumer = desk.session().create_consumer(queue)
    desk.send(queue, "later", delivery_delay=timedelta(milliseconds=300))
    log = delayed(queue.queue_name)
    offset = forge(log, value, headers=[("kjms-delayed", b"1;" + word)])
    assert text(consumer.receive(WAIT_MS)) == "later"
    wait_for(lambda: warnings(caplog, log, offset))
    assert len(warnings(caplog, log, offset)) == 1


@pytest.mark.parametrize("word", [b"moved", b"cancelled", b"rewritten"])
def test_a_forged_note_drops_no_message(
    desk: Desk, forge: Forge, queue: Queue, eventually: Eventually, word: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the process that serves a partition says what became of messages: others' notes are not believed.

    The messages are written anew, so that the process that serves them next delivers them as well.
    """
    process = desk.connect(is_apart=True)
    session = process.create_session()
    consumer = session.create_consumer(queue)
    desk.send(queue, "soon", by=session, delivery_delay=timedelta(milliseconds=50))
    assert text(consumer.receive(WAIT_MS)) == "soon"  # the partition is served
    sent = [each.jms_message_id for each in desk.send(queue, "a", "b", by=session, delivery_delay=TOMORROW)]
    log = delayed(queue.queue_name)
    with Admin(ConnectionFactory(desk.servers)) as admin:
        eventually(lambda: len(admin.delayed(queue)) == 2)
        before = [each.offset for each in admin.delayed(queue)]
        offset = forge(log, json.dumps(before).encode(), headers=[("kjms-delayed", b"1;" + word)])
        eventually(lambda: len(admin.delayed(queue)) == 2 and min(e.offset for e in admin.delayed(queue)) > offset)
        assert len(warnings(caplog, log, offset)) == 1
        process.close()
        desk.connection.create_session().create_consumer(queue)  # the next owner
        eventually(lambda: any(each.partitions for each in statistics(desk.connection).delayed))
        assert [each.message_id for each in admin.delayed(queue)] == sent
        assert [admin.deliver(each or "", queue) for each in sent] == [True, True]


NO_DELETIONS = {"deep": DEEP, "long": b"0-" + b"9" * 5_000, "reversed": b"5-3", "bytes": b"\xff", "word": b"all"}


@pytest.mark.parametrize("value", NO_DELETIONS.values(), ids=NO_DELETIONS)
def test_a_deletion_that_cannot_be_read_deletes_nothing(
    desk: Desk, forge: Forge, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """A reply reaches the temporary queue of another program, and what is deleted after it is known."""
    inbox = "kjms.inbox.another.x8s"
    admin = open_admin({"bootstrap.servers": desk.servers})
    if inbox not in topics(desk.servers):
        admin.create_topics([NewTopic(inbox, 2, 1)])[inbox].result()
    offset = forge(inbox, value, headers=DELETED, partition=1)
    number = 2 * offset
    session = desk.session()
    session.create_producer(TemporaryQueue(f"{inbox}/{number}")).send(session.create_text_message("reply"))
    assert [each.value() for each in stored_records(desk.servers, inbox) if not each.partition()][-1] == b"reply"
    assert len(warnings(caplog, inbox, offset, 1)) == 1
    forge(inbox, str(number).encode(), headers=DELETED, partition=1)
    with pytest.raises(InvalidDestinationException, match="is deleted"):
        desk.connect(is_apart=True).create_session().create_producer(TemporaryQueue(f"{inbox}/{number}"))
