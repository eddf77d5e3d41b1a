"""The application of the worker test: it notes what its functions begin and end, one line per event in one system call.

The environment says where: HISTORY is a folder, BOOTSTRAP the brokers' addresses, PREFIX that of the queues.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import time
from pathlib import Path
from typing import Any

from kjms import ConnectionFactory, DestinationOptions, Message, Queue, Session
from kjms.worker import Application, AsyncContext, Context, listener

PREFIX = os.environ["PREFIX"]
TRANSACTED, AUTO, PACKED = (Queue(f"{PREFIX}.{name}") for name in ("transacted", "auto", "packed"))
SESSION_TIMEOUT = int(os.environ["SESSION_TIMEOUT"])

_outputs = itertools.count()
_history = os.open(Path(os.environ["HISTORY"]) / f"{os.getpid()}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def note(event: str, message: Message, session: object, output: str = "") -> None:
    """Write one line to the history of this process; *output* is what the transaction sends."""
    line: dict[str, Any] = {
        "event": event,
        "id": message.get_string_property("number"),
        "pid": os.getpid(),
        "session": id(session),
        "count": message.get_int_property("JMSXDeliveryCount"),
        "marked": message.jms_redelivered,
        "at": time.monotonic(),
        "output": output,
    }
    os.write(_history, (json.dumps(line) + "\n").encode())


@listener(TRANSACTED, concurrency=2, session_mode=Session.SESSION_TRANSACTED)
def pack(message: Message, context: Context) -> None:
    """Take a moment, and send what was packed in the same transaction."""
    note("began", message, context.session)
    time.sleep(random.uniform(0.005, 0.05))
    output = f"{message.get_string_property('number')}>{os.getpid()}.{next(_outputs)}"
    context.send(PACKED, output)
    note("ended", message, context.session, output)


@listener(AUTO, concurrency=2)
async def call(message: Message, context: AsyncContext) -> None:
    """Take a moment."""
    note("began", message, context.session)
    await asyncio.sleep(random.uniform(0.005, 0.05))
    note("ended", message, context.session)


def factory() -> ConnectionFactory:
    """Return the factory of the test's programs."""
    return ConnectionFactory(
        os.environ["BOOTSTRAP"],
        destinations={each.queue_name: DestinationOptions(partitions=4) for each in (TRANSACTED, AUTO)},
        replication_factor=1,
        kafka={"session.timeout.ms": SESSION_TIMEOUT, "heartbeat.interval.ms": SESSION_TIMEOUT // 5},
        send_timeout=60_000,
    )


app = Application(factory(), [pack, call])
