"""Format the output of the commands: text without control characters, columns, times, and questions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from typing import Final

__all__ = ["agrees", "columns", "escaped", "json_text", "moment", "say", "shown_body"]

_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of writing
_UNSAFE: Final = f"\x00-\x1f\x7f-\x9f\u2028\u2029{_BIDI}\ud800-\udfff"
_IN_A_LINE: Final = re.compile(f"[{_UNSAFE}]")
_IN_A_BODY: Final = re.compile(rf"(?![\n\t])[{_UNSAFE}]")


def escaped(text: str) -> str:
    r"""Return *text* as a single line, with an escape for every invisible character that changes the output.

    >>> print(escaped("orders\n\x1b[31mprices"))
    orders\n\x1b[31mprices
    """
    return _IN_A_LINE.sub(_escape, text)


def shown_body(text: str) -> str:
    r"""Return *text* as `escaped` does, but keep its line ends and tabs."""
    return _IN_A_BODY.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return repr(match[0])[1:-1]


def json_text(value: object, indent: int | None = None) -> str:
    r"""Return *value* as JSON that can be written in UTF-8 and has no control characters.

    >>> print(json_text({"name": "Größe\x9b"}))
    {"name": "Größe\u009b"}
    """
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _IN_A_BODY.sub(lambda match: f"\\u{ord(match[0]):04x}", text)  # JSON itself has line ends for people


def moment(milliseconds: int, *, is_precise: bool = False) -> str:
    """Return a point in time, in milliseconds since 1970 UTC, for people; what no calendar has, as it is.

    >>> moment(1_750_000_000_000), moment(1_750_000_000_000, is_precise=True), moment(2**62)
    ('2025-06-15 15:06:40 UTC', '2025-06-15 15:06:40.000 UTC', '4611686018427387904 ms')
    """
    try:
        when = datetime.fromtimestamp(milliseconds // 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
    return f"{when:%Y-%m-%d %H:%M:%S}{f'.{milliseconds % 1000:03}' if is_precise else ''} UTC"


def say(command: str, text: str) -> None:
    """Print a line on stderr that says which command speaks."""
    print(f"kjms {command}: {escaped(text)}", file=sys.stderr, flush=True)


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return *rows* as lines with aligned columns; those with the numbers *right* stand on the right.

    >>> columns([("NAME", "DEPTH"), ("orders", "7")], right=[1])
    ['NAME    DEPTH', 'orders      7']
    """
    rows = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def agrees(question: str) -> bool:
    """Ask the person at the terminal, and return whether the answer is yes."""
    print(f"{escaped(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
