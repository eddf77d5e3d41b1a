"""Queues and subscriptions that Spark consumes: shared with others, settled after each batch, and over crashes."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from consuming_process import KINDS
from spark_records import FORMATS

from kjms import ConnectionFactory, DestinationOptions, Queue, RedeliveryPolicy, Topic
from kjms.errors import (
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    MessageFormatException,
)
from kjms.spark import Subscription, consume_stream, read_batch
from kjms.spark.pipelines import drain
from tests.helpers import WAIT_MS, dead_letter_queue, program_environment, take, wait_for

SECONDS = 120.0
PROCESS_SECONDS = 320.0


@pytest.fixture
def factory(kjms_broker):
    """A factory with an engine of its own."""
    return ConnectionFactory(
        kjms_broker.bootstrap_servers,
        redelivery=RedeliveryPolicy(max_deliveries=2),
        kafka={"client.id": f"consume-{random.random()}"},
    )


def send(connection, destination, numbers):
    with connection.create_session() as session, session.create_producer(destination) as producer:
        for number in numbers:
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message)


def pending(spark, factory, queue):
    rows = read_batch(spark, factory, queue, pending=True).select("text", "deliveryCount").collect()
    return sorted((int(row["text"]), row["deliveryCount"]) for row in rows)


class Sink:
    """A function for batches that keeps, by the number of the batch, what it was called with."""

    def __init__(self):
        self.batches = {}
        self.may_return = threading.Event()
        self.may_return.set()

    def __call__(self, frame, batch):
        rows = frame.select("text", "deliveryCount", "redelivered").collect()
        self.batches[batch] = [(int(row["text"]), row["deliveryCount"], row["redelivered"]) for row in rows]
        assert self.may_return.wait(SECONDS)

    @property
    def rows(self):
        return sorted(row for rows in self.batches.values() for row in rows)


def test_what_is_pending_is_consumed_into_files(spark, factory, kjms_connection, kjms_queue, tmp_path):
    """A drain stores each message once, and settles it; the same program, run again, stores what came since."""
    send(kjms_connection, kjms_queue, range(50))
    path, how = str(tmp_path / "files"), {"checkpoint": str(tmp_path / "at"), "max_messages": 20}
    assert drain(spark, factory, kjms_queue, path, **how) == 50
    assert pending(spark, factory, kjms_queue) == []
    send(kjms_connection, kjms_queue, range(50, 60))
    assert drain(spark, factory, kjms_queue, path, **how) == 10
    kept = spark.read.parquet(path)
    assert Counter(int(row["text"]) for row in kept.select("text").collect()) == Counter(range(60))
    assert kept.select("batch").distinct().count() >= 4
    with pytest.raises(JMSException, match="this checkpoint is of a query that consumes queue:"):
        drain(spark, factory, Queue(f"{kjms_queue.queue_name}.other"), path, **how)


def test_rows_that_fail_come_again_and_become_dead_letters(spark, factory, kjms_connection, kjms_queue, tmp_path):
    """Rows that a function returns follow the redelivery policy, one by one, and the others of their batch settle."""
    send(kjms_connection, kjms_queue, range(6))
    seen = []

    def function(frame, batch):
        seen.extend((row["text"], row["deliveryCount"]) for row in frame.select("text", "deliveryCount").collect())
        return frame.where("n % 3 = 2" if "n" in frame.columns else "text IN ('2', '5')").selectExpr(
            "messageID" if batch else "*", "concat('no customer ', text) AS reason"
        )

    assert drain(spark, factory, kjms_queue, function, checkpoint=str(tmp_path)) == 4
    assert Counter(seen) == Counter([*((str(n), 1) for n in range(6)), ("2", 2), ("5", 2)])
    letters = read_batch(spark, factory, dead_letter_queue(kjms_queue), pending=True)
    causes = {row["text"]: row["properties"]["JMS_kjms_Cause"] for row in letters.collect()}
    assert causes == {n: f"delivered 2 times; no customer {n}" for n in ("2", "5")}


def test_a_selector_leaves_the_others_to_others(spark, factory, kjms_connection, kjms_queue, tmp_path):
    """What a selector excludes stays in the queue, unmarked, and goes to a Python consumer meanwhile."""
    sink = Sink()
    send(kjms_connection, kjms_queue, range(20))
    query = consume_stream(spark, factory, kjms_queue, sink, checkpoint=str(tmp_path), selector="n >= 15")
    try:
        wait_for(lambda: len(sink.rows) == 5, SECONDS)
        kjms_connection.start()
        with kjms_connection.create_session() as session, session.create_consumer(kjms_queue) as consumer:
            received = [consumer.receive(WAIT_MS) for _ in range(15)]
        assert sorted(int(message.text) for message in received) == list(range(15))
        assert not any(message.jms_redelivered for message in received)
        assert [row[0] for row in sink.rows] == list(range(15, 20))
    finally:
        query.stop()
    assert query.exception() is None
    wait_for(lambda: pending(spark, factory, kjms_queue) == [], SECONDS)


def test_what_a_stopped_query_had_goes_back(spark, factory, kjms_connection, kjms_queue, tmp_path):
    """A query that is stopped in its function gives its batch back at once, marked, and not counted."""
    batches = []

    def function(frame, batch):
        batches.append({row["text"] for row in frame.select("text").collect()})
        while True:
            frame.count()  # raises when the query is stopped

    send(kjms_connection, kjms_queue, range(10))
    query = consume_stream(spark, factory, kjms_queue, function, checkpoint=str(tmp_path), max_messages=6)
    wait_for(lambda: batches, SECONDS)
    query.stop()
    assert query.exception() is None
    (batch,) = batches
    kjms_connection.start()
    with kjms_connection.create_session() as session, session.create_consumer(kjms_queue) as consumer:
        received = take(consumer, 10)
    assert sorted(int(message.text) for message in received) == list(range(10))
    assert {message.text for message in received if message.jms_redelivered} == batch
    assert {message.get_int_property("JMSXDeliveryCount") for message in received if message.text in batch} == {2}


def test_a_batch_that_failed_is_run_again(spark, factory, kjms_connection, kjms_queue, tmp_path):
    """A function that raises ends its query; a new query runs the same batch again, marked, before any other."""
    send(kjms_connection, kjms_queue, range(10))
    from pyspark.errors import StreamingQueryException

    called, marks = [], []

    def function(frame, batch):
        rows = frame.select("text", "deliveryCount", "redelivered").collect()
        called.append((batch, sorted(int(row["text"]) for row in rows)))
        marks.append({(row["deliveryCount"], row["redelivered"]) for row in rows})
        raise RuntimeError("the sink is down")

    for _ in range(3):  # more often than the policy allows deliveries
        query = consume_stream(spark, factory, kjms_queue, function, checkpoint=str(tmp_path), max_messages=10)
        with pytest.raises(StreamingQueryException, match="the sink is down"):
            query.awaitTermination(SECONDS)
    assert called == [called[0]] * 3
    assert marks == [{(1, False)}, {(2, True)}, {(2, True)}]
    send(kjms_connection, kjms_queue, range(10, 12))
    sink = Sink()
    assert drain(spark, factory, kjms_queue, sink, checkpoint=str(tmp_path)) == 12
    assert sorted(row[0] for row in sink.batches[0]) == called[0][1]
    assert [row[0] for row in sink.rows] == list(range(12))
    assert pending(spark, factory, kjms_queue) == []


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_subscription_is_consumed(spark, factory, kjms_broker, kjms_topic, tmp_path, is_shared):
    """The messages of a durable subscription, which match its selector, are consumed as those of a queue."""
    name, client = f"s-{random.randrange(10**9)}", None if is_shared else f"c-{random.randrange(10**9)}"
    owner = ConnectionFactory(kjms_broker.bootstrap_servers, client_id=client)
    with owner.create_connection() as connection:
        session = connection.create_session()
        create = session.create_shared_durable_consumer if is_shared else session.create_durable_consumer
        create(kjms_topic, name, "n < 8").close()
        send(connection, kjms_topic, range(10))
    sink = Sink()
    subscription = Subscription(name, client)
    assert drain(spark, factory, subscription, sink, checkpoint=str(tmp_path)) == 8
    assert sink.rows == [(n, 1, False) for n in range(8)]
    with pytest.raises(ValueError, match="has its own"):
        drain(spark, factory, subscription, sink, checkpoint=str(tmp_path), selector="n = 1")


def test_what_cannot_be_consumed_is_refused(spark, factory, kjms_connection, kjms_queue, tmp_path):
    """Wrong arguments raise at once, and start no query."""
    send(kjms_connection, kjms_queue, range(1))
    how = {"checkpoint": str(tmp_path)}
    with pytest.raises(InvalidDestinationException, match="a queue or a Subscription is consumed"):
        consume_stream(spark, factory, Topic("t"), print, **how)
    with pytest.raises(InvalidDestinationException, match="there is no subscription 'none'"):
        consume_stream(spark, factory, Subscription("none"), print, **how)
    with pytest.raises(InvalidSelectorException):
        consume_stream(spark, factory, kjms_queue, print, selector="n >", **how)
    with pytest.raises(ValueError, match="max_messages is a whole number"):
        consume_stream(spark, factory, kjms_queue, print, max_messages=0, **how)
    with pytest.raises(ValueError, match="format is parquet"):
        drain(spark, factory, kjms_queue, str(tmp_path), format="csv", **how)
    with pytest.raises(MessageFormatException, match="it returns None, or a frame of failed rows"):
        drain(spark, factory, kjms_queue, lambda _frame, _batch: "wrong", **how)
    assert pending(spark, factory, kjms_queue)[0][0] == 0


@pytest.mark.long
@pytest.mark.timeout(1_000)
def test_a_drain_that_is_killed_stores_each_message_once(spark, factory, kjms_broker, kjms_queue, tmp_path):
    """Killed with -9 within a batch or after it, and started again, a drain stores each message once in any sink.

    One driver drains into files, a Delta table and an Iceberg table at the same time; the program knows more steps.
    """
    queues = {kind: Queue(f"{kjms_queue.queue_name}.{kind}") for kind in KINDS}
    three = {queue.queue_name: DestinationOptions(partitions=3, ordering="none") for queue in queues.values()}
    with ConnectionFactory(kjms_broker.bootstrap_servers, destinations=three).create_connection() as connection:
        for queue in queues.values():
            send(connection, queue, range(400))
    program = [sys.executable, str(Path(__file__).with_name("consuming_process.py"))]
    environment = {**program_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for step in ("in the function", "after the sink", "never"):
        arguments = [kjms_broker.bootstrap_servers, kjms_queue.queue_name, str(tmp_path), step, "140"]
        with subprocess.Popen(
            [*program, *arguments], env=environment, start_new_session=True, stdout=subprocess.PIPE, text=True
        ) as process:
            said, _ = process.communicate(timeout=PROCESS_SECONDS)
        assert (process.returncode == 0) is (step == "never"), said
    files = [text for file in (tmp_path / "files").glob("*.json") for text in json.loads(file.read_text("utf-8"))]
    assert Counter(map(int, files)) == Counter(range(400))
    for kind in FORMATS:
        rows = spark.read.format(kind).load(str(tmp_path / kind)).select("text").collect()
        assert Counter(int(row["text"]) for row in rows) == Counter(range(400)), kind
    for queue in queues.values():
        assert pending(spark, factory, queue) == []


def test_the_examples_of_the_page_run(spark, kjms_broker, kjms_destination_name, tmp_path, capsys):
    """What docs/spark-consume.md shows works, in its order."""
    page = Path(__file__).parents[2] / "docs" / "spark-consume.md"
    first, second, third = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    names = {}

    def run(example):
        text = example.replace("localhost:9092", kjms_broker.bootstrap_servers).replace("/tmp", str(tmp_path))
        text = re.sub(r'Queue\("orders', f'Queue("{kjms_destination_name}', text)
        exec(compile(text, str(page), "exec"), names)

    run(first)
    queue = Queue(kjms_destination_name)
    with names["factory"].create_connection() as connection:
        connection.start()
        try:
            letter = connection.create_session().create_browser(dead_letter_queue(queue))
            wait_for(lambda: len(list(letter)) == 1, SECONDS)
        finally:
            names["query"].stop()
    kept = spark.read.parquet(str(tmp_path / "orders"))
    assert sorted(row["amount"] for row in kept.select("amount").collect()) == [5, 20]
    run(second)
    run(third)
    assert "1 dead letters are kept" in capsys.readouterr().out
