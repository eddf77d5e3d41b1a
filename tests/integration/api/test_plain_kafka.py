"""kjms and plain Kafka programs on the same topics."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

from kjms import BytesMessage, Connection, Queue, TextMessage
from tests.helpers import WAIT_MS


def test_plain_kafka_reads_what_kjms_writes(connection: Connection, queue: Queue, kjms_broker: object) -> None:
    """The record's value is the text, and each header and property is a Kafka header with readable text."""
    session = connection.create_session()
    message = session.create_text_message("two pounds of coffee")
    message.set_int_property("amount", 2)
    message.properties["JMSXGroupID"] = "ada"
    message.jms_correlation_id = "c-1"
    session.create_producer(queue).send(message)
    consumer = Consumer(
        {"bootstrap.servers": kjms_broker.bootstrap_servers, "group.id": "plain", "auto.offset.reset": "earliest"}  # type: ignore[attr-defined]
    )
    consumer.subscribe([queue.queue_name])
    record = None
    while record is None:
        record = consumer.poll(1)
    consumer.close()
    headers = dict(record.headers())
    assert record.value() == b"two pounds of coffee"
    assert record.key() == b"ada"
    assert headers["amount"] == b"2"
    assert headers["JMSCorrelationID"] == b"c-1"
    assert headers["JMSMessageID"].decode() == message.jms_message_id
    assert headers["JMSTimestamp"] == str(message.jms_timestamp).encode()
    assert record.timestamp()[1] == message.jms_timestamp


def test_kjms_reads_what_plain_kafka_wrote(connection: Connection, queue: Queue, kjms_broker: object) -> None:
    """An existing Kafka topic is a queue without any change: texts and bytes, headers as String properties."""
    session = connection.create_session()
    session.create_producer(queue)  # makes the topic
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})  # type: ignore[attr-defined]
    producer.produce(queue.queue_name, "Grüße".encode(), headers={"region": "EU"}, timestamp=1_700_000_000_000)
    producer.produce(queue.queue_name, b"\xff\xfe\x00")
    producer.flush()
    consumer = session.create_consumer(queue)
    first, second = consumer.receive(WAIT_MS), consumer.receive(WAIT_MS)
    assert isinstance(first, TextMessage)
    assert first.text == "Grüße"
    assert first.properties["region"] == "EU"
    assert first.jms_timestamp == 1_700_000_000_000
    assert first.jms_message_id is not None
    assert isinstance(second, BytesMessage)
    assert second.read_bytes() == b"\xff\xfe\x00"
