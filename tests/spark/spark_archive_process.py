"""A program that archives a queue until it is killed: ADDRESS QUEUE PATH CHECKPOINT."""

from __future__ import annotations

import sys

from spark_records import SETTINGS

from kjms import ConnectionFactory, Queue
from kjms.spark import spark_session
from kjms.spark.pipelines import archive

if __name__ == "__main__":
    address, queue, path, checkpoint = sys.argv[1:]
    spark = spark_session(**SETTINGS)
    few = {"maxOffsetsPerTrigger": "20"}
    archive(
        spark, ConnectionFactory(address), Queue(queue), path, checkpoint=checkpoint, options=few
    ).awaitTermination()
