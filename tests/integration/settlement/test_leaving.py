"""Closing while Kafka's group is at work, and programs that end without closing: at once, and without a warning."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from kjms import Queue
from kjms.broker import LocalBroker
from tests.helpers import Intercepted, apart, intercepted

SECONDS = 4.5  # what librdkafka was waited for in vain took 5


def test_a_consumer_that_closes_while_it_is_assigned_partitions_leaves_at_once(
    kjms_broker: LocalBroker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition that the group assigns while its consumer closes is given up again, without waiting."""
    is_assigning, is_closing = threading.Event(), threading.Event()

    class Slow(Intercepted):
        def subscribe(self, topics: list[str], *, on_assign: Any, **callbacks: Any) -> None:
            def slowly(*arguments: Any) -> None:
                is_assigning.set()
                assert is_closing.wait(20)
                on_assign(*arguments)

            self.inner.subscribe(topics, on_assign=slowly, **callbacks)

    with intercepted(kjms_broker.bootstrap_servers, consumer=Slow), apart(kjms_broker.bootstrap_servers) as connection:
        connection.create_session().create_consumer(queue).message_listener = lambda _: None
        assert is_assigning.wait(20)
        threading.Timer(0.5, is_closing.set).start()  # by then, the connection is closing
        begin = time.monotonic()
        with caplog.at_level(logging.WARNING, "kjms"):
            connection.close()
    assert time.monotonic() - begin < SECONDS
    assert [record.getMessage() for record in caplog.records if record.name != "kjms.kafka"] == []


ENDINGS = {
    "a listener that was just set": """
context = ConnectionFactory(servers).create_context()
context.create_consumer(Queue(name)).message_listener = print
""",
    "a listener that is at work": """
context = ConnectionFactory(servers).create_context()
at_work = threading.Event()
def listen(message):
    at_work.set()
    time.sleep(0.2)
for _ in range(20):
    context.create_producer().send(Queue(name), "hello")
context.create_consumer(Queue(name)).message_listener = listen
assert at_work.wait(20)
""",
    "a listener that does not return": """
context = ConnectionFactory(servers).create_context()
at_work = threading.Event()
def listen(message):
    at_work.set()
    time.sleep(60)
context.create_producer().send(Queue(name), "hello")
context.create_consumer(Queue(name)).message_listener = listen
assert at_work.wait(20)
""",
    "asyncio": """
async def main():
    context = await aio.ConnectionFactory(servers).create_context()
    consumer = await context.create_consumer(Queue(name))
    await context.create_producer().send(Queue(name), "hello")
    assert await consumer.receive(20_000) is not None
    asyncio.create_task(consumer.receive())
    await asyncio.sleep(0.01)
asyncio.run(main())
""",
}
PROGRAM = """
import asyncio, logging, sys, threading, time
from kjms import ConnectionFactory, Queue, aio
servers, name = sys.argv[1:]
logging.basicConfig(level="WARNING")
{ending}
print(time.time(), flush=True)
"""


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_a_program_that_does_not_close_ends_at_once(kjms_broker: LocalBroker, queue: Queue, ending: str) -> None:
    """The end of a program ends its listeners and leaves its groups, with an empty stderr."""
    program = [sys.executable, "-c", PROGRAM.format(ending=ending), kjms_broker.bootstrap_servers, queue.queue_name]
    run = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120)
    ended_at = time.time()
    assert (run.returncode, run.stderr) == (0, "")
    seconds = ended_at - float(run.stdout.splitlines()[-1])
    assert seconds < SECONDS, f"the end took {seconds:.1f} s"
