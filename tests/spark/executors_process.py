"""A driver with executors of their own that drains a queue, and kills one of them in the middle of a batch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).parent))

import psutil
from spark_records import SETTINGS

from kjms import ConnectionFactory, Queue
from kjms.spark import spark_session
from kjms.spark.pipelines import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXECUTORS: Final = 2
LOOK_SECONDS: Final = 0.05
LONG_SECONDS: Final = 200.0
SLOWLY: Final = "reflect('java.lang.Thread', 'sleep', 20L) AS slept"  # so that tasks run while an executor is killed


def spark_home(folder: Path) -> Path:
    """Return a home of Spark where its workers may write: that of pyspark, by links."""
    import pyspark

    folder.mkdir()
    for each in ("bin", "jars"):
        (folder / each).symlink_to(Path(pyspark.__file__).parent / each)
    return folder


def executors() -> list[psutil.Process]:
    """Return the executors of this driver."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # short-lived helpers of Spark
            if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                found.append(process)
    return found


def active_tasks(spark: SparkSession) -> int:
    """Return how many tasks run."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def main(servers: str, queue: str, folder: str, most: int) -> None:
    """Drain *queue* into *folder*/rows, and kill an executor in its second batch; print what came of it."""
    address = "127.0.0.1"
    home = str(spark_home(Path(folder, "spark")))
    os.environ |= {"SPARK_HOME": home, "SPARK_LOCAL_IP": address, "SPARK_LOCAL_HOSTNAME": address}
    settings = {**SETTINGS, "master": f"local-cluster[{EXECUTORS},1,512]", "spark.executor.memory": "512m"}
    spark = spark_session("executors", **settings)
    spark.sparkContext.setLogLevel("ERROR")
    killed: list[int] = []
    stages: list[int] = []  # which ran then

    def kill_one() -> None:
        deadline = time.monotonic() + LONG_SECONDS
        while active_tasks(spark) < EXECUTORS or len(executors()) < EXECUTORS:
            if time.monotonic() > deadline:
                return
            time.sleep(LOOK_SECONDS)
        killed.append(executors()[0].pid)
        stages.extend(spark.sparkContext.statusTracker().getActiveStageIds())
        os.kill(killed[0], signal.SIGKILL)

    batches: list[int] = []

    def store(frame: DataFrame, batch: int) -> None:
        batches.append(batch)
        if len(batches) == 2:
            threading.Thread(target=kill_one).start()
        frame.selectExpr("text", SLOWLY).write.mode("overwrite").parquet(f"{folder}/rows/batch={batch}")

    # More tasks than executors, so that each has one, whichever partitions a batch is of.
    options = {"minPartitions": str(2 * EXECUTORS)}
    how = {"checkpoint": f"{folder}/at", "max_messages": most, "options": options}
    count = drain(spark, ConnectionFactory(servers), Queue(queue), store, **how)
    tracker = spark.sparkContext.statusTracker()
    failed = sum(stage.numFailedTasks for stage in map(tracker.getStageInfo, stages) if stage is not None)
    print(json.dumps({"settled": count, "killed": killed, "batches": batches, "failed": failed}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
