"""One end of a measurement of ``handover.py``, to be run as a process: ``handover_process.py ROLE SERVERS JSON``."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
from typing import Final

from kjms import Connection, ConnectionFactory, Queue, Session, TransactionRolledBackException

WORK_SECONDS: Final = 0.005  # of waiting, for each message
SAY_SECONDS: Final = 0.25
WAIT: Final = 1_000
BATCH: Final = 50
KINDS: Final = "abcdz"  # of which nobody wants the last
BODY_BYTES: Final = 256


def say(**found: object) -> None:
    print(json.dumps(found), flush=True)


def fill(connection: Connection, queue: str, count: int) -> None:
    """Send *count* numbered messages of all kinds in turn."""
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        producer = session.create_producer(Queue(queue))
        for number in range(count):
            message = session.create_text_message(str(number).ljust(BODY_BYTES, "."))
            message.properties["kind"] = KINDS[number % len(KINDS)]
            producer.send(message)
            if number % 1_000 == 999:
                session.commit()
        session.commit()
    say(sent=count)


def work(connection: Connection, queue: str, mode: int) -> None:
    """Receive until killed, with some time for each message; print how many there were so far."""
    consumer = connection.create_session(mode).create_consumer(Queue(queue))
    connection.start()
    count, said = 0, 0.0
    while True:
        message = consumer.receive(WAIT)
        if message is not None:
            time.sleep(WORK_SECONDS)
            count += 1
        now = time.monotonic()
        if now - said > SAY_SECONDS:
            said = now
            say(count=count, at=now)


def take(connection: Connection, queue: str, done: str, selector: str, name: str) -> None:
    """Until killed, receive what *selector* wants, and send a record of each message, in transactions."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    consumer = session.create_consumer(Queue(queue), selector)
    producer = session.create_producer(Queue(done))
    connection.start()
    say(ready=True)
    held = 0
    while True:
        message = consumer.receive(WAIT if not held else 5)
        if message is not None:
            number = int((message.get_body(str) or "").rstrip("."))
            kind = message.get_string_property("kind")
            record = {"number": number, "kind": kind, "by": name, "redelivered": message.jms_redelivered}
            producer.send(session.create_text_message(json.dumps(record)))
            held += 1
        if held and (message is None or held == BATCH):
            with contextlib.suppress(TransactionRolledBackException):  # others have the partition; it comes again
                session.commit()
            held = 0


def main() -> None:
    role, servers, values = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    logging.basicConfig(level=logging.WARNING)
    with ConnectionFactory(servers).create_connection() as connection:
        {"fill": fill, "work": work, "take": take}[role](connection, **values)


if __name__ == "__main__":
    main()
