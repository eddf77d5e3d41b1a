"""A program whose Spark session is one of Spark Connect: what it can do with messages, and what is refused by name.

Arguments: the server's port, the bootstrap servers, the name of a queue, a folder. Prints a JSON object. With the port
alone, it is the server, until its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spark_records import FORMATS

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
from kjms.spark.pipelines import archive, archives, convert, drain, replay, route
from tests.helpers import wait_for


def serve(port: str) -> None:
    """Serve Spark Connect at *port*, with the connectors of KJMS_SPARK_JARS, and a catalog of Iceberg beside them."""
    settings = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": port,
        "spark.sql.shuffle.partitions": 1,
        "spark.ui.enabled": False,
        "spark.sql.catalogImplementation": "in-memory",  # not Hive, with files in the working directory
        "spark.databricks.delta.snapshotPartitions": 1,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(Path(os.environ["KJMS_SPARK_JARS"]).with_name("lake")),
    }
    spark = spark_session(master="local[2]", formats=FORMATS, **settings)
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
    stream = read_stream(spark, factory, queue, starting="earliest")
    at_end = {"availableNow": True}
    lake = f"lake.mail.{name.replace('-', '_').replace('.', '_')}"

    def texts(destination: Queue) -> list[tuple[str, str | None]]:
        rows = read_batch(spark, factory, destination).select("messageID", "text").collect()
        return sorted((row["messageID"], row["text"]) for row in rows)

    # The streams run twice with one checkpoint, and once with a new one: only what is new is sent, with the same ids.
    kept = {"parquet": f"{folder}/a", "delta": f"{folder}/b", "iceberg": lake}
    for kind, path in kept.items():
        for _ in range(2):
            how = {"checkpoint": f"{folder}/{kind}.at", "name": f"{name}.{kind}", "trigger": at_end, "format": kind}
            archive(spark, factory, queue, path, **how).awaitTermination(60)
        found[f"archived {kind}"] = spark.read.format(kind).load(path).count()
    with_replay = Queue(f"{name}.replayed")
    found["replayed delta"] = replay(spark, factory, kept["delta"], with_replay, format="delta")
    wait_for(lambda: {f"{name}.{kind}" for kind in kept} <= {each.name for each in archives(factory) if each.positions})
    streamed, routed, converted = (Queue(f"{name}.{each}") for each in ("streamed", "routed", "converted"))
    plain = stream.select("text", "offset").withColumnRenamed("offset", "number").where("text IS NOT NULL")
    for checkpoint in ("w1", "w1", "w2"):
        where = {"checkpoint": f"{folder}/{checkpoint}", "trigger": at_end}
        write_stream(plain, factory, streamed, identity=["number"], **where).awaitTermination(60)
    ids = [each for each, _ in texts(streamed)]
    found["streamed"] = [len(ids), len(set(ids)), all(each.startswith("ID:spark-") for each in ids)]
    how = {"checkpoint": f"{folder}/r", "trigger": at_end, "transform": lambda frame: frame.withColumn("day", f.lit(7))}
    route(spark, factory, queue, {routed: "amount > 100"}, otherwise=converted, **how).awaitTermination(60)
    found["routed"] = read_batch(spark, factory, routed, selector="day = 7").count()
    found["otherwise"] = read_batch(spark, factory, converted).count()
    convert(spark, factory, queue, routed, checkpoint=f"{folder}/c", trigger=at_end).awaitTermination(60)
    source = {each for each, _ in texts(queue)}
    found["converted"] = [len(texts(routed)), {each for each, _ in texts(routed)} == source]
    refused: dict[str, Callable[[], object]] = {
        "archive": lambda: archive(spark, factory, queue, f"{folder}/x", checkpoint=f"{folder}/x.at"),
        "archive in a folder": lambda: archive(
            spark, factory, queue, f"{folder}/x", checkpoint=f"{folder}/x.at", name=f"{name}.x", format="iceberg"
        ),
        "write_stream": lambda: write_stream(plain, factory, copy, checkpoint=f"{folder}/x.at"),
        "consume_stream": lambda: consume_stream(spark, factory, queue, _nothing, checkpoint=f"{folder}/x.at"),
        "drain": lambda: drain(spark, factory, queue, f"{folder}/x", checkpoint=f"{folder}/x.at"),
    }
    for what, call in refused.items():
        try:
            call()
        except JMSException as error:
            found[what] = str(error)
    found["left"] = sorted(path.name for path in Path(folder).iterdir() if path.name.startswith("x"))
    print("FOUND " + json.dumps(found))
    spark.stop()


def _nothing(frame: object, batch: int) -> None:
    raise AssertionError("no batch is to be processed", frame, batch)


if __name__ == "__main__":
    serve(*sys.argv[1:]) if len(sys.argv) == 2 else main(*sys.argv[1:])
