"""A program whose Spark session is one of Spark Connect: what it can do with messages, and what is refused by name.

Arguments: the server's port, the bootstrap servers, the name of a queue, a folder. Prints a JSON object. With the port
alone, it is the server, until its input ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kjms import ConnectionFactory, MapMessage, ObjectMessage, Queue
from kjms.errors import JMSException
from kjms.spark import (
    consume_stream,
    get_property,
    object_body,
    read_batch,
    read_stream,
    settlement,
    spark_session,
    write_batch,
    write_stream,
)
from kjms.spark.pipelines import archive, convert, drain, replay, route


def serve(port: str) -> None:
    """Serve Spark Connect at *port*, with the connectors of KJMS_SPARK_JARS."""
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.shuffle.partitions": 1,
        "spark.ui.enabled": False,
    }
    spark = spark_session(master="local[2]", **settings)
    print("JARS " + spark.sparkContext.getConf().get("spark.jars", ""), flush=True)
    sys.stdin.read()
    spark.stop()


def main(port: str, bootstrap: str, name: str, folder: str) -> None:
    """Do all of it."""
    from pyspark.sql import functions as f

    factory = ConnectionFactory(bootstrap)
    queue, copy = Queue(name), Queue(f"{name}.copy")
    spark = spark_session(remote=f"sc://localhost:{port}")
    with factory.create_context() as context:
        context.create_producer().send(queue, "text")
        context.create_producer().set_property("amount", 120).send(queue, ObjectMessage({"a": [1]}))
        context.create_producer().send(queue, MapMessage({"n": 1}))
        with context.create_consumer(queue) as consumer:
            assert consumer.receive_body(str, 20_000) == "text"
    found: dict[str, Any] = {"session": type(spark).__module__}
    frame = read_batch(spark, factory, queue)
    rows = {row["messageType"]: row for row in frame.collect()}
    found["bodies"] = [rows["text"]["text"], rows["map"]["map"]["n"]["integer"]]
    chosen = read_batch(spark, factory, queue, selector="amount > 100")
    found["selected"] = list(chosen.select(get_property("amount", "int"), object_body()).first())
    found["pending"] = read_batch(spark, factory, queue, pending=True).count()
    found["settlement"] = settlement(spark, factory, queue).where("place = 'destination'").first()["committedOffset"]
    write_batch(chosen.withColumn("day", f.lit("2026-11-23").cast("date")), factory, copy)
    read_batch(spark, factory, copy).write.parquet(f"{folder}/kept")
    found["replayed"] = replay(spark, factory, f"{folder}/kept", Queue(f"{name}.again"), selector="day = '2026-11-23'")
    stream = read_stream(spark, factory, queue)
    refused: dict[str, Callable[[], object]] = {
        "archive": lambda: archive(spark, factory, queue, f"{folder}/a", checkpoint=f"{folder}/a.at"),
        "write_stream": lambda: write_stream(stream, factory, copy, checkpoint=f"{folder}/w"),
        "route": lambda: route(spark, factory, queue, {copy: None}, checkpoint=f"{folder}/r"),
        "convert": lambda: convert(spark, factory, queue, copy, checkpoint=f"{folder}/c"),
        "consume_stream": lambda: consume_stream(spark, factory, queue, _nothing, checkpoint=f"{folder}/s"),
        "drain": lambda: drain(spark, factory, queue, f"{folder}/d", checkpoint=f"{folder}/d.at"),
    }
    for what, call in refused.items():
        try:
            call()
        except JMSException as error:
            found[what] = str(error)
    found["folders"] = sorted(path.name for path in Path(folder).iterdir())
    print("FOUND " + json.dumps(found))
    spark.stop()


def _nothing(frame: object, batch: int) -> None:
    raise AssertionError("no batch is to be processed", frame, batch)


if __name__ == "__main__":
    serve(*sys.argv[1:]) if len(sys.argv) == 2 else main(*sys.argv[1:])
