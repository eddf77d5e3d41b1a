"""Where a number's text becomes its value and Java type: the literal forms of Java 7 (JLS §3.10.1, §3.10.2)."""

from __future__ import annotations

import math
import re
from typing import Final

from kjms.selector._numbers import single, wrapped
from kjms.selector.tree import NumberLiteral

_DECIMAL, _HEX = (rf"[{digits}](?:[{digits}_]*[{digits}])?" for digits in ("0-9", "0-9A-Fa-f"))

_EXACT: Final = re.compile(
    rf"""(?: 0[xX](?P<x16>{_HEX}) | 0[bB](?P<x2>[01](?:[01_]*[01])?) | 0(?P<x8>[0-7_]*[0-7])
           | (?P<x10>0|[1-9](?:[0-9_]*[0-9])?) ) (?P<long>[lL])?""",
    re.VERBOSE,
)
_APPROXIMATE: Final = re.compile(
    rf"""(?! [0-9_]+\Z ) (?: 0[xX](?P<hex> (?:{_HEX}\.?(?:{_HEX})?|\.{_HEX}) ) [pP][+-]?{_DECIMAL}
           | (?P<decimal> {_DECIMAL}\.?(?:{_DECIMAL})?|\.{_DECIMAL} ) (?:[eE][+-]?{_DECIMAL})? ) (?P<type>[fFdD])?""",
    re.VERBOSE,
)

# No literal of 64 bits has more digits than this, leading zeros apart: what is longer need not be computed.
_MOST_DIGITS = 64


def number_literal(text: str, *, negative: bool = False) -> NumberLiteral:
    """Return the number that *text*, in Java's syntax, stands for; *negative* if there is a minus before it.

    An exact number that no int can hold is a long, with or without its ``L``. Hexadecimal, octal and binary numbers of
    64 bits are the bits of a long, as in Java. What is written with an ``f`` is read as a double, then rounded.

    Raises:
        ValueError: The text is no number of Java's, or a long or a double cannot hold it; says what would be one.

    >>> number_literal("0x1F"), number_literal("9223372036854775808", negative=True)
    (NumberLiteral(value=31, type='int'), NumberLiteral(value=-9223372036854775808, type='long'))
    """
    if exact := _EXACT.fullmatch(text):
        return _exact(exact, negative)
    if approximate := _APPROXIMATE.fullmatch(text):
        return _approximate(approximate, negative)
    raise ValueError("a number as Java writes it")


def _exact(match: re.Match[str], negative: bool) -> NumberLiteral:
    base, written = next((int(name[1:]), digits) for name, digits in match.groupdict().items() if digits is not None)
    digits = written.replace("_", "").lstrip("0") or "0"
    value = int(digits, base) if len(digits) <= _MOST_DIGITS else 1 << 64
    if value >= 1 << 64 or (base == 10 and value > (1 << 63) - 1 + negative):
        raise ValueError("a number that a long can hold")
    value = wrapped(-value if negative else value, 64)
    short = match["long"] is None and -0x8000_0000 <= value <= 0x7FFF_FFFF
    return NumberLiteral(value, "int" if short else "long")


def _approximate(match: re.Match[str], negative: bool) -> NumberLiteral:
    text, suffix = match.group().replace("_", ""), match["type"] or ""
    is_float = suffix in "fF" and suffix != ""
    try:
        value = float.fromhex(text.rstrip("fFdD")) if match["hex"] else float(text.rstrip("fFdD"))
    except OverflowError:
        value = math.inf
    if is_float:
        value = single(value)
    is_zero = not (match["hex"] or match["decimal"]).strip("0._")
    if math.isinf(value) or (value == 0 and not is_zero):
        raise ValueError(f"a number in the range of a {'float' if is_float else 'double'}")
    return NumberLiteral(-value if negative else value, "float" if is_float else "double")
