"""Print the demo's headings, tables and checked claims, in colour on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

__all__ = ["Stage"]

INDENT: Final = "   "


class Stage:
    """Prints text and records the claims that do not hold.

    Args:
        file: Where to print. Colour is used on a terminal, unless the environment's ``NO_COLOR`` is set.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file or sys.stdout
        self._in_colour = self._file.isatty() and not os.environ.get("NO_COLOR")
        self._can_tick = (self._file.encoding or "").lower().startswith("utf")
        self._scenes = 0
        self.claims = 0
        self.broken: list[str] = []

    def scene(self, title: str, *story: str) -> None:
        """Begin a scene with its title and one or two sentences about it."""
        self._scenes += 1
        self.say(f"\n{self._paint(f'{self._scenes}  {title}', '1')}")
        for line in story:
            self.say(INDENT + line)
        self.say()

    def say(self, text: str = "") -> None:
        """Print *text*."""
        print(text, file=self._file, flush=True)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print *rows* in columns, with numbers aligned on the right."""
        texts = [[f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
        widths = [max(len(cell) for cell in column) for column in zip(head, *texts, strict=True)]
        is_number = [all(isinstance(row[number], int | float) for row in rows) for number in range(len(head))]

        def line(cells: Sequence[str]) -> str:
            placed = zip(cells, widths, is_number, strict=True)
            return (
                INDENT + "  ".join(c.rjust(width) if right else c.ljust(width) for c, width, right in placed).rstrip()
            )

        self.say(self._paint(line(head), "2"))
        for cells in texts:
            self.say(line(cells))
        self.say()

    def check(self, holds: bool, claim: str) -> None:
        """Print *claim* and whether it holds."""
        self.claims += 1
        if not holds:
            self.broken.append(claim)
        self.say(INDENT + self._verdict(holds) + " " + claim)

    def result(self, text: str) -> bool:
        """Print the last line: *text*, or the claims that did not hold; return whether all did."""
        if self.broken:
            text = f"{len(self.broken)} of {self.claims} claims did not hold: {'; '.join(self.broken)}."
        self.say(f"\n{self._verdict(not self.broken)} {self._paint(text, '1')}")
        return not self.broken

    def _verdict(self, holds: bool) -> str:
        if self._can_tick:
            return self._paint("✓", "32") if holds else self._paint("✗", "31")
        return self._paint("ok", "32") if holds else self._paint("FAILED:", "31")

    def _paint(self, text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self._in_colour else text
