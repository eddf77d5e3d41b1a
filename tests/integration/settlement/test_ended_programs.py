"""A message is acknowledged when `receive` has returned it; a loop's, when the loop asks for the next one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, MessageConsumer, Queue, Session
from kjms.broker import LocalBroker
from tests.helpers import NOTHING_MS, SHORT_SESSION, WAIT_MS, Eventually, browse, counted, send, text

WAYS = [
    pytest.param(Session.AUTO_ACKNOWLEDGE, {}, id="AUTO"),
    pytest.param(Session.DUPS_OK_ACKNOWLEDGE, {}, id="DUPS_OK"),
    pytest.param(Session.AUTO_ACKNOWLEDGE, {"pipelined_acknowledge": True}, id="pipelined"),
]


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.11-2", "JMS-4.4.12-1")
@pytest.mark.parametrize(("mode", "options"), WAYS)
def test_a_killed_process_does_not_repeat_what_was_acknowledged(
    kjms_broker: LocalBroker,
    process: Callable[..., Connection],
    queue: Queue,
    eventually: Eventually,
    mode: int,
    options: dict[str, Any],
) -> None:
    """A process that is killed while it is idle had acknowledged its last message: others do not get it again."""
    other = process()
    send(other, queue, "one", "two")
    program = (
        "import time\nfrom kjms import *\n"
        f"factory = ConnectionFactory({kjms_broker.bootstrap_servers!r}, kafka={SHORT_SESSION!r}, **{options!r})\n"
        "connection = factory.create_connection()\nconnection.start()\n"
        f"consumer = connection.create_session({int(mode)}).create_consumer(Queue({queue.queue_name!r}))\n"
        f"print(consumer.receive({WAIT_MS}).text, flush=True)\ntime.sleep(1000)"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "one\n"
    eventually(lambda: browse(other, queue) == ["two"])
    child.kill()
    child.communicate()
    consumer = other.create_session().create_consumer(queue)
    assert text(consumer.receive(WAIT_MS)) == "two"
    assert consumer.receive(NOTHING_MS) is None


def loop(consumer: MessageConsumer, *expected: str) -> None:
    """Take the messages that are expected in a loop, and leave it with the last one."""
    for wanted, message in zip(expected, consumer, strict=False):
        assert text(message) == wanted
        if wanted == expected[-1]:
            return


@pytest.mark.requirement("JMS-4.4.12-2")
@pytest.mark.parametrize("end", ["raise SystemExit(1)", "os.kill(os.getpid(), 9)"])
def test_a_program_that_ends_in_a_loop_brings_the_message_again(
    kjms_broker: LocalBroker, process: Callable[..., Connection], queue: Queue, end: str
) -> None:
    """A loop's message comes again, marked and counted, when its program ends without closing or is killed."""
    other = process()
    send(other, queue, "one", "two", "three")
    program = (
        "import os\nfrom kjms import *\n"
        f"factory = ConnectionFactory({kjms_broker.bootstrap_servers!r}, kafka={SHORT_SESSION!r})\n"
        "connection = factory.create_connection()\nconnection.start()\n"
        f"for message in connection.create_session().create_consumer(Queue({queue.queue_name!r})):\n"
        f"    if message.text == 'two':\n        {end}\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode != 0
    consumer = other.create_session().create_consumer(queue)
    assert counted(consumer.receive(WAIT_MS)) == ("two", 2)
    assert text(consumer.receive(WAIT_MS)) == "three"
    assert consumer.receive(NOTHING_MS) is None
