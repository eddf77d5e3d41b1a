"""The figures that are kept, one JSON file for each set of workloads, and the pages that show them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks import _comparison
from benchmarks._plot import plot
from kjms.bench._report import Report

__all__ = ["compare", "insert_between_marks", "keep", "make"]

FIGURES: Final = Path(__file__).parent / "figures"
README: Final = Path(__file__).parent.parent / "README.md"
PAGE: Final = README.parent / "docs" / "performance.md"
PICTURE: Final = PAGE.parent / "performance.svg"
COMPARISON: Final = PAGE.parent / "comparison.md"
WITH_AIMS: Final = ("main", "growth", "processes", "gateway", "rivals")


def keep(report: Report) -> None:
    """Keep the figures of *report*, each set in a file of its own, in place of those that were kept before."""
    FIGURES.mkdir(exist_ok=True)
    for name in report.sets:
        (FIGURES / f"{name}.json").write_text(report.of(name).to_json() + "\n", encoding="utf-8")


def make(figures: Path = FIGURES, page: Path = PAGE, picture: Path = PICTURE) -> None:
    """Put what is kept into the page about performance, and draw its picture.

    Args:
        figures: The folder with what is kept.
        page: What has a place for the table of each set, and one for that of the aims.
        picture: What is written anew.

    Raises:
        ValueError: A file is of another format, or the page has no place for a table.
    """
    kept = {path.stem: Report.from_json(path.read_text(encoding="utf-8")) for path in sorted(figures.glob("*.json"))}
    for name, report in kept.items():
        insert_between_marks(page, name, report.to_markdown())
    with_aims = [kept[name] for name in WITH_AIMS if name in kept]
    head = ["| work | aim | measured | |", "| --- | ---: | ---: | --- |"]
    ran_on = dict.fromkeys(report.ran_on() for report in with_aims)  # as a rule it was one run
    lines = [*head, *(line for report in with_aims for line in report.aims()), "", *ran_on]
    insert_between_marks(page, "aims", "\n".join(lines))
    picture.write_text(plot(with_aims) + "\n", encoding="utf-8")


def compare(figures: Path = FIGURES, page: Path = COMPARISON, readme: Path = README) -> None:
    """Put what is kept into the page that compares kjms with others, and into the README.

    Args:
        figures: The folder with what is kept.
        page: What has places for both tables.
        readme: What has a row for it.

    Raises:
        ValueError: There is no place for them, or a file is of another format.
    """
    main, rivals = (
        Report.from_json((figures / f"{name}.json").read_text(encoding="utf-8")) for name in ("main", "rivals")
    )
    insert_between_marks(page, "plain client", _comparison.with_plain_client(main))
    insert_between_marks(page, "brokers", _comparison.with_brokers(rivals))
    lines = readme.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [number for number, line in enumerate(lines) if line.startswith(_comparison.README_ROW)]
    if len(rows) != 1:
        raise ValueError(f"{readme}: one line that begins with {_comparison.README_ROW!r} is needed, not {len(rows)}")
    lines[rows[0]] = f"{_comparison.readme_row(main, rivals)}\n"
    readme.write_text("".join(lines), encoding="utf-8")


def insert_between_marks(page: Path, name: str, text: str) -> None:
    """Put *text* into *page*, in place of what stands between the two marks called *name*.

    Raises:
        ValueError: The page has not both marks, in their order.
    """
    begin_mark, end_mark = f"<!-- begin: {name}, written by python -m benchmarks -->", f"<!-- end: {name} -->"
    before, begin, rest = page.read_text(encoding="utf-8").partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not begin or not end:
        raise ValueError(f"{page}: the lines {begin_mark!r} and {end_mark!r} are needed, in this order")
    page.write_text(f"{before}{begin_mark}\n\n{text}\n\n{end_mark}{after}", encoding="utf-8")
