"""What kjms.spark needs of pyspark, of Java and of a session, and what it says where that is missing."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.errors import JMSException, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DELTA",
    "ICEBERG",
    "is_connect",
    "packages",
    "require_avro",
    "require_format",
    "require_kafka",
    "require_pyspark",
    "table_settings",
]

SCALA: Final = "2.13"
VERSIONS: Final = ("4.0", "4.1")
"""The versions of Spark that kjms is made for; the tests run on one of each."""
_AVRO: Final = "org.apache.spark.sql.avro.AvroDataToCatalyst"
_KAFKA: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_EXTENSIONS: Final = "spark.sql.extensions"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"


class _TableFormat(NamedTuple):
    """A format of tables that Spark does not bring along.

    Attributes:
        packages: The Maven coordinates of its connector for each version of Spark.
        provider: The class that Spark finds it by.
        settings: What the session needs to use all of it.
    """

    packages: dict[str, str]
    provider: str
    settings: dict[str, str]


_TABLES: Final = {
    DELTA: _TableFormat(
        {version: f"io.delta:delta-spark_{SCALA}:{version}.0" for version in VERSIONS},
        "org.apache.spark.sql.delta.sources.DeltaDataSource",
        {
            _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    ICEBERG: _TableFormat(
        {
            version: f"org.apache.iceberg:iceberg-spark-runtime-{version}_{SCALA}:{own}"
            for version, own in zip(VERSIONS, ("1.10.0", "1.11.0"), strict=True)
        },
        "org.apache.iceberg.spark.source.IcebergSource",
        {_EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
    ),
}


def require_pyspark() -> str:
    """Return the version of the installed pyspark.

    Raises:
        JMSException: There is none, or one that kjms is not made for.
    """
    try:
        from pyspark import __version__
    except ImportError:
        raise JMSException("kjms.spark needs pyspark, which is not installed: pip install 'kjms[spark]'") from None
    if _line(__version__) not in VERSIONS:
        raise JMSException(
            f"kjms.spark is made for pyspark {' and '.join(VERSIONS)}, and {__version__} is installed:"
            " pip install 'kjms[spark]'"
        )
    return str(__version__)


def _line(version: str) -> str:
    return ".".join(version.split(".")[:2])


def packages(version: str, formats: Collection[str] = ()) -> list[str]:
    """Return the Maven coordinates of the connectors that Spark of this *version* needs, with those of *formats*.

    Raises:
        ValueError: A format is unknown.

    >>> packages("4.0.1", ["delta"])[1:]
    ['org.apache.spark:spark-avro_2.13:4.0.1', 'io.delta:delta-spark_2.13:4.0.0']
    >>> packages("4.1.1", ["iceberg"])[2]
    'org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0'
    """
    own = [f"org.apache.spark:spark-{name}_{SCALA}:{version}" for name in ("sql-kafka-0-10", "avro")]
    return own + [_table_format(name).packages[_line(version)] for name in formats]


def table_settings(formats: Collection[str], given: str | None = None) -> dict[str, str]:
    """Return the settings of a session that uses tables of *formats*.

    Args:
        formats: Of ``delta`` and ``iceberg`` those that are used.
        given: What the program itself sets as ``spark.sql.extensions``; it is kept.

    Raises:
        ValueError: A format is unknown.

    >>> table_settings(["iceberg"], "mine")
    {'spark.sql.extensions': 'mine,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions'}
    """
    found: dict[str, str] = {}
    extensions = [given] if given else []
    for name in formats:
        settings = _table_format(name).settings
        extensions.append(settings[_EXTENSIONS])
        found |= settings
    return found | ({_EXTENSIONS: ",".join(extensions)} if formats else {})


def _table_format(name: str) -> _TableFormat:
    if name not in _TABLES:
        raise ValueError(f"formats are {' and '.join(_TABLES)}, not {shown(name)}")
    return _TABLES[name]


def require_format(spark: SparkSession, name: str) -> None:
    """Raise what is to be done where *spark* cannot write tables of the format *name*; others are Spark's own."""
    if name in _TABLES and not _has(spark, _TABLES[name].provider):
        package = _TABLES[name].packages[_line(spark.version)]
        how = (
            f"start the server of Spark Connect with --packages {package}"
            if is_connect(spark)
            else f"make it with kjms.spark.spark_session(formats=[{name!r}]), or give spark-submit --packages {package}"
        )
        raise JMSException(f"this Spark session has no format {name!r}: {how}")


def is_connect(spark: SparkSession) -> bool:
    """Return whether *spark* is a session of Spark Connect: a client, which has no Java of its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def require_avro(spark: SparkSession) -> None:
    """Raise what is to be done where *spark* cannot read Avro: map, stream and object bodies are Avro."""
    _require(spark, _AVRO, "spark-avro")


def require_kafka(spark: SparkSession) -> None:
    """Raise what is to be done where *spark* has no Kafka source."""
    _require(spark, _KAFKA, "spark-sql-kafka-0-10")


def _require(spark: SparkSession, name: str, artifact: str) -> None:
    if not _has(spark, name):
        wanted = ",".join(packages(spark.version))
        how = (
            f"start the server of Spark Connect with --packages {wanted}"
            if is_connect(spark)
            else f"make it with kjms.spark.spark_session(), or give spark-submit --packages {wanted}"
        )
        raise JMSException(f"this Spark session has no {artifact}: {how}")


def _has(spark: SparkSession, name: str) -> bool:
    """Return whether *spark* has the Java class *name*."""
    key = (spark.session_id if is_connect(spark) else "", name)
    if key not in _found:
        try:
            if is_connect(spark):
                _analyse(spark, name)
            else:
                jvm = spark._jvm
                assert jvm is not None
                jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
        except Exception:
            return False
        _found.add(key)
    return True


def _analyse(spark: SparkSession, name: str) -> None:
    """Let the server of Spark Connect analyse a frame that needs the connector; nothing is read."""
    if name == _KAFKA:
        settings = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "none"}
        _ = spark.read.format("kafka").options(**settings).load().schema
        return
    table = next((each for each in _TABLES if _TABLES[each].provider == name), None)
    if table is not None:
        try:
            _ = spark.read.format(table).load("/kjms/none").schema
        except Exception as error:  # as a rule: there is no such table
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                raise
        return
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    _ = spark.range(1).select(from_avro(f.lit(b""), '"int"')).schema


_found: set[tuple[str, str]] = set()
