"""Consume a queue or a durable subscription with Spark: a query that settles what its function has processed.

The driver is a consumer like any other of kjms: a member of the queue's group, with the same settlement, handover and
redelivery. It takes messages, plans them as a batch (`kjms.spark._plans`), and settles them after the function. The
executors read the batch from Kafka, natively.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kjms.checking import checked
from kjms.destinations import Queue
from kjms.errors import JMSException, MessageFormatException, shown
from kjms.spark._former import FormerBatches
from kjms.spark._pending import PLACE
from kjms.spark._plans import Place, Plan, PlanStore, place_of
from kjms.spark._ranges import messages_of, records_again, records_at
from kjms.spark._require import require_kafka
from kjms.spark._taking import LOOK_SECONDS, Source, Taker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kjms import ConnectionFactory
    from kjms.engine import Delivery
    from kjms.spark._reading import Subscription

__all__ = ["Consumption", "consume_stream"]

_log = logging.getLogger("kjms.spark")

Function: TypeAlias = "Callable[[DataFrame, int], DataFrame | None]"

MOST_MESSAGES: Final = 50_000  # of a batch: the driver holds them meanwhile
REASON: Final = "reason"
# So Spark recognises a function that was interrupted since its query was stopped (StreamExecution.PROXY_ERROR). The
# error of an interrupted job says the same, but its text is so long that this regular expression fails on it.
INTERRUPTED: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling a function: java.lang.InterruptedException"
)


@checked
def consume_stream(
    spark: SparkSession,
    factory: ConnectionFactory,
    queue: Queue | Subscription,
    function: Function,
    *,
    checkpoint: str,
    selector: str | None = None,
    max_messages: int = MOST_MESSAGES,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    user: str | None = None,
    password: str | None = None,
) -> StreamingQuery:
    """Consume *queue* in batches: call *function* with each, then settle its messages; return the query, which runs.

    The driver is one of the queue's consumers, and shares the messages with all others. A batch is called with the same
    number and the same messages again, marked as redelivered, if the driver was killed before its function had
    returned, except for those that other consumers have settled since. So a sink that stores a batch once, by its
    number, stores each message once.

    *function* may return a frame of messages that failed: rows of the batch, or any frame with the columns ``topic``,
    ``partition`` and ``offset``, or ``messageID``, and perhaps ``reason``. These are delivered again, one by one, as
    the redelivery policy says, and become dead letters in the end; all others are settled. If it raises, the query
    ends, and all messages of the batch come again, marked as redelivered, and not counted.

    Args:
        spark: The session, see `spark_session`; not one of Spark Connect.
        factory: Says which cluster, and the redelivery policy.
        queue: The queue, or a durable subscription that exists.
        function: Called in the driver with a frame of the batch, as `read_batch` with *pending* returns it, and the
            number of the batch. Everything that it does with the frame must be done when it returns.
        checkpoint: Where the query keeps its batches; started again with it, the query continues. One query at a time
            uses it. The first batch of a new checkpoint has the number 0 again.
        selector: Which messages of a queue are wanted; others stay for other consumers. None: all.
        max_messages: The most messages of a batch; the driver holds them in memory meanwhile.
        trigger: When batches begin, as ``{"processingTime": "1 minute"}``, or ``{"availableNow": True}`` to end when
            what is pending is consumed; None: all the time.
        name: What Spark calls the query.
        options: More options of Spark's Kafka source; they win.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        InvalidSelectorException: The selector is none.
        InvalidDestinationException: There is no such queue or subscription.
        JMSException: The cluster does not answer; the session lacks a connector, or is one of Spark Connect; or the
            checkpoint is of a query that consumes something else.
        ValueError: *max_messages* is no whole number of at least 1, or *selector* is given for a subscription, which
            has its own.

    Spec: JMS 2.0 §4.4.11 (acknowledgement), §4.5 (consumers), §6.11 (subscriptions).
    """
    consumption = Consumption(spark, Source(factory, queue, selector, user, password), function, checkpoint, options)
    return consumption.start(max_messages, trigger, name)


class Consumption:
    """A query that consumes.

    Threads: `_process` runs in the query's thread, which alone uses the session. Another one waits for the end of the
    query, and then closes the connection: what the query had goes back.

    Args:
        spark: The session.
        source: What is consumed.
        function: Called with each batch.
        checkpoint: The folder of the query's checkpoint.
        options: More options of Spark's Kafka source.
        progress: Called after each batch with the number of messages that are settled so far.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        function: Function,
        checkpoint: str,
        options: Mapping[str, str] | None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        if not hasattr(spark, "_jsc"):
            raise JMSException(
                "consume_stream needs the driver's own Spark session: with Spark Connect, functions of batches run on"
                " the server, which is no consumer; use read_stream there, or submit the program to the cluster"
            )
        require_kafka(spark)
        self._spark = spark
        self._source = source
        self._function = function
        self._checkpoint = checkpoint
        self._progress = progress
        self._options = {**source.options, **(options or {})}
        self._plans = PlanStore(spark, checkpoint)
        self._plans.claim(source.told)
        self._former = FormerBatches(self._plans, source.unsettled)
        self._query: StreamingQuery | None = None
        self._is_started = threading.Event()
        self._watcher: threading.Thread | None = None
        self._failure: Exception | None = None

    # Starting and ending.

    def start(
        self, max_messages: int = MOST_MESSAGES, trigger: Mapping[str, Any] | None = None, name: str | None = None
    ) -> StreamingQuery:
        """Join the consumers of the source, and start the query; arguments as `consume_stream`."""
        if isinstance(max_messages, bool) or not isinstance(max_messages, int) or max_messages < 1:
            raise ValueError(f"max_messages is a whole number of at least 1, not {shown(max_messages)}")
        chosen = dict(trigger or {})
        ends = bool(chosen.pop("availableNow", False) or chosen.pop("once", False))
        self._taker = Taker(self._source, self._former, max_messages, ends=ends)
        try:
            ticks = self._spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
            writer = ticks.writeStream.option("checkpointLocation", self._checkpoint).foreachBatch(self._process)
            if chosen:
                writer = writer.trigger(**chosen)
            if name:
                writer = writer.queryName(name)
            self._taker.connection.start()
            self._query = writer.start()
        except BaseException:
            self._taker.connection.close()
            raise
        finally:
            self._is_started.set()
        watch = partial(self._watch, self._query, ends=ends)
        self._watcher = threading.Thread(target=watch, name="kjms-spark-consuming", daemon=True)
        self._watcher.start()
        return self._query

    def finish(self) -> int:
        """Return when the query has ended, and the connection is closed; say how many messages were settled.

        Raises:
            Exception: What ended the query: as the function raised it, or Spark.
        """
        assert self._query is not None
        assert self._watcher is not None
        try:
            self._query.awaitTermination()
        except BaseException as error:
            self._query.stop()  # the program was interrupted
            if isinstance(error, Exception) and self._failure is not None:
                raise self._failure from error
            raise
        finally:
            self._watcher.join()
        return self._taker.settled

    @property
    def query_id(self) -> str:
        """Spark's id of the query, which it keeps over restarts with its checkpoint; known once it is started."""
        assert self._query is not None
        return str(self._query.id)

    def _watch(self, query: StreamingQuery, *, ends: bool) -> None:
        """Close the connection when *query* has ended; end it when all is consumed, if that is wanted."""
        try:
            while ends and query.isActive:
                if self._taker.is_over.wait(LOOK_SECONDS):
                    query.stop()
            query.awaitTermination()
        except Exception as error:  # the program gets it from the query
            _log.debug("the query on %s ended: %s", self._source.told, error)
        finally:
            try:
                self._taker.connection.close()
            except JMSException as failure:
                _log.warning("%s", failure)

    def _is_active(self) -> bool:
        return self._query is not None and bool(self._query.isActive)

    # A batch.

    def _process(self, tick: DataFrame, batch: int) -> None:
        """Process a batch; where the query is stopped meanwhile, end as Spark expects it."""
        self._is_started.wait()
        try:
            self._process_batch(tick, batch)
        except Exception as error:
            if self._is_active():
                self._failure = error
                raise
            _log.debug("batch %d of %s was interrupted: %s", batch, self._source.told, error)
            raise InterruptedError(INTERRUPTED) from None

    def _process_batch(self, tick: DataFrame, batch: int) -> None:
        """Process a batch: a new one, or one that was begun before."""
        self._former.forget_before(batch)
        spark = tick.sparkSession
        kept = self._plans.read(batch)
        if kept is None:
            deliveries = self._taker.take(self._is_active)
            if deliveries:
                self._process_new(spark, batch, deliveries)
        elif kept.failed is None:
            self._process_again(spark, batch, kept.plan)

    def _process_new(self, spark: SparkSession, batch: int, deliveries: list[Delivery]) -> None:
        session, consumer, source = self._taker.session, self._taker.consumer, self._source
        begin = time.monotonic()
        plan = Plan.of(deliveries)
        is_called = False
        session.keep(consumer, is_processing=True)
        try:
            self._plans.write(batch, plan)
            frame = messages_of(records_at(spark, self._options, plan.runs, source.topic), source.struct)
            is_called = True
            failed = self._call(frame, batch)
            _check_known(failed, deliveries, batch)
            self._plans.finish(batch, failed)
            if self._settle(batch, plan, deliveries, failed):
                _log.warning(
                    "batch %d of %s: a partition went to another consumer while it was processed; that consumer gets"
                    " its messages, too, marked as redelivered", batch, source.told,
                )  # fmt: skip
        except BaseException:
            if is_called:
                session.give_up(deliveries)
            else:
                session.release(deliveries)
                self._plans.forget(batch)
            raise
        finally:
            session.keep(consumer, is_processing=False)
        _log.info(
            "batch %d of %s: %d messages, %d failed, in %.1f s",
            batch, source.told, plan.count, len(failed), time.monotonic() - begin,
        )  # fmt: skip
        if self._progress is not None:
            self._progress(self._taker.settled)

    def _settle(self, batch: int, plan: Plan, deliveries: list[Delivery], failed: Mapping[Place, str]) -> bool:
        """Settle *deliveries*; return whether others get some of them, too."""
        is_durable = False
        try:
            is_durable = not self._taker.settle(deliveries, failed)
        finally:
            if not is_durable:
                self._former.add(batch, plan, failed)
        return not is_durable

    def _process_again(self, spark: SparkSession, batch: int, plan: Plan) -> None:
        """Process those messages of a batch again that no consumer has settled since; they are settled as they come."""
        pending = self._source.pending(spark, self._options)
        failed = self._call(messages_of(records_again(pending, plan.sent), self._source.struct), batch)
        self._plans.finish(batch, failed)
        self._former.add(batch, plan, failed)
        _log.info(
            "batch %d of %s: of %d messages, those that are unsettled, again", batch, self._source.told, plan.count
        )

    def _call(self, frame: DataFrame, batch: int) -> dict[Place, str]:
        """Call the function; return the places of the messages that failed, with the reasons."""
        return _failures(self._function(frame, batch), frame, batch)


def _check_known(failed: Mapping[Place, str], deliveries: Sequence[Delivery], batch: int) -> None:
    """Raise MessageFormatException where a row *failed* that is not in the batch."""
    unknown = failed.keys() - {place_of(delivery) for delivery in deliveries} if failed else ()
    if unknown:
        raise MessageFormatException(
            f"the function of batch {batch} returned {len(unknown)} failed rows that are not in the batch, such as"
            f" {min(unknown)}; return rows of its frame"
        )


def _failures(returned: object, frame: DataFrame, batch: int) -> dict[Place, str]:
    """Return what a function *returned* as failed: places and reasons.

    Raises:
        MessageFormatException: It is no frame, or does not say which messages.
    """
    if returned is None:
        return {}
    columns: Sequence[str] = getattr(returned, "columns", ())
    failed: Any = returned
    if not columns or not hasattr(returned, "collect"):
        raise MessageFormatException(
            f"the function of batch {batch} returned {shown(returned)}; it returns None, or a frame of failed rows"
        )
    reason = f"CAST({REASON} AS STRING)" if REASON in columns else "CAST(NULL AS STRING)"
    if set(PLACE) <= set(columns):
        rows = failed.selectExpr(*(f"`{name}`" for name in PLACE), f"{reason} AS {REASON}").collect()
    elif "messageID" in columns:
        named = failed.selectExpr("messageID", f"{reason} AS {REASON}")
        rows = frame.join(named, "messageID").select(*PLACE, REASON).collect()
    else:
        raise MessageFormatException(
            f"the failed rows of batch {batch} have neither messageID nor {', '.join(PLACE)}: nothing says which"
            " messages they are"
        )
    default = f"a function of Spark marked it as failed in batch {batch}"
    return {(row[0], row[1], row[2]): row[3] or default for row in _distinct(rows)}


def _distinct(rows: Iterable[Any]) -> Iterable[Any]:
    """Return *rows*, of those at one place the first one."""
    return {(row[0], row[1], row[2]): row for row in reversed(list(rows))}.values()
