"""What a JMS value is: its types, their ranges, and each conversion between them as Java makes it.

A value is kept as a plain Python value beside the name of its JMS type. The types are named ``boolean byte short char
int long float double string bytes``; None is a value of no type. Properties have all of them but char and bytes.
"""

from __future__ import annotations

import math
import re
import struct
from fractions import Fraction
from typing import Final

from kjms.errors import MessageFormatException, shown

__all__ = ["READABLE_AS", "Value", "checked", "float32", "parsed", "read_as", "text_of", "typed"]

Value = bool | int | float | str | bytes | None

RANGES: Final = {
    "byte": (-(2**7), 2**7 - 1),
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
}

READABLE_AS: Final[dict[str, frozenset[str]]] = {
    "boolean": frozenset({"boolean", "string"}),
    "byte": frozenset({"byte", "short", "int", "long", "string"}),
    "short": frozenset({"short", "int", "long", "string"}),
    "char": frozenset({"char", "string"}),
    "int": frozenset({"int", "long", "string"}),
    "long": frozenset({"long", "string"}),
    "float": frozenset({"float", "double", "string"}),
    "double": frozenset({"double", "string"}),
    "string": frozenset({"boolean", "byte", "short", "int", "long", "float", "double", "string"}),
    "bytes": frozenset({"bytes"}),
}
"""The conversion tables of JMS 2.0 §3.5.4 and §3.11.3: what a value that was written as one type can be read as."""

_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL = re.compile(
    r"(?P<sign>[+-]?)0[xX](?P<whole>[0-9a-fA-F]*)(?:\.(?P<rest>[0-9a-fA-F]*))?[pP](?P<exponent>[+-]?[0-9]+)[fFdD]?"
)
_NAMED: Final = {
    "NaN": math.nan, "+NaN": math.nan, "-NaN": math.nan,
    "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf,
}  # fmt: skip
_BLANK: Final = "".join(map(chr, range(33)))  # what Java's String.trim() takes away
_FLOAT: Final = struct.Struct(">f")
_FLOAT_BITS: Final = struct.Struct(">i")


def float32(value: float) -> float:
    """Return *value* rounded to 32 bits; beyond their range an infinity, as Java's ``(float) value`` gives."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def typed(value: object, noun: str, name: object) -> tuple[str, Value]:
    """Return the JMS type that a Python value without a type name has, and the value as it is kept.

    Raises:
        MessageFormatException: *value* is of no type that JMS knows, or an integer of more than 64 bits.
    """
    if value is None or value.__class__ is str:
        return "string", value
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return "int", int(value)
        return "long", checked("long", value, noun, name)
    if isinstance(value, float):
        return "double", float(value)
    if isinstance(value, str):
        return "string", str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    raise MessageFormatException(
        f"{noun} {name!r} cannot hold a {type(value).__name__}:"
        " only bool, int, float, str, None and, in bodies, bytes have a JMS type (JMS 2.0 §3.5.5, §3.11.3)"
    )


def checked(kind: str, value: object, noun: str, name: object) -> Value:
    """Return *value* as a value of the type *kind*, for a setter.

    Raises:
        MessageFormatException: It is of another Python type, or out of range.
    """
    if kind in RANGES:
        if isinstance(value, int) and not isinstance(value, bool):
            low, high = RANGES[kind]
            if low <= value <= high:
                return int(value)
    elif kind in {"double", "float"}:
        if isinstance(value, float | int) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.inf
            narrow = number if kind == "double" else float32(number)
            if math.isfinite(narrow) or narrow == value or value != value:  # noqa: PLR0124 - NaN is itself alone
                return narrow
    elif kind == "boolean":
        if isinstance(value, bool):
            return value
    elif kind == "string":
        if value is None or isinstance(value, str):
            return None if value is None else str.__str__(value)
    elif kind == "char":
        if isinstance(value, str) and len(value) == 1 and value <= "\uffff":
            return str.__str__(value)
    elif value is None or isinstance(value, bytes | bytearray | memoryview):
        return None if value is None else bytes(value)
    raise MessageFormatException(
        f"{noun} {name!r} was given {_seen(value, noun)}, which is no {kind}{_limits(kind)} (JMS 2.0 §3.5.2, §3.11.3)"
    )


def _limits(kind: str) -> str:
    if kind in RANGES:
        low, high = RANGES[kind]
        return f" (a whole number from {low} to {high})"
    return " (one UTF-16 unit)" if kind == "char" else ""


def _seen(value: object, noun: str) -> str:
    """Properties are shown in errors; what stands in a body is not."""
    return shown(value) if noun == "property" else f"a {type(value).__name__}"


def read_as(wanted: str, kind: str, value: Value, noun: str, name: object) -> Value:
    """Return *value*, kept as type *kind*, as type *wanted*: the conversion tables, for getters.

    None reads as None where the type is an object in Java, as False where it is boolean.

    Raises:
        MessageFormatException: The tables do not have this conversion, a text is no number of the wanted type, or
            None was to be read as a number or char.
    """
    if value is None:
        if wanted in {"bytes", "string"}:
            return None
        if wanted == "boolean":
            return False
        raise MessageFormatException(
            f"{noun} {name!r} has no value, which cannot be read as {wanted} (JMS 2.0 §3.5.4, §3.11.3)"
        )
    if kind == wanted:
        return value
    if wanted in READABLE_AS[kind]:
        if wanted == "string":
            return text_of(kind, value)
        if kind != "string":
            return value
        try:
            return value.lower() == "true" if wanted == "boolean" else parsed(wanted, value)  # type: ignore
        except ValueError:
            pass
    raise MessageFormatException(
        f"{noun} {name!r} holds {_seen(value, noun)}, set as {kind}, which cannot be read as {wanted}"
        " (JMS 2.0 §3.5.4, §3.11.3)"
    )


def parsed(kind: str, text: str) -> int | float:
    """Return the number that Java's ``valueOf`` of the type *kind* reads in *text*.

    Raises:
        ValueError: Java would raise NumberFormatException. The error's text does not repeat *text*.

    >>> parsed("byte", "+12"), parsed("double", " 1e3f "), parsed("double", "0x1.8p1")
    (12, 1000.0, 3.0)
    """
    if kind == "double":
        return _parsed_double(text)
    if kind == "float":
        return _parsed_float(text)
    # Character.digit knows the decimal digits of every script, but sees one UTF-16 unit at a time.
    if not _INTEGER.fullmatch(text) or max(text) > "\uffff":
        raise ValueError(f"no {kind}")
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > 19:  # Python would refuse thousands of them
        raise ValueError(f"no {kind}")
    value = -int(digits) if text[0] == "-" else int(digits)
    low, high = RANGES[kind]
    if not low <= value <= high:
        raise ValueError(f"no {kind}")
    return value


def _parsed_double(text: str) -> float:
    text = text.strip(_BLANK)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if text in _NAMED:
        return _NAMED[text]
    match = _HEXADECIMAL.fullmatch(text)
    if not match or not (match["whole"] or match["rest"]):
        raise ValueError("no floating-point number")
    try:
        return float.fromhex(text.rstrip("fFdD"))
    except OverflowError:
        return math.copysign(math.inf, -1 if match["sign"] == "-" else 1)


def _parsed_float(text: str) -> float:
    """Round the text to 32 bits once: a double in between that is a tie says nothing of what the text says."""
    double = _parsed_double(text)
    single = float32(double)
    if single == double or not math.isfinite(double):
        return single
    towards = _next_float(single, up=double > single)
    if math.isinf(single):  # the greatest float and the tie above it, 2**128 - 2**103
        towards, single = math.copysign(_GREATEST, double), math.copysign(2.0**128, double)
    elif math.isinf(towards):
        towards = math.copysign(2.0**128, double)
    if (single + towards) / 2 == double:
        exact = _exact(text.strip(_BLANK))
        if exact != double:
            single = max(single, towards) if exact > double else min(single, towards)
    return float32(single)


_GREATEST: Final = float(_FLOAT.unpack(b"\x7f\x7f\xff\xff")[0])


def _next_float(value: float, *, up: bool) -> float:
    if value == 0.0:
        return 2.0**-149 if up else -(2.0**-149)
    bits = _FLOAT_BITS.unpack(_FLOAT.pack(value))[0]
    bits += 1 if up == (value > 0) else -1
    return float(_FLOAT.unpack(_FLOAT_BITS.pack(bits))[0])


def _exact(text: str) -> Fraction:
    match = _HEXADECIMAL.fullmatch(text)
    if not match:
        return Fraction(text.rstrip("fFdD"))
    rest = match["rest"] or ""
    digits = Fraction(int(match["whole"] + rest, 16), 16 ** len(rest))
    power = int(match["exponent"])
    scale = Fraction(2**power) if power >= 0 else Fraction(1, 2**-power)
    return digits * scale * (-1 if match["sign"] == "-" else 1)


def text_of(kind: str, value: Value) -> str:
    """Return *value* as Java's ``String.valueOf`` writes it.

    >>> text_of("double", 1e10), text_of("float", float32(0.1)), text_of("boolean", True)
    ('1.0E10', '0.1', 'true')
    """
    if value.__class__ is float:
        if kind == "double" and (1e-3 <= value < 1e7 or -1e7 < value <= -1e-3 or value == 0):
            return repr(value)
        return _number_text(kind, value)
    if kind == "boolean":
        return "true" if value else "false"
    return str(value)


def _number_text(kind: str, value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124
    mantissa, _, power = _shortest(kind, value).partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    digits, exponent = mantissa.replace(".", "").rstrip("0") or "0", int(power)
    if not -3 <= exponent < 7:
        return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    digits = digits.ljust(exponent + 2, "0")
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _shortest(kind: str, value: float) -> str:
    """The shortest decimal, of two digits at least, that reads back as *value*; of several the nearest."""
    if value == 0:
        return f"{value:.1e}"
    read = float if kind == "double" else _parsed_float
    for digits in range(1, 17):
        text = f"{value:.{digits}e}"
        # For floats a look at the double first: reading the text exactly costs more, and is due only where it may fit.
        if (kind == "double" or float32(float(text)) == value) and read(text) == value:
            break
    return text
