"""Workloads that read a topic with Spark: as messages, and as plain records."""

from __future__ import annotations

import functools
import re
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from benchmarks._spark_reader import COLUMNS
from kjms import DeliveryMode, Queue, TextMessage
from kjms.bench._stage import Stage
from kjms.bench._workload import Unit, workload
from kjms.mapping import encode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = 2
SELECTOR: Final = "region = 'EU' AND amount > 100"

spark_read = workload(
    "spark-read",
    "Spark: a selector on two properties, all header fields as columns",
    Unit.MESSAGES_PER_SECOND,
    share=20,
    set="spark",
    missing="" if find_spec("pyspark") else "pyspark is not installed",
)


@spark_read.side("kjms")
def _(stage: Stage) -> float:
    from kjms.spark import read_batch

    topic = stage.kept("filled", lambda: _filled(stage, stage.count))
    frame = read_batch(_session(), stage.factory, Queue(topic), selector=SELECTOR).select(*COLUMNS)
    _show_plan(frame)
    return _rate(stage, frame)


@spark_read.side("raw, kafka source with value and headers cast to string")
def _(stage: Stage) -> float:
    topic = stage.kept("filled", lambda: _filled(stage, stage.count))
    source = _session().read.format("kafka").option("kafka.bootstrap.servers", stage.bootstrap_servers)
    source = source.option("subscribe", topic).option("includeHeaders", "true")
    headers = "transform(headers, header -> named_struct('key', header.key, 'value', CAST(header.value AS STRING)))"
    return _rate(stage, source.load().selectExpr("CAST(value AS STRING)", f"{headers} AS headers"))


@functools.cache
def _session() -> SparkSession:
    from kjms.spark import spark_session

    settings: dict[str, Any] = {"spark.ui.enabled": False, "spark.driver.memory": "2g"}
    session = spark_session("kjms benchmark", master="local[2]", **settings)
    session.sparkContext.setLogLevel("ERROR")
    return session


def _filled(stage: Stage, messages: int) -> str:
    """Return a topic with so many messages of six header fields and three properties; it is there for all rounds."""
    name = stage.topic(partitions=PARTITIONS, is_kept=True)
    producer = Producer({**stage.producer_settings(linger_ms=20), "queue.buffering.max.messages": 200_000})
    message = TextMessage("The quick brown fox jumps over the lazy dog. " * 4)
    message.jms_type, message.jms_priority, message.jms_delivery_mode = "order", 7, DeliveryMode.NON_PERSISTENT
    for number in range(messages):
        message.jms_message_id = f"ID:benchmark-{number}"
        message.jms_timestamp = message.jms_delivery_time = 1_750_000_000_000 + number
        message.jms_correlation_id = f"correlation-{number}"
        message.set_string_property("region", "EU" if number % 2 else "US")
        message.set_int_property("amount", number % 200)
        message.set_double_property("price", number / 8)
        record = encode(message)
        while True:
            try:
                producer.produce(name, record.value, headers=record.headers, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    if producer.flush(60):
        raise TimeoutError(f"{name!r} was not filled in 60 s")
    return name


def _show_plan(frame: DataFrame) -> None:
    """Print what Spark does, which must have no Python in it."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    if "Python" in plan:
        raise RuntimeError(f"there is Python in Spark's plan:\n{plan}")
    lines = "\n".join(re.sub(r"#\d+L?", "", line)[:120] for line in plan.splitlines())  # the numbers are new each time
    if lines not in _shown:
        _shown.add(lines)
        print(f"Spark's plan, without Python:\n{lines}")


_shown: set[str] = set()


def _rate(stage: Stage, frame: DataFrame) -> float:
    begin = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return stage.count / (time.perf_counter() - begin)
