"""The text of properties whose columns have a type that JMS does not have: date, timestamp, decimal and arrays.

The property is a string. Text of Spark SQL, as in `kjms.spark._sql`; docs/spark.md has the table of the forms. The text
depends neither on the session's time zone nor on ANSI mode.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kjms.spark._sql import quoted, regex

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

__all__ = ["is_form", "read_form", "written_form"]

_EPOCH: Final = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
_PLAIN: Final = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "date", "timestamp",
     "timestamp_ntz"}
)  # fmt: skip
"""What an array may hold, beside decimals and arrays."""
_DATE: Final = r"[+-]?[0-9]{4,6}-[0-9]{2}-[0-9]{2}"
_TIME: Final = r"T[0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?"
_DECIMAL: Final = re.compile(r"decimal(\((\d{1,2})(,(\d{1,2}))?\))?")
_SHAPES: Final = {
    "date": rf"^{_DATE}\z",
    "timestamp": rf"^{_DATE}{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})\z",
    "timestamp_ntz": rf"^{_DATE}{_TIME}\z",
    "decimal": r"^[+-]?[0-9]+([.][0-9]+)?\z",
}
# Micros are all that Spark has.
_WRITING: Final = "map('timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX')"


def written_form(column: str, kind: DataType) -> str | None:
    """Return the text of the values of *column*, an expression of type *kind*; None for a type that has no such form.

    A date is ``2026-11-23``, a timestamp ``2026-11-23T17:46:00.5Z``, one without a time zone the same without ``Z``, a
    decimal ``12.50``, an array JSON.
    """
    name = kind.simpleString()
    if not is_form(name):
        return None
    if name == "date":
        return f"CAST({column} AS STRING)"
    if name == "timestamp":  # not by the session's time zone: where clocks go back, an hour of it comes twice
        return f"concat({_iso(f'timestampadd(MICROSECOND, unix_micros({column}), {_EPOCH})')}, 'Z')"
    if name == "timestamp_ntz":
        return _iso(column)
    if name.startswith("decimal"):
        return _plain(column, kind)
    return f"to_json({column}, {_WRITING})"


def _iso(local: str) -> str:
    return f"replace(CAST({local} AS STRING), ' ', 'T')"


def _plain(column: str, kind: Any) -> str:
    """Return a decimal without an exponent, which Spark writes out of ANSI mode: its digits are all there."""
    text = f"CAST({column} AS STRING)"
    digits = f"regexp_replace(split_part({text}, 'E', 1), '[-.]', '')"
    small = f"concat(CASE WHEN {column} < 0 THEN '-' ELSE '' END, '0.', lpad({digits}, {kind.scale}, '0'))"
    return f"CASE WHEN contains({text}, 'E') THEN {small} ELSE {text} END"


def is_form(kind: str) -> bool:
    """Return whether *kind*, a type as Spark's ``simpleString`` names it, has a text form.

    >>> is_form("decimal(10,2)"), is_form("array<array<date>>"), is_form("int"), is_form("array<binary>")
    (True, True, False, False)
    """
    return kind in {"date", "timestamp", "timestamp_ntz"} or _is_decimal(kind) or _is_array(kind)


def _is_decimal(kind: str) -> bool:
    found = _DECIMAL.fullmatch(kind)
    return found is not None and int(found[4] or 0) <= int(found[2] or 10) <= 38 and found[2] != "0"


def _is_array(kind: str) -> bool:
    held = kind[len("array<") : -1]
    return kind.startswith("array<") and kind.endswith(">") and (held in _PLAIN or _is_decimal(held) or _is_array(held))


def read_form(text: str, kind: str) -> str:
    """Return the value of type *kind*, which `is_form`, that the expression *text* says; null where it says none."""
    if _is_array(kind):
        return f"from_json({text}, {quoted(kind)}, map('timeZone', 'UTC'))"
    shape = _SHAPES["decimal" if _is_decimal(kind) else kind]
    return f"CASE WHEN {text} RLIKE {regex(shape)} THEN TRY_CAST({text} AS {kind}) END"
