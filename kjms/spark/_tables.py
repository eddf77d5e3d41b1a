"""Small frames that the driver makes of what it knows: in Java, so that no process of Python is needed for them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kjms.spark._sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["table"]


def table(spark: SparkSession, rows: Iterable[tuple[Any, ...]], schema: str) -> DataFrame:
    """Return *rows* as a frame.

    Args:
        spark: The session.
        rows: Of values that JSON has.
        schema: Names and types, as ``"topic STRING, number INT"``.
    """
    names = [field.split(" ")[0] for field in schema.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    return spark.range(1).selectExpr(f"inline(from_json({quoted(text)}, {quoted(f'ARRAY<STRUCT<{schema}>>')}))")
