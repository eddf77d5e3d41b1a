"""``kjms queues`` and ``kjms topics``: queues and topics are made, emptied and deleted from the command line."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
import uuid
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, Session, Topic
from kjms.cli import _queues, main
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, Kjms, browse, send, wait_for


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The environment of a user with an in-memory Kafka."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KJMS_")}
    with MemoryKafka() as kafka:
        yield {**own, "KJMS_BOOTSTRAP": kafka.bootstrap_servers}


@pytest.fixture
def factory(environment: dict[str, str]) -> ConnectionFactory:
    """A connection factory for the Kafka of the commands."""
    return ConnectionFactory(environment["KJMS_BOOTSTRAP"])


def numbered(factory: ConnectionFactory, queue: Queue, count: int) -> list[str]:
    """Send messages with their numbers as text and property ``n``; return their ids."""
    with factory.create_connection() as connection:
        return [str(send(connection, queue, str(n), properties={"n": n})[0].jms_message_id) for n in range(count)]


def held(factory: ConnectionFactory, queue: str) -> list[str]:
    with factory.create_connection() as connection:
        return browse(connection, Queue(queue))


def test_a_queue_is_made_listed_and_deleted(kjms: Kjms, factory: ConnectionFactory) -> None:
    """The list has its figures; deleting asks at a terminal, and says what would go."""
    assert kjms("queues").stdout == b"There are no queues yet.\n"
    run = kjms("queues", "create", "orders", "--partitions", "3", "--set", "max.message.bytes=3000000")
    assert run.stderr == b"kjms queues: queue://orders was created\n"
    numbered(factory, Queue("orders"), 3)
    (entry,) = json.loads(kjms("queues", "--json").stdout)
    assert (entry["name"], entry["depth"], entry["consumers"], entry["error"]) == ("orders", 3, 0, None)
    assert entry["oldest"] > 0
    header, line = kjms("queues").stdout.decode().splitlines()
    assert header.split() == ["QUEUE", "MESSAGES", "IN", "FLIGHT", "DELAYED", "DEAD", "LETTERS", "PROCESSES", "OLDEST"]
    assert line.split()[:2] == ["orders", "3"]
    assert "MESSAGES UP TO" in kjms("queues", "--estimate").stdout.decode()
    assert b"exists already" in kjms("queues", "create", "orders", expected=1).stderr
    dry = kjms("queues", "delete", "orders", "--dry-run").stderr
    assert dry == b"kjms queues: 3 messages of queue://orders would be deleted\n"
    assert b"--yes" in kjms("queues", "delete", "orders", expected=2).stderr
    ours, its = pty.openpty()
    try:
        os.write(ours, b"n\n")
        with open(its, encoding="utf-8") as terminal:
            run = kjms("queues", "delete", "orders", stdin=terminal, expected=1)
    finally:
        os.close(ours)
    assert b"Permanently delete queue://orders and 3 messages in it? [y/N] " in run.stderr
    kjms("queues", "delete", "orders", "--yes")
    assert kjms("queues").stdout == b"There are no queues yet.\n"
    assert b"there is no Kafka topic" in kjms("queues", "purge", "orders", "--yes", expected=1).stderr


def test_counting_shows_its_progress_at_a_terminal(
    factory: ConnectionFactory,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Lists and searches say how far they are; where standard error is no terminal, they say nothing."""
    with factory.create_connection() as connection:
        send(connection, Queue("orders"), *map(str, range(2_500)))
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        connection.start()
        assert session.create_consumer(Queue("orders")).receive(WAIT_MS) is not None  # now it is known as a queue
    commands = ["queues"], ["destinations"], ["dlq", "purge", "orders", "--yes"], ["queues", "find", "ID:none"]
    monkeypatch.setattr(_queues, "SAY_SECONDS", 0.0)
    capsys.readouterr()
    for is_terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda is_terminal=is_terminal: is_terminal)
        for command in commands:
            main([*command, "--bootstrap", environment["KJMS_BOOTSTRAP"]])
            said = capsys.readouterr().err
            assert (f"kjms {command[0]}: 1,000 " in said) == is_terminal, (command, said)


def test_messages_are_purged_moved_and_copied(kjms: Kjms, factory: ConnectionFactory) -> None:
    """Selector, ids and limit choose; --dry-run says how many, and changes nothing."""
    ids = numbered(factory, Queue("orders"), 10)
    for name in ("old", "backup"):
        kjms("queues", "create", name)
    dry = kjms("queues", "move", "orders", "old", "--selector", "n < 3", "--dry-run").stderr
    assert dry == b"kjms queues: 3 messages of queue://orders would be moved\n"
    assert len(held(factory, "orders")) == 10
    run = kjms("queues", "move", "orders", "old", "--selector", "n < 3", "--limit", "2")
    assert run.stderr == b"kjms queues: 2 messages of queue://orders were moved\n"
    assert held(factory, "old") == ["0", "1"]
    done = json.loads(kjms("queues", "copy", "orders", "backup", "--id", ids[4], "--id", ids[6], "--json").stdout)
    assert done == {"done": 2, "matched": 2, "stayed": {}}
    assert held(factory, "backup") == ["4", "6"]
    assert kjms("queues", "purge", "orders", "--id", ids[5], "--yes").stderr.endswith(
        b"1 message of queue://orders was deleted\n"
    )
    kjms("topics", "create", "news")
    kjms("queues", "move", "old", "topic://news")
    assert held(factory, "old") == []
    assert (
        kjms("queues", "purge", "orders", "--yes").stderr == b"kjms queues: 7 messages of queue://orders were deleted\n"
    )
    assert held(factory, "orders") == []


@pytest.mark.slow
def test_messages_in_flight_are_reported(kjms: Kjms, factory: ConnectionFactory) -> None:
    """They stay with their consumer, and the exit code is 1."""
    numbered(factory, Queue("orders"), 3)
    with factory.create_connection() as connection:
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue("orders"), "n = 0")
        connection.start()
        assert consumer.receive(WAIT_MS) is not None
        run = kjms("queues", "purge", "orders", "--yes", expected=1)
        assert run.stderr.decode().splitlines() == [
            "kjms queues: 2 messages of queue://orders were deleted",
            "kjms queues: 1 message stayed: in flight to another consumer of queue://orders",
        ]
        assert b"has consumers in" in kjms("queues", "delete", "orders", "--yes", expected=1).stderr


def test_a_message_is_found_with_its_redeliveries(kjms: Kjms, factory: ConnectionFactory) -> None:
    """Its places and its history are shown, also as JSON."""
    (message_id,) = numbered(factory, Queue("orders"), 1)
    with factory.create_connection() as connection:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(Queue("orders"))
        connection.start()
        for _ in range(2):
            assert consumer.receive(WAIT_MS) is not None
            session.rollback()
    wait_for(lambda: b"redelivery" in kjms("queues", "find", message_id).stdout)
    place, event = json.loads(kjms("queues", "find", message_id, "--json").stdout)
    assert (place["destination"], place["place"], place["offset"]) == ("queue://orders", "queue", 0)
    assert (event["event"], event["count"], event["process"]) == ("redelivery", 2, os.getpid())
    shown = kjms("queues", "find", message_id).stdout.decode()
    assert "orders[0]@0" in shown
    assert "its transaction was rolled back" in shown
    assert b"no queue or subscription has" in kjms("queues", "find", "ID:none", expected=1).stderr


def test_topics_are_made_and_deleted(kjms: Kjms, factory: ConnectionFactory) -> None:
    """One with subscriptions is not deleted; its subscriptions are emptied and deleted by themselves."""
    client = f"client-{uuid.uuid4().hex}"
    kjms("topics", "create", "news", "--partitions", "2")
    assert b"exists already" in kjms("topics", "create", "topic://news", expected=1).stderr
    with factory.create_connection() as connection:
        connection.client_id = client
        session = connection.create_session()
        session.create_durable_consumer(Topic("news"), "kept").close()
        send(session, Topic("news"), "one", "two")
    assert b"has subscriptions" in kjms("topics", "delete", "news", "--yes", expected=1).stderr
    shown = kjms("browse", "--subscription", "kept", "--client-id", client).stdout
    assert sorted(shown.split()) == [b"one", b"two"]
    assert b"--yes" in kjms("subscriptions", "purge", "kept", "--client-id", client, expected=2).stderr
    dry = kjms("subscriptions", "purge", "kept", "--client-id", client, "--dry-run").stderr
    assert b"2 messages" in dry
    kjms("subscriptions", "purge", "kept", "--client-id", client, "--yes", "--selector", "JMSPriority = 4")
    assert kjms("browse", "--subscription", "kept", "--client-id", client).stdout == b""
    kjms("subscriptions", "delete", "kept", "--client-id", client)
    assert b"--yes" in kjms("topics", "delete", "news", expected=2).stderr
    kjms("topics", "delete", "news", "--yes")
    assert b"there is no Kafka topic" in kjms("topics", "delete", "news", "--yes", expected=1).stderr


def test_delayed_messages_are_delivered_now(kjms: Kjms, factory: ConnectionFactory) -> None:
    """--dry-run says how many; afterwards they are in their queue."""
    kjms("send", "orders", "later", "too", "--delay", "3600000")
    dry = kjms("schedule", "deliver", "orders", "--all", "--dry-run").stderr
    assert dry == b"kjms schedule: 2 delayed messages of queue://orders would be delivered\n"
    (first, _) = json.loads(kjms("schedule", "list", "orders", "--json").stdout)
    run = kjms("schedule", "deliver", "orders", first["message_id"])
    assert run.stderr == b"kjms schedule: 1 delayed message of queue://orders was delivered\n"
    kjms("schedule", "deliver", "orders", "--all")
    assert sorted(held(factory, "orders")) == ["later", "too"]
    assert b"no delayed message" in kjms("schedule", "deliver", "orders", "ID:x", expected=1).stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("queues list orders", "give no queue"),
        ("queues create", "give the queue"),
        ("queues find", "give the id"),
        ("queues move orders", "give the target"),
        ("queues purge orders old --yes", "give no target"),
        ("queues move topic://news old", "is not a queue"),
        ("queues create orders --limit 3", "an option of copy and move and purge only"),
        ("queues purge orders --set a=b --yes", "an option of create only"),
        ("queues create orders --set a", "NAME=VALUE"),
        ("queues copy orders old --yes", "an option of delete and purge only"),
        ("queues purge orders", "--yes"),
        ("queues purge orders --yes --selector =", "column"),
        ("topics create queue://orders", "is not a topic"),
        ("topics delete news --partitions 3 --yes", "options of create only"),
        ("topics create news --yes", "an option of delete only"),
        ("subscriptions purge", "give the name"),
        ("subscriptions list --limit 3", "an option of purge only"),
        ("subscriptions purge kept", "--yes"),
    ],
)
def test_wrong_use_is_said(arguments: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Arguments that make no sense together end with exit code 2, before anything is connected."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(arguments.split()) == 2
    assert why in capsys.readouterr().err
