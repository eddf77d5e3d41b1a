"""Java's numbers: what selectors compute and compare, by the rules of binary numeric promotion (JLS §5.6.2).

An operand, here, is None (unknown), a str, a bool, a number as a pair of its rank and its value, or `NOT_A_NUMBER`,
which is what arithmetic makes of a string or a boolean. A byte or a short is promoted to an int wherever it is used.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

from kjms.selector._message import SelectableMessage

INT, LONG, FLOAT, DOUBLE = range(4)
"""The ranks: of two numbers, both are converted to the type that ranks higher."""

RANKS: Final = {"int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE}

Number: TypeAlias = tuple[int, "int | float"]


class _NotANumber:
    """What arithmetic makes of a string or a boolean: like no other value, so that every comparison is false."""


NOT_A_NUMBER: Final = _NotANumber()
Operand: TypeAlias = "Number | str | bool | _NotANumber | None"

# The header fields with a number: their types are the specification's (JMS 2.0 §3.4.3, §3.4.10).
_HEADER_TYPES: Final = {"JMSPriority": "int", "JMSTimestamp": "long"}


def operand(value: bool | int | float | str | None, message: SelectableMessage, name: str) -> Operand:
    """Return *value* of the identifier *name* as an operand: a number together with its rank."""
    if isinstance(value, (bool, str)) or value is None:
        return value
    kind = _HEADER_TYPES.get(name) or message.property_type(name)
    if isinstance(value, float):
        return (FLOAT if kind == "float" else DOUBLE), value
    return (LONG if kind == "long" or not -0x8000_0000 <= value <= 0x7FFF_FFFF else INT), value


def wrapped(value: int, bits: int) -> int:
    """Return what is left of *value* in a two's complement number of that many *bits*.

    >>> wrapped(2**31, 32), wrapped(-1, 32)
    (-2147483648, -1)
    """
    half = 1 << bits - 1
    return ((value + half) & (2 * half - 1)) - half


def single(value: int | float) -> float:
    """Return *value* as Java's float: rounded once, to the nearest; too much is infinite.

    >>> single(16_777_217), single(1e39)
    (16777216.0, inf)
    """
    if isinstance(value, int) and not -(1 << 53) <= value <= 1 << 53:
        # On the way through a double it would be rounded twice: what is cut off here leaves its mark in the last bit.
        value = (value >> 11 | bool(value & 0x7FF)) << 11
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def converted(rank: int, value: int | float) -> int | float:
    """Return *value* as a number of that *rank*: wrapped or rounded to what it can hold."""
    if rank == FLOAT:
        return single(value)
    if rank == DOUBLE:
        return float(value)
    return wrapped(int(value), 32 if rank == INT else 64)


def _promoted(a: Number, b: Number) -> tuple[int, int | float, int | float]:
    rank = max(a[0], b[0])
    return rank, converted(rank, a[1]), converted(rank, b[1])


def _arithmetic(
    calculate: Callable[[int | float, int | float], int | float | None],
) -> Callable[[Operand, Operand], Operand]:
    def operation(a: Operand, b: Operand) -> Operand:
        if a is None or b is None:
            return None
        if not isinstance(a, tuple) or not isinstance(b, tuple):
            return NOT_A_NUMBER
        rank, x, y = _promoted(a, b)
        result = calculate(x, y)
        return None if result is None else (rank, converted(rank, result))

    return operation


def _quotient(x: int | float, y: int | float) -> int | float | None:
    """Return x / y: toward zero for whole numbers (unknown by 0), and by IEEE 754 for the others."""
    if isinstance(x, int) and isinstance(y, int):
        return None if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    if y == 0:
        return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)
    return x / y


add = _arithmetic(lambda x, y: x + y)
subtract = _arithmetic(lambda x, y: x - y)
multiply = _arithmetic(lambda x, y: x * y)
divide = _arithmetic(_quotient)


def plus(a: Operand) -> Operand:
    """Return +a: *a* itself, if it is a number."""
    return a if a is None or isinstance(a, tuple) else NOT_A_NUMBER


def minus(a: Operand) -> Operand:
    """Return -a."""
    if isinstance(a, tuple):
        return a[0], converted(a[0], -a[1])
    return None if a is None else NOT_A_NUMBER


def _comparison(
    compare: Callable[[int | float, int | float], bool], *, of_equals: bool | None
) -> Callable[[Operand, Operand], bool | None]:
    """Return a comparison; *of_equals* is its result for equal strings or booleans, None if it has no meaning there."""

    def comparison(a: Operand, b: Operand) -> bool | None:
        if a is None or b is None:
            return None
        if isinstance(a, tuple) and isinstance(b, tuple):
            _, x, y = _promoted(a, b)
            return compare(x, y)
        if of_equals is None or type(a) is not type(b) or a is NOT_A_NUMBER:
            return False
        return (a == b) is of_equals

    return comparison


equal = _comparison(lambda x, y: x == y, of_equals=True)
unequal = _comparison(lambda x, y: x != y, of_equals=False)
less = _comparison(lambda x, y: x < y, of_equals=None)
less_or_equal = _comparison(lambda x, y: x <= y, of_equals=None)
greater = _comparison(lambda x, y: x > y, of_equals=None)
greater_or_equal = _comparison(lambda x, y: x >= y, of_equals=None)
