"""Connection factories and destinations: what administrators define, and all that clients need to know of Kafka."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kjms
from kjms import (
    ConnectionFactory,
    Destination,
    DestinationType,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
    Topic,
)
from tests.helpers import WAIT_MS

# What JMS's own methods take, in Python's spelling.
OF_JMS = {
    "acknowledge_mode", "body", "client_id", "completion_listener", "delivery_delay", "delivery_mode", "destination",
    "duration", "listener", "message", "message_selector", "mode", "name", "no_local", "password", "priority", "queue",
    "queue_name", "selector", "session_mode", "text", "time_to_live", "timeout", "topic", "topic_name", "type_", "user",
    "value",
}  # fmt: skip
OF_CLIENTS = [
    kjms.Connection, kjms.Session, kjms.MessageProducer, kjms.MessageConsumer, kjms.QueueBrowser, kjms.JMSContext,
    kjms.JMSProducer, kjms.JMSConsumer,
]  # fmt: skip


@pytest.mark.requirement("JMS-2.3-1", "NEV-144")
@pytest.mark.parametrize("kind", OF_CLIENTS)
def test_kafka_is_configured_in_factories_and_destinations_alone(kind: type) -> None:
    """No method of what clients make of them takes a setting that JMS does not know; what they connect to, they say."""
    for name, method in inspect.getmembers(kind, inspect.isfunction):
        if not name.startswith("_"):
            assert set(inspect.signature(method).parameters) - {"self"} <= OF_JMS, name
    for door in (ConnectionFactory.create_connection, ConnectionFactory.create_context):
        assert set(inspect.signature(door).parameters) - {"self"} <= OF_JMS
    assert {"bootstrap_servers", "kafka", "destinations"} <= set(inspect.signature(ConnectionFactory).parameters)


@pytest.mark.requirement(
    "JMS-4.2-2", "NET-82", "NET-85", "NET-103", "NET-106", "NET-109", "NET-111",
)  # fmt: skip
def test_an_administrator_defines_them_and_a_client_uses_them(
    kjms_broker: Any, kjms_destination_name: str, tmp_path: Path
) -> None:
    """A file has the settings of a factory and its destinations; the client names them, and knows nothing of Kafka."""
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    made, on_demand = f"{kjms_destination_name}-made", f"{kjms_destination_name}-on-demand"
    admin.create_topics([NewTopic(f"q.{made}", 2, 1)])[f"q.{made}"].result(20)
    path = tmp_path / "kjms.toml"
    path.write_text(
        f"""
        bootstrap_servers = "{kjms_broker.bootstrap_servers}"
        client_id = "{kjms_destination_name}"
        queue_prefix = "q."
        partitions = 4
        [destinations.{on_demand}]
        partitions = 3
        """
    )
    factory = ConnectionFactory.from_config(path)
    with factory.create_connection() as connection:
        assert connection.client_id == kjms_destination_name
        connection.start()
        session = connection.create_session()
        for name in (made, on_demand):
            queue = session.create_queue(name)
            session.create_producer(queue).send(session.create_text_message(name))
            received = session.create_consumer(queue).receive(WAIT_MS)
            assert isinstance(received, TextMessage)
            assert (received.text, received.jms_destination) == (name, queue)
    topics = admin.list_topics(timeout=20).topics
    assert {name: len(topics[f"q.{name}"].partitions) for name in (made, on_demand)} == {made: 2, on_demand: 3}


@pytest.mark.requirement("JMS-4.2.1-1", "NET-102", "NET-104")
@pytest.mark.parametrize("form", ["{}", "{}.eu-west_1", "größe: {}/№ 1?", "queue://{}", "{}\\x%41"])
def test_a_destination_wraps_an_address_of_any_form(kjms_broker: Any, kjms_destination_name: str, form: str) -> None:
    """An address has no syntax; one that can be a Kafka topic's name is the topic's name, which Kafka's clients use."""
    address = form.format(kjms_destination_name)
    with ConnectionFactory(kjms_broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        queue = session.create_queue(address)
        assert queue.queue_name == address
        session.create_producer(queue).send(session.create_text_message("a"))
        received = session.create_consumer(Queue(address)).receive(WAIT_MS)
        assert isinstance(received, TextMessage)
        assert (received.text, received.jms_destination) == ("a", queue)
    if re.fullmatch(r"[\w.-]+", address, re.ASCII):
        topics = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers}).list_topics(timeout=20).topics
        assert address in topics


@pytest.mark.requirement("JMS-4.2-1", "NET-112")
def test_they_hold_nothing_elsewhere() -> None:
    """Making them opens no connection, starts no thread, sends no request, and costs a few thousand bytes."""
    code = """
import tracemalloc, psutil, kjms
kjms.ConnectionFactory("127.0.0.1:1")
process = psutil.Process()
before = process.num_threads(), process.num_fds()
tracemalloc.start()
made = [
    (kjms.ConnectionFactory("127.0.0.1:1", client_id=str(n), partitions=3), kjms.Queue(f"q{n}"), kjms.Topic(f"t{n}"))
    for n in range(1_000)
]
size, _ = tracemalloc.get_traced_memory()
print(process.num_threads() - before[0], process.num_fds() - before[1], process.net_connections(), size < 5_000_000)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "0 0 [] True\n", done.stderr


@pytest.mark.requirement("NET-12")
@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        (Queue, DestinationType.QUEUE),
        (Topic, DestinationType.TOPIC),
        (TemporaryQueue, DestinationType.TEMPORARY_QUEUE),
        (TemporaryTopic, DestinationType.TEMPORARY_TOPIC),
    ],
)
def test_a_destination_tells_its_kind(kind: type[Destination], type_: DestinationType) -> None:
    """An enumeration has one member for each kind of destination."""
    assert kind("name").destination_type is type_
    assert len(DestinationType) == 4
