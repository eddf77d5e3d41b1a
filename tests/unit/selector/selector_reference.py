"""What a selector means, written down a second time: slow, without cleverness, from the text of the specification.

Truth values are 0 (false), 1 (unknown) and 2 (true): AND is then the least, OR the greatest, NOT 2 minus. Numbers are
computed with fractions and rounded once. It shares nothing with kjms.selector but the tree.
"""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import strategies as st
from selector_cases import jms_type

from kjms.selector import tree

FALSE, UNKNOWN, TRUE = 0, 1, 2
NULL = None
ORDER = ["int", "long", "float", "double"]
PROMOTED = {"byte": "int", "short": "int", "boolean": "boolean", "string": "string", **{name: name for name in ORDER}}


def result_of(condition: tree.Condition, properties: dict) -> bool | None:
    return {FALSE: False, UNKNOWN: None, TRUE: True}[truth(condition, properties)]


def truth(node: tree.Condition, properties: dict) -> int:
    match node:
        case tree.And(operands):
            return min(truth(operand, properties) for operand in operands)
        case tree.Or(operands):
            return max(truth(operand, properties) for operand in operands)
        case tree.Not(operand):
            return 2 - truth(operand, properties)
        case tree.BooleanLiteral() | tree.Identifier():
            return compared("=", value_of(node, properties), ("boolean", True))
        case tree.Comparison(operator, left, right):
            return compared(operator, value_of(left, properties), value_of(right, properties))
        case tree.Between(value, low, high, False):
            a, b, c = (value_of(part, properties) for part in (value, low, high))
            return min(compared(">=", a, b), compared("<=", a, c))
        case tree.Between(value, low, high, True):
            a, b, c = (value_of(part, properties) for part in (value, low, high))
            return max(compared("<", a, b), compared(">", a, c))
        case tree.In(identifier, values, negated):
            value = value_of(identifier, properties)
            if value is NULL or value[0] != "string":
                return UNKNOWN
            found = max(compared("=", value, ("string", text)) for text in values)
            return 2 - found if negated else found
        case tree.Like(identifier, pattern, escape, negated):
            value = value_of(identifier, properties)
            if value is NULL or value[0] != "string":
                return UNKNOWN
            found = is_like(value[1], tokens(pattern, escape))
            return TRUE if found is not negated else FALSE
        case tree.IsNull(identifier, negated):
            return TRUE if (value_of(identifier, properties) is NULL) is not negated else FALSE
    raise AssertionError(node)


def tokens(pattern: str, escape: str | None) -> list[tuple[str, bool]]:
    """Return the pattern's characters, each with whether it is special."""
    found, escaped = [], False
    for character in pattern:
        if escaped:
            found.append((character, False))
            escaped = False
        elif character == escape:
            escaped = True
        else:
            found.append((character, character in "_%"))
    return found


def is_like(text: str, pattern: list[tuple[str, bool]]) -> bool:
    # reached[i]: the pattern so far fits the first i characters of the text
    reached = [True] + [False] * len(text)
    for character, special in pattern:
        if special and character == "%":
            reached = [any(reached[: i + 1]) for i in range(len(text) + 1)]
        else:
            reached = [False] + [reached[i] and (special or text[i] == character) for i in range(len(text))]
    return reached[-1]


def value_of(node: tree.Value, properties: dict):
    """Return a pair of type and value; NULL; or a type "invalid", which is like no other, not even itself."""
    match node:
        case tree.Identifier(name):
            held = properties.get(name)
            if held is None:
                return NULL
            kind = PROMOTED[jms_type(held)]
            return kind, held[1] if isinstance(held, tuple) else held
        case tree.StringLiteral(value):
            return "string", value
        case tree.BooleanLiteral(value):
            return "boolean", value
        case tree.NumberLiteral(value, kind):
            return kind, value
        case tree.Sign(operator, operand):
            value = value_of(operand, properties)
            if value is NULL:
                return NULL
            kind, number = value
            if kind not in ORDER:
                return "invalid", None
            return (kind, number) if operator == "+" else (kind, held_by(kind, -number))
        case tree.Arithmetic(operator, left, right):
            a, b = value_of(left, properties), value_of(right, properties)
            if a is NULL or b is NULL:
                return NULL
            if a[0] not in ORDER or b[0] not in ORDER:
                return "invalid", None
            kind = max(a[0], b[0], key=ORDER.index)
            return calculated(kind, operator, held_by(kind, a[1]), held_by(kind, b[1]))
    raise AssertionError(node)


def calculated(kind: str, operator: str, a, b):
    exact = all(math.isfinite(number) for number in (a, b))
    whole = kind in ("int", "long")
    if operator == "/" and b == 0:
        if whole:
            return NULL
        sign = math.copysign(1, a) * math.copysign(1, b)
        return kind, math.nan if a == 0 or math.isnan(a) else sign * math.inf
    if not exact:
        return kind, in_python(operator, a, b)
    x, y = Fraction(a), Fraction(b)
    number = in_python(operator, x, y)
    if whole:
        return kind, held_by(kind, math.trunc(number))
    if number == 0:  # fractions have no negative zero
        return kind, in_python(operator, a, b) * 0.0
    rounded = held_by(kind, number)
    if rounded == 0:
        return kind, math.copysign(0.0, 1 if number > 0 else -1)
    return kind, rounded


def in_python(operator: str, a, b):
    if operator == "/":
        return a / b
    return {"+": a + b, "-": a - b, "*": a * b}[operator]


def held_by(kind: str, number):
    """Return what a variable of that Java type holds of the number."""
    if kind in ("int", "long"):
        size = 2**32 if kind == "int" else 2**64
        return (number + size // 2) % size - size // 2
    if isinstance(number, float) and (not math.isfinite(number) or number == 0):
        return number
    return rounded_to(Fraction(number), *((24, -126, 128) if kind == "float" else (53, -1022, 1024)))


def rounded_to(number: Fraction, digits: int, least: int, most: int) -> float:
    """Return the number rounded to so many binary digits (fewer below 2**least), infinite from 2**most on."""
    if number == 0:
        return 0.0
    exponent = abs(number.numerator).bit_length() - number.denominator.bit_length()
    if abs(number) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, least) - digits + 1)
    result = round(number / unit) * unit
    if abs(result) >= Fraction(2) ** most:
        return math.inf if result > 0 else -math.inf
    return float(result)


def compared(operator: str, a, b) -> int:
    if a is NULL or b is NULL:
        return UNKNOWN
    (kind, x), (other, y) = a, b
    if kind in ORDER and other in ORDER:
        common = max(kind, other, key=ORDER.index)
        x, y = held_by(common, x), held_by(common, y)
    elif kind != other or kind == "invalid" or operator not in ("=", "<>"):
        return FALSE
    holds = {"=": x == y, "<>": x != y}.get(operator)
    if holds is None:
        holds = {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[operator]
    return TRUE if holds else FALSE


# Trees and messages, made so that they often have something to say to each other.

NAMES = ["a", "b", "c", "d", "größe", "JMSType"]
TEXTS = st.sampled_from(["", "a", "ab", "abc", "aab", "it's", "%", "_", "a%b", "ß\n😀", "TRUE", "1"]) | st.text(
    "ab%_'!😀\n", max_size=6
)
NEAR_EDGES = st.sampled_from([0, 2**24, 2**31, 2**53, 2**63]).flatmap(
    lambda edge: st.integers(-3, 3).flatmap(lambda step: st.sampled_from([edge + step, -edge + step]))
)
LONGS = (st.integers(-3, 3) | NEAR_EDGES | st.integers()).map(lambda n: held_by("long", n))
INTS = LONGS.map(lambda n: held_by("int", n))
DOUBLES = (
    st.sampled_from([0.0, -0.0, 0.1, 0.5, 1.0, 2.0, 16777217.0, 2.0**24, 2.0**53, 2.0**63])
    | LONGS.map(float)
    | st.floats()
)
FLOATS = DOUBLES.map(lambda number: held_by("float", number))
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    TEXTS,
    INTS,
    LONGS,
    DOUBLES,
    st.integers(-128, 127).map(lambda n: ("byte", n)),
    st.integers(-32768, 32767).map(lambda n: ("short", n)),
    LONGS.map(lambda n: ("long", n)),
    FLOATS.map(lambda n: ("float", n)),
)
PROPERTIES = st.dictionaries(st.sampled_from(NAMES), VALUES)

IDENTIFIERS = st.sampled_from(NAMES).map(tree.Identifier)
NUMBERS = st.one_of(
    INTS.map(lambda n: tree.NumberLiteral(n, "int")),
    LONGS.map(lambda n: tree.NumberLiteral(n, "long")),
    FLOATS.filter(math.isfinite).map(lambda n: tree.NumberLiteral(n, "float")),
    DOUBLES.filter(math.isfinite).map(lambda n: tree.NumberLiteral(n, "double")),
)
BOOLEANS = st.booleans().map(tree.BooleanLiteral)
CALCULATIONS = st.recursive(
    IDENTIFIERS | NUMBERS,
    lambda part: (
        st.builds(tree.Sign, st.sampled_from("+-"), part)
        | st.builds(tree.Arithmetic, st.sampled_from("+-*/"), part, part)
    ),
    max_leaves=5,
)
COMPARED = IDENTIFIERS | NUMBERS | CALCULATIONS | TEXTS.map(tree.StringLiteral) | BOOLEANS


@st.composite
def likes(draw: st.DrawFn) -> tree.Like:
    escape = draw(st.none() | st.sampled_from("!'%_😀"))
    plain = "ab_%"
    parts = [character for character in plain if character != escape]
    if escape is not None:
        parts += [escape + character for character in ("%", "_", escape)]
    pattern = "".join(draw(st.lists(st.sampled_from(parts), max_size=8)))
    return tree.Like(draw(IDENTIFIERS), pattern, escape, draw(st.booleans()))


CONDITIONS = st.recursive(
    st.one_of(
        IDENTIFIERS,
        BOOLEANS,
        st.builds(tree.Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), COMPARED, COMPARED),
        st.builds(tree.Between, CALCULATIONS, CALCULATIONS, CALCULATIONS, st.booleans()),
        st.builds(tree.In, IDENTIFIERS, st.lists(TEXTS, min_size=1, max_size=4).map(tuple), st.booleans()),
        likes(),
        st.builds(tree.IsNull, IDENTIFIERS, st.booleans()),
    ),
    lambda part: st.one_of(
        st.builds(tree.Not, part),
        st.lists(part, min_size=2, max_size=4).map(lambda parts: tree.And(tuple(parts))),
        st.lists(part, min_size=2, max_size=4).map(lambda parts: tree.Or(tuple(parts))),
    ),
    max_leaves=8,
)
