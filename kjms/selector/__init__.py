"""Message selectors: the text of a condition on header fields and properties, and what it says of a message.

    text ── parse_selector ──> Selector ── .matches(message) ──> True or False
                                  │    └── .evaluate(message) ─> True, False or None (unknown)
                                  └─ .tree: `kjms.selector.tree`, for other compilers

Pure: no Kafka, no clock, no I/O. The grammar's machinery is loaded with the first selector.

Spec: JMS 2.0 §3.8.1.
"""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from typing import Final

from kjms.errors import InvalidSelectorException, shown
from kjms.selector._compile import Answer, Question, compile_evaluate, compile_matches
from kjms.selector._errors import SelectorSyntaxException, syntax_error
from kjms.selector._message import SelectableMessage
from kjms.selector.tree import (
    MAX_DEPTH,
    Arithmetic,
    Between,
    Comparison,
    Condition,
    Identifier,
    Node,
    NumberLiteral,
    Sign,
    walk,
)

__all__ = ["MAX_DEPTH", "MAX_LENGTH", "SelectableMessage", "Selector", "SelectorSyntaxException", "parse_selector"]

MAX_LENGTH: Final = 65_536
"""The longest selector, in characters: thousands of strings in an IN, and still parsed in a second or so."""

# Selectors that are kept parsed: more than the consumers of most processes have, and little memory at their usual size.
_KEPT = 256

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHITESPACE = " \t\f\r\n"  # Java's (JMS 2.0 §3.8.1.1)


class Selector:
    """A selector that was parsed: it can be asked about messages, by any number of threads.

    Two selectors are equal when their trees are: ``a=1`` and ``(a = 1)`` are. ``str()`` gives the normal form.

    Attributes:
        text: The text as it was given.
        tree: What it says; see `kjms.selector.tree`.

    Spec: JMS 2.0 §3.8.1.

    >>> selector = parse_selector("amount > 100 and not region='EU'")
    >>> selector
    Selector("amount > 100 AND NOT region = 'EU'")
    >>> sorted(selector.identifiers)
    ['amount', 'region']
    """

    def __init__(self, text: str, tree: Condition) -> None:
        self.text = text
        self.tree = tree

    @cached_property
    def matches(self) -> Question:
        """``matches(message)``: whether the selector is true for *message*; false and unknown are both False."""
        return compile_matches(self.tree)

    @cached_property
    def evaluate(self) -> Answer:
        """``evaluate(message)``: what the selector is for *message*: True, False, or None for unknown."""
        return compile_evaluate(self.tree)

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """The names of the properties and header fields that the selector speaks of."""
        return frozenset(node.name for node in walk(self.tree) if isinstance(node, Identifier))

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """The names that the selector takes for numbers: it calculates with them, or compares them with a number.

        >>> parse_selector("a > 3 AND b = 'x' AND c + d = e AND f BETWEEN 1 AND 2").numeric
        ('a', 'c', 'd', 'e', 'f')
        """
        found: dict[str, None] = {}
        for node in walk(self.tree):
            values: tuple[Node, ...] = ()
            if isinstance(node, Comparison | Arithmetic):
                values = (node.left, node.right)
            elif isinstance(node, Between):
                values = (node.value, node.low, node.high)
            elif isinstance(node, Sign):
                values = (node.operand,)
            is_of_numbers = isinstance(node, Arithmetic | Sign) or any(
                isinstance(value, NumberLiteral | Arithmetic | Sign) for value in values
            )
            if is_of_numbers:
                found.update((value.name, None) for value in values if isinstance(value, Identifier))
        return tuple(found)

    def number_as_text(self, message: SelectableMessage) -> str | None:
        """Return the first of the `numeric` names that *message* has as a string which holds a number; None: none."""
        for name in self.numeric:
            value = message.selector_value(name)
            if isinstance(value, str) and _NUMBER.fullmatch(value):
                return name
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    def __str__(self) -> str:
        return str(self.tree)

    def __repr__(self) -> str:
        return f"Selector({str(self)!r})"


def parse_selector(text: str | None) -> Selector | None:
    """Return the selector that *text* is, None if there is none in it.

    Args:
        text: The selector; None, an empty string and white space mean that there is none.

    Raises:
        SelectorSyntaxException: *text* is no selector; an InvalidSelectorException that names line and column.
        InvalidSelectorException: *text* is no string.

    Spec: JMS 2.0 §3.8.1.1.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidSelectorException(f"a selector is a string, not {shown(text)} (JMS 2.0 §3.8.1.1)")
    if len(text) > MAX_LENGTH:
        raise syntax_error(text, MAX_LENGTH, f"the end of the selector after at most {MAX_LENGTH} characters", "more")
    return _parse(text) if text.strip(_WHITESPACE) else None


@lru_cache(maxsize=_KEPT)
def _parse(text: str) -> Selector:
    from kjms.selector._parser import parse

    return Selector(text, parse(text))
