"""A message whose last delivery failed is a dead letter from then on, and tells how it failed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    Message,
    Queue,
    RedeliveryPolicy,
)
from tests.helpers import send

ONCE = RedeliveryPolicy(max_deliveries=1)


@pytest.fixture
def dead(queue: Queue) -> Queue:
    """The queue's dead-letter queue."""
    return Queue(f"{queue.queue_name}.dlq")


def factory(broker: Any, **options: Any) -> ConnectionFactory:
    return ConnectionFactory(broker.bootstrap_servers, **{"redelivery": ONCE, **options})


def letters(connection: Connection, dead: Queue) -> list[Message]:
    """Return the dead letters, as a browser sees them."""
    with connection.create_session() as session, session.create_browser(dead) as browser:
        return list(browser)


def test_a_program_that_ends_after_a_rollback_leaves_its_dead_letter(
    kjms_broker: Any, queue: Queue, dead: Queue
) -> None:
    """A program that ends without closing anything has moved what it rolled back for the last time."""
    program = (
        "import sys; from kjms import *\n"
        "factory = ConnectionFactory(sys.argv[1], redelivery=RedeliveryPolicy(max_deliveries=1))\n"
        "connection = factory.create_connection(); connection.start()\n"
        "session = connection.create_session(Session.SESSION_TRANSACTED)\n"
        "assert session.create_consumer(Queue(sys.argv[2])).receive(20_000) is not None\n"
        "session.rollback()\n"
    )
    with factory(kjms_broker).create_connection() as connection:
        send(connection, queue, "bad")
        subprocess.run(
            [sys.executable, "-c", program, kjms_broker.bootstrap_servers, queue.queue_name], check=True, timeout=60
        )
        assert len(letters(connection, dead)) == 1
