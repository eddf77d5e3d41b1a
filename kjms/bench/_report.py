"""What a run found, as JSON for programs and as tables for people: pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kjms.bench._statistics import Result, SideResult
from kjms.bench._workload import Aim, Unit

__all__ = ["Report", "figure"]

FORMAT: Final = 2  # of the JSON; raised when a reader of the old one would misread the new one


@dataclass(frozen=True)
class Report:
    """A run: what it ran on, and its results.

    Args:
        date: The day of the run, as ``2025-01-31``.
        machine: What `kjms.bench._machine.machine` says.
        versions: Versions of what took part, by name.
        rounds: How many rounds counted, of workloads that do not take fewer.
        results: What came out, workload by workload.
        failed: Why there is nothing of other workloads, by their names.
    """

    date: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    rounds: int
    results: Sequence[Result]
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def sets(self) -> list[str]:
        """The sets that its workloads belong to, in order."""
        return list(dict.fromkeys(result.set for result in self.results))

    def of(self, *names: str) -> Report:
        """Return the run as if only the sets *names* had been run."""
        return replace(self, results=[result for result in self.results if result.set in names], failed={})

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
                "failed": dict(self.failed),
            },
            indent=2,
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Report:
        """Return the run that `to_json` wrote.

        Raises:
            ValueError: It is of another format.
        """
        read = json.loads(text)
        if read.get("format") != FORMAT:
            raise ValueError(f"a report of format {FORMAT} is needed, not of {read.get('format')!r}")
        results = [_result_from_json(each) for each in read["results"]]
        return cls(read["date"], read["machine"], read["versions"], read["rounds"], results, read["failed"])

    def to_text(self) -> str:
        """Return the run as tables for a terminal, one for each set."""
        lines = []
        for name in self.sets:
            rows = self._table(name)
            widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
            for index, row in enumerate(rows):
                cells = [
                    cell.ljust(width) if column in _TEXT_COLUMNS else cell.rjust(width)
                    for column, (cell, width) in enumerate(zip(row, widths, strict=True))
                ]
                lines.append("  ".join(cells).rstrip())
                if index == 0:
                    lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
            lines.append("")
        failed = [f"{name} failed: {reason}" for name, reason in self.failed.items()]
        return "\n".join([*lines, *failed, _LEGEND, self.ran_on()])

    def to_markdown(self) -> str:
        """Return the run as Markdown tables, one for each set."""
        lines = []
        for name in self.sets:
            head, *rows = self._table(name)
            kinds = ["---" if column in _TEXT_COLUMNS else "---:" for column in range(len(head))]
            lines += [_markdown_row(head), _markdown_row(kinds), *map(_markdown_row, rows), ""]
        return "\n".join([*lines, _LEGEND, self.ran_on()])

    def aims(self) -> list[str]:
        """Return what was aimed at and what was measured, a row of a Markdown table for each aim."""
        rows = []
        for result in self.results:
            for verdict in result.verdicts():
                aim, measured = verdict.text.removeprefix("aim ").split(": ")
                rows.append(_markdown_row((result.title, aim, measured, "met" if verdict.is_met else "not met")))
        return rows

    def ran_on(self) -> str:
        """Return on what it ran, in a line."""
        machine = self.machine
        java = f", Java {machine['java']}" if machine.get("java") else ""
        memory = f", {machine['memory_mb'] / 1024:.0f} GB" if machine.get("memory_mb") else ""
        return (
            f"{self.date}: {self.rounds} rounds after a warm-up;"
            f" {machine['cores']} cores{memory}, {machine['system']}{java};"
            f" {', '.join(f'{name} {version}' for name, version in self.versions.items())}."
        )

    def _table(self, name: str) -> list[tuple[str, ...]]:
        results = [result for result in self.results if result.set == name]
        ratio = "/ smallest" if any(result.grows for result in results) else "kjms / other"
        return [("workload", "side", "median", "unit", ratio, "rounds", "aim"), *_rows_of(results)]


_TEXT_COLUMNS: Final = (0, 1, 6)
_LEGEND: Final = (
    "Ratios are quotients of the medians, beside them the smallest and largest quotient of a single round; * marks the"
    " one that counts: to the best of the sides that work under the same settings, or, of what grows, the worst."
)


def _rows_of(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Return the rows of a table with *results*."""
    return [row for result in results for row in _rows(result)]


def _rows(result: Result) -> list[tuple[str, ...]]:
    better = "↑" if result.unit.is_more_better else "↓"
    verdicts = result.verdicts()
    of_figures = "; ".join(verdict.text for verdict in verdicts if not verdict.aim.is_ratio)
    of_ratios = "; ".join(verdict.text for verdict in verdicts if verdict.aim.is_ratio)
    rows: list[tuple[str, ...]] = []
    for number, side in enumerate(result.sides):
        title, mark = (result.title, better) if number == 0 else ("", " ")
        comparison = result.comparison_at(side)
        ratio = spread = ""
        aim = of_figures if number == 0 else ""
        if comparison is not None:
            ratio = f"{comparison.ratio:.2f}{' *' if comparison.is_baseline else '  '}"
            spread = f"{comparison.lowest:.2f} – {comparison.highest:.2f}"
            aim = of_ratios if comparison.is_baseline else ""
        rows.append((title, side.name, figure(side), f"{result.unit.text} {mark}", ratio, spread, aim))
    return rows


def figure(side: SideResult) -> str:
    """Return the median of *side* as tables show it."""
    median = side.median
    return f"{median:,.0f}" if median >= 1000 else f"{median:.3g}"


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.strip() for cell in cells)} |"


def _result_as_json(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "title": result.title,
        "set": result.set,
        "grows": result.grows,
        "unit": result.unit.text,
        "more_is_better": result.unit.is_more_better,
        "messages": result.messages,
        "aims": [vars(aim) for aim in result.aims],
        "sides": [
            {
                "name": side.name,
                "family": side.family,
                "may_be_baseline": side.is_baseline,
                "median": side.median,
                "rounds": list(side.figures),
            }
            for side in result.sides
        ],
        "comparisons": [vars(comparison) for comparison in result.comparisons()],
        "verdicts": [{"text": verdict.text, "is_met": verdict.is_met} for verdict in result.verdicts()],
    }


def _result_from_json(read: Mapping[str, Any]) -> Result:
    sides = [
        SideResult(side["name"], side["rounds"], side["may_be_baseline"], side["family"]) for side in read["sides"]
    ]
    unit = {unit.text: unit for unit in Unit}[read["unit"]]
    aims = [Aim(**aim) for aim in read["aims"]]
    return Result(read["name"], read["title"], unit, read["messages"], sides, aims, read["set"], read["grows"])
