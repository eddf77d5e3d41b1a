"""The conformance report, on small projects of its own and, once, on this one."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.slow  # it runs pytest, in a folder of its own

PROJECT = Path(__file__).resolve().parents[2]
HEADER = "id\tsection\tlevel\tarea\trequirement\tpython\n"
CATALOGUE = HEADER + (
    "A-1\t1 One\tmust\tack\tThe first | rule.\t\n"
    "A-2\t1 One\tmust\tack\tThe second rule.\ta hint\n"
    "A-3\t1 One\tshould\tclose\tThe third rule.\t\n"
    "A-4\t2 Two\tmay\tclose\tThe fourth rule.\t\n"
    "A-5\t2 Two\tjava-only\tclose\tThe fifth rule.\tan iterator\n"
)
NOT_APPLICABLE = "id\treason\nA-4\tAdvice to applications.\n"


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conformance_report", PROJECT / "tests/conformance/report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with one catalogue, one row excluded, and no test."""
    conformance = tmp_path / "tests" / "conformance"
    (conformance / "requirements").mkdir(parents=True)
    (conformance / "requirements" / "small.tsv").write_text(CATALOGUE)
    (conformance / "not_applicable.tsv").write_text(NOT_APPLICABLE)
    (tmp_path / "pytest.ini").write_text(
        # without plugins that are slow to load and have no part in this
        "[pytest]\ntestpaths = tests\naddopts = -p no:hypothesispytest -p no:xdist -p no:kjms "
        "-m 'not slow' --strict-markers\nmarkers =\n  requirement\n  slow\n"
    )
    return tmp_path


@pytest.fixture
def statuses(report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Writes a test module into the project and returns what the report says, by id."""

    def write_and_report(source: str, *arguments: str) -> dict[str, Any]:
        write(project, source)
        assert report.main(["--json", *arguments], project) == 0
        return {row["id"]: row for row in json.loads(capsys.readouterr().out)}

    return write_and_report


def write(project: Path, source: str, name: str = "test_a.py") -> None:
    (project / "tests" / name).write_text(f"import pytest\n\nrequirement = pytest.mark.requirement\n\n{source}")


def run(project: Path) -> Path:
    """Runs the project's tests and returns the JUnit file of the run."""
    target = project / "junit.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={target}"]
    finished = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert finished.returncode in {0, 1}, finished.stdout + finished.stderr
    return target


def test_a_row_is_covered_by_the_tests_that_name_it(
    statuses: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks of functions, classes, modules and parameters count, whatever the options of the run that asks."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "--ignore=tests/test_a.py")
    found = statuses(
        "pytestmark = requirement('A-3')\n\n"
        "@requirement('A-1')\ndef test_one(): ...\n\n"
        "@requirement('A-1', 'A-2')\nclass TestTwo:\n    def test_two(self): ...\n\n"
        "@pytest.mark.parametrize('n', [pytest.param(1, marks=requirement('A-5')), 2])\n"
        "@pytest.mark.slow\ndef test_three(n): ...\n"
    )
    assert {i: row["status"] for i, row in found.items()} == {
        "A-1": "covered",
        "A-2": "covered",
        "A-3": "covered",
        "A-4": "n/a",
        "A-5": "covered",
    }
    assert found["A-1"]["tests"] == ["tests/test_a.py::TestTwo::test_two", "tests/test_a.py::test_one"]
    assert found["A-5"]["tests"] == ["tests/test_a.py::test_three"]


def test_a_row_that_no_test_names_is_open_or_excluded_with_a_reason(statuses: Callable[..., dict[str, Any]]) -> None:
    """Without a test a row is open, unless the list or its level excludes it."""
    found = statuses("def test_nothing(): ...\n")
    assert [found[i]["status"] for i in ("A-1", "A-2", "A-3", "A-4", "A-5")] == ["open", "open", "open", "n/a", "n/a"]
    assert found["A-4"]["reason"] == "Advice to applications."
    assert found["A-5"]["reason"] == "Applies only to Java (for Python: an iterator)"


def test_tests_that_cannot_pass_prove_nothing(statuses: Callable[..., dict[str, Any]]) -> None:
    """A skip proves nothing, and an expected failure takes the row from those that do."""
    found = statuses(
        "@pytest.mark.skip\n@requirement('A-1')\ndef test_skipped(): ...\n\n"
        "@requirement('A-2')\ndef test_passes(): ...\n\n"
        "@pytest.mark.xfail(reason='not yet')\n@requirement('A-2')\ndef test_expected(): assert False\n\n"
        "@pytest.mark.xfail(False, reason='elsewhere')\n@requirement('A-3')\ndef test_conditional(): ...\n"
    )
    assert [found[i]["status"] for i in ("A-1", "A-2", "A-3")] == ["open", "open", "covered"]
    assert found["A-2"]["failing"] == ["tests/test_a.py::test_expected"]


def test_results_count_only_what_passed(statuses: Callable[..., dict[str, Any]], project: Path) -> None:
    """With the results of a run, failed, skipped, expectedly failed and absent tests prove nothing."""
    source = (
        "class TestPassed:\n"
        "    @pytest.mark.parametrize('text', ['plain', 'a::b [c]/d.py'])\n"
        "    @requirement('A-1')\n    def test_passed(self, text): ...\n\n"
        "@pytest.mark.parametrize('number', [1, 2])\n@requirement('A-2')\ndef test_half(number): assert number == 1\n\n"
        "@requirement('A-3')\ndef test_skipped(): pytest.skip('today')\n\n"
        "@requirement('A-5')\ndef test_expected(): pytest.xfail('today')\n"
    )
    write(project, source)
    results = run(project)
    found = statuses(source + "\n@requirement('A-3')\ndef test_did_not_run(): ...\n", f"--results={results}")
    assert [found[i]["status"] for i in ("A-1", "A-2", "A-3", "A-5")] == ["covered", "open", "open", "n/a"]
    assert found["A-2"]["failing"] == ["tests/test_a.py::test_half"]


def test_of_several_results_the_worst_counts(report: ModuleType, tmp_path: Path) -> None:
    """A test that one run skipped and another passed has passed; one that failed anywhere has failed."""
    cases = {"one.xml": ("<skipped/>", "<failure/>", ""), "two.xml": ("", "", "<error/>")}
    for name, outcomes in cases.items():
        body = "".join(f'<testcase classname="m" name="t{n}">{inner}</testcase>' for n, inner in enumerate(outcomes))
        (tmp_path / name).write_text(f"<testsuites><testsuite>{body}</testsuite></testsuites>")
    outcomes = report.read_results(tmp_path / name for name in cases)
    assert outcomes == {("m", "t0"): "passed", ("m", "t1"): "failed", ("m", "t2"): "failed"}


@pytest.mark.parametrize(
    ("mark", "problem"),
    [
        ("'A-9'", "tests/test_a.py::test_it: requirement 'A-9' is in no catalogue"),
        ("", "tests/test_a.py::test_it: requirement '' is in no catalogue"),
        ("'A-4'", "tests/test_a.py::test_it: proves A-4, which not_applicable.tsv excludes; one of them is wrong"),
    ],
)
def test_a_wrong_mark_is_an_error(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str], mark: str, problem: str
) -> None:
    """Report an unknown id, a missing id and an excluded id with the test, and write no page."""
    write(project, f"@requirement({mark})\ndef test_it(): ...\n")
    assert report.main([], project) == 1
    assert capsys.readouterr().err.splitlines() == [problem]
    assert not (project / report.PAGE).exists()


def test_a_test_names_eight_requirements_at_most(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More are an error, once each is counted once; a case of a parametrized test counts for itself."""
    rows = [f"B-{number}" for number in range(9)]
    table = HEADER + "".join(f"{row}\t1 One\tmust\tack\tA rule.\t\n" for row in rows)
    (project / "tests/conformance/requirements/more.tsv").write_text(table)
    mark = "@requirement({})\n".format(", ".join(map(repr, [*rows[:8], rows[0]])))
    case = "@pytest.mark.parametrize('n', [pytest.param(1, marks=requirement('B-8')), 2])\n"
    write(project, f"{mark}def test_many(): ...\n\n{case}@requirement('B-7')\ndef test_cases(n): ...\n")
    assert report.main([], project) == 0
    write(project, f"{mark}@requirement('B-8')\ndef test_too_many(): ...\n")
    capsys.readouterr()
    assert report.main([], project) == 1
    problem = "tests/test_a.py::test_too_many: names 9 requirements, more than 8; split it"
    assert capsys.readouterr().err.splitlines() == [problem]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("A-9\tNot there.\n", "not_applicable.tsv: 'A-9' is in no catalogue"),
        ("A-4\tAgain.\n", "not_applicable.tsv: A-4 is listed twice"),
        ("A-3\t \n", "not_applicable.tsv: A-3 has no reason"),
        ("A-3\n", "not_applicable.tsv:3: needs 2 columns, has 1"),
    ],
)
def test_a_wrong_exclusion_is_an_error(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    """Each line of not_applicable.tsv excludes one row of the catalogues, once, with a reason."""
    (project / "tests/conformance/not_applicable.tsv").write_text(NOT_APPLICABLE + line)
    assert report.main(["--json"], project) == 1
    assert capsys.readouterr().err.splitlines() == [problem]


def deviate(project: Path, *lines: str) -> None:
    (project / "docs").mkdir()
    (project / "docs" / "page.md").write_text("# A page\n\n## What is `different`, and why\n")
    table = "".join(["id\tinstead\twhere\n", *lines])
    (project / "tests/conformance/deviations.tsv").write_text(table)


def test_a_deviation_is_documented_and_tested(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that kjms deviates from has a status of its own while a test of what it does instead passes."""
    instead = "It does the second thing.\tdocs/page.md#what-is-different-and-why\n"
    deviate(project, f"A-1\t{instead}", f"A-2\t{instead}", f"A-3\t{instead}")
    source = (
        "@requirement('A-1')\ndef test_first(): ...\n\n@pytest.mark.skip\n@requirement('A-2')\ndef test_second(): ...\n"
    )
    write(project, source)
    assert report.main([], project) == 0
    page = (project / report.PAGE).read_text()
    assert "| small | 0 | 1 | 1 | 0 | 0 | 0 | 1 | 0 |" in page
    assert (
        "## Documented deviations\n\n"
        "| Id | Level | Requirement | What kjms does | Documented in | Proved by |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| A-1 | must | The first \\| rule. | It does the second thing. "
        "| [docs/page.md](page.md#what-is-different-and-why) | `test_a.py` `test_first` |\n\n"
    ) in page
    assert "A-1 | 1 One | must | deviation |" in page
    capsys.readouterr()
    assert report.main(["--json"], project) == 0
    rows = {row["id"]: row for row in json.loads(capsys.readouterr().out)}
    assert [rows[i]["status"] for i in ("A-1", "A-2", "A-3")] == ["deviation", "open", "open"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("A-9\tx\tdocs/page.md#a-page\n", "deviations.tsv: 'A-9' is in no catalogue"),
        ("A-1\t \tdocs/page.md#a-page\n", "deviations.tsv: A-1 has no reason"),
        ("A-1\tx\n", "deviations.tsv:2: needs 3 columns, has 2"),
        (
            "A-1\tx\tdocs/page.md#another\n",
            "deviations.tsv: A-1 names 'docs/page.md#another' as its page, which does not exist",
        ),
        (
            "A-1\tx\tdocs/other.md#a-page\n",
            "deviations.tsv: A-1 names 'docs/other.md#a-page' as its page, which does not exist",
        ),
        ("A-4\tx\tdocs/page.md#a-page\n", "A-4: is both not applicable and a deviation"),
    ],
)
def test_a_wrong_deviation_is_an_error(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    """Each line of deviations.tsv is of one row, says what kjms does, and names a heading that exists."""
    deviate(project, line)
    assert report.main(["--json"], project) == 1
    assert capsys.readouterr().err.splitlines() == [problem]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("A-1\t3\tmust\tack\tAnother rule.\t\n", "A-1: is in the catalogues twice"),
        ("B-1\t3\tperhaps\tack\tAnother rule.\t\n", "B-1: unknown level"),
        ("B-1\t3\tmust\tack\tAnother rule.\n", "more.tsv:2: needs 6 columns, has 5"),
    ],
)
def test_a_wrong_catalogue_is_an_error(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str], line: str, problem: str
) -> None:
    """Ids are unique over all catalogues, levels are known, and lines are complete."""
    (project / "tests/conformance/requirements/more.tsv").write_text(HEADER + line)
    assert report.main(["--json"], project) == 1
    assert capsys.readouterr().err.splitlines() == [problem]


def test_the_page_shows_every_row_and_check_tells_when_it_is_stale(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check refuses a page that is missing or older than the tests, and writes none."""
    assert report.main(["--check"], project) == 1
    assert not (project / report.PAGE).exists()
    write(project, "@requirement('A-2')\ndef test_second(): ...\n")
    assert report.main([], project) == 0
    page = (project / report.PAGE).read_text()
    assert "| small | 1 | 0 | 1 | 0 | 0 | 0 | 1 | 0 | 0 | 0 | 0 | 1 | 1 | 0 |\n" in page
    assert "### ack (1)\n\n| Id | Requirement |\n| --- | --- |\n| A-1 | The first \\| rule. |\n" in page
    assert "| A-4 | may | The fourth rule. | Advice to applications. |\n" in page
    assert "| A-2 | 1 One | must | covered | `test_a.py` `test_second` |\n" in page
    assert report.main(["--check"], project) == 0
    write(project, "@requirement('A-1')\ndef test_first(): ...\n")
    assert report.main(["--check"], project) == 1
    assert "stale" in capsys.readouterr().err
    assert (project / report.PAGE).read_text() == page


def test_areas_print_what_is_open_there(report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--areas lists the open rows of those areas alone, and refuses areas that do not exist."""
    write(project, "@requirement('A-2')\ndef test_second(): ...\n")
    assert report.main(["--areas", "ack"], project) == 0
    printed = capsys.readouterr().out
    assert "A-1" in printed
    assert printed.endswith("1 open\n")
    assert not (project / report.PAGE).exists()
    with pytest.raises(SystemExit) as refusal:
        report.main(["--areas", "ack,elsewhere"], project)
    assert refusal.value.code == 2
    assert "elsewhere" in capsys.readouterr().err


def test_tests_that_cannot_be_collected_are_an_error(
    report: ModuleType, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A module that fails or is skipped during collection hides its marks; only --partial accepts the skip."""
    write(project, "@requirement('A-1')\ndef test_first(): ...\n")
    write(project, "pytest.importorskip('a_module_that_is_not_there')\n", "test_b.py")
    assert report.main([], project) == 1
    assert capsys.readouterr().err.startswith("tests/test_b.py: skipped during collection")
    assert report.main(["--partial"], project) == 0
    write(project, "import a_module_that_is_not_there\n", "test_b.py")
    assert report.main(["--partial"], project) == 1
    assert "No module named 'a_module_that_is_not_there'" in capsys.readouterr().err


def test_long_lists_of_tests_stay_short(report: ModuleType) -> None:
    """A table cell names three tests, each file once, and tells how many more there are."""
    tests = [f"tests/unit/test_a.py::test_{n}" for n in range(5)]
    assert report._names(tests) == "`unit/test_a.py` `test_0`, `test_1`, `test_2` and 2 more"
