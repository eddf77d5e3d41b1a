"""The pipelines: what they do, over restarts and without Python on the executors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from spark_records import SETTINGS

from kjms import cli
from kjms.errors import JMSException
from kjms.spark import read_batch
from kjms.spark.pipelines import archive, replay, where
from tests.helpers import WAIT_MS

LAUNCHED = {"master", "spark.driver.memory"}  # what spark-submit has options of its own for
pytestmark = pytest.mark.usefixtures("no_python_on_executors")

WAIT_SECONDS = 90.0


def send(connection, destination, numbers):
    session = connection.create_session()
    producer = session.create_producer(destination)
    for number in numbers:
        message = session.create_text_message(str(number))
        message.set_int_property("number", number)
        producer.send(message)


def kept(spark, path):
    return Counter(int(row["text"]) for row in spark.read.parquet(path).select("text").collect())


def submitted(spark, *arguments: str) -> list[str]:
    """Return the command that lets spark-submit run a pipeline, with the connectors of this session."""
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    settings = [f"--conf={name}={value}" for name, value in SETTINGS.items() if name not in LAUNCHED]
    launched = [f"--master={SETTINGS['master']}", f"--driver-memory={SETTINGS['spark.driver.memory']}"]
    jars = f"--jars={spark.sparkContext.getConf().get('spark.jars')}"
    file = subprocess.run(
        [sys.executable, "-m", "kjms.spark.submit"], capture_output=True, check=True, text=True
    ).stdout
    return [str(submit), *launched, *settings, jars, file.strip(), *arguments]


def test_an_archive_that_is_killed_holds_each_message_once(
    spark, kjms_broker, kjms_factory, kjms_connection, kjms_queue, tmp_path
):
    """Run by spark-submit, killed with -9 in the middle, and started again, the archive has each message once."""
    path, checkpoint = str(tmp_path / "files"), str(tmp_path / "at")
    send(kjms_connection, kjms_queue, range(100))
    archiving = ["archive", kjms_queue.queue_name, "--path", path, "--checkpoint", checkpoint]
    few = ["--option", "maxOffsetsPerTrigger=20", "--bootstrap", kjms_broker.bootstrap_servers]
    paths = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": paths, "PYSPARK_PYTHON": sys.executable}
    program = submitted(spark, *archiving, *few)
    with subprocess.Popen(program, env=environment, start_new_session=True) as process:
        deadline = time.monotonic() + WAIT_SECONDS
        try:
            while not (tmp_path / "files" / "_spark_metadata" / "0").exists():
                assert process.poll() is None, "the program ended by itself"
                assert time.monotonic() < deadline, "waited in vain"
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    send(kjms_connection, kjms_queue, range(100, 130))
    query = archive(spark, kjms_factory, kjms_queue, path, checkpoint=checkpoint, trigger={"availableNow": True})
    assert query.awaitTermination(60)
    assert kept(spark, path) == Counter(range(130))


def test_an_archive_is_sent_again_as_it_was(spark, kjms_factory, kjms_connection, kjms_queue, kjms_topic, tmp_path):
    """A replay sends what its selector wants, with ids and properties, in order where the rate is bounded."""
    path, checkpoint = str(tmp_path / "files"), str(tmp_path / "at")
    send(kjms_connection, kjms_queue, range(6))
    bootstrap = kjms_factory._options.bootstrap_servers
    keep = ["spark", "archive", kjms_queue.queue_name, "--path", path, "--checkpoint", checkpoint, "--once"]
    assert cli.main([*keep, "--bootstrap", bootstrap]) == 0
    frame = spark.read.parquet(path)
    assert where(frame, "number > 1").count() == 4
    assert where(frame, "number > 1 AND missing = 1").count() == 0
    sent = {row["text"]: row["messageID"] for row in frame.collect()}
    consumer = kjms_connection.create_session().create_consumer(kjms_topic)
    begin = time.time_ns() // 1_000_000
    assert replay(spark, kjms_factory, path, kjms_topic, selector="number BETWEEN 1 AND 3", rate=2) == 3
    again = read_batch(spark, kjms_factory, kjms_topic).selectExpr("text", "unix_millis(kafkaTimestamp) AS stored")
    stored = {row["text"]: row["stored"] - begin for row in again.collect()}
    assert min(stored["1"], stored["2"]) >= 0
    assert stored["3"] >= 1_000  # two have gone in the first second
    received = [consumer.receive(WAIT_MS) for _ in range(3)]
    assert [message.text for message in received] == ["1", "2", "3"]
    assert [message.get_int_property("number") for message in received] == [1, 2, 3]
    assert [message.jms_message_id for message in received] == [sent[text] for text in ("1", "2", "3")]
    again = ["spark", "replay", f"topic://{kjms_topic.topic_name}", "--path", path, "--selector", "number = 5"]
    assert cli.main([*again, "--bootstrap", bootstrap]) == 0
    assert consumer.receive(WAIT_MS).text == "5"


def test_what_is_missing_is_said(spark, kjms_factory, kjms_topic, tmp_path, capsys):
    """No archive, and arguments that make no sense, are one-line errors."""
    with pytest.raises(JMSException, match="holds no archive"):
        replay(spark, kjms_factory, str(tmp_path / "nothing"), kjms_topic)
    with pytest.raises(ValueError, match="rate is a whole number"):
        replay(spark, kjms_factory, str(tmp_path), kjms_topic, rate=0)
    for wrong, told in {
        "archive orders --path x": "archive: give --checkpoint",
        "archive orders --path x --checkpoint y --rate 5": "archive: has no option --rate",
        "replay a b --path x": "replay: give one destination",
        "route orders --checkpoint x": "route: give --to",
        "route orders --checkpoint x --to a a>": "--to a a>: expected",
        "route orders --checkpoint x --to a --to a": "each destination once",
        "route orders --checkpoint x --to a --set =5": "COLUMN=SQL",
        "convert orders --checkpoint x --to a a=1": "without a selector",
        "report orders --since yesterday": "is not a time such as",
    }.items():
        assert cli.main(["spark", *wrong.split(" ")]) == 2
        assert told in capsys.readouterr().err


def test_no_python_runs_on_executors(spark, kjms_factory, kjms_connection, kjms_queue, f):
    """Where a function in Python fails, messages are read, and all pipelines of these tests run."""
    send(kjms_connection, kjms_queue, range(2))
    frame = read_batch(spark, kjms_factory, kjms_queue, selector="number >= 0 AND number + 1 < 3")
    assert "Python" not in frame._jdf.queryExecution().executedPlan().toString()
    assert frame.count() == 2
    with pytest.raises(Py4JJavaError, match="/no/python/on/executors"):
        spark.range(1).select(f.udf(lambda number: number)("id")).collect()
