"""``kjms consumers`` and ``kjms top`` against a real Kafka."""

from __future__ import annotations

import json
import os
import re

from kjms import ConnectionFactory, Queue, Session, Topic
from kjms.broker import Broker
from tests.helpers import WAIT_MS, Eventually, Kjms, send


def test_consumers_are_listed_with_their_program_and_what_they_hold(
    kjms: Kjms, kjms_broker: Broker, queue: Queue, topic: Topic, eventually: Eventually
) -> None:
    """A queue's consumer with the message that it has, and that of a subscription; a name selects."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, application="billing")
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        connection.create_session().create_shared_durable_consumer(topic, f"{topic.topic_name}-daily")
        send(connection, queue, "a", "b")
        assert consumer.receive(WAIT_MS) is not None
        found: list[dict[str, object]] = []

        def is_listed() -> bool:
            found[:] = json.loads(kjms("consumers", queue.queue_name, "--json").stdout)
            return bool(found) and found[0]["in_flight"] == 1

        eventually(is_listed)
        (entry,) = found
        assert (entry["application"], entry["process_id"]) == ("billing", os.getpid())
        assert (entry["destination"], entry["subscription"]) == (str(queue), None)
        assert entry["partitions"] == [0]
        (line,) = kjms("consumers", f"{topic.topic_name}-daily").stdout.decode().splitlines()[1:]
        assert line.startswith(f"{topic.topic_name}-daily of {topic}")
        assert str(os.getpid()) in line
        assert kjms("consumers", "--estimate", queue.queue_name).stdout.decode().splitlines()[1].endswith("-")
    eventually(
        lambda: kjms("consumers", queue.queue_name).stdout == f"No program consumes {queue.queue_name}.\n".encode()
    )


def test_top_shows_the_busiest_first_and_what_changed(
    kjms: Kjms, kjms_factory: ConnectionFactory, queue: Queue, eventually: Eventually
) -> None:
    """Two tables, of which the second has a change; the queue has its two messages in both."""
    with kjms_factory.create_connection() as connection:
        other = Queue(f"{queue.queue_name}-other")
        send(connection, other, "a")
        send(connection, queue, "a", "b")

        def rows() -> list[list[str]]:
            lines = kjms("top", "--tables", "2", "--every", "0.01").stdout.decode().splitlines()
            return [re.split(r"\s{2,}", line.strip()) for line in lines if line.startswith(queue.queue_name)]

        eventually(lambda: [row[1] for row in rows() if row[0] == queue.queue_name] == ["2", "2"])
        found = rows()
        assert [row[0] for row in found] == 2 * [queue.queue_name, other.queue_name]
        assert [row[2] for row in found] == ["-", "-", "+0/s", "+0/s"]


def test_wrong_use_of_top(kjms: Kjms) -> None:
    """What makes no sense is refused before anything is read."""
    for arguments in (["--every", "0"], ["--every", "soon"], ["--tables", "0"], ["orders"]):
        kjms("top", *arguments, expected=2)
