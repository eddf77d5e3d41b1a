"""The pipelines: what they do, over restarts and without Python on the executors."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from spark_records import FORMATS, SETTINGS

from kjms import ConnectionFactory, SessionMode, cli
from kjms.broker import LocalBroker
from kjms.errors import InvalidDestinationException, JMSException
from kjms.spark import pipelines, read_batch, read_stream
from kjms.spark.pipelines import archive, archives, forget_archive, replay, where
from kjms.testing.engine import statistics, tuned
from tests.helpers import WAIT_MS, bounds, wait_for

LAUNCHED = {"master", "spark.driver.memory"}  # what spark-submit has options of its own for
pytestmark = pytest.mark.usefixtures("no_python_on_executors")

WAIT_SECONDS = 90.0
PAGE = Path(__file__).parents[2] / "docs" / "spark-archive.md"
COMPACTION = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0].replace(";", "").splitlines()

LOOK_SECONDS = 0.2  # between looks at the cluster, each of which opens clients


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


@pytest.mark.long
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


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_is_an_archive(
    spark, kjms_factory, kjms_connection, kjms_queue, kjms_topic, tmp_path, monkeypatch, kind
):
    """An archive in a table gets the columns that a later version adds; a replay sends values of the type they had."""
    target = f"lake.mail.{tmp_path.name.replace('-', '_')}" if kind == "iceberg" else str(tmp_path / "table")
    how = {"checkpoint": str(tmp_path / "at"), "trigger": {"availableNow": True}, "format": kind}
    send(kjms_connection, kjms_queue, range(3))

    def earlier(*arguments, **named):
        return read_stream(*arguments, **named).drop("type", "damage")

    with monkeypatch.context() as patched:
        patched.setattr(pipelines, "read_stream", earlier)
        assert archive(spark, kjms_factory, kjms_queue, target, **how).awaitTermination(WAIT_SECONDS)
    assert "damage" not in spark.read.format(kind).load(target).columns
    session = kjms_connection.create_session()
    message = session.create_map_message()
    message.set_byte("b", 7)
    message.jms_type = "late"
    session.create_producer(kjms_queue).send(message)
    assert archive(spark, kjms_factory, kjms_queue, target, **how).awaitTermination(WAIT_SECONDS)
    table = spark.read.format(kind).load(target)
    assert Counter(row["type"] for row in table.collect()) == {None: 3, "late": 1}
    assert {row["damage"] is None for row in table.collect()} == {True, False}
    consumer = session.create_consumer(kjms_topic)
    assert replay(spark, kjms_factory, target, kjms_topic, format=kind, rate=100) == 4
    received = [consumer.receive(WAIT_MS) for _ in range(4)]
    assert [each.text for each in received[:3]] == ["0", "1", "2"]
    assert received[3].get_byte("b") == 7
    assert received[3].jms_message_id == message.jms_message_id
    optimize, call = COMPACTION
    compaction = call if kind == "iceberg" else optimize
    spark.sql(compaction.replace("/data/orders", target).replace("mail.orders", target.removeprefix("lake."))).collect()
    assert spark.read.format(kind).load(target).count() == 4


def test_a_command_drains_a_queue_into_a_table(spark, kjms_factory, kjms_connection, kjms_queue, tmp_path, capsys):
    """The messages that match go into the table, and out of the queue; the command reports how many."""
    send(kjms_connection, kjms_queue, range(6))
    drain = ["spark", "drain", kjms_queue.queue_name, "--path", str(tmp_path / "table"), "--format", "iceberg"]
    more = ["--selector", "number > 1", "--checkpoint", str(tmp_path / "at")]
    assert cli.main([*drain, *more, "--bootstrap", kjms_factory._options.bootstrap_servers]) == 0
    assert "drain ended after 4 messages" in capsys.readouterr().err
    rows = spark.read.format("iceberg").load(str(tmp_path / "table")).collect()
    assert Counter(row["text"] for row in rows) == Counter("2345")
    left = read_batch(spark, kjms_factory, kjms_queue, pending=True).select("text").collect()
    assert Counter(row["text"] for row in left) == Counter("01")


@pytest.fixture
def own_broker():
    """A Kafka with the groups of this test alone: deleting looks at what every group of the cluster still needs."""
    with LocalBroker() as broker:
        yield broker


def test_settled_messages_stay_until_the_archive_has_them(spark, own_broker, kjms_queue, tmp_path):
    """Space is given back up to what each archive has, also while it is stopped; without it once it is forgotten."""
    topic, name = kjms_queue.queue_name, f"test-{kjms_queue.queue_name}"
    factory = ConnectionFactory(own_broker.bootstrap_servers, keep_settled=0, kafka={"client.id": topic})

    def first_offset():
        return bounds(own_broker.bootstrap_servers, topic)[0][0]

    def archived():
        query = archive(
            spark, factory, kjms_queue, str(tmp_path / "files"), checkpoint=str(tmp_path / "at"), name=name,
            trigger={"availableNow": True},
        )  # fmt: skip
        assert query.awaitTermination(WAIT_SECONDS)

    def known():
        return {each.name: each.positions for each in archives(factory)}.get(name)

    def consume(consumer, count):
        for _ in range(count):
            consumer.receive(WAIT_MS).acknowledge()

    with tuned(retention_seconds=0.05), factory.create_connection() as connection:
        connection.start()
        consumer = connection.create_session(SessionMode.INDIVIDUAL_ACKNOWLEDGE).create_consumer(kjms_queue)
        send(connection, kjms_queue, range(10))
        archived()
        wait_for(lambda: known() == {(topic, 0): 10}, WAIT_SECONDS, pause=LOOK_SECONDS)
        send(connection, kjms_queue, range(10, 15))
        consume(consumer, 15)
        wait_for(lambda: first_offset() == 10, WAIT_SECONDS, pause=LOOK_SECONDS)
        before = statistics(connection).cleanings
        wait_for(lambda: statistics(connection).cleanings > before + 1, WAIT_SECONDS, pause=LOOK_SECONDS)
        assert first_offset() == 10
        archived()
        wait_for(lambda: known() == {(topic, 0): 15}, WAIT_SECONDS, pause=LOOK_SECONDS)
        wait_for(lambda: first_offset() == 15, WAIT_SECONDS, pause=LOOK_SECONDS)
        assert kept(spark, str(tmp_path / "files")) == Counter(range(15))
        send(connection, kjms_queue, range(15, 17))
        consume(consumer, 2)
        forget_archive(factory, name)
        wait_for(lambda: first_offset() == 17, WAIT_SECONDS, pause=LOOK_SECONDS)
    assert known() is None
    with pytest.raises(InvalidDestinationException, match="there is no archive"):
        forget_archive(factory, name)


def test_space_is_never_given_back_beyond_an_archive_that_runs(spark, own_broker, kjms_queue, tmp_path):
    """While messages are sent, consumed and archived at the same time, none is deleted before the archive has it."""
    topic, name = kjms_queue.queue_name, f"test-{kjms_queue.queue_name}"
    factory = ConnectionFactory(own_broker.bootstrap_servers, keep_settled=0, kafka={"client.id": topic})
    count, portion = 600, 100

    def first_offset():
        return bounds(own_broker.bootstrap_servers, topic)[0][0]

    def archived():
        known = {each.name: each.positions for each in archives(factory)}
        return known[name][topic, 0]

    seen = []

    def look():
        first = first_offset()  # before the archive is asked, which advances meanwhile
        seen.append((first, archived()))
        return first

    with tuned(retention_seconds=0.05), factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(SessionMode.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(kjms_queue)
        send(connection, kjms_queue, range(portion))
        query = archive(
            spark, factory, kjms_queue, str(tmp_path / "files"), checkpoint=str(tmp_path / "at"), name=name,
            options={"maxOffsetsPerTrigger": str(portion // 2)},
        )  # fmt: skip
        try:
            for begin in range(0, count, portion):
                if begin:
                    send(connection, kjms_queue, range(begin, begin + portion))
                received = [consumer.receive(WAIT_MS) for _ in range(portion)]
                received[-1].acknowledge()
                wait_for(lambda begin=begin: look() > begin - portion, WAIT_SECONDS, pause=LOOK_SECONDS)
            wait_for(lambda: look() == count, WAIT_SECONDS, pause=LOOK_SECONDS)
        finally:
            query.stop()
    assert [each for each in seen if each[0] > each[1]] == []
    assert any(0 < first < count for first, _ in seen)  # space was given back while the archive was at work
    assert kept(spark, str(tmp_path / "files")) == Counter(range(count))


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
        "replay a --path x --format orc": "replay: --format orc is for drain",
        "drain a b --path x --checkpoint y": "drain: give one destination",
        "drain topic://a --path x --checkpoint y": "drain: give a queue, not topic",
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
