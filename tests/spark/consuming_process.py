"""A driver that drains queues, and is killed at a step of a batch, as its arguments say.

It drains three queues at a time: into files that a function writes, a Delta table and an Iceberg table. All three reach
the step before the driver is killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from spark_records import FORMATS, SETTINGS

from kjms import ConnectionFactory, Queue
from kjms.spark import spark_session
from kjms.spark._consuming import Consumption
from kjms.spark.pipelines import drain

STEPS = ("before the function", "in the function", "after the sink", "after the outcome", "never")
KINDS = ("files", *FORMATS)
SOONEST_SECONDS, LATEST_SECONDS = 0.0, 1.5  # from the beginning of a batch until the kill: within it, or after it


def kill() -> None:
    """Kill the driver and its Java."""
    os.killpg(os.getpid(), signal.SIGKILL)


def main(servers: str, queue: str, folder: str, step: str, most: int, seed: int | None = None) -> None:
    """Drain the queues *queue*.<kind> into *folder*/<kind>; kill this process at *step* of their second batches.

    With a *seed*, these may be their first ones, which the driver before may have begun.
    """
    assert step in STEPS, step
    chance = random.Random(seed)
    # A batch that is run again has no outcome that is followed by a settlement.
    fatal = 2 if seed is None or step == "after the outcome" else chance.randint(1, 2)
    begun: Counter[Consumption] = Counter()
    arrived = threading.Barrier(len(KINDS), action=kill)

    def kill_at(reached: str, consumption: Consumption) -> None:
        if step == reached and begun[consumption] == fatal:
            arrived.wait()

    def kill_soon() -> None:
        time.sleep(chance.uniform(SOONEST_SECONDS, LATEST_SECONDS))
        kill()

    soon = threading.Barrier(len(KINDS), action=threading.Thread(target=kill_soon).start)
    call, settle = Consumption._call, Consumption._settle

    def call_or_die(self, frame, batch):
        begun[self] += 1
        kill_at("before the function", self)
        if step == "in the function" and begun[self] == fatal:
            soon.wait()
        failed = call(self, frame, batch)
        kill_at("after the sink", self)
        return failed

    def settle_or_die(self, *arguments):
        kill_at("after the outcome", self)
        return settle(self, *arguments)

    Consumption._call, Consumption._settle = call_or_die, settle_or_die

    def store(frame, batch):
        rows = [row["text"] for row in frame.select("text").collect()]
        file = Path(folder, "files", f"{batch}.json")
        file.write_text(json.dumps(rows[: len(rows) // 2]), "utf-8")
        file.write_text(json.dumps(rows), "utf-8")

    spark = spark_session("drain", formats=FORMATS, **SETTINGS)
    spark.sparkContext.setLogLevel("ERROR")
    Path(folder, "files").mkdir(exist_ok=True)

    def drained(kind: str) -> None:
        where = {"to": store} if kind == "files" else {"to": f"{folder}/{kind}", "format": kind}
        at = f"{folder}/{kind}.at"
        factory = ConnectionFactory(servers, kafka={"client.id": kind})
        print(kind, drain(spark, factory, Queue(f"{queue}.{kind}"), checkpoint=at, max_messages=most, **where))

    drains = [threading.Thread(target=drained, args=[kind]) for kind in KINDS]
    for each in drains:
        each.start()
    for each in drains:
        each.join()


if __name__ == "__main__":
    main(*sys.argv[1:5], *map(int, sys.argv[5:]))
