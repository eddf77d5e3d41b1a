"""What the tests of Spark share: a session, and records as Spark's Kafka source gives them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kjms.mapping import KafkaRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TESTS = Path(__file__).parents[1]
for folder in (TESTS, TESTS / "unit" / "selector", Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

SLOWEST_SECONDS = 400  # on a machine that does much else

WAREHOUSE = "spark.sql.catalog.lake.warehouse"
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,"
    " headers array<struct<key: string, value: binary>>"
)


def reason_to_skip() -> str | None:
    """Why Spark cannot run here; None where it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed"
    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        return "there is no Java"
    return None


ROWS = {"test_spark_decode", "test_spark_docs", "test_spark_flows", "test_spark_round_trip", "test_spark_selectors"}
"""The modules that take about half of the time."""


@pytest.hookimpl(tryfirst=True)  # before the groups are looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of Spark in two processes, so that they share two sessions; their start alone makes them slow."""
    here = f"{Path(__file__).parent}{os.sep}"
    items.sort(key=lambda item: not str(item.path).startswith(here))  # first: they take longest
    for item in items:
        if str(item.path).startswith(here):
            if {"kjms_broker", "spark"}.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("spark rows" if item.path.stem in ROWS else "spark"))
            # Whoever is interrupted in a call to Java leaves its answer to the next: all later tests would fail.
            item.add_marker(pytest.mark.timeout(SLOWEST_SECONDS))
            # pyspark leaves sockets to the garbage collector, here and there.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="session")
def spark_is_there() -> None:
    """Skip the test where Spark cannot run."""
    reason = reason_to_skip()
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(spark_is_there: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark of this process's own."""
    from spark_records import FORMATS, SETTINGS

    from kjms.spark import spark_session

    warehouse = str(tmp_path_factory.mktemp("lake"))
    session = spark_session("kjms tests", formats=FORMATS, **SETTINGS, **{WAREHOUSE: warehouse})
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def connectors(spark_is_there: None) -> list[str]:
    """The files of Spark's connectors, which an earlier session of Spark found."""
    import pyspark
    from spark_records import FORMATS

    from kjms.spark._session import _known_jars

    found = _known_jars(pyspark.__version__, FORMATS)
    if not found:
        pytest.skip("no session of Spark has fetched the connectors yet")
    return found


@pytest.fixture
def no_python_on_executors(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors that have no Python, hence no kjms."""
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/python/on/executors")


@pytest.fixture
def f(spark: SparkSession) -> Any:
    """Spark's functions: tests are collected without pyspark, too."""
    from pyspark.sql import functions

    return functions


@pytest.fixture
def records(spark: SparkSession) -> Callable[[Iterable[KafkaRecord]], DataFrame]:
    """A function that makes a frame of records, as Spark's Kafka source gives it: in topic orders, partition 3."""
    from datetime import datetime, timezone

    def made(given: Iterable[KafkaRecord]) -> DataFrame:
        rows: list[tuple[Any, ...]] = []
        for offset, (key, value, headers, timestamp) in enumerate(given):
            when = datetime.fromtimestamp(timestamp / 1000, timezone.utc)
            rows.append((key, value, "orders", 3, offset, when, 0, list(headers) or None))
        return spark.createDataFrame(rows, SCHEMA)

    return made
