"""What a selector says, as a tree of small frozen values: the parser makes it, every compiler reads it.

    Condition   true, false or unknown       Value       what is compared
    ─────────                                ─────
    Identifier      paid                     Identifier      amount
    BooleanLiteral  TRUE                     BooleanLiteral  TRUE
    Comparison      a >= b                   StringLiteral   'EU'
    Between         a BETWEEN b AND c        NumberLiteral   -957, 0x1FL, 7E3, 1.5f
    In              a IN ('x', 'y')          Sign            -a
    Like            a LIKE 'x%'              Arithmetic      a * b
    IsNull          a IS NULL
    Not, And, Or

``str(node)`` is the node's text; parsing it gives an equal node. Nodes compare by what they hold and can be hashed, so
a compiler may keep results by node. The parser limits nesting (`MAX_DEPTH`), so a compiler may recurse.
Conditions that stand for others keep their own type here, with ``negated`` for the NOT inside; what they mean:

    a BETWEEN b AND c       a >= b AND a <= c
    a NOT BETWEEN b AND c   a < b OR a > c
    a NOT IN (...)          NOT a IN (...)          and the same for NOT LIKE and IS NOT NULL
    a                       a = TRUE                where a condition is wanted

Spec: JMS 2.0 §3.8.1.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar, Final, Literal, TypeAlias

from kjms.selector._like import Piece, like_pieces

__all__ = [
    "MAX_DEPTH",
    "And",
    "Arithmetic",
    "Between",
    "BooleanLiteral",
    "Comparison",
    "Condition",
    "Identifier",
    "In",
    "IsNull",
    "Like",
    "Node",
    "Not",
    "NumberLiteral",
    "Or",
    "Sign",
    "StringLiteral",
    "Value",
    "children",
    "walk",
]

MAX_DEPTH: Final = 100
"""How deeply the parser lets a selector be nested.

Each operator and each pair of parentheses is a level; ``a AND b AND c`` is one for all three. Compilers recurse: a
hundred levels are far more than people write, and less than what Python's compiler and Spark's bear.
"""

NumberType: TypeAlias = Literal["int", "long", "float", "double"]

# How tightly the forms bind, loosest first: a part that binds less than its place asks for stands in parentheses.
_OR, _AND, _NOT, _TEST, _SUM, _PRODUCT, _SIGNED, _ATOM = range(8)


@dataclass(frozen=True, slots=True)
class Node:
    """A part of a selector."""

    _level: ClassVar[int] = _ATOM


@dataclass(frozen=True, slots=True)
class Identifier(Node):
    """A property or one of the six header fields that selectors may use: ``amount``, ``JMSPriority``.

    Attributes:
        name: The name; upper and lower case are different.
    """

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class StringLiteral(Node):
    """A string: ``'it''s'``.

    Attributes:
        value: The characters, doubled quotes made one.
    """

    value: str

    def __str__(self) -> str:
        return _quoted(self.value)


@dataclass(frozen=True, slots=True)
class BooleanLiteral(Node):
    """``TRUE`` or ``FALSE``."""

    value: bool

    def __str__(self) -> str:
        return "TRUE" if self.value else "FALSE"


@dataclass(frozen=True, slots=True)
class NumberLiteral(Node):
    """A number with its sign, if it has one: ``57``, ``-957``, ``10L``, ``7E3``, ``1.5f``.

    Attributes:
        value: An int for the exact types, a float for the others; a Java float has been rounded to 32 bits.
        type: Its Java type: int, long, float or double. An exact number that no int can hold is a long.
    """

    value: int | float
    type: NumberType

    def __str__(self) -> str:
        return f"{self.value!r}{_SUFFIXES[self.type]}"


@dataclass(frozen=True, slots=True)
class Sign(Node):
    """A unary plus or minus: ``-amount``. The sign of a literal is part of the literal.

    Attributes:
        operator: ``+`` or ``-``.
        operand: What stands behind it.
    """

    operator: str
    operand: Value
    _level: ClassVar[int] = _SIGNED

    def __str__(self) -> str:
        text = _at(self.operand, _SIGNED)
        # -5 would be a literal, -(5) is none.
        plain = isinstance(self.operand, NumberLiteral) and text[0] != "-"
        return f"{self.operator}({text})" if plain else f"{self.operator}{text}"


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    """A sum, difference, product or quotient: ``price * 1.2``.

    Attributes:
        operator: ``+``, ``-``, ``*`` or ``/``.
        left: The left operand.
        right: The right operand.
    """

    operator: str
    left: Value
    right: Value

    @property
    def _level(self) -> int:  # type: ignore[override]
        return _PRODUCT if self.operator in "*/" else _SUM

    def __str__(self) -> str:
        return f"{_at(self.left, self._level)} {self.operator} {_at(self.right, self._level + 1)}"


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    """A comparison of two values: ``amount > 100``.

    Attributes:
        operator: ``=``, ``<>``, ``<``, ``<=``, ``>`` or ``>=``.
        left: The left operand.
        right: The right operand.
    """

    operator: str
    left: Value
    right: Value
    _level: ClassVar[int] = _TEST

    def __str__(self) -> str:
        return f"{_at(self.left, _SUM)} {self.operator} {_at(self.right, _SUM)}"


@dataclass(frozen=True, slots=True)
class Between(Node):
    """``age BETWEEN 15 AND 19``, and with NOT.

    Attributes:
        value: What is tested.
        low: The lower bound, included.
        high: The upper bound, included.
        negated: Whether it says NOT BETWEEN.
    """

    value: Value
    low: Value
    high: Value
    negated: bool = False
    _level: ClassVar[int] = _TEST

    def __str__(self) -> str:
        low, high = _at(self.low, _SUM), _at(self.high, _SUM)
        return f"{_at(self.value, _SUM)} {_not(self.negated)}BETWEEN {low} AND {high}"


@dataclass(frozen=True, slots=True)
class In(Node):
    """``country IN ('UK', 'US')``, and with NOT.

    Attributes:
        identifier: What is tested.
        values: The strings, one or more, in their order.
        negated: Whether it says NOT IN.
    """

    identifier: Identifier
    values: tuple[str, ...]
    negated: bool = False
    _level: ClassVar[int] = _TEST

    def __str__(self) -> str:
        return f"{self.identifier} {_not(self.negated)}IN ({', '.join(map(_quoted, self.values))})"


@dataclass(frozen=True, slots=True)
class Like(Node):
    """``phone LIKE '12%3'``, with ESCAPE and with NOT.

    Attributes:
        identifier: What is tested.
        pattern: The pattern as it is written, escapes included.
        escape: The escape character, or None.
        negated: Whether it says NOT LIKE.
    """

    identifier: Identifier
    pattern: str
    escape: str | None = None
    negated: bool = False
    _level: ClassVar[int] = _TEST

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pattern cut at each ``%``, and each piece of it cut at each ``_``, escapes resolved.

        >>> Like(Identifier("phone"), "1_2%3").pieces
        (('1', '2'), ('3',))
        """
        return like_pieces(self.pattern, self.escape)

    def __str__(self) -> str:
        escape = "" if self.escape is None else f" ESCAPE {_quoted(self.escape)}"
        return f"{self.identifier} {_not(self.negated)}LIKE {_quoted(self.pattern)}{escape}"


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    """``region IS NULL``, and with NOT.

    Attributes:
        identifier: What is tested.
        negated: Whether it says IS NOT NULL.
    """

    identifier: Identifier
    negated: bool = False
    _level: ClassVar[int] = _TEST

    def __str__(self) -> str:
        return f"{self.identifier} IS {_not(self.negated)}NULL"


@dataclass(frozen=True, slots=True)
class Not(Node):
    """``NOT paid``."""

    operand: Condition
    _level: ClassVar[int] = _NOT

    def __str__(self) -> str:
        return f"NOT {_at(self.operand, _NOT)}"


@dataclass(frozen=True, slots=True)
class And(Node):
    """Conditions joined by AND: two or more, in their order, as many as stand side by side."""

    operands: tuple[Condition, ...]
    _level: ClassVar[int] = _AND

    def __str__(self) -> str:
        return " AND ".join(_at(operand, _AND + 1) for operand in self.operands)


@dataclass(frozen=True, slots=True)
class Or(Node):
    """Conditions joined by OR: two or more, in their order, as many as stand side by side."""

    operands: tuple[Condition, ...]
    _level: ClassVar[int] = _OR

    def __str__(self) -> str:
        return " OR ".join(_at(operand, _OR + 1) for operand in self.operands)


Value: TypeAlias = Identifier | StringLiteral | BooleanLiteral | NumberLiteral | Sign | Arithmetic
Condition: TypeAlias = Identifier | BooleanLiteral | Comparison | Between | In | Like | IsNull | Not | And | Or

_SUFFIXES: dict[NumberType, str] = {"int": "", "long": "L", "float": "f", "double": ""}


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below *node*, from left to right."""
    for field in fields(node):
        held = getattr(node, field.name)
        yield from (part for part in (held if isinstance(held, tuple) else (held,)) if isinstance(part, Node))


def walk(node: Node) -> Iterator[Node]:
    """Yield *node* and all nodes below it, each before what is below it, from left to right.

    >>> [str(part) for part in walk(Comparison("=", Identifier("a"), StringLiteral("x")))]
    ["a = 'x'", 'a', "'x'"]
    """
    yield node
    for child in children(node):
        yield from walk(child)


def _at(node: Node, level: int) -> str:
    return str(node) if node._level >= level else f"({node})"


def _not(negated: bool) -> str:
    return "NOT " if negated else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
