"""Share a queue with plain Kafka programs: a queue is a Kafka topic, and a message is a Kafka record."""

from __future__ import annotations

import uuid

import confluent_kafka

from kjms import Connection, ConnectionFactory, Queue
from kjms.broker import find_broker

INVOICES = Queue(f"examples.invoices.{uuid.uuid4().hex[:8]}")  # new in each run: the program reads it from the start


def send_with_kjms(connection: Connection) -> None:
    with connection.create_session() as session:
        invoice = session.create_text_message("42.50 EUR")
        invoice.set_string_property("customer", "Ada")
        invoice.set_int_property("days", 30)
        session.create_producer(INVOICES).send(invoice)


def read_with_plain_kafka(bootstrap_servers: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "plain-kafka", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([INVOICES.queue_name])  # a separate group: the queue keeps its messages
    record = consumer.poll(10)
    headers = dict(record.headers())
    print(f"plain Kafka read {record.value().decode()!r}, customer {headers['customer'].decode()}")
    consumer.close()


def write_with_plain_kafka(bootstrap_servers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(INVOICES.queue_name, "9.99 EUR", headers={"customer": "Björn", "days": "14"})
    producer.flush()


def receive_with_kjms(connection: Connection) -> None:
    with connection.create_session() as session:
        consumer = session.create_consumer(INVOICES)
        for _ in range(2):
            invoice = consumer.receive(10_000)
            customer, days = invoice.get_string_property("customer"), invoice.get_int_property("days")
            print(f"kjms received {invoice.text!r}, customer {customer}, due in {days} days")


def main() -> None:
    with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        send_with_kjms(connection)
        read_with_plain_kafka(broker.bootstrap_servers)
        write_with_plain_kafka(broker.bootstrap_servers)
        receive_with_kjms(connection)


if __name__ == "__main__":
    main()
