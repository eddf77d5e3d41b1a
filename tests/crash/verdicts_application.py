"""An application that rejects and retries, and notes each delivery: see test_verdicts_short.

The environment says where: HISTORY is a folder, BOOTSTRAP the brokers' addresses, PREFIX that of the queues.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path

from kjms import ConnectionFactory, DestinationOptions, Message, Queue, Reject, Retry, Session
from kjms.worker import Application, AsyncContext, Context, listener

PREFIX = os.environ["PREFIX"]
PLAIN, TASKS, DONE = (Queue(f"{PREFIX}.{name}") for name in ("plain", "tasks", "done"))
TRIES = 3  # deliveries of a message that is retried: the last one is done

_history = os.open(Path(os.environ["HISTORY"]) / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def begin(message: Message) -> tuple[str, int]:
    """Note a delivery in one system call; return the message's name and the number of the delivery."""
    name, count = str(message.get_string_property("name")), message.get_int_property("JMSXDeliveryCount")
    line = {"name": name, "pid": os.getpid(), "count": count, "marked": message.jms_redelivered, "at": time.monotonic()}
    os.write(_history, (json.dumps(line) + "\n").encode())
    return name, count


def judge(name: str, count: int) -> None:
    """Raise what the message is for."""
    if name.startswith("reject"):
        raise Reject("it is to be")
    if name.startswith("retry") and count < TRIES:
        raise Retry("it is to be", after=100)


@listener(PLAIN, concurrency=2, session_mode=Session.SESSION_TRANSACTED)
def work(message: Message, context: Context) -> None:
    """Send in the transaction that a verdict rolls back."""
    name, count = begin(message)
    context.send(DONE, name)
    time.sleep(0.01)
    judge(name, count)


@listener(TASKS, concurrency=2)
async def task(message: Message, context: AsyncContext) -> None:
    """Send when it is done."""
    name, count = begin(message)
    await asyncio.sleep(0.01)
    judge(name, count)
    await context.send(DONE, name)


app = Application(
    ConnectionFactory(
        os.environ["BOOTSTRAP"],
        destinations={each.queue_name: DestinationOptions(partitions=2) for each in (PLAIN, TASKS)},
        replication_factor=1,
        kafka={"session.timeout.ms": 6_000},
        send_timeout=60_000,
    ),
    [work, task],
)
