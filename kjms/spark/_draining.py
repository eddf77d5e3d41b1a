"""Take everything that is pending out of a queue, into files, a table or a function, each message once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kjms.spark._consuming import MOST_MESSAGES, Consumption, Function
from kjms.spark._sinks import batch_sink
from kjms.spark._taking import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kjms import ConnectionFactory
    from kjms.destinations import Queue
    from kjms.spark._reading import Subscription

__all__ = ["drain"]


def drain(
    spark: SparkSession,
    factory: ConnectionFactory,
    queue: Queue | Subscription,
    to: str | Function,
    *,
    checkpoint: str,
    format: str = "parquet",
    selector: str | None = None,
    max_messages: int = MOST_MESSAGES,
    progress: Callable[[int], object] | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> int:
    """Consume everything that is pending in *queue*, and return how many messages that were.

    Each message is stored once, also if the program is killed and started again with the same checkpoint: files are
    written to one folder for each batch, ``batch=<query>-<number>``, which a batch that is run again overwrites; tables
    of Delta and Iceberg know the last batch that they have. Messages that are not due yet, or that other consumers have
    at the time, are not waited for.

    Args:
        spark: The session, see `spark_session`; not one of Spark Connect.
        factory: Says which cluster.
        queue: The queue, or a durable subscription that exists.
        to: A folder, or a function as for `consume_stream`; with ``iceberg`` also the name of a table, which has no
            slash. Tables that are missing are made.
        checkpoint: Where the batches are kept; a program that is started again gives the same one.
        format: What is written to the folder: ``parquet``, ``orc``, ``json``, ``avro``, ``delta`` or ``iceberg``; for a
            function, nothing. The last two need a session that has them: ``spark_session(formats=["delta"])``.
        selector: Which messages of a queue; the others stay. None: all.
        max_messages: The most messages of a batch; the driver holds them in memory meanwhile.
        progress: Called after each batch with the number of messages that are settled so far.
        options: More options of Spark's Kafka source; they win.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        InvalidDestinationException: There is no such queue or subscription.
        JMSException: The cluster does not answer; the session lacks a connector, or is one of Spark Connect; or the
            checkpoint is of a query that consumes something else.
        ValueError: There is no such format, or *max_messages* is no whole number of at least 1.
    """
    function = to if callable(to) else batch_sink(spark, to, format, lambda: consumption.query_id)
    consumption = Consumption(
        spark, Source(factory, queue, selector, user, password), function, checkpoint, options, progress
    )
    consumption.start(max_messages, {"availableNow": True})
    return consumption.finish()
