"""Read ``flaky.tsv``, the list of tests that fail now and then without a known repair.

    python tests/flaky.py --check    fail if an entry has expired, is too far ahead, or names no test

A line names a test (an id of pytest, with or without its parameters), the last day of the entry, and the reason. Until
that day the test runs, and its failure is reported as an expected one. From the next day on it fails the run.
"""

from __future__ import annotations

import csv
import datetime
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = Path("tests", "flaky.tsv")
COLUMNS = ["test", "until", "reason"]
LONGEST_DAYS = 60


class FlakyListError(Exception):
    """The list breaks a rule; each line of the text is one problem."""


@dataclass(frozen=True)
class Entry:
    """One line of the list: a test, the last day on which its failure is excused, and why it fails."""

    test: str
    until: datetime.date
    reason: str

    def covers(self, nodeid: str) -> bool:
        """Return whether the entry names the test with this id, or all parameters of its function."""
        return nodeid == self.test or nodeid.startswith(f"{self.test}[")


def read(root: Path = ROOT) -> list[Entry]:
    """Return the entries of the list.

    Raises:
        FlakyListError: A line does not have a test, a date and a reason.
    """
    with (root / FILE).open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
    if header != COLUMNS:
        raise FlakyListError(f"{FILE}, line 1: the columns are {header}; they must be {COLUMNS}")
    entries = []
    for number, row in enumerate(rows, 2):
        try:
            test, until, reason = (cell.strip() for cell in row)
            if not (test and reason):
                raise ValueError(row)
            entries.append(Entry(test, datetime.date.fromisoformat(until), reason))
        except ValueError:
            raise FlakyListError(
                f"{FILE}, line {number}: {row} is not a test, a date YYYY-MM-DD and a reason"
            ) from None
    return entries


def current(entries: Iterable[Entry], today: datetime.date) -> list[Entry]:
    """Return the entries that excuse a failure on *today*."""
    return [entry for entry in entries if today <= entry.until]


def problems(entries: Sequence[Entry], today: datetime.date, root: Path = ROOT) -> list[str]:
    """Return what is wrong with *entries*, one line each: expired, too far ahead, or no such test."""
    found = []
    for entry in entries:
        if entry.until < today:
            found.append(f"{FILE}: {entry.test} expired on {entry.until}: repair it, or remove it from the list")
        elif entry.until > today + datetime.timedelta(days=LONGEST_DAYS):
            found.append(f"{FILE}: {entry.test} is listed until {entry.until}; {LONGEST_DAYS} days are the longest")
    if entries:
        known = collected(sorted({entry.test.partition("::")[0] for entry in entries}), root)
        found += [
            f"{FILE}: {entry.test} names no test"
            for entry in entries
            if not any(entry.covers(nodeid) for nodeid in known)
        ]
    return found


def collected(files: Sequence[str], root: Path = ROOT) -> list[str]:
    """Return the ids of the tests in those of *files* that exist."""
    existing = [name for name in files if (root / name).is_file()]
    if not existing:
        return []
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--no-header", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *existing], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FlakyListError(f"pytest cannot collect {', '.join(existing)}:\n{done.stdout}{done.stderr}")
    return [line for line in done.stdout.splitlines() if "::" in line]


def main(arguments: Sequence[str], root: Path = ROOT, today: datetime.date | None = None) -> int:
    """Check the list of the project at *root*; return 0, or 1 with one line for each problem, or 2 for wrong use."""
    if list(arguments) != ["--check"]:
        print("usage: python tests/flaky.py --check", file=sys.stderr)
        return 2
    try:
        found = problems(read(root), today or datetime.date.today(), root)
    except (FlakyListError, OSError) as problem:
        found = [str(problem)]
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
