"""Where a selector's tree becomes the text of a Spark SQL condition: true, false or null for unknown. Pure text.

SQL's AND, OR and NOT are those of JMS. What differs is comparing: in JMS unlike types are unequal, numbers are promoted
as in Java, whole numbers wrap around, and NaN is not equal to itself. The type of a property is known only row by row,
so what is not the plain comparison of a name with a literal is computed on structs of four fields:

    r   0 int, 1 long, 2 float, 3 double, 4 string, 5 boolean, 6 what arithmetic makes of the last two; null: unknown
    w   the value of whole numbers and booleans      d   of float and double      s   of strings

A struct that is needed more than once is bound to a name, as the one element of an array that is transformed: text
that repeated its operands would double with every level.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from kjms.message._values import float32, parsed
from kjms.selector.tree import (
    And,
    Arithmetic,
    Between,
    BooleanLiteral,
    Comparison,
    Condition,
    Identifier,
    In,
    IsNull,
    Like,
    Not,
    NumberLiteral,
    Or,
    Sign,
    StringLiteral,
    Value,
)
from kjms.spark._sources import FIELDS, Source
from kjms.spark._sql import EXACT_KINDS, case, is_valid, quoted, read_real, read_whole, real, regex

__all__ = ["BOUND", "Predicate", "predicate"]

_MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_RANKS: Final = {"int": 0, "long": 1, "float": 2, "double": 3, "string": 4, "boolean": 5}
_NOT_A_NUMBER: Final = 6
_WHOLE: Final = f"({', '.join(repr(kind) for kind in EXACT_KINDS)})"
_UNKNOWN: Final = "CAST(NULL AS BOOLEAN)"
BOUND: Final = "__kjms_properties"
_NO_LONG, _NO_DOUBLE, _NO_STRING = (f"CAST(NULL AS {kind})" for kind in ("BIGINT", "DOUBLE", "STRING"))


@dataclass(frozen=True)
class _Static:
    """An operand whose type is known beforehand: a literal, or a header field.

    Args:
        kind: int, long, float, double, string or boolean.
        sql: Its value; whole numbers are longs, the others doubles.
        value: The value itself, where it is a literal.
    """

    kind: str
    sql: str
    value: bool | int | float | str | None = None

    @property
    def is_number(self) -> bool:
        return _RANKS[self.kind] <= 3


@dataclass(frozen=True)
class _Property:
    """An operand whose type is known row by row."""

    text: str
    kind: str

    @property
    def is_string(self) -> str:
        return f"({self.kind} IS NULL OR NOT ({is_valid(self.kind, self.text)}))"


_Operand: TypeAlias = "_Static | _Property | str"  # str: the text of a struct


@dataclass(frozen=True)
class Predicate:
    """A selector in Spark's words.

    Args:
        condition: The condition; it speaks of the properties as fields of a struct called `BOUND`.
        properties: That struct; empty where it needs none.
    """

    condition: str
    properties: str

    @property
    def expression(self) -> str:
        """The whole as one expression: true, false or null for unknown."""
        if not self.properties:
            return self.condition
        return f"get(transform(array({self.properties}), {BOUND} -> {self.condition}), 0)"


def predicate(tree: Condition, source: Source) -> Predicate:
    """Return the condition *tree* for frames in which *source* says where things are.

    Spec: JMS 2.0 §3.8.1.
    """
    writer = _Writer(source)
    condition = writer.condition(tree)
    return Predicate(condition, writer.properties(condition))


class _Writer:
    """Writes one condition."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._names: Iterator[int] = itertools.count(1)
        self._properties: dict[str, _Property] = {}

    def properties(self, condition: str) -> str:
        """Return the struct of the properties that *condition* speaks of, each looked up once."""
        fields = []
        for number, name in enumerate(self._properties):
            fields.append(f"'t{number}', {self._source.text(name)}")
            if f"{BOUND}.k{number} " in condition:
                fields.append(f"'k{number}', {self._source.kind(name)}")
        return f"named_struct({', '.join(fields)})" if fields else ""

    def condition(self, node: Condition) -> str:
        match node:
            case And(operands):
                return f"({' AND '.join(map(self.condition, operands))})"
            case Or(operands):
                return f"({' OR '.join(map(self.condition, operands))})"
            case Not(operand):
                return f"(NOT {self.condition(operand)})"
            case BooleanLiteral(value):
                return str(value).upper()
            case Identifier():
                return self._comparison("=", node, BooleanLiteral(True))
            case Comparison(operator, left, right):
                return self._comparison(operator, left, right)
            case Between(value, low, high, False):
                return f"({self._comparison('>=', value, low)} AND {self._comparison('<=', value, high)})"
            case Between(value, low, high, True):
                return f"({self._comparison('<', value, low)} OR {self._comparison('>', value, high)})"
            case In(identifier, values, negated):
                strings = ", ".join(map(quoted, values))
                test = self._string_test(identifier, lambda value: f"{value} IN ({strings})", values)
                return _negated(negated, test)
            case Like(identifier, _, _, negated):
                pattern = _pattern(node)
                return _negated(negated, self._string_test(identifier, lambda value: f"{value} RLIKE {pattern}", None))
            case IsNull(identifier, negated):
                return f"({self._value(identifier)} IS {'NOT ' if negated else ''}NULL)"
        raise AssertionError(node)

    def _value(self, identifier: Identifier) -> str:
        """Return the text of a property, or the value of a header field."""
        operand = self._operand(identifier)
        assert not isinstance(operand, str)
        return operand.text if isinstance(operand, _Property) else operand.sql

    def _string_test(self, identifier: Identifier, test: Callable[[str], str], values: tuple[str, ...] | None) -> str:
        """Return a test of a string, unknown where the value is none, or null.

        Args:
            identifier: What is tested.
            test: Makes the test of a value.
            values: What the value must be one of, if that is the test: then a value that is one needs no other look.
        """
        operand = self._operand(identifier)
        if isinstance(operand, _Property):
            tested = test(operand.text)
            if values is not None and not any(map(_is_ambiguous, values)):
                return f"({tested} OR {case((operand.is_string, 'FALSE'), otherwise=_UNKNOWN)})"
            return case((operand.is_string, tested), otherwise=_UNKNOWN)
        assert isinstance(operand, _Static)
        if operand.kind == "string":
            return f"({test(operand.sql)})"
        return _UNKNOWN

    # Comparisons.

    def _comparison(self, operator: str, left: Value, right: Value) -> str:
        a, b = self._operand(left), self._operand(right)
        if isinstance(b, _Property) and isinstance(a, _Static):
            operator, a, b = _MIRRORED[operator], b, a
        if isinstance(b, _Static):
            if isinstance(a, _Static):
                return _static_comparison(operator, a, b)
            if isinstance(a, _Property) and b.value is not None:
                return _literal_comparison(operator, a, b)
        return self._bound({"a": _struct(a), "b": _struct(b)}, lambda x: _struct_comparison(operator, x))

    def _bound(self, operands: dict[str, str], use: Callable[[str], str]) -> str:
        """Return the expression that *use* makes of a name for a struct of *operands*."""
        name = f"x{next(self._names)}"
        fields = ", ".join(f"'{field}', {sql}" for field, sql in operands.items())
        return f"get(transform(array(named_struct({fields})), {name} -> {use(name)}), 0)"

    def _operand(self, node: Value) -> _Operand:
        match node:
            case Identifier(name):
                return self._identifier(name)
            case StringLiteral(value):
                return _Static("string", quoted(value), value)
            case BooleanLiteral(value):
                return _Static("boolean", str(value).upper(), value)
            case NumberLiteral(value, kind):
                return _Static(kind, _long(int(value)) if kind in {"int", "long"} else real(value), value)
            case Sign(operator, operand):
                return self._bound({"a": _struct(self._operand(operand))}, lambda x: _signed(operator, f"{x}.a"))
            case Arithmetic(operator, left, right):
                both = {"a": _struct(self._operand(left)), "b": _struct(self._operand(right))}
                return self._bound(both, lambda x: _calculated(operator, f"{x}.a", f"{x}.b"))

    def _identifier(self, name: str) -> _Static | _Property:
        field = self._source.field(name)
        if field is not None:
            return _Static(*field)
        if name in FIELDS:
            return _Static("string", _NO_STRING)
        number = len(self._properties)
        return self._properties.setdefault(name, _Property(f"{BOUND}.t{number}", f"{BOUND}.k{number}"))


def _negated(negated: bool, condition: str) -> str:
    return f"(NOT {condition})" if negated else condition


def _never(*values: str) -> str:
    """Return false where none of *values* is null, else unknown."""
    return case((" OR ".join(f"{value} IS NULL" for value in values), _UNKNOWN), otherwise="FALSE")


def _is_ambiguous(text: str) -> bool:
    """Tell whether a property that is no string may have *text* as its text."""
    if text in {"true", "false"}:
        return True
    for kind in ("double", "long"):
        try:
            parsed(kind, text)
        except ValueError:
            continue
        return True
    return False


def _long(value: int) -> str:
    return f"{value}L"


def _static_comparison(operator: str, a: _Static, b: _Static) -> str:
    if a.is_number and b.is_number:
        rank = max(_RANKS[a.kind], _RANKS[b.kind])
        if rank <= 1:
            return f"({a.sql} {operator} {b.sql})"
        known = case((f"{a.sql} IS NULL OR {b.sql} IS NULL", _UNKNOWN), otherwise="{}")
        return known.format(_real_comparison(operator, _promoted(a, rank), _promoted(b, rank)))
    if a.kind == b.kind and operator in {"=", "<>"}:
        return f"({a.sql} {operator} {b.sql})"
    return _never(a.sql, b.sql)


def _promoted(operand: _Static, rank: int) -> str:
    """Return a number as a double, of which a float has not more than its precision."""
    if rank == 2:
        return _single_of_whole(operand.sql) if operand.kind in {"int", "long"} else operand.sql
    return f"CAST({operand.sql} AS DOUBLE)"


def _single(number: str) -> str:
    return f"CAST(CAST({number} AS FLOAT) AS DOUBLE)"


def _single_of_whole(number: str) -> str:
    """Return a long rounded to a float. Spark leaves a cast out between two that it takes for wider, and it is not."""
    return f"CAST(nanvl(CAST({number} AS FLOAT), FLOAT('0')) AS DOUBLE)"


def _real_comparison(operator: str, a: str, b: str, *, is_number: bool = False) -> str:
    """Compare doubles as IEEE 754 has it; to Spark, NaN equals itself and is greater than all others.

    Args:
        operator: The operator.
        a: A double, or null.
        b: A double, or null.
        is_number: Whether *b* is neither NaN nor null.
    """
    left, right = (f"nanvl({part}, {_NO_DOUBLE})" for part in (a, b))
    return f"coalesce({left} {operator} {b if is_number else right}, {str(operator == '<>').upper()})"


def _literal_comparison(operator: str, a: _Property, b: _Static) -> str:
    """Compare a property with a literal."""
    is_null = (f"{a.text} IS NULL", _UNKNOWN)
    if b.is_number:
        whole, approximate = f"({read_whole(a.kind, a.text)})", f"({read_real(a.kind, a.text)})"
        assert not isinstance(b.value, str)
        assert b.value is not None
        as_float, as_double = real(float32(_as_float(b.value))), real(float(b.value))
        if b.kind in {"int", "long"}:
            exact = f"coalesce({whole} {operator} {b.sql}, FALSE)"
        else:
            promoted = _single_of_whole(whole) if b.kind == "float" else f"CAST({whole} AS DOUBLE)"
            exact = f"coalesce({promoted} {operator} {as_double}, FALSE)"
        branches = [is_null, (f"{a.kind} IN {_WHOLE}", exact)]
        if b.kind in {"int", "long"} and as_float != as_double:
            branches.append((f"{a.kind} = 'float'", _approximate_comparison(operator, approximate, as_float)))
        among_doubles = _approximate_comparison(operator, approximate, as_double)
        branches.append((f"{a.kind} IN ('float', 'double')", among_doubles))
        return case(*branches, otherwise="FALSE")
    if operator not in {"=", "<>"}:
        return case(is_null, otherwise="FALSE")
    if b.kind == "boolean":
        wanted = "true" if (operator == "=") is b.value else "false"
        return case(is_null, otherwise=f"({a.text} = '{wanted}' AND {a.kind} <=> 'boolean')")
    if operator == "=" and not _is_ambiguous(str(b.value)):
        return f"({a.text} = {b.sql})"  # nothing but a string has this text
    return case(is_null, otherwise=f"({a.text} {operator} {b.sql} AND {a.is_string})")


def _approximate_comparison(operator: str, property_value: str, literal: str) -> str:
    """Compare the value of a property, null where its text says none, with a literal."""
    if operator != "<>":
        return _real_comparison(operator, property_value, literal, is_number=True)
    return f"coalesce({property_value} <> {literal}, FALSE)"  # to Spark, too, NaN is no other number


def _as_float(value: bool | int | float) -> float:
    """Return a number so that making it a float rounds it only once."""
    from kjms.selector._numbers import single

    return single(value)


# Structs.


def _made(rank: str, whole: str = _NO_LONG, number: str = _NO_DOUBLE, text: str = _NO_STRING) -> str:
    return f"named_struct('r', {rank}, 'w', {whole}, 'd', {number}, 's', {text})"


def _struct(operand: _Operand) -> str:
    if isinstance(operand, str):
        return operand
    if isinstance(operand, _Static):
        sql, rank = operand.sql, str(_RANKS[operand.kind])
        if operand.value is None:
            rank = f"CASE WHEN {sql} IS NOT NULL THEN {rank} END"
        if operand.kind == "string":
            return _made(rank, text=sql)
        if operand.kind in {"float", "double"}:
            return _made(rank, number=sql)
        return _made(rank, whole=sql if operand.is_number else f"CAST({sql} AS BIGINT)")
    text, kind = operand.text, operand.kind
    fits = is_valid(kind, text)
    rank = case(
        (f"{text} IS NULL", "NULL"),
        (f"{kind} IS NULL OR NOT ({fits})", "4"),
        (f"{kind} = 'long'", "1"),
        (f"{kind} = 'float'", "2"),
        (f"{kind} = 'double'", "3"),
        (f"{kind} = 'boolean'", "5"),
        otherwise="0",
    )
    whole = case((f"{kind} = 'boolean'", f"CAST({text} = 'true' AS BIGINT)"), otherwise=read_whole(kind, text))
    return _made(rank, whole, read_real(kind, text), text)


def _double_of(part: str) -> str:
    return f"CASE WHEN {part}.r <= 1 THEN CAST({part}.w AS DOUBLE) ELSE {part}.d END"


def _float_of(part: str) -> str:
    return f"CASE WHEN {part}.r <= 1 THEN {_single_of_whole(f'{part}.w')} ELSE {part}.d END"


def _struct_comparison(operator: str, x: str) -> str:
    a, b = f"{x}.a", f"{x}.b"
    branches = [
        (f"{a}.r IS NULL OR {b}.r IS NULL", _UNKNOWN),
        (f"{a}.r <= 1 AND {b}.r <= 1", f"{a}.w {operator} {b}.w"),
        (
            f"{a}.r <= 2 AND {b}.r <= 2",
            _real_comparison(operator, f"({_float_of(a)})", f"({_float_of(b)})"),
        ),
        (
            f"{a}.r <= 3 AND {b}.r <= 3",
            _real_comparison(operator, f"({_double_of(a)})", f"({_double_of(b)})"),
        ),
    ]
    if operator in {"=", "<>"}:
        branches += [
            (f"{a}.r = 4 AND {b}.r = 4", f"{a}.s {operator} {b}.s"),
            (f"{a}.r = 5 AND {b}.r = 5", f"{a}.w {operator} {b}.w"),
        ]
    return case(*branches, otherwise="FALSE")


def _wrapped(rank: str, whole: str) -> str:
    """Return a long as a number of that rank holds it; shifting never overflows."""
    return f"CASE WHEN {rank} = 0 THEN shiftright(shiftleft({whole}, 32), 32) ELSE {whole} END"


def _signed(operator: str, a: str) -> str:
    rank = f"CASE WHEN {a}.r <= 3 THEN {a}.r WHEN {a}.r IS NOT NULL THEN {_NOT_A_NUMBER} END"
    if operator == "+":
        return _made(rank, f"{a}.w", f"{a}.d")
    negative = f"coalesce(try_subtract(0L, {a}.w), {a}.w)"  # of the least long, that one
    return _made(rank, _wrapped(f"{a}.r", f"({negative})"), f"-{a}.d")


def _calculated(operator: str, a: str, b: str) -> str:
    both = f"greatest({a}.r, {b}.r)"
    whole = _whole_result(operator, f"{a}.w", f"{b}.w")
    no_quotient = [(f"{both} <= 1 AND {b}.w = 0", "NULL")] if operator == "/" else []
    rank = case(
        (f"{a}.r IS NULL OR {b}.r IS NULL", "NULL"), (f"{both} > 3", str(_NOT_A_NUMBER)), *no_quotient, otherwise=both
    )
    singles = _real_result(operator, f"({_float_of(a)})", f"({_float_of(b)})")
    doubles = _real_result(operator, f"({_double_of(a)})", f"({_double_of(b)})")
    return _made(
        rank,
        case((f"{both} <= 1", _wrapped(both, f"({whole})")), otherwise=_NO_LONG),
        case((f"{both} = 2", _single(f"({singles})")), (f"{both} = 3", doubles), otherwise=_NO_DOUBLE),
    )


def _real_result(operator: str, a: str, b: str) -> str:
    """Calculate with doubles by IEEE 754; what is then made a float has been rounded as if that were once."""
    if operator != "/":
        return f"{a} {operator} {b}"
    infinite = f"CASE WHEN ({a} < 0) <> (CAST({b} AS STRING) = '-0.0') THEN {real(float('-inf'))}"
    infinite += f" ELSE {real(float('inf'))} END"
    by_zero = f"CASE WHEN {a} = 0 OR isnan({a}) THEN {real(float('nan'))} ELSE {infinite} END"
    return f"CASE WHEN {b} = 0 THEN {by_zero} ELSE {a} / {b} END"


def _whole_result(operator: str, a: str, b: str) -> str:
    """Calculate with longs as Java does: around the edge, and toward zero; null by zero."""
    if operator == "/":
        negative = f"coalesce(try_subtract(0L, {a}), {a})"
        return f"CASE {b} WHEN 0 THEN NULL WHEN -1 THEN {negative} ELSE {a} div {b} END"
    tried = {"+": "try_add", "-": "try_subtract", "*": "try_multiply"}[operator]
    wide = f"CAST({a} AS DECIMAL(19, 0)) {operator} CAST({b} AS DECIMAL(19, 0))"
    circle, half = "18446744073709551616", "9223372036854775808"
    around = f"CAST(pmod(CAST({wide} AS DECIMAL(38, 0)) + {half}, {circle}) - {half} AS BIGINT)"
    return f"coalesce({tried}({a}, {b}), {around})"


def _pattern(node: Like) -> str:
    """Return the regular expression, in Java's form, of a LIKE pattern.

    A piece between two ``%`` has a fixed length, so the first place where it fits will do: the groups are atomic, and
    no value takes longer than its length allows.
    """
    first, *rest = (".".join(map(_escaped, piece)) for piece in node.pieces)
    if not rest:
        return regex(rf"(?s)\A{first}\z")
    *middle, last = rest
    groups = "".join(f"(?>.*?{piece})" for piece in middle if piece)
    return regex(rf"(?s)\A{first}{groups}.*{last}\z")


def _escaped(run: str) -> str:
    """Return *run* for a regular expression of Java, where what is no ASCII letter or digit may have a meaning."""
    return "".join(c if c.isalnum() or ord(c) > 127 else f"\\x{ord(c):02x}" for c in run)
