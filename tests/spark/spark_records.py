"""A record as the Python mapping reads it, beside the frame that Spark reads, and the settings of that Spark."""

from __future__ import annotations

from kjms.mapping import KafkaRecord

FORMATS = ("delta", "iceberg")
SETTINGS = {
    "master": "local[2]",
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 1,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": 1,
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}


class Source:
    """A record as a Kafka consumer gives it, at the place where `records` puts it."""

    def __init__(self, record: KafkaRecord, offset: int = 0) -> None:
        self.key = lambda: record.key
        self.value = lambda: record.value
        self.headers = lambda: record.headers
        self.timestamp = lambda: (1, record.timestamp)
        self.topic = lambda: "orders"
        self.partition = lambda: 3
        self.offset = lambda: offset
