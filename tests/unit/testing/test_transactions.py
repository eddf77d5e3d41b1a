"""Transactions of an in-memory Kafka: markers, committed reading, fencing, offsets of groups."""

from __future__ import annotations

import uuid
from typing import Any

from kjms.engine.kafka import ConsumerPort, ProducerPort, TopicPartition
from tests.unit.testing.conftest import error

SECONDS = 20.0


def put(producer: ProducerPort, topic: str, value: bytes, heard: Any = None) -> None:
    producer.produce(topic, value, None, 0, headers=[], timestamp=0, on_delivery=heard or (lambda error, message: None))


def name() -> str:
    return f"tx-{uuid.uuid4().hex}"


def test_a_transaction_comes_at_once_and_takes_an_offset_more(clients: Any, read: Any) -> None:
    """Nothing is seen before the commit; its marker has an offset that no record has."""
    topic = clients.topic()
    producer, consumer = clients.producer(name()), clients.consumer()
    producer.begin_transaction()
    put(producer, topic, b"0")
    put(producer, topic, b"1")
    assert producer.flush(SECONDS) == 0
    assert (clients.end(topic), clients.end(topic, is_committed=False)) == (0, 2)
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), SECONDS) == (0, 0)
    assert read(consumer, topic, 0) == [(0, b"END")]
    producer.commit_transaction(SECONDS)
    assert read(consumer, topic, 0) == [(0, b"0"), (1, b"1"), (3, b"END")]


def test_an_aborted_transaction_is_never_seen(clients: Any, write: Any, read: Any, eventually: Any) -> None:
    """Its records keep their offsets; a consumer that reads uncommitted records gets them."""
    topic = clients.topic()
    producer = clients.producer(name())
    producer.begin_transaction()
    put(producer, topic, b"no")
    assert producer.flush(SECONDS) == 0
    producer.abort_transaction(SECONDS)
    eventually(lambda: clients.end(topic) == 2)  # its marker is written
    write(topic, b"yes")
    assert read(clients.consumer(), topic, 0) == [(2, b"yes"), (3, b"END")]
    all_of_it = read(clients.consumer(isolation_level="read_uncommitted"), topic, 0)
    assert all_of_it == [(0, b"no"), (2, b"yes"), (3, b"END")]


def test_an_open_transaction_holds_back_what_others_write(clients: Any, write: Any, read: Any) -> None:
    """Committed reading stops at the first open record."""
    topic = clients.topic()
    producer, consumer = clients.producer(name()), clients.consumer()
    write(topic, b"before")
    producer.begin_transaction()
    put(producer, topic, b"open")
    assert producer.flush(SECONDS) == 0
    write(topic, b"after")
    assert read(consumer, topic, 0) == [(0, b"before"), (1, b"END")]
    producer.commit_transaction(SECONDS)
    assert read(consumer, topic, 1) == [(1, b"open"), (2, b"after"), (4, b"END")]


def test_a_second_producer_ends_the_first(clients: Any, read: Any) -> None:
    """init_transactions aborts what the first left open, and the first can do nothing any more."""
    topic, transactional_id = clients.topic(), name()
    first = clients.producer(transactional_id)
    first.begin_transaction()
    put(first, topic, b"first")
    assert first.flush(SECONDS) == 0
    second = clients.producer(transactional_id)
    assert clients.end(topic) == 2
    refused = error(lambda: first.commit_transaction(SECONDS))
    assert (refused.name(), refused.fatal()) == ("_FENCED", True)
    assert error(first.begin_transaction).fatal()
    assert error(lambda: put(first, topic, b"no")).name() == "_FATAL"
    second.begin_transaction()
    put(second, topic, b"second")
    second.commit_transaction(SECONDS)
    assert read(clients.consumer(), topic, 0) == [(2, b"second"), (4, b"END")]


def test_a_fenced_producer_hears_so_when_it_writes(clients: Any, reports: Any) -> None:
    """Its first record fails, the next call raises the reason, and so does the transaction."""
    topic, transactional_id = clients.topic(), name()
    first = clients.producer(transactional_id)
    first.begin_transaction()
    clients.producer(transactional_id)
    put(first, topic, b"first", lambda error, message: reports.heard.append(error is None))
    refused = error(lambda: [first.poll(0.1) for _ in range(200)])
    assert (refused.name(), refused.fatal()) == ("_FENCED", True)
    assert first.flush(SECONDS) == 0
    assert reports.heard == [False]
    refused = error(lambda: first.commit_transaction(SECONDS))
    assert (refused.name(), refused.fatal()) == ("_FENCED", True)


def test_a_producer_that_is_dropped_leaves_its_transaction_open(clients: Any) -> None:
    """Only the next producer of the name, or the time-out, ends it."""
    topic, transactional_id = clients.topic(), name()
    producer = clients.producer(transactional_id)
    producer.begin_transaction()
    put(producer, topic, b"open")
    assert producer.flush(SECONDS) == 0
    del producer
    assert (clients.end(topic), clients.end(topic, is_committed=False)) == (0, 1)
    clients.producer(transactional_id)
    assert (clients.end(topic), clients.end(topic, is_committed=False)) == (2, 2)


def test_a_transaction_ends_when_its_time_is_over(clients: Any, eventually: Any) -> None:
    """The coordinator aborts it, and shuts its producer out."""
    topic = clients.topic()
    producer = clients.producer(name(), transaction_timeout_ms=1_000, message_timeout_ms=1_000)
    producer.begin_transaction()
    put(producer, topic, b"late")
    assert producer.flush(SECONDS) == 0
    eventually(lambda: clients.end(topic) == 2)
    assert error(lambda: producer.commit_transaction(SECONDS)).fatal()


def test_a_record_that_is_too_large_spoils_the_transaction(clients: Any, reports: Any, read: Any) -> None:
    """It can only be aborted; the next one works."""
    topic, small = clients.topic(), clients.topic(max_message_bytes="1000")
    producer = clients.producer(name())
    producer.begin_transaction()
    put(producer, small, b"x" * 5_000, reports)
    assert producer.flush(SECONDS) == 0
    assert reports.heard == [("MSG_SIZE_TOO_LARGE", None)]
    for call in (producer.begin_transaction, lambda: producer.commit_transaction(SECONDS)):
        refused = error(call)
        assert (refused.name(), refused.txn_requires_abort()) == ("MSG_SIZE_TOO_LARGE", True)
    assert error(lambda: put(producer, topic, b"no")).name() == "_STATE"
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    producer.abort_transaction(SECONDS)


def test_calls_have_their_order(clients: Any) -> None:
    """What comes out of turn is an error of state, and changes nothing."""
    topic, producer = clients.topic(), clients.producer(name())
    for call in (
        lambda: producer.commit_transaction(SECONDS),
        lambda: producer.abort_transaction(SECONDS),
        lambda: put(producer, topic, b"no"),
    ):
        assert error(call).name() == "_STATE"
    producer.begin_transaction()
    assert error(producer.begin_transaction).name() == "_STATE"
    producer.commit_transaction(SECONDS)
    assert clients.end(topic) == 0


def test_an_empty_transaction_is_ended_without_a_broker(clients: Any) -> None:
    """A fenced producer gets the error with its next record or offset only."""
    transactional_id = name()
    first = clients.producer(transactional_id)
    first.begin_transaction()
    clients.producer(transactional_id)
    first.commit_transaction(SECONDS)
    first.begin_transaction()
    first.abort_transaction(SECONDS)


def committed(consumer: ConsumerPort, topic: str) -> tuple[int, str | None]:
    known = consumer.committed([TopicPartition(topic, 0)], SECONDS)[0]
    return known.offset, known.metadata


def test_offsets_are_committed_with_the_transaction(clients: Any) -> None:
    """They count from the commit on; a request meanwhile waits, unless it needs no stable answer."""
    topic, group = clients.topic(), name()
    producer, consumer = clients.producer(name()), clients.consumer(group)
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3, "three")], metadata, SECONDS)
    assert error(lambda: consumer.committed([TopicPartition(topic, 0)], 0.2)).name() == "_TIMED_OUT"
    hasty = clients.consumer(group, isolation_level="read_uncommitted")
    assert committed(hasty, topic)[0] == -1001
    producer.commit_transaction(SECONDS)
    assert committed(consumer, topic) == (3, "three")
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 5, "five")], metadata, SECONDS)
    producer.abort_transaction(SECONDS)
    assert committed(consumer, topic) == (3, "three")


def test_a_later_plain_commit_outlives_the_transactions(clients: Any) -> None:
    """Of two commits for a partition the later one counts, although the transaction ends after it."""
    topic, group = clients.topic(), name()
    producer, consumer = clients.producer(name()), clients.consumer(group)
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 10)], metadata, SECONDS)
    consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    producer.commit_transaction(SECONDS)
    assert committed(consumer, topic)[0] == 5


def test_metadata_has_a_limit_in_transactions(clients: Any) -> None:
    """The transaction can only be aborted."""
    topic = clients.topic()
    producer, consumer = clients.producer(name()), clients.consumer()
    producer.begin_transaction()
    metadata = consumer.consumer_group_metadata()
    large = [TopicPartition(topic, 0, 1, "x" * 4_096)]
    refused = error(lambda: producer.send_offsets_to_transaction(large, metadata, SECONDS))
    assert (refused.name(), refused.txn_requires_abort()) == ("OFFSET_METADATA_TOO_LARGE", True)
    producer.abort_transaction(SECONDS)
