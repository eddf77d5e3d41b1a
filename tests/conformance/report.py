"""Report which tests prove each requirement, and which requirements have no test.

    python tests/conformance/report.py                      write docs/conformance.md
    python tests/conformance/report.py --check              fail if that page is stale
    python tests/conformance/report.py --areas ack,close    print the open rows of these areas
    python tests/conformance/report.py --json               print every row for a program
    python tests/conformance/report.py --results junit.xml  count only tests that passed (`pytest --junitxml=junit.xml`)

Requirements are the rows of ``requirements/*.tsv``; a test names the rows it proves with ``@pytest.mark.requirement``.
A row is

covered
    if a test that names it passes, and none that names it fails or is expected to fail. Without ``--results`` every
    test counts as passing, except those that their own marks skip or expect to fail. A test, or a case of a
    parametrized one, names at most MOST_IDS rows: with more, a reader cannot tell which assertion proves which row.
deviation
    if ``deviations.tsv`` has what kjms does instead and the page that documents it, and a test that names the row
    passes. The test proves what kjms does instead.
not applicable
    if ``not_applicable.tsv`` has the reason, or if its level is java-only or vendor-only and no test names it.
open
    otherwise.

The exit code is 0, or 1 with one line per problem on stderr, or 2 for wrong use.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("tests", "conformance")
PAGE = Path("docs", "conformance.md")

TITLES = {
    "amqp-jms-mapping": "AMQP 1.0 JMS Mapping (working draft 10)",
    "jakarta-session": "Jakarta Messaging, interface Session",
    "jms-2.0": "JMS 2.0 (public review)",
    "nevado-jms-1.1": "JMS 1.1, in the list of Nevado JMS",
    "weblogic-net": "WebLogic JMS .NET client",
}
LEVELS = ("must", "should", "may")
ELSEWHERE = {"java-only": "Applies only to Java", "vendor-only": "Applies only to the other product"}
COVERED, DEVIATION, OPEN, NOT_APPLICABLE = STATUSES = ("covered", "deviation", "open", "n/a")
MOST_IDS = 8


class ReportError(Exception):
    """A problem that makes the report wrong; each line of the message is one problem."""


@dataclass(frozen=True)
class Row:
    """One requirement as its catalogue states it; *note* is its remark on Python or on the party that it binds."""

    catalogue: str
    id: str
    section: str
    level: str
    area: str
    requirement: str
    note: str


@dataclass(frozen=True)
class MarkedTest:
    """One collected test, the ids that it names, and the outcome that its own marks declare."""

    nodeid: str
    ids: tuple[str, ...]
    expected: str = "passed"

    @property
    def name(self) -> str:
        """Return the name of the test without its parameters, as it is in the source."""
        return self.nodeid.partition("[")[0]


@dataclass(frozen=True)
class Deviation:
    """What kjms does instead of a row's demand, and the page below docs, or README.md, that documents it."""

    instead: str
    where: str


@dataclass(frozen=True)
class Verdict:
    """The status of a row: *tests* passed, *failing* did not, *reason* is the exclusion or what kjms does instead."""

    row: Row
    status: str
    tests: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    reason: str = ""
    where: str = ""


# --- input -------------------------------------------------------------------------------------------------------


def read_catalogues(folder: Path) -> list[Row]:
    """Return the rows of all catalogues in *folder*, in the order of file names and lines."""
    rows: list[Row] = []
    for path in sorted(folder.glob("*.tsv")):
        for fields in _table(path, 6):
            row_id, *others = fields
            rows.append(Row(path.stem, row_id, *others))
    seen: set[str] = set()
    twice = [row.id for row in rows if row.id in seen or seen.add(row.id)]  # type: ignore[func-returns-value]
    unknown = [row.id for row in rows if row.level not in LEVELS and row.level not in ELSEWHERE]
    _raise_for([f"{i}: is in the catalogues twice" for i in twice] + [f"{i}: unknown level" for i in unknown])
    return rows


def read_reasons(path: Path, rows: Iterable[Row]) -> dict[str, str]:
    """Return why rows are not applicable, by id."""
    return {row_id: reason for row_id, (reason,) in _by_id(path, 2, rows).items()}


def read_deviations(path: Path, rows: Iterable[Row], root: Path) -> dict[str, Deviation]:
    """Return what kjms does instead, by id.

    Raises:
        ReportError: A line has no row, no text, or names a page or a heading of it that does not exist.
    """
    if not path.is_file():
        return {}
    found = {row_id: Deviation(*rest) for row_id, rest in _by_id(path, 3, rows).items()}
    _raise_for(
        f"{path.name}: {row_id} names {deviation.where!r} as its page, which does not exist"
        for row_id, deviation in found.items()
        if not _is_heading(root, deviation.where)
    )
    return found


def _by_id(path: Path, width: int, rows: Iterable[Row]) -> dict[str, list[str]]:
    known = {row.id for row in rows}
    found: dict[str, list[str]] = {}
    problems: list[str] = []
    for row_id, *rest in _table(path, width):
        if row_id not in known:
            problems.append(f"{path.name}: {row_id!r} is in no catalogue")
        if row_id in found:
            problems.append(f"{path.name}: {row_id} is listed twice")
        if not all(text.strip() for text in rest):
            problems.append(f"{path.name}: {row_id} has no reason")
        found[row_id] = rest
    _raise_for(problems)
    return found


def _is_heading(root: Path, where: str) -> bool:
    """Return whether *where*, such as ``docs/a.md#a-heading``, exists."""
    page, _, anchor = where.partition("#")
    if not (root / page).is_file():
        return False
    headings = re.findall(r"^#+ +(.*)$", (root / page).read_text(encoding="utf-8"), re.MULTILINE)
    return anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _table(path: Path, width: int) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        table = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    _raise_for(
        f"{path.name}:{n}: needs {width} columns, has {len(fields)}"
        for n, fields in enumerate(table, 1)
        if len(fields) != width
    )
    return table[1:]


def collect_tests(root: Path, *, partial: bool = False) -> list[MarkedTest]:
    """Return the tests below *root* that name requirements, as pytest itself collects them.

    Args:
        root: The project; its pytest configuration has the paths of the tests.
        partial: Accept modules that were skipped during collection.

    Raises:
        ReportError: Collection failed, or was incomplete.
    """
    # Drop the caller's options: a `-k` among them would hide tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH")])
    )
    with tempfile.TemporaryDirectory() as scratch:
        marks = Path(scratch, "marks.json")
        run = subprocess.run(
            [
                *[sys.executable, "-m", "pytest", "--collect-only", "-qq"],
                *["-p", "no:cacheprovider", "-p", "requirement_marks", f"--requirement-marks={marks}"],
            ],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        # 5: pytest found no test; the report is valid without one.
        if run.returncode not in {0, 5}:
            raise ReportError(f"pytest cannot collect the tests:\n{(run.stdout + run.stderr).strip()}")
        found = json.loads(marks.read_text(encoding="utf-8"))
    if not partial:
        _raise_for(
            f"{name}: skipped during collection, so its requirements are unknown ({reason}); --partial leaves it out"
            for name, reason in found["unread"].items()
        )
    return [MarkedTest(nodeid, tuple(test["ids"]), test["expected"]) for nodeid, test in found["tests"].items()]


def read_results(paths: Iterable[Path]) -> dict[tuple[str, str], str]:
    """Return the outcome of each test in JUnit files, by class name and name; the worst one if there are several."""
    rank = ("skipped", "passed", "xfailed", "failed")
    outcomes: dict[tuple[str, str], str] = {}
    for path in paths:
        for case in ET.parse(path).iter("testcase"):
            key = (case.get("classname", ""), case.get("name", ""))
            outcomes[key] = max(_outcome(case), outcomes.get(key, "skipped"), key=rank.index)
    return outcomes


def _outcome(case: ET.Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    skipped = case.find("skipped")
    if skipped is None:
        return "passed"
    return "xfailed" if skipped.get("type") == "pytest.xfail" else "skipped"


def _junit_key(nodeid: str) -> tuple[str, str]:
    address, bracket, parameters = nodeid.partition("[")
    path, *names = address.split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *names[:-1]]), names[-1] + bracket + parameters


# --- verdicts ----------------------------------------------------------------------------------------------------


def judge(
    rows: Sequence[Row],
    reasons: Mapping[str, str],
    tests: Iterable[MarkedTest],
    results: Mapping[tuple[str, str], str] | None = None,
    deviations: Mapping[str, Deviation] | None = None,
) -> list[Verdict]:
    """Return a verdict on each row.

    Args:
        rows: The requirements.
        reasons: Why some of them are not applicable, by id.
        tests: The tests that name requirements.
        results: What `read_results` returned; None uses the outcome that each test's marks declare. A test that is
            not in there did not run, and proves nothing.
        deviations: What kjms does instead of some of them, by id.

    Raises:
        ReportError: A test names an unknown id, an excluded id, or too many ids; or a row has two statuses.
    """
    deviations = deviations or {}
    by_id = {row.id: row for row in rows}
    problems = {f"{row_id}: is both not applicable and a deviation" for row_id in deviations if row_id in reasons}
    passed: dict[str, set[str]] = {}
    failing: dict[str, set[str]] = {}
    for test in tests:
        if len(set(test.ids)) > MOST_IDS:
            problems.add(f"{test.name}: names {len(set(test.ids))} requirements, more than {MOST_IDS}; split it")
        outcome = test.expected if results is None else results.get(_junit_key(test.nodeid), "skipped")
        for row_id in test.ids:
            if row_id not in by_id:
                problems.add(f"{test.name}: requirement {row_id!r} is in no catalogue")
            elif row_id in reasons and by_id[row_id].level not in ELSEWHERE:
                problems.add(f"{test.name}: proves {row_id}, which not_applicable.tsv excludes; one of them is wrong")
            elif outcome == "passed":
                passed.setdefault(row_id, set()).add(test.name)
            elif outcome in {"failed", "xfailed"}:
                failing.setdefault(row_id, set()).add(test.name)
    _raise_for(sorted(problems))
    return [
        _verdict(
            row,
            deviations.get(row.id) or reasons.get(row.id, ""),
            tuple(sorted(passed.get(row.id, ()))),
            tuple(sorted(failing.get(row.id, ()))),
        )
        for row in rows
    ]


def _verdict(row: Row, reason: str | Deviation, tests: tuple[str, ...], failing: tuple[str, ...]) -> Verdict:
    if isinstance(reason, Deviation):
        status = DEVIATION if tests and not failing else OPEN
        return Verdict(row, status, tests, failing, reason.instead, reason.where)
    if tests and not failing:
        return Verdict(row, COVERED, tests)
    if reason or row.level in ELSEWHERE:
        generic = ELSEWHERE.get(row.level, "") + (f" (for Python: {row.note})" if row.note else "")
        return Verdict(row, NOT_APPLICABLE, reason=reason or generic)
    return Verdict(row, OPEN, tests, failing)


def count(verdicts: Iterable[Verdict], level: str, status: str) -> int:
    """Return how many of *verdicts* have that level and status; java-only and vendor-only are the level ``other``."""
    return sum(v.status == status and (v.row.level if v.row.level in LEVELS else "other") == level for v in verdicts)


# --- output -----------------------------------------------------------------------------------------------------

_HEAD = """# Conformance

This page shows how kjms meets the JMS specification and related requirements. {catalogues} catalogues hold {rows:,}
requirements, in [tests/conformance/requirements]({requirements}). Each requirement is a row with one of four
statuses:

| Status | Meaning |
| --- | --- |
| **covered** | A test that names the row (`@pytest.mark.requirement("ID")`) passes, and none that names it fails. |
| **deviation** | kjms deviates on purpose. A page documents it, and a test proves what kjms does instead. |
| **n/a** | The row cannot apply to a Python client of Kafka, for the stated reason. |
| **open** | All other rows. |

`python tests/conformance/report.py` generates this page. `--check` fails if the page is stale. `--results junit.xml`
counts only the tests that passed in that run.
"""


def page(verdicts: Sequence[Verdict]) -> str:
    """Return ``docs/conformance.md``."""
    catalogues = _grouped(verdicts, lambda v: v.row.catalogue)
    areas = dict(sorted(_grouped(verdicts, lambda v: v.row.area).items()))
    titled = {TITLES.get(name, name): group for name, group in catalogues.items()}
    parts = [
        _HEAD.format(catalogues=len(catalogues), rows=len(verdicts), requirements=f"../{HERE.as_posix()}/requirements"),
        "## By catalogue\n\n" + _summary("Catalogue", titled, verdicts),
        "## By area\n\n" + _summary("Area", areas, verdicts),
        "## Open: must\n",
    ]
    for area, group in areas.items():
        if open_rows := [v for v in group if v.status == OPEN and v.row.level == "must"]:
            parts.append(f"### {area} ({len(open_rows)})\n\n")
            parts[-1] += _markdown(
                ("Id", "Requirement"),
                (
                    (v.row.id, _text(v.row.requirement) + (f" Fails: {_names(v.failing)}" if v.failing else ""))
                    for v in open_rows
                ),
            )
    if parts[-1] == "## Open: must\n":
        parts[-1] += "\nNone.\n"
    parts.append("## Documented deviations\n")
    if deviations := [v for v in verdicts if v.status == DEVIATION]:
        parts[-1] += "\n" + _markdown(
            ("Id", "Level", "Requirement", "What kjms does", "Documented in", "Proved by"),
            (
                (v.row.id, v.row.level, _text(v.row.requirement), _text(v.reason), _link(v.where), _names(v.tests))
                for v in deviations
            ),
        )
    parts.append("## Not applicable\n")
    for title, group in titled.items():
        if excluded := [v for v in group if v.status == NOT_APPLICABLE]:
            parts.append(f"### {title}: {len(excluded)} not applicable\n\n")
            parts[-1] += _markdown(
                ("Id", "Level", "Requirement", "Reason"),
                ((v.row.id, v.row.level, _text(v.row.requirement), _text(v.reason)) for v in excluded),
            )
    parts.append("## Every row\n")
    for title, group in titled.items():
        parts.append(f"### {title}: all rows\n\n")
        parts[-1] += _markdown(
            ("Id", "Section", "Level", "Status", "Proved by"),
            ((v.row.id, _text(v.row.section), v.row.level, v.status, _names(v.tests)) for v in group),
        )
    return "\n".join(parts)


def _summary(label: str, groups: Mapping[str, Sequence[Verdict]], everything: Sequence[Verdict]) -> str:
    header = [label, *(f"{level} {status}" for level in LEVELS for status in STATUSES), "other n/a", "other covered"]
    return _markdown(header, ((name, *figures) for name, figures in _figures(groups, everything)), numbers=True)


def _figures(groups: Mapping[str, Sequence[Verdict]], everything: Sequence[Verdict]) -> Iterable[tuple[str, list[str]]]:
    for name, group in [*groups.items(), ("all", everything)]:
        figures = [count(group, level, status) for level in LEVELS for status in STATUSES]
        figures += [count(group, "other", NOT_APPLICABLE), count(group, "other", COVERED)]
        yield name, [str(figure) for figure in figures]


def _grouped(verdicts: Iterable[Verdict], key: Callable[[Verdict], str]) -> dict[str, list[Verdict]]:
    groups: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault(key(verdict), []).append(verdict)
    return groups


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: bool = False) -> str:
    rule = ["---", *(["--:" if numbers else "---"] * (len(header) - 1))]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *lines])


def _text(text: str) -> str:
    """Return *text* escaped for Markdown."""
    text = re.sub(r"[\\|*`]", r"\\\g<0>", text).replace("<", "&lt;")
    return re.sub(r"(?<![A-Za-z0-9\\])_|_(?![A-Za-z0-9])", r"\\_", text)


def _link(where: str) -> str:
    page = where.partition("#")[0]
    return f"[{page}]({os.path.relpath(where, PAGE.parent)})"


def _names(tests: Sequence[str], limit: int = 3) -> str:
    """Return the first *limit* tests, with each file named once, and the number of further tests."""
    files: dict[str, list[str]] = {}
    for test in tests[:limit]:
        path, _, name = test.partition("::")
        files.setdefault(path.removeprefix("tests/"), []).append(name)
    more = f" and {len(tests) - limit} more" if len(tests) > limit else ""
    return "; ".join(f"`{path}` {', '.join(f'`{name}`' for name in names)}" for path, names in files.items()) + more


def terminal_summary(verdicts: Sequence[Verdict]) -> str:
    """Return the figures by catalogue as aligned text: for each level covered, deviation, open and not applicable."""
    lines = [f"{' / '.join(STATUSES):36}" + "".join(f"{level:>20}" for level in LEVELS) + f"{'other':>10}"]
    for name, figures in _figures(_grouped(verdicts, lambda v: v.row.catalogue), verdicts):
        width = len(STATUSES)
        levels = [" / ".join(figures[i * width : (i + 1) * width]) for i in range(len(LEVELS))]
        lines.append(f"{name:36}" + "".join(f"{level:>20}" for level in levels) + f"{' / '.join(figures[:-3:-1]):>10}")
    return "\n".join(lines)


def open_rows(verdicts: Iterable[Verdict]) -> str:
    """Return the open rows of *verdicts* as text, must first."""
    found = sorted((v for v in verdicts if v.status == OPEN), key=lambda v: (v.row.area, LEVELS.index(v.row.level)))
    lines = []
    for verdict in found:
        row = verdict.row
        note = f"  ({row.note})" if row.note else ""
        fails = f"  FAILS: {', '.join(verdict.failing)}" if verdict.failing else ""
        lines.append(f"{row.area:13} {row.level:6} {row.id:16} {row.requirement}{note}{fails}")
    return "\n".join([*lines, f"{len(found)} open"])


def as_json(verdicts: Iterable[Verdict]) -> str:
    """Return every verdict as a JSON list."""
    listed: list[dict[str, Any]] = [
        {
            **vars(v.row),
            "status": v.status,
            "tests": v.tests,
            "failing": v.failing,
            "reason": v.reason,
            "where": v.where,
        }
        for v in verdicts
    ]
    return json.dumps(listed, indent=1, ensure_ascii=False)


def _raise_for(problems: Iterable[str]) -> None:
    if listed := list(problems):
        raise ReportError("\n".join(listed))


# --- the command -------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Run the chore on the project at *root* and return its exit code."""
    parser = argparse.ArgumentParser(description="Report which tests prove each requirement.")
    parser.add_argument("--check", action="store_true", help="fail if docs/conformance.md is stale; write nothing")
    parser.add_argument("--areas", metavar="A,B", help="print the open rows of these areas; write nothing")
    parser.add_argument("--json", action="store_true", help="print every row (of --areas) as JSON; write nothing")
    parser.add_argument(
        "--results", metavar="FILE", type=Path, action="append", help="JUnit XML of a run; only tests that passed count"
    )
    parser.add_argument("--partial", action="store_true", help="leave out modules that are skipped during collection")
    options = parser.parse_args(arguments)
    try:
        rows = read_catalogues(root / HERE / "requirements")
        areas = set(options.areas.split(",")) if options.areas else set()
        if unknown := areas - {row.area for row in rows}:
            parser.error(f"no such area: {', '.join(sorted(unknown))}")
        reasons = read_reasons(root / HERE / "not_applicable.tsv", rows)
        results = read_results(options.results) if options.results else None
        deviations = read_deviations(root / HERE / "deviations.tsv", rows, root)
        verdicts = judge(rows, reasons, collect_tests(root, partial=options.partial), results, deviations)
        chosen = [v for v in verdicts if not areas or v.row.area in areas]
        if options.json:
            print(as_json(chosen))
        elif areas:
            print(open_rows(chosen))
        if options.check:
            if not (root / PAGE).is_file() or (root / PAGE).read_text(encoding="utf-8") != page(verdicts):
                raise ReportError(f"{PAGE} is stale: run python {HERE / 'report.py'}")
        elif not (options.json or areas):
            (root / PAGE).parent.mkdir(exist_ok=True)
            (root / PAGE).write_text(page(verdicts), encoding="utf-8")
            print(terminal_summary(verdicts))
    except (ReportError, OSError, ET.ParseError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
