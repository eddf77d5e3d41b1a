"""What a run found, as JSON for programs and as tables for people: pure but for the writing of files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks._statistics import Result, SideResult

__all__ = ["Report", "insert_between_markers"]

FORMAT: Final = 1  # of the JSON; raised when a reader of the old one would misread the new one
BEGIN_MARK: Final = "<!-- begin: written by python -m benchmarks --markdown -->"
END_MARK: Final = "<!-- end -->"


@dataclass(frozen=True)
class Report:
    """A run: what it ran on, and its results.

    Args:
        date: The day of the run, as ``2025-01-31``.
        machine: What `benchmarks._machine.machine` says.
        versions: Versions of what took part, by name.
        rounds: How many rounds counted.
        results: What came out, workload by workload.
    """

    date: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    rounds: int
    results: Sequence[Result]

    def to_json(self) -> str:
        """Return the run as JSON, with the figures of every round."""
        return json.dumps(
            {
                "format": FORMAT,
                "date": self.date,
                "machine": dict(self.machine),
                "versions": dict(self.versions),
                "rounds": self.rounds,
                "results": [_result_as_json(result) for result in self.results],
            },
            indent=2,
            ensure_ascii=False,
        )

    def to_text(self) -> str:
        """Return the run as a table for a terminal."""
        rows = [_HEAD, *(row for result in self.results for row in _rows(result))]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        lines = []
        for index, row in enumerate(rows):
            cells = [
                cell.ljust(width) if column < _TEXT_COLUMNS else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
            if index == 0:
                lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
        return "\n".join([*lines, "", *self._footer()])

    def to_markdown(self) -> str:
        """Return the run as a Markdown table."""
        lines = [
            _markdown_row(_HEAD),
            _markdown_row(("---",) * _TEXT_COLUMNS + ("---:",) * (len(_HEAD) - _TEXT_COLUMNS)),
        ]
        lines += [_markdown_row(row) for result in self.results for row in _rows(result)]
        return "\n".join([*lines, "", *self._footer()])

    def _footer(self) -> list[str]:
        machine = self.machine
        java = f", Java {machine['java']}" if machine.get("java") else ""
        memory = f", {machine['memory_mb'] / 1024:.0f} GB" if machine.get("memory_mb") else ""
        return [
            "kjms / other: quotient of the medians, and the smallest and largest quotient of a single round;"
            " * marks the baseline, the best of the raw sides that work under the same settings.",
            f"{self.date}: {self.rounds} rounds after a warm-up;"
            f" {machine['cores']} cores{memory}, {machine['system']}{java};"
            f" {', '.join(f'{name} {version}' for name, version in self.versions.items())}.",
        ]


_HEAD: Final = ("workload", "side", "median", "unit", "kjms / other", "rounds")
_TEXT_COLUMNS: Final = 2


def _rows(result: Result) -> list[tuple[str, ...]]:
    better = "↑" if result.unit.is_more_better else "↓"
    first, *others = result.sides
    rows: list[tuple[str, ...]] = [(result.title, first.name, _figure(first), f"{result.unit.text} {better}", "", "")]
    for side, comparison in zip(others, result.comparisons(), strict=True):
        mark = " *" if comparison.is_baseline else "  "
        spread = f"{comparison.lowest:.2f} – {comparison.highest:.2f}"
        rows.append(("", side.name, _figure(side), result.unit.text + "  ", f"{comparison.ratio:.2f}{mark}", spread))
    return rows


def _figure(side: SideResult) -> str:
    median = side.median
    return f"{median:,.0f}" if median >= 1000 else f"{median:.3g}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.strip() for cell in cells)} |"


def _result_as_json(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "title": result.title,
        "unit": result.unit.text,
        "more_is_better": result.unit.is_more_better,
        "messages": result.messages,
        "sides": [{"name": side.name, "median": side.median, "rounds": list(side.figures)} for side in result.sides],
        "comparisons": [vars(comparison) for comparison in result.comparisons()],
    }


def insert_between_markers(page: Path, text: str) -> None:
    """Put *text* into *page*, in place of what stands between its two marks.

    Raises:
        ValueError: The page has not both marks, in their order.
    """
    before, begin, rest = page.read_text(encoding="utf-8").partition(BEGIN_MARK)
    _, end, after = rest.partition(END_MARK)
    if not begin or not end:
        raise ValueError(f"{page}: the lines {BEGIN_MARK!r} and {END_MARK!r} are needed, in this order")
    page.write_text(f"{before}{BEGIN_MARK}\n\n{text}\n\n{END_MARK}{after}", encoding="utf-8")
