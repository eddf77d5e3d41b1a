"""The list of flaky tests: what it excuses, until when, and what `check` says of it."""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import flaky

pytestmark = pytest.mark.slow  # it runs pytest, in a folder of its own

ROOT = Path(__file__).parents[2]
TODAY = datetime.date(2026, 3, 10)
TESTS = """
import pytest

def test_good(): ...

@pytest.mark.parametrize("number", [1, 2])
def test_bad(number):
    assert not number

def test_worse():
    assert False
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with three tests."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nxfail_strict = true\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write(project: Path, *lines: str) -> None:
    (project / flaky.FILE).write_text("\n".join(["\t".join(flaky.COLUMNS), *lines, ""]))


def test_a_list_that_holds(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that exist, with a day to come, are in order; so is an empty list."""
    write(project)
    assert flaky.main(["--check"], project, TODAY) == 0
    write(
        project,
        "tests/test_it.py::test_bad\t2026-03-10\tnames all parameters",
        "tests/test_it.py::test_bad[2]\t2026-05-09\tnames one of them",
    )
    assert flaky.main(["--check"], project, TODAY) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("tests/test_it.py::test_bad\t2026-03-09\tr", "expired on 2026-03-09"),
        ("tests/test_it.py::test_bad\t2026-05-10\tr", "60 days are the longest"),
        ("tests/test_it.py::test_ba\t2026-03-10\tr", "tests/test_it.py::test_ba names no test"),
        ("tests/test_it.py::test_bad[3]\t2026-03-10\tr", "names no test"),
        ("tests/test_gone.py::test_bad\t2026-03-10\tr", "names no test"),
        ("tests/test_it.py::test_bad\t2026-03-10\t", "line 2: .* is not a test, a date"),
        ("tests/test_it.py::test_bad\tsoon\tr", "line 2: .* is not a test, a date"),
        ("tests/test_it.py::test_bad\t2026-03-10", "line 2: .* is not a test, a date"),
    ],
)
def test_a_list_that_does_not_hold(line: str, problem: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An entry that has expired, is too far ahead, names no test or is incomplete fails the check, by name."""
    write(project, line)
    assert flaky.main(["--check"], project, TODAY) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert re.search(problem, said)


@pytest.mark.parametrize(("day", "outcomes"), [(0, "1 failed, 1 passed, 2 xfailed"), (-1, "3 failed, 1 passed")])
def test_a_listed_failure_is_excused_until_its_day(day: int, outcomes: str, project: Path) -> None:
    """A listed test runs: its failure is expected on its last day, and fails the run a day later; others fail it."""
    until = datetime.date.today() + datetime.timedelta(days=day)
    write(project, f"tests/test_it.py::test_bad\t{until}\tit waits for a repair")
    # The project's own conftest, on this list.
    (project / "conftest.py").write_text(
        f"import sys, functools, pathlib\nsys.path.insert(0, {str(ROOT)!r})\nimport tests.conftest as own\n"
        "own.read = functools.partial(own.read, pathlib.Path(__file__).parent)\n"
        "pytest_collection_modifyitems = own.pytest_collection_modifyitems\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rx", "-p", "no:cacheprovider", "--import-mode=importlib"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert outcomes in done.stdout
    assert ("it waits for a repair" in done.stdout) is (day == 0)


def test_the_usage_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Other arguments are wrong use."""
    assert flaky.main([]) == 2
    assert "usage" in capsys.readouterr().err
