"""A Spark application that reads, or archives, the queues that fit a pattern: ``-m benchmarks._spark_reader JOB``.

It runs in a process of its own, on Spark's ``local-cluster``: each executor is a JVM of its own with one core.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["COLUMNS", "Job", "Spent", "spent"]

SELECTOR: Final = "region = 'EU' AND amount > 10"
COLUMNS: Final = (
    "messageID", "messageType", "timestamp", "deliveryMode", "correlationID", "replyTo", "destination", "type",
    "expiration", "deliveryTime", "priority",
)  # fmt: skip
EXECUTOR_MEGABYTES: Final = 1024
BATCH: Final = 2_500_000  # messages of a batch of an archive


@dataclass(frozen=True)
class Job:
    """What an application does.

    Attributes:
        servers: Kafka's address.
        work: ``read``: all header fields as columns, of what the selector matches; ``archive``: all into Parquet.
        executors: How many there are.
        pattern: The Kafka topics.
        warm_up: Kafka topics that are read before, so that Java has compiled what it runs.
    """

    servers: str
    work: str
    executors: int
    pattern: str
    warm_up: str


class Spent(NamedTuple):
    """What the work took, in seconds, and how many messages it found."""

    driver: float
    """Of processors, in Python and Java."""
    executors: float
    elapsed: float
    messages: int


def spent(job: Job) -> Spent:
    """Return what an application took for *job*, without its start."""
    command = [sys.executable, "-m", "benchmarks._spark_reader", json.dumps(asdict(job))]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}  # where its master and workers listen
    run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Spent(*json.loads(run.stdout.splitlines()[-1]))


def main(job: Job) -> None:
    """Do the work, and print what it took."""
    from kjms.spark import spark_session

    settings: dict[str, Any] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": f"{EXECUTOR_MEGABYTES}m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # work begins when all executors are there
    }
    spark = spark_session("kjms benchmark", master=f"local-cluster[{job.executors},1,{EXECUTOR_MEGABYTES}]", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    work = _read if job.work == "read" else _archive
    with tempfile.TemporaryDirectory(prefix="kjms-benchmark-") as folder:
        work(spark, job.servers, job.warm_up, f"{folder}/first")
        before, begin = _processor_seconds(), time.perf_counter()
        messages = work(spark, job.servers, job.pattern, f"{folder}/second")
        elapsed, after = time.perf_counter() - begin, _processor_seconds()
        spark.sparkContext.setLogLevel("OFF")  # the executors complain of the end
        spark.stop()
    driver, executors = (late - early for late, early in zip(after, before, strict=True))
    print(json.dumps(Spent(driver, executors, elapsed, messages)))


def _read(spark: SparkSession, servers: str, pattern: str, _: str) -> int:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    from kjms import ConnectionFactory, Queue
    from kjms.spark import Pattern, read_batch

    seen = Observation()
    frame = read_batch(spark, ConnectionFactory(servers), Pattern(Queue, pattern), selector=SELECTOR)
    rows = frame.select(*COLUMNS).observe(seen, f.count(f.lit(1)).alias("rows"))
    rows.write.format("noop").mode("overwrite").save()
    return int(seen.get["rows"])


def _archive(spark: SparkSession, servers: str, pattern: str, folder: str) -> int:
    from kjms import ConnectionFactory, Queue
    from kjms.spark import Pattern
    from kjms.spark.pipelines import archive, forget_archive

    factory, name = ConnectionFactory(servers), folder.strip("/").replace("/", "-")
    query = archive(
        spark,
        factory,
        Pattern(Queue, pattern),
        folder,
        checkpoint=f"{folder}.at",
        name=name,
        trigger={"availableNow": True},
        options={"maxOffsetsPerTrigger": str(BATCH)},
    )
    query.awaitTermination()
    forget_archive(factory, name)
    return sum(progress.numInputRows for progress in query.recentProgress)


def _processor_seconds() -> tuple[float, float]:
    """Return what the driver (this process and its Java), and the executors, have taken of processors so far."""
    this = psutil.Process()
    drivers = [this, *this.children()]
    every = [this, *this.children(recursive=True)]
    return sum(map(_seconds, drivers)), sum(_seconds(each) for each in every if each not in drivers)


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
