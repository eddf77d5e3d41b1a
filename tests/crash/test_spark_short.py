"""The Spark test, in short: the long one is a chore."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import load_module

PROGRAM = Path(__file__).with_name("spark.py")
LIMIT_SECONDS = 900

pytestmark = [pytest.mark.slow, pytest.mark.long]  # Spark starts twice


@pytest.mark.timeout(LIMIT_SECONDS + 5)
def test_consumers_of_three_kinds_that_are_killed_process_each_message() -> None:
    """A query of Spark, a Python and a Java program share a queue: nothing is lost, nothing repeated without a mark."""
    pytest.importorskip("pyspark")
    pytest.importorskip("proton")
    missing = load_module(Path(__file__).parents[1] / "amqp" / "java_remote.py").missing_tool()
    if missing is not None:
        pytest.skip(missing)
    arguments = ["--messages", "6000", "--kills", "1", "--seed", "3"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed: spark 1 times, python 1 times, java 1 times" in done.stdout
    processed = re.search(r"processed: spark (\d+), python (\d+), java (\d+)", done.stdout)
    assert processed is not None, done.stdout
    assert all(map(int, processed.groups()))
