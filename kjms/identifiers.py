"""The identifiers that JMS shares between property names, map entries and selectors: pure character rules."""

from __future__ import annotations

import unicodedata
from typing import Final

__all__ = ["IDENTIFIER_PART", "IDENTIFIER_START", "RESERVED_WORDS", "is_identifier"]

# Words that a selector reads as its own, in any case (JMS 2.0 §3.8.1.1).
RESERVED_WORDS: Final = frozenset(
    {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}
)

# The Unicode categories of Character.isJavaIdentifierStart, and what isJavaIdentifierPart adds.
IDENTIFIER_START: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo", "Nl", "Sc", "Pc"})
IDENTIFIER_PART: Final = IDENTIFIER_START | {"Nd", "Mn", "Mc", "Cf"}


def is_identifier(name: str) -> bool:
    """Tell whether *name* is a selector identifier: a Java identifier and none of the reserved words.

    >>> is_identifier("amount"), is_identifier("2nd"), is_identifier("Like"), is_identifier("€")
    (True, False, False, True)
    """
    category = unicodedata.category
    return (
        bool(name)
        and category(name[0]) in IDENTIFIER_START
        and all(category(character) in IDENTIFIER_PART or _is_ignorable(character) for character in name[1:])
        # Some other characters have these words as their capitals: "ıs" is a name.
        and not (name.isascii() and name.upper() in RESERVED_WORDS)
    )


def _is_ignorable(character: str) -> bool:
    """Tell whether Java's isIdentifierIgnorable, which is part of an identifier, holds for a control character."""
    return character <= "\x08" or "\x0e" <= character <= "\x1b" or "\x7f" <= character <= "\x9f"
