"""The drain test: a driver that drains queues into a Delta and an Iceberg table, and files, is killed again and again.

    python3 chores.py crash --spark-drain [--messages N] [--kills K] [--seed S] [--keep]

The driver, ``tests/spark/consuming_process.py``, drains three queues at a time. The exit code is 0, or 1 if a message
is not in its table once, or still in its queue; see docs/crash-test.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "spark"), str(ROOT)]

from consuming_process import KINDS, STEPS  # noqa: E402 - beside the tests of Spark
from crash_rounds import show_report  # noqa: E402 - beside this file
from spark_record import tables  # noqa: E402
from spark_records import FORMATS, SETTINGS  # noqa: E402 - beside the tests of Spark

from kjms import ConnectionFactory, DestinationOptions, Queue, Session  # noqa: E402
from kjms.broker import find_broker  # noqa: E402
from tests.history.report import judged  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 6
RUN_SECONDS: Final = 600.0
COMMIT_EVERY: Final = 1_000


def plan(seed: int, kills: int) -> list[str]:
    """Return the step at which each driver is killed: half of them at a moment within a batch, or soon after it.

    >>> sorted(set(plan(1, 10))), len(plan(1, 10))
    (['after the outcome', 'after the sink', 'before the function', 'in the function'], 10)
    """
    steps = [step for step in STEPS if step not in {"in the function", "never"}]
    chosen = [steps[number // 2 % len(steps)] if number % 2 else "in the function" for number in range(kills)]
    random.Random(seed).shuffle(chosen)
    return chosen


def fill(factory: ConnectionFactory, queue: Queue, count: int) -> None:
    """Send *count* messages, whose texts are their numbers."""
    with factory.create_connection() as connection, connection.create_session(Session.SESSION_TRANSACTED) as session:
        producer = session.create_producer(queue)
        for number in range(count):
            producer.send(session.create_text_message(str(number)))
            if number % COMMIT_EVERY == COMMIT_EVERY - 1:
                session.commit()
        session.commit()


def run(servers: str, queue: str, folder: Path, step: str, options: argparse.Namespace, chance: random.Random) -> int:
    """Run the driver until *step*; return its exit code."""
    program = [sys.executable, str(HERE.parent / "spark" / "consuming_process.py")]
    arguments = [servers, queue, str(folder), step, str(options.batch), str(chance.randrange(10**9))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [*program, *arguments], env=environment, start_new_session=True, stdout=log, stderr=log
        )
    try:
        return process.wait(RUN_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def stored(spark: SparkSession, folder: Path, kind: str) -> list[int]:
    """Return the numbers that a table, or the files, have."""
    if kind == "files":
        return [int(text) for file in (folder / kind).glob("*.json") for text in json.loads(file.read_text("utf-8"))]
    return [int(row["text"]) for row in spark.read.format(kind).load(str(folder / kind)).select("text").collect()]


def left(factory: ConnectionFactory, queue: Queue) -> Iterator[int]:
    """Return the numbers of the messages that *queue* still has."""
    with factory.create_context() as context, context.create_browser(queue) as browser:
        for message in browser:
            yield int(message.get_body(str) or "")


def play(servers: str, folder: Path, options: argparse.Namespace) -> int:
    """Play the test on the brokers at *servers*; return the exit code."""
    from kjms.spark import spark_session

    name = f"drain-{uuid.uuid4().hex[:8]}"
    queues = {kind: Queue(f"{name}.{kind}") for kind in KINDS}
    factory = ConnectionFactory(
        servers,
        destinations={each.queue_name: DestinationOptions(partitions=PARTITIONS) for each in queues.values()},
        ordering="none",  # the sender has one session, whose messages would all be in one partition
    )
    for queue in queues.values():
        fill(factory, queue, options.messages)
    chance, done = random.Random(options.seed), Counter[str]()
    began = time.monotonic()
    for step in plan(options.seed, options.kills):
        code = run(servers, name, folder, step, options, chance)
        if code != -signal.SIGKILL:
            print(f"the driver ended with exit code {code} before it was killed {step}; see {folder}/driver.log")
            return 1
        done[step] += 1
        print(f"killed {step}", flush=True)
    code = run(servers, name, folder, "never", options, chance)
    seconds = time.monotonic() - began
    broken = 0
    if code:
        broken += 1
        print(f"the last driver ended with exit code {code}; see {folder}/driver.log")
    again = f"python3 chores.py crash --spark-drain --seed {options.seed} --messages {options.messages}"
    spark = spark_session("drain test", formats=FORMATS, **SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    for kind, queue in queues.items():
        numbers = stored(spark, folder, kind)
        print(f"{kind}: {len(numbers)} rows of {options.messages} messages", flush=True)
        record = tables(range(options.messages), numbers, left(factory, queue))
        found = judged(record, least=options.messages)
        broken += len(found)
        show_report(record, found, f"{again} --kills {options.kills}", folder)
    spark.stop()
    print(f"{seconds:.0f} s, seed {options.seed}; killed {', '.join(f'{n} times {step}' for step, n in done.items())}")
    print(f"{broken} violations")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="chores.py crash --spark-drain", description="Kill a driver that drains queues into tables."
    )
    parser.add_argument("--messages", type=int, default=60_000, help="how many are in each of the three queues (60000)")
    parser.add_argument("--kills", type=int, default=10, help="how often the driver is killed (10)")
    parser.add_argument("--batch", type=int, default=1_500, help="messages of a batch, at most (1500)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of the kills")
    parser.add_argument("--keep", action="store_true", help="keep the tables, and the log of the drivers")
    parser.add_argument("--bootstrap", help="a Kafka that runs already")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kjms-drain-"))
    with contextlib.ExitStack() as stack:
        servers = options.bootstrap or stack.enter_context(find_broker()).bootstrap_servers
        code = play(servers, folder, options)
    if code or options.keep:
        print(f"tables: {folder}")
    else:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
