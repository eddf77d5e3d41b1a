"""Executors of a query that consumes: Spark repeats the tasks of one that is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kjms import ConnectionFactory, DestinationOptions
from kjms.spark import read_batch
from tests.helpers import program_environment, send

COUNT, MOST = 600, 300
SECONDS = 380


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 20)
def test_a_batch_whose_executor_is_killed_is_stored_once(spark, kjms_broker, kjms_queue, tmp_path):
    """Killed with -9 while it runs a task of a batch, an executor costs no message, and none is stored twice."""
    two = {kjms_queue.queue_name: DestinationOptions(partitions=2, ordering="none")}
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, destinations=two)
    with factory.create_connection() as connection:
        send(connection, kjms_queue, *map(str, range(COUNT)))
    program = [sys.executable, str(Path(__file__).with_name("executors_process.py"))]
    arguments = [kjms_broker.bootstrap_servers, kjms_queue.queue_name, str(tmp_path), str(MOST)]
    done = subprocess.run(
        [*program, *arguments], env=program_environment(), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said["killed"]) == 1, done.stderr
    assert said["failed"] >= 1  # the executor had a task
    assert said["settled"] == COUNT
    assert said["batches"] == [*dict.fromkeys(said["batches"])]  # the function of no batch was called again
    rows = spark.read.parquet(str(tmp_path / "rows")).select("text").collect()
    assert Counter(int(row["text"]) for row in rows) == Counter(range(COUNT))
    assert read_batch(spark, factory, kjms_queue, pending=True).count() == 0
