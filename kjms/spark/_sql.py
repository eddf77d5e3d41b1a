"""How typed values stand in the text of Spark SQL: literals, and the reading of properties by Java's rules. Pure text.

Everything here is text that Spark parses once into expressions of its own: no Python runs for a row. It must give the
same answers in ANSI mode and out of it, so nothing here can overflow, divide by zero or fail to be cast.
"""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["EXACT_KINDS", "KINDS", "case", "is_valid", "is_whole", "quoted", "read_real", "read_whole", "real", "regex"]

EXACT_KINDS: Final = ("byte", "short", "int", "long")
KINDS: Final = ("boolean", *EXACT_KINDS, "float", "double")
"""The types that a property can have beside String."""

_PLAIN: Final = re.compile(r"[ -&(-\[\]-~]*")
_SQL_TYPES: Final = {"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT"}


def quoted(text: str) -> str:
    """Return the string *text* as an expression, whatever stands in it.

    >>> quoted("EU"), quoted("it's")
    ("'EU'", "CAST(X'69742773' AS STRING)")
    """
    return f"'{text}'" if _PLAIN.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"


regex = quoted
"""A regular expression is a string like any other; the name says what it is for."""


def real(value: float) -> str:
    """Return a double as an expression.

    >>> real(0.5), real(-math.inf)
    ("DOUBLE('0.5')", "DOUBLE('-Infinity')")
    """
    named = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return f"DOUBLE('{value!r}')" if math.isfinite(value) else f"DOUBLE('{named}')"


def case(*branches: tuple[str, str], otherwise: str = "NULL") -> str:
    """Return the expression that is the value of the first branch whose condition holds."""
    whens = " ".join(f"WHEN {condition} THEN {value}" for condition, value in branches)
    return f"CASE {whens} ELSE {otherwise} END"


_REAL_NUMBER: Final = r"[0-9]|^[\x00- ]*[+-]?(NaN|Infinity)[\x00- ]*\z"

# Spark's cast knows more names than Java does ("inf", "nan"); what is beyond all numbers has digits.
_IS_REAL: Final = f"RLIKE {regex(_REAL_NUMBER)}"


def is_whole(text: str) -> str:
    """Return whether *text* begins and ends as a whole number does: to a cast, white space around it is no matter."""
    return f"({text} >= '+' AND {text} < ':' AND substring({text}, -1, 1) BETWEEN '0' AND '9')"


def read_whole(kind: str, text: str) -> str:
    """Return the long that the expression *text* says as a value of the exact type *kind*; null where it says none."""
    casts = " ".join(
        f"WHEN '{name}' THEN CAST(TRY_CAST({text} AS {sql}) AS BIGINT)" for name, sql in _SQL_TYPES.items()
    )
    return f"CASE WHEN {is_whole(text)} THEN CASE {kind} {casts} END END"


def read_real(kind: str, text: str) -> str:
    """Return the double that *text* says as a value of type *kind*, float or double; null where it says none."""
    double, single = f"TRY_CAST({text} AS DOUBLE)", f"CAST(TRY_CAST({text} AS FLOAT) AS DOUBLE)"
    return (
        f"CASE WHEN {text} {_IS_REAL} THEN CASE {kind} WHEN 'double' THEN {double} WHEN 'float' THEN {single} END END"
    )


def is_valid(kind: str, text: str) -> str:
    """Return whether *text* says a value of the type *kind*; false where that is none of `KINDS`."""
    exact = ", ".join(f"'{name}'" for name in EXACT_KINDS)
    return case(
        (f"{kind} IN ({exact})", f"({read_whole(kind, text)}) IS NOT NULL"),
        (f"{kind} IN ('float', 'double')", f"({read_real(kind, text)}) IS NOT NULL"),
        (f"{kind} = 'boolean'", f"coalesce({text} IN ('true', 'false'), FALSE)"),
        otherwise="FALSE",
    )
