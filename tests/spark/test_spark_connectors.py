"""How Spark's connectors are found when several programs need them for the first time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spark_records import FORMATS

from kjms.file_lock import alone_in
from kjms.spark._session import LOCAL_JARS, _cache

PROGRAM = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
from kjms.spark import spark_session
session = spark_session(formats=sys.argv[1].split(), master="local[1]", **{"spark.ui.enabled": "false"})
settings = session.sparkContext.getConf()
print("packages", settings.get("spark.jars.packages", "-"), flush=True)
print("jars", settings.get("spark.jars", "-"), flush=True)
session.stop()
"""


def test_of_two_programs_one_fetches_and_the_other_one_finds(spark, connectors, tmp_path, monkeypatch):
    """While a program fetches, another one waits, and then takes what is there: Ivy's cache is not made for two."""
    monkeypatch.setenv("KJMS_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(LOCAL_JARS, raising=False)
    arguments = [sys.executable, "-c", PROGRAM, " ".join(FORMATS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with alone_in(tmp_path):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        other = subprocess.Popen(arguments, **pipes, text=True, env=environment)
        try:
            said = other.stdout.readline()
            assert said == f"another program fetches what is needed into {tmp_path}; waiting for it\n"
            _cache(spark.version, FORMATS).write_text("\n".join(connectors), "utf-8")
        except BaseException:
            other.kill()
            raise
    with other:
        said = other.stdout.read()
    assert other.returncode == 0, said[-4000:]
    assert "packages -\n" in said, "it asked Ivy all the same"
    jars = next(line for line in said.splitlines() if line.startswith("jars "))
    assert {Path(jar).name for jar in jars[5:].split(",")} == {Path(jar).name for jar in connectors}
