"""The identifiers that JMS shares between property names, map entries and selectors: pure character rules."""

from __future__ import annotations

import re

# Words that a selector reads as its own, in any case (JMS 2.0 §3.8.1.1).
RESERVED_WORDS = frozenset(
    {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}
)

# A Java identifier: a letter, `_` or `$` first, then digits too. [^\W\d] is "a letter or underscore" of any script.
_IDENTIFIER = re.compile(r"(?:[^\W\d]|\$)(?:\w|\$)*\Z")


def is_identifier(name: str) -> bool:
    """Tell whether *name* is a selector identifier: a Java identifier and none of the reserved words.

    >>> is_identifier("amount"), is_identifier("2nd"), is_identifier("Like")
    (True, False, False)
    """
    return _IDENTIFIER.match(name) is not None and name.upper() not in RESERVED_WORDS
