"""``kjms dlq`` against a real Kafka."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kjms import Connection, ConnectionFactory, Message, Queue, RedeliveryPolicy, Session, TextMessage, Topic
from kjms.cli import main
from tests.helpers import TRANSACTION_SECONDS, WAIT_MS, Eventually, Kjms, browse, delete_topic, partitions, wait_for

ONCE = RedeliveryPolicy(max_deliveries=1)


@contextmanager
def started(broker: Any, **options: Any) -> Iterator[Connection]:
    factory = ConnectionFactory(broker.bootstrap_servers, **{"redelivery": ONCE, **options})
    with factory.create_connection() as connection:
        connection.start()
        yield connection


def kill(connection: Connection, queue: Queue, *sent: str, **how: Any) -> list[Message]:
    """Send messages with these texts to *queue*, and make dead letters of them; return them as they were sent."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue)
    messages: list[Message] = []
    with session.create_producer(queue) as producer:
        for text in sent:
            message = session.create_text_message(text)
            message.set_short_property("length", len(text))
            message.properties["JMSXGroupID"] = f"group {len(text)}"
            producer.send(message, **how)
            messages.append(message)
    for _ in sent:
        assert consumer.receive(WAIT_MS) is not None
    session.recover()
    assert consumer.receive(300) is None
    dead = Queue(f"{queue.queue_name}.dlq")
    deadline = time.monotonic() + 20
    while len(browse(connection, dead)) < len(sent):
        assert time.monotonic() < deadline
    session.close()
    return messages


def test_dead_letters_are_listed_with_their_causes(
    kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """Each dead-letter queue is listed with how many dead letters it holds, and why; other messages do not count."""

    def fails(message: Message) -> None:
        raise ValueError("never mind")

    with started(kjms_broker) as connection:
        kill(connection, queue, "a", "b")
        session = connection.create_session()
        session.create_consumer(queue).message_listener = fails
        session.create_producer(queue).send(session.create_text_message("c"))
        with connection.create_session() as other:
            other.create_producer(dead).send(other.create_text_message("no dead letter"))
        eventually(lambda: len(browse(connection, dead)) == 4)
    entries = {entry["name"]: entry for entry in json.loads(kjms("dlq", "list", "--json").stdout)}
    last = entries[dead.queue_name].pop("last_failure")
    assert 0 < last <= time.time() * 1000
    assert entries[dead.queue_name] == {
        "name": dead.queue_name,
        "dead_letters": 3,
        "causes": {"delivered 1 time; the session recovered": 2, "delivered 1 time; the listener raised ValueError": 1},
    }
    assert queue.queue_name not in entries
    lines = kjms("dlq").stdout.decode().splitlines()
    assert lines[0].split() == ["QUEUE", "DEAD", "LETTERS", "LAST", "FAILURE", "CAUSES"]
    (at,) = (number for number, line in enumerate(lines) if line.startswith(dead.queue_name))
    when = f"{datetime.fromtimestamp(last / 1000, timezone.utc):%Y-%m-%d %H:%M:%S}"
    assert lines[at].split(maxsplit=5)[1:] == ["3", *when.split(), "UTC", "2 x delivered 1 time; the session recovered"]
    assert lines[at + 1].split(maxsplit=2) == ["1", "x", "delivered 1 time; the listener raised ValueError"]
    (only,) = json.loads(kjms("dlq", "list", queue.queue_name, "--json").stdout)
    assert only == {"name": queue.queue_name, "dead_letters": 0, "causes": {}, "last_failure": None}


def test_the_configuration_says_what_dead_letter_queues_are_called(
    kjms: Kjms, kjms_broker: Any, queue: Queue, tmp_path: Path
) -> None:
    """Names that the configuration gives to dead-letter and expiry queues are those that the list looks for."""
    dead, late = f"graveyard-{queue.queue_name}", f"{queue.queue_name}-late"
    (tmp_path / "kjms.toml").write_text(
        f'expiry_queue = "{late}"\n[redelivery]\ndead_letter = "graveyard-{{queue}}"\n', encoding="utf-8"
    )
    policy = RedeliveryPolicy(max_deliveries=1, dead_letter="graveyard-{queue}")
    with started(kjms_broker, redelivery=policy, expiry_queue=late) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        producer = session.create_producer(queue)
        producer.send(session.create_text_message("late"), time_to_live=1)
        producer.send(session.create_text_message("bad"))
        time.sleep(0.01)
        consumer = session.create_consumer(queue)
        assert consumer.receive(WAIT_MS) is not None
        session.recover()
        assert consumer.receive(300) is None
    entries = {entry["name"]: entry["causes"] for entry in json.loads(kjms("dlq", "--json").stdout)}
    assert entries[dead] == {"delivered 1 time; the session recovered": 1}
    assert entries[late] == {"expired": 1}


def test_dead_letters_are_shown(kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue) -> None:
    """Each is shown with its cause, its origin and its deliveries; ids and selectors choose."""
    with started(kjms_broker) as connection:
        first, second = kill(connection, queue, "a", "bb")
        assert browse(connection, dead) == ["a", "bb"]
    lines = kjms("dlq", "show", dead.queue_name).stdout.decode().splitlines()
    assert lines[0] == first.jms_message_id
    assert lines[1:5] == [
        "  cause        delivered 1 time; the session recovered",
        f"  origin       queue://{queue.queue_name}",
        f"  position     {queue.queue_name}[0]@0",
        "  deliveries   1",
    ]
    assert second.jms_message_id in lines
    chosen = [
        kjms("dlq", "show", dead.queue_name, "--json", *which).stdout
        for which in (["--id", str(second.jms_message_id)], ["--selector", "length = 2 OR length = 3"])
    ]
    assert chosen[0] == chosen[1]
    letter = json.loads(chosen[0])
    assert letter.pop("message")["body"] == "bb"
    assert 0 < letter.pop("first_failure") <= letter.pop("last_failure") <= time.time() * 1000
    assert (letter.pop("host"), letter.pop("process")) == (socket.gethostname(), os.getpid())
    assert letter == {
        **{
            "cause": "delivered 1 time; the session recovered",
            "destination": str(queue),
            "topic": queue.queue_name,
            "partition": 0,
        },
        **{"offset": 1, "deliveries": 1, "omitted": None},
        **{"exception": None, "exception_message": None, "traceback": None},
    }
    assert b"ID:none" in kjms("dlq", "show", dead.queue_name, "--id", "ID:none", expected=1).stderr
    run = kjms("dlq", "show", queue.queue_name)
    assert run.stdout == b""
    assert str(dead).encode() in run.stderr


def test_a_retried_message_is_as_it_was(kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue) -> None:
    """It comes back to its queue with all that it carried, for the first time; the dead letter is gone."""
    with started(kjms_broker, partitions=4) as connection:
        sent = kill(connection, queue, "a", "bb", "ccc", "dddd", time_to_live=600_000)
        run = kjms("dlq", "retry", dead.queue_name)
        assert run.stderr.decode() == f"kjms dlq: 4 dead letters of {dead} were moved back\n"
        assert browse(connection, dead) == []
        with connection.create_session() as session, session.create_consumer(queue) as consumer:
            received = {m.text: m for m in (consumer.receive(WAIT_MS) for _ in sent)}  # type: ignore[union-attr]
        for before in sent:
            after = received[before.text]  # type: ignore[attr-defined]
            assert (after.jms_message_id, after.jms_timestamp) == (before.jms_message_id, before.jms_timestamp)
            assert (after.jms_expiration, after.jms_priority) == (before.jms_expiration, before.jms_priority)
            assert (after.jms_redelivered, after.jms_destination) == (False, queue)
            assert dict(after.properties) == {**before.properties, "JMSXDeliveryCount": 1}
            assert after.property_type("length") == "short"
    assert kjms("dlq", "retry", dead.queue_name).stderr.startswith(f"kjms dlq: {dead} has no matching".encode())


def test_single_dead_letters_are_retried_and_purged(kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue) -> None:
    """--id and --selector choose; the other dead letters, and what is none, stay."""
    with started(kjms_broker) as connection:
        sent = kill(connection, queue, "a", "bb", "ccc", "dddd")
        with connection.create_session() as session:
            session.create_producer(dead).send(session.create_text_message("no dead letter"))
        ids = [str(message.jms_message_id) for message in sent]
        kjms("dlq", "retry", dead.queue_name, "--id", ids[3], "--id", ids[1])
        assert browse(connection, queue) == ["bb", "dddd"]
        assert browse(connection, dead) == ["a", "ccc", "no dead letter"]
        kjms("dlq", "retry", dead.queue_name, "--selector", "length > 2")
        assert browse(connection, queue) == ["bb", "dddd", "ccc"]
        assert b"ID:x" in kjms("dlq", "purge", dead.queue_name, "--yes", "--id", "ID:x", expected=1).stderr
        run = kjms("dlq", "purge", dead.queue_name, "--yes")
        assert run.stderr.decode() == f"kjms dlq: 1 dead letter of {dead} was deleted\n"
        assert browse(connection, dead) == ["no dead letter"]
        assert browse(connection, queue) == ["bb", "dddd", "ccc"]


def test_purge_asks(kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue) -> None:
    """At a terminal purge asks first; without one it needs --yes."""
    with started(kjms_broker) as connection:
        kill(connection, queue, "a", "b")
        assert b"--yes" in kjms("dlq", "purge", dead.queue_name, expected=2).stderr
        for answer, code, left in (("n\n", 1, ["a", "b"]), ("\n", 1, ["a", "b"]), ("y\n", 0, [])):
            ours, its = pty.openpty()
            try:
                os.write(ours, answer.encode())
                with open(its, encoding="utf-8") as terminal:
                    run = kjms("dlq", "purge", dead.queue_name, stdin=terminal, expected=code)
            finally:
                os.close(ours)
            assert run.stderr.startswith(f"Permanently delete 2 dead letters of {dead}? [y/N] ".encode())
            assert browse(connection, dead) == left


def test_what_expired_lives_on_when_it_is_retried(
    kjms: Kjms, kjms_broker: Any, queue: Queue, eventually: Eventually
) -> None:
    """A message comes back from the expiry queue without the time to live that is over."""
    late = Queue(f"{queue.queue_name}-late")
    with started(kjms_broker, expiry_queue=late.queue_name) as connection:
        session = connection.create_session()
        session.create_producer(queue).send(session.create_text_message("late"), time_to_live=1)
        time.sleep(0.01)
        with session.create_consumer(queue) as consumer:
            assert consumer.receive(300) is None
        eventually(lambda: browse(connection, late))
        run = kjms("dlq", "retry", late.queue_name, expected=1)  # its options do not name this expiry queue
        assert b"1 dead letter stayed: from a destination whose dead letters go to another queue" in run.stderr
        assert b"--origin NAME" in run.stderr
        assert (
            b"1 dead letter of"
            in kjms(*("dlq", "retry", late.queue_name, "--origin", queue.queue_name, "--dry-run")).stderr
        )
        kjms("dlq", "retry", late.queue_name, "--origin", queue.queue_name)
        message = session.create_consumer(queue).receive(WAIT_MS)
        assert isinstance(message, TextMessage)
        assert (message.text, message.jms_expiration, message.jms_redelivered) == ("late", 0, False)


def test_dead_letters_of_a_topic_are_retried_when_that_is_meant(
    kjms: Kjms, kjms_broker: Any, topic: Topic, eventually: Eventually
) -> None:
    """Every subscription gets such a message again, so it stays unless --topics says otherwise."""
    dead = f"{topic.topic_name}.dlq"
    with started(kjms_broker) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        subscriber = session.create_shared_durable_consumer(topic, topic.topic_name)
        session.create_producer(topic).send(session.create_text_message("price"))
        assert subscriber.receive(WAIT_MS) is not None
        session.recover()
        assert subscriber.receive(300) is None
        eventually(lambda: partitions(kjms_broker.bootstrap_servers, dead) and browse(connection, Queue(dead)))
        stayed = kjms("dlq", "retry", dead, expected=1).stderr
        assert b"1 dead letter stayed: from a topic" in stayed
        assert browse(connection, Queue(dead)) == ["price"]
        kjms("dlq", "retry", dead, "--topics")
        again = subscriber.receive(WAIT_MS)
        assert isinstance(again, TextMessage)
        assert (again.text, again.jms_redelivered) == ("price", False)
        again.acknowledge()
        subscriber.close()
        session.unsubscribe(topic.topic_name)


def test_what_cannot_be_retried_stays(kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue) -> None:
    """Incomplete dead letters, and those without an origin, stay where they are; the others are moved."""
    with started(kjms_broker) as connection:
        connection.create_session().create_producer(dead)
        connection.create_session().create_producer(queue)
        producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
        origin = {"JMS_kjms_Cause": "test", "JMS_kjms_OriginalDestination": str(queue)}
        for text, headers in (
            ("cut", {**origin, "JMS_kjms_Omitted": "headers, body"}),
            ("whole", origin),
            ("astray", {"JMS_kjms_Cause": "test"}),
            ("damaged", {**origin, "JMS_kjms_OriginalDestination": "nowhere", "JMS_kjms_OriginalPartition": "x"}),
        ):
            producer.produce(dead.queue_name, text, headers=headers)
        assert not producer.flush(20)
        run = kjms("dlq", "retry", dead.queue_name, expected=1).stderr.decode().splitlines()
        assert run[0] == f"kjms dlq: 1 dead letter of {dead} was moved back"
        assert sorted(line.split(": ")[1] for line in run[1:]) == ["1 dead letter stayed", "2 dead letters stayed"]
        assert browse(connection, queue) == ["whole"]
        assert browse(connection, dead) == ["cut", "astray", "damaged"]


def test_nothing_is_moved_to_a_queue_that_is_gone(
    kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """A queue that does not exist any more is not made anew by a retry."""
    with started(kjms_broker) as connection:
        kill(connection, queue, "a")
        delete_topic(kjms_broker.bootstrap_servers, queue.queue_name)
        run = kjms("dlq", "retry", dead.queue_name, expected=1)
        assert b"1 dead letter stayed: from a destination that does not exist any more" in run.stderr
        assert browse(connection, dead) == ["a"]


def test_what_dies_again_is_not_retried_again(
    kjms: Kjms, kjms_broker: Any, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """A retry takes the dead letters that were there when it began, and ends."""
    deliveries: Counter[str] = Counter()

    def fails(message: Message) -> None:
        deliveries[message.text] += 1  # type: ignore[attr-defined]
        raise ValueError("again")

    with started(kjms_broker) as connection:
        sent = [str(number) for number in range(40)]
        kill(connection, queue, *sent)
        connection.create_session().create_consumer(queue).message_listener = fails
        kjms("dlq", "retry", dead.queue_name)
        eventually(lambda: sorted(browse(connection, dead)) == sorted(sent))
        assert deliveries == dict.fromkeys(sent, 1)


@pytest.mark.slow
def test_nothing_is_lost_when_a_retry_is_killed(
    kjms: Kjms,
    start: Callable[..., subprocess.Popen[bytes]],
    kjms_broker: Any,
    queue: Queue,
    dead: Queue,
    eventually: Eventually,
) -> None:
    """After kill -9 in the middle and another retry, every message is in its queue, and no dead letter is left."""
    count = 5_000
    with started(kjms_broker) as connection:
        session = connection.create_session()
        session.create_producer(queue)
        session.create_producer(dead)
        producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
        headers = {"JMS_kjms_Cause": "test", "JMS_kjms_OriginalDestination": str(queue)}
        for number in range(count):
            producer.produce(dead.queue_name, str(number), headers=headers)
        assert not producer.flush(20)
        process = start("dlq", "retry", dead.queue_name, stderr=subprocess.DEVNULL)
        begun = session.create_browser(queue)
        eventually(lambda: any(begun))
        process.kill()
        process.wait(20)
        if browse(connection, dead):
            kjms("dlq", "retry", dead.queue_name)
        wait_for(lambda: len(browse(connection, queue)) >= count, TRANSACTION_SECONDS)
        assert sorted(map(int, browse(connection, queue))) == list(range(count))
        assert browse(connection, dead) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["retry"],
        ["purge", "--yes"],
        ["bury", "orders.dlq"],
        ["list", "--selector", "n = 1"],
        ["show", "orders.dlq", "--yes"],
        ["show", "orders.dlq", "--topics"],
        ["show", "orders.dlq", "--dry-run"],
        ["retry", "topic://orders"],
        ["show", "orders.dlq", "--selector", "n = = 1"],
        ["show", "orders.dlq", "--selector", "n = 1) OR (n = 2"],
    ],
)
def test_wrong_use_of_dlq(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What makes no sense together is refused before anything is done."""
    assert main(["dlq", *arguments]) == 2
    assert "kjms dlq: " in capsys.readouterr().err
