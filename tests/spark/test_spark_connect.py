"""Spark Connect: what works in its sessions, and what says that it does not. A real server, in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kjms.errors import JMSException
from kjms.spark._require import packages
from kjms.spark._session import _local_jars

PROGRAM = Path(__file__).with_name("connect_program.py")


@pytest.mark.long
def test_what_needs_no_driver_works_with_spark_connect(connectors, kjms_broker, kjms_queue, tmp_path):
    """Reading, writing and all pipelines that consume nothing work; what needs the driver is refused by name.

    The server's connectors come from a directory.
    """
    pytest.importorskip("grpc_status", reason="pyspark[connect] is not installed")
    jars = tmp_path / "jars"
    jars.mkdir()
    for jar in connectors:
        (jars / Path(jar).name).symlink_to(jar)
    tmp_path = tmp_path / "work"
    tmp_path.mkdir()
    paths = os.pathsep.join([str(PROGRAM.parents[2]), str(PROGRAM.parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "KJMS_SPARK_JARS": str(jars), "PYTHONPATH": paths}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    program = [sys.executable, str(PROGRAM), port]
    arguments = [kjms_broker.bootstrap_servers, kjms_queue.queue_name, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(program, **pipes, text=True, env=environment, cwd=tmp_path) as server:
        try:
            ready = next(line for line in server.stdout if line.startswith("JARS "))
            done = subprocess.run(
                [*program, *arguments], capture_output=True, text=True, timeout=380, check=False, env=environment
            )
        finally:
            server.stdin.close()
    assert done.returncode == 0, done.stderr[-4000:]
    assert {Path(jar).parent for jar in ready.split()[1].split(",")} == {jars}
    found = json.loads(done.stdout.partition("FOUND ")[2])
    assert found.pop("session").startswith("pyspark.sql.connect")
    assert found.pop("left") == [], "nothing was started of what was refused"
    assert found.pop("archive").startswith("archive: give a name, as in name='orders'")
    assert "give the name of a table in a catalog" in found.pop("archive in a folder")
    assert "give identity=[...], the columns that tell a row from all others" in found.pop("write_stream")
    for name in ("consume_stream", "drain"):
        assert "Spark Connect" in found.pop(name)
    assert found == {
        "bodies": ["text", 1], "selected": [120, '{"a":[1]}'], "pending": 2, "settlement": 1, "replayed": 1,
        "archived parquet": 3, "archived delta": 3, "archived iceberg": 3, "replayed delta": 3,
        "streamed": [2, 2, True], "routed": 1, "otherwise": 2, "converted": [4, True],
    }  # fmt: skip


def test_a_directory_without_a_connector_is_refused(tmp_path):
    """The error names each file that is missing in the directory of connectors."""
    have = ["org.apache.kafka_kafka-clients-3.9.0.jar", "commons-pool2-2.12.0.jar", "spark-avro_2.13-4.0.0.jar"]
    for name in have:
        (tmp_path / name).touch()
    with pytest.raises(JMSException) as failure:
        _local_jars(tmp_path, packages("4.0.0"))
    missing = "spark-sql-kafka-0-10_2.13-4.0.0.jar, spark-token-provider-kafka-0-10-*.jar"
    assert str(failure.value).startswith(f"{tmp_path} lacks {missing}: copy")
    for name in (
        "org.apache.spark_spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    ):
        (tmp_path / name).touch()
    assert len(_local_jars(tmp_path, packages("4.0.0"))) == 5
    with pytest.raises(JMSException, match=r"lacks spark-sql-kafka-0-10_2.13-4.0.1.jar, spark-avro_2.13-4.0.1.jar:"):
        _local_jars(tmp_path, packages("4.0.1"))
