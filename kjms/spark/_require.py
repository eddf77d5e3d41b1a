"""What kjms.spark needs of pyspark, of Java and of a session, and what it says where that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kjms.errors import JMSException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["packages", "require_avro", "require_kafka", "require_pyspark"]

SCALA: Final = "2.13"
WANTED: Final = "4.0"
_AVRO: Final = "org.apache.spark.sql.avro.AvroDataToCatalyst"
_KAFKA: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


def require_pyspark() -> str:
    """Return the version of the installed pyspark.

    Raises:
        JMSException: There is none, or one that kjms is not made for.
    """
    try:
        from pyspark import __version__
    except ImportError:
        raise JMSException("kjms.spark needs pyspark, which is not installed: pip install 'kjms[spark]'") from None
    if not __version__.startswith(f"{WANTED}."):
        raise JMSException(
            f"kjms.spark is made for pyspark {WANTED}, and {__version__} is installed: pip install 'kjms[spark]'"
        )
    return str(__version__)


def packages(version: str) -> list[str]:
    """Return the Maven coordinates of the connectors that Spark of this *version* needs.

    >>> packages("4.0.1")[1]
    'org.apache.spark:spark-avro_2.13:4.0.1'
    """
    return [f"org.apache.spark:spark-{name}_{SCALA}:{version}" for name in ("sql-kafka-0-10", "avro")]


def require_avro(spark: SparkSession) -> None:
    """Raise what is to be done where *spark* cannot read Avro: map, stream and object bodies are Avro."""
    _require(spark, _AVRO, "spark-avro")


def require_kafka(spark: SparkSession) -> None:
    """Raise what is to be done where *spark* has no Kafka source."""
    _require(spark, _KAFKA, "spark-sql-kafka-0-10")


def _require(spark: SparkSession, name: str, artifact: str) -> None:
    jvm = spark._jvm
    assert jvm is not None
    if name in _found:
        return
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:
        wanted = ",".join(packages(spark.version))
        raise JMSException(
            f"this Spark session has no {artifact}: make it with kjms.spark.spark_session(), or give spark-submit"
            f" --packages {wanted}"
        ) from None
    _found.add(name)


_found: set[str] = set()
