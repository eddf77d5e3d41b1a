"""A consumer of the Spark crash test, to be run as a process: ``spark_process.py ROLE JSON``.

ROLE is ``spark`` or ``python``. What is delivered and acknowledged is noted before the next step, one system call for
each event or batch, so that ``kill -9`` loses none. SIGTERM ends the process in order.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).parents[2]))

from kjms import Connection, ConnectionFactory, JMSException, Message, Queue, Session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WAIT_MS: Final = 200
LOOK_SECONDS: Final = 0.2
SETTINGS: Final = {
    "master": "local[2]",
    "spark.ui.enabled": False,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": 1,
}

over = threading.Event()


class History:
    """The file of one session of this process.

    Args:
        folder: Where it is.
        role: What kind of consumer this is.
        session: The name of the session.
    """

    def __init__(self, folder: str, role: str, session: str) -> None:
        path = Path(folder, f"{role}-{os.getpid()}-{session}.jsonl")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, *events: Mapping[str, Any]) -> None:
        """Write *events*, all at once."""
        at = time.time()
        os.write(self._file, "".join(f"{json.dumps({'at': at, **event})}\n" for event in events).encode())


def factory(task: Mapping[str, Any]) -> ConnectionFactory:
    """Return the factory of a process."""
    timeout = task["session_timeout"]
    return ConnectionFactory(
        task["servers"], kafka={"session.timeout.ms": timeout, "heartbeat.interval.ms": timeout // 5}
    )


def consume(task: Mapping[str, Any], session: Session, name: str) -> None:
    """Take messages until this process is to end, or, if the task says so, until none comes for some seconds."""
    history, chance = History(task["folder"], "python", name), random.Random()
    consumer = session.create_consumer(Queue(task["queue"]))
    heard = time.monotonic()
    while not over.is_set():
        taken: list[Message] = []
        for _ in range(chance.randint(1, task["most"])):
            message = consumer.receive(WAIT_MS)
            if message is None:
                break
            count = message.get_int_property("JMSXDeliveryCount")
            event = {"event": "delivered", "id": int(message.get_body(str)), "count": count}
            history.note({**event, "marked": message.jms_redelivered})
            taken.append(message)
            time.sleep(task["pace"])
        if taken:
            heard = time.monotonic()
            acknowledge(session, taken[-1], history)
        elif task["quiet"] and time.monotonic() - heard > task["quiet"]:
            over.set()
    session.close()


def acknowledge(session: Session, last: Message, history: History) -> None:
    """Acknowledge what *session* has; it comes again where that is refused."""
    history.note({"event": "acknowledging"})
    try:
        if session.transacted:
            session.commit()
        else:
            last.acknowledge()
    except JMSException as error:
        logging.warning("refused: %s", error)
        history.note({"event": "refused"})
        if not session.transacted:
            session.recover()
        return
    history.note({"event": "acknowledged"})


def python(task: Mapping[str, Any]) -> None:
    """Consume with two sessions: CLIENT_ACKNOWLEDGE, and transacted."""
    failures: list[BaseException] = []

    def run(connection: Connection, name: str, mode: int) -> None:
        try:
            consume(task, connection.create_session(mode), name)
        except BaseException as error:
            failures.append(error)
            over.set()

    modes = {"client": Session.CLIENT_ACKNOWLEDGE, "transacted": Session.SESSION_TRANSACTED}
    with factory(task).create_connection() as connection:
        connection.start()
        threads = [threading.Thread(target=run, args=[connection, *each]) for each in modes.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def spark(task: Mapping[str, Any]) -> None:
    """Consume with a query of Spark that stores each batch in a folder of its own."""
    from kjms.spark import consume_stream, spark_session

    session = spark_session("crash", **SETTINGS)
    session.sparkContext.setLogLevel("ERROR")
    history = History(task["folder"], "spark", "query")

    def store(frame: DataFrame, batch: int) -> None:
        rows = frame.selectExpr("CAST(text AS INT) AS id", "redelivered AS marked", "deliveryCount AS count", "batch")
        seen = [{"event": "delivered", **row.asDict()} for row in rows.collect()]
        history.note(*seen)
        rows.write.mode("overwrite").json(f"{task['folder']}/sink/batch={batch}")
        history.note({"event": "stored", "batch": batch})

    def numbered(frame: DataFrame, batch: int) -> None:
        store(frame.selectExpr("*", f"{batch} AS batch"), batch)

    query = consume_stream(
        session, factory(task), Queue(task["queue"]), numbered, checkpoint=f"{task['folder']}/at",
        max_messages=task["batch"],
    )  # fmt: skip
    while query.isActive and not over.wait(LOOK_SECONDS):
        pass
    if query.exception() is not None:
        raise RuntimeError(query.exception())
    query.stop()
    session.stop()


def main() -> None:
    """Do what the arguments say."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    {"spark": spark, "python": python}[sys.argv[1]](json.loads(sys.argv[2]))


if __name__ == "__main__":
    main()
