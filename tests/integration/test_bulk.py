"""Many messages from one process to another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kjms import ConnectionFactory, Queue
from kjms.broker import Broker
from tests.helpers import committed

pytestmark = pytest.mark.slow

MESSAGES = 100_000
PROGRAM = Path(__file__).with_name("bulk_process.py")
LIMIT_SECONDS = 100


@pytest.mark.requirement("JMS-4.4.10.1-2", "NEV-225")
def test_a_hundred_thousand_messages_go_from_one_process_to_another_in_order(
    kjms_broker: Broker, kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """What one session sends is received by another process completely, once, and in the order of sending."""
    with kjms_factory.create_connection() as connection, connection.create_session() as session:
        session.create_producer(queue).close()  # the queue is there before either process begins

    arguments = (kjms_broker.bootstrap_servers, queue.queue_name, str(MESSAGES))
    ends = [
        subprocess.Popen([sys.executable, PROGRAM, role, *arguments], stderr=subprocess.PIPE, text=True)
        for role in ("receive", "send")
    ]
    try:
        said = [end.communicate(timeout=LIMIT_SECONDS)[1] for end in ends]
    finally:
        for end in ends:
            end.kill()

    assert said == ["", ""]
    assert [end.returncode for end in ends] == [0, 0]
    assert committed(kjms_broker.bootstrap_servers, queue) == MESSAGES
