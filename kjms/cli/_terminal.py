"""What the commands show in a terminal in the same way: columns, and questions."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

__all__ = ["agrees", "columns"]


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Return *rows* as lines with aligned columns; those with the numbers *right* stand on the right.

    >>> columns([("NAME", "DEPTH"), ("orders", "7")], right=[1])
    ['NAME    DEPTH', 'orders      7']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def agrees(question: str) -> bool:
    """Ask whoever sits there, and tell whether the answer is yes."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
