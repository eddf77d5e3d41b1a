"""Where messages are kept: files, Delta tables and Iceberg tables; batches that are stored once, streams, and reading.

A batch that is stored again must change nothing. Folders of files are overwritten. Delta's log records the query and
the last batch of a transaction (``txnAppId``, ``txnVersion``). Iceberg records both in the summary of the snapshot that
has the batch: they are committed together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.errors import JMSException, shown
from kjms.spark._decode import TYPED
from kjms.spark._require import DELTA, ICEBERG, is_connect, require_format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kjms.spark._consuming import Function

__all__ = ["KEPT", "batch_sink", "read_kept", "start_keeping"]

FILES: Final = ("parquet", "orc", "json", "avro")
KEPT: Final = ("parquet", DELTA, ICEBERG)
"""The formats of archives."""

BATCH: Final = "batch"
QUERY_PROPERTY: Final = "kjms.query"
BATCH_PROPERTY: Final = "kjms.batch"
# Spark would compare a frame with the table before Iceberg can add the columns that are new.
_TAKES_NEW_COLUMNS: Final = {"write.spark.accept-any-schema": "true"}
_BODIES: Final = {"map": f"MAP<STRING, {TYPED}>", "stream": f"ARRAY<{TYPED}>"}
_MERGE: Final = {"mergeSchema": "true", "check-ordering": "false"}  # the second is Iceberg's


def batch_sink(spark: SparkSession, path: str, kind: str, query_id: Callable[[], str]) -> Function:
    """Return a function that stores a batch, once, however often it is called with it.

    Args:
        spark: The session.
        path: The folder; with ``iceberg`` also the name of a table.
        kind: The format.
        query_id: Returns what tells the query from others, as soon as a batch is stored.

    Raises:
        ValueError: There is no such format.
        JMSException: The session lacks it.
    """
    if kind not in {*FILES, DELTA, ICEBERG}:
        known = ", ".join((*FILES, DELTA))
        raise ValueError(f"format is {known} or {ICEBERG}, not {shown(kind)}; for others, give a function")
    require_format(spark, kind)
    if kind == ICEBERG:
        return _IcebergSink(path, query_id)

    def store(frame: DataFrame, batch: int) -> None:
        if kind == DELTA:
            appended = frame.write.format(DELTA).mode("append").options(**_MERGE)
            appended.option("txnAppId", query_id()).option("txnVersion", batch).save(path)
        else:
            frame.write.format(kind).mode("overwrite").save(f"{path}/{BATCH}={query_id()}-{batch}")

    return store


def start_keeping(
    frame: DataFrame,
    path: str,
    kind: str,
    partition: str,
    checkpoint: str,
    trigger: Mapping[str, Any] | None,
) -> StreamingQuery:
    """Start a query that stores a streaming *frame*, each row once; return it.

    Args:
        frame: What is stored.
        path: The folder; with ``iceberg`` also the name of a table.
        kind: The format, one of `KEPT`.
        partition: The column by which it is partitioned.
        checkpoint: The folder of the query's checkpoint.
        trigger: When batches are made; None: all the time.

    Raises:
        ValueError: There is no such format.
        JMSException: The session lacks it.
    """
    spark = frame.sparkSession
    _check_kept(spark, kind)
    if kind == ICEBERG and is_connect(spark):
        if _is_folder(path):
            raise JMSException(
                f"archive: the Iceberg table in the folder {path} cannot be used with Spark Connect, because only"
                " Iceberg's Java API makes such tables: give the name of a table in a catalog, such as lake.mail.orders"
            )
        _make_iceberg(frame, path, [partition])
    elif kind == ICEBERG and _iceberg_table(spark, path) is None:
        _make_iceberg(frame, path, [partition])
    writer = frame.writeStream.format(kind).option("checkpointLocation", checkpoint)
    # Of an Iceberg table, the table says the partitions; with fanout, rows need not be sorted by them.
    writer = writer.option("fanout-enabled", "true") if kind == ICEBERG else writer.partitionBy(partition)
    if kind != "parquet":
        writer = writer.options(**_MERGE)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start(path)


def read_kept(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Return what was stored, with all columns that any part of it has.

    Raises:
        ValueError: There is no such format.
        JMSException: There is nothing, or the session lacks the format.
    """
    from pyspark.errors import AnalysisException

    _check_kept(spark, kind)
    try:
        kept = spark.read.format(kind).options(**(_MERGE if kind == "parquet" else {})).load(path)
    except AnalysisException as error:
        raise JMSException(f"replay: {path} holds no archive ({error.getCondition()})") from error
    if kind == ICEBERG:  # which has no numbers of less than four bytes
        kept = kept.withColumns({name: kept[name].cast(type_) for name, type_ in _BODIES.items()})
    return kept


def _check_kept(spark: SparkSession, kind: str) -> None:
    if kind not in KEPT:
        raise ValueError(f"format is {', '.join(KEPT[:-1])} or {KEPT[-1]}, not {shown(kind)}")
    require_format(spark, kind)


class _IcebergSink:
    """Appends batches to an Iceberg table, which is made if it is missing.

    Args:
        path: The folder, or the name, of the table.
        query_id: Returns what tells the query from others.
    """

    def __init__(self, path: str, query_id: Callable[[], str]) -> None:
        self._path = path
        self._query_id = query_id
        self._last: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self._last is None:  # later, this process alone adds batches of the query, and each of them once
            table = _iceberg_table(frame.sparkSession, self._path)
            if table is None:
                _make_iceberg(frame, self._path, [])
            self._last = -1 if table is None else _last_batch(frame.sparkSession, table, self._query_id())
        if batch <= self._last:
            return
        writer = frame.write.format(ICEBERG).mode("append").options(**_MERGE)
        for name, value in {QUERY_PROPERTY: self._query_id(), BATCH_PROPERTY: str(batch)}.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.save(self._path)
        self._last = batch


def _last_batch(spark: SparkSession, table: Any, query: str) -> int:
    """Return the last batch of *query* that an Iceberg *table* has; -1: none."""
    jvm: Any = spark._jvm
    for snapshot in jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestors(table).iterator():
        summary = snapshot.summary()
        if summary.get(QUERY_PROPERTY) == query:
            return int(summary.get(BATCH_PROPERTY))
    return -1


def _iceberg_table(spark: SparkSession, path: str) -> Any:
    """Return the Iceberg table in the folder, or of the name, *path*; None: there is none."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import AnalysisException

    jvm: Any = spark._jvm
    try:
        if _is_folder(path):
            return _tables(spark).load(path)
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, path)
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() == "NoSuchTableException":
            return None
        raise
    except AnalysisException as error:
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            return None
        raise


def _make_iceberg(frame: DataFrame, path: str, partitions: list[str]) -> None:
    """Make an Iceberg table for rows as in *frame*, which takes columns that are added later, if there is none."""
    spark = frame.sparkSession
    if _is_folder(path):
        jvm: Any = spark._jvm
        columns: Any = frame._jdf.schema().asNullable()  # which columns are never null differs from batch to batch
        schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(columns)
        layout = jvm.org.apache.iceberg.PartitionSpec.builderFor(schema)
        for name in partitions:
            layout = layout.identity(name)
        _tables(spark).create(schema, layout.build(), _TAKES_NEW_COLUMNS, path)
        return
    layout = f" PARTITIONED BY ({', '.join(partitions)})" if partitions else ""
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in _TAKES_NEW_COLUMNS.items())
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema.fields)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {path} ({columns}) USING {ICEBERG}{layout} TBLPROPERTIES ({properties})")


def _tables(spark: SparkSession) -> Any:
    """Return what Iceberg calls tables that are known by their folders."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())


def _is_folder(path: str) -> bool:
    """Tell whether *path* is a folder, and no name, as Iceberg does.

    >>> _is_folder("/data/dead"), _is_folder("lake.mail.dead")
    (True, False)
    """
    return "/" in path
