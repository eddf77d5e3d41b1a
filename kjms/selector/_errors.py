"""How a wrong selector is reported: what was expected, where, and a caret under the place."""

from __future__ import annotations

import re

from kjms.errors import InvalidSelectorException

# Java's line terminators, not str.splitlines's longer list (JMS 2.0 §3.8.1.1).
_LINE_END = re.compile(r"\r\n|\r|\n")

# How much of a long line is shown on either side of the place.
_SHOWN_BEFORE, _SHOWN_AFTER = 60, 40


class SelectorSyntaxException(InvalidSelectorException):
    """A message selector whose syntax is wrong, with the place where it went wrong.

    Attributes:
        text: The whole selector.
        line: The line of the place; 1 is the first.
        column: The column of the place in its line, in characters; 1 is the first.

    Spec: JMS 2.0 §3.8.1.1, §7.3.
    """

    def __init__(self, reason: str = "", text: str = "", line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.text = text
        self.line = line
        self.column = column


SelectorSyntaxException.__module__ = "kjms.selector"  # where programs find it, and what tracebacks say


def syntax_error(text: str, offset: int, expected: str, found: str = "") -> SelectorSyntaxException:
    """Return the error that says what was *expected* (and what was *found*) at *offset* in *text*."""
    before = list(_LINE_END.finditer(text, 0, offset))
    start = before[-1].end() if before else 0
    end = _LINE_END.search(text, offset)
    line = text[start : end.start() if end else len(text)]
    row, column = len(before) + 1, offset - start + 1
    place = f"line {row}, column {column}" if _LINE_END.search(text) else f"column {column}"
    shown, caret = _shown(line, offset - start)
    reason = f"expected {expected} at {place}" + (f", found {found}" if found else "")
    return SelectorSyntaxException(f"{reason} (JMS 2.0 §3.8.1.1)\n    {shown}\n    {' ' * caret}^", text, row, column)


def _shown(line: str, at: int) -> tuple[str, int]:
    """Return the part of *line* around *at*, in which one character takes one place, and where *at* is in it."""
    first, last = max(0, at - _SHOWN_BEFORE), at + _SHOWN_AFTER
    part = "".join(c if c.isprintable() else " " for c in line[first:last])
    before, after = "..." if first else "", "..." if last < len(line) else ""
    return before + part + after, len(before) + at - first
