"""Destinations whose records are laid out as other bridges do."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from kjms import ConnectionFactory, DestinationOptions, Queue, TextMessage
from kjms.mapping import confluent
from tests.helpers import WAIT_MS, stored_records


def test_the_confluent_connectors_struct_is_written_and_read(kjms_broker: Any, queue: Queue) -> None:
    """With convention="confluent" a queue's records are the connectors' struct, both ways."""
    options = DestinationOptions(convention="confluent")
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, destinations={queue.queue_name: options})
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        message = session.create_text_message("two pounds of coffee")
        message.set_int_property("amount", 2)
        session.create_producer(queue).send(message)
        consumer = session.create_consumer(queue, "amount = 2")
        received = consumer.receive(WAIT_MS)
        assert isinstance(received, TextMessage)
        assert received.text == "two pounds of coffee"
        assert received.get_int_property("amount") == 2
        (record,) = stored_records(kjms_broker.bootstrap_servers, queue.queue_name)
        assert confluent.decode(record, queue).get_body(str) == "two pounds of coffee"  # it is their struct
        assert b"two pounds of coffee" in record.value()
        assert record.value() != b"two pounds of coffee"


def test_camels_headers_are_read(kjms_broker: Any, kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """With convention="camel" the headers that Camel's Kafka component wrote become JMS headers and properties."""
    options = DestinationOptions(convention="camel")
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, destinations={queue.queue_name: options})
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(queue)
        plain = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
        plain.produce(queue.queue_name, b"hello", headers={"CamelHeader.JMSCorrelationID": b"c-1", "region": b"EU"})
        plain.flush()
        received = session.create_consumer(queue).receive(WAIT_MS)
        assert isinstance(received, TextMessage)
        assert received.jms_correlation_id == "c-1"
        assert received.properties["region"] == "EU"


def test_an_unknown_convention_is_refused() -> None:
    """A convention that there is not is named."""
    with pytest.raises(ValueError, match="carrier-pigeon"):
        DestinationOptions(convention="carrier-pigeon")
