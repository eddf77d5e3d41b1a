"""The chore `mutants`: its data applies to the source, and a mutation that no test notices fails the run."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from tests.mutants import run
from tests.mutants.run import FILE, Mutation, MutationError, Suite, mutated, read, tried

PRODUCT = "def total(numbers):\n    return sum(numbers)\n\n\ndef first(numbers):\n    return numbers[0]\n"
TESTS = """
import time
import pytest
from kjms import total

@pytest.mark.parametrize("kafka", ["memory", pytest.param("real", marks=pytest.mark.slow)])
def test_total(kafka):
    assert kafka == "memory"
    assert total([1, 2]) == 3
"""
WRONG_SUM = ("return sum(numbers)", "return sum(numbers) + 1")
ENDLESS_SUM = ("return sum(numbers)", "while True: pass")
WRONG_FIRST = ("return numbers[0]", "return numbers[1]")


def mutation(edit: tuple[str, str], name: str = "a fault") -> Mutation:
    before, after = edit
    return Mutation(name, "A rule.", "kjms/__init__.py", before, after, ("tests/unit/test_total.py",))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a function that is tested, and one that is not."""
    root = tmp_path / "project"
    for folder in ("kjms", "tests/unit", "tests/contract", "tests/mutants"):
        (root / folder).mkdir(parents=True)
    (root / "kjms/__init__.py").write_text(PRODUCT)
    (root / "tests/unit/test_total.py").write_text(TESTS)
    for plugin in ("watch.py", "no_shrinking.py"):
        (root / "tests/mutants" / plugin).write_text((run.ROOT / "tests/mutants" / plugin).read_text())
    # The plugin of kjms itself, which is installed, would find the functions that it offers missing here.
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:kjms\nmarkers = slow\n")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    for name in [name for name in os.environ if name.startswith(("PYTEST_XDIST", "COV_CORE", "COVERAGE"))]:
        monkeypatch.delenv(name)
    return root


@pytest.fixture
def suite(project: Path, tmp_path: Path) -> Suite:
    """The tests of that project."""
    return Suite(project, tmp_path / "log", test_seconds=20, run_seconds=60)


def test_every_mutation_breaks_the_source_as_it_is() -> None:
    """Each piece of source occurs once, and gives other Python when it is replaced; the names differ."""
    mutations = read()
    for each in mutations:
        source = (run.ROOT / each.file).read_text(encoding="utf-8")
        assert each.applied_to(source) != source
    assert len({each.name for each in mutations}) == len(mutations)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (("return product(numbers)", ""), r"occurs 0 times in kjms/__init__\.py"),
        (("numbers", "values"), r"occurs 4 times in kjms/__init__\.py"),
        (("return numbers[0]", "return ("), "would be no Python"),
    ],
)
def test_a_mutation_that_cannot_be_applied_is_refused(edit: tuple[str, str], problem: str) -> None:
    """What does not occur exactly once, or would be no Python, is an error and no mutation."""
    with pytest.raises(MutationError, match=problem):
        mutation(edit).applied_to(PRODUCT)


def test_a_mutation_names_files_that_exist(tmp_path: Path) -> None:
    """A test or a file that is gone, and a field that is missing, are errors."""
    (tmp_path / FILE).parent.mkdir(parents=True)
    entry = "[[mutation]]\nname = 'a fault'\nrule = 'A rule.'\nfile = 'gone.py'\nbefore = 'a'\nafter = 'b'\n"
    (tmp_path / FILE).write_text(f"{entry}tests = []\n")
    with pytest.raises(MutationError, match=r"names 'gone\.py', and there is no such file"):
        read(tmp_path)
    (tmp_path / FILE).write_text(entry)
    with pytest.raises(MutationError, match="'a fault': 'tests'"):
        read(tmp_path)


def test_the_source_is_as_it_was_afterwards(project: Path) -> None:
    """A mutation lasts as long as its tests, whatever becomes of them."""
    with contextlib.suppress(ZeroDivisionError), mutated(mutation(WRONG_SUM), project):
        assert "sum(numbers) + 1" in (project / "kjms/__init__.py").read_text()
        raise ZeroDivisionError
    assert (project / "kjms/__init__.py").read_text() == PRODUCT


@pytest.mark.slow
@pytest.mark.parametrize(("limits", "how"), [((1, 60), "timed out"), ((60, 15), "hung")])
def test_a_hang_catches_a_mutation(limits: tuple[int, int], how: str, project: Path, tmp_path: Path) -> None:
    """A test that does not end is ended, and says so; so is a run."""
    suite = Suite(project, tmp_path / "log", test_seconds=limits[0], run_seconds=limits[1])
    verdict = tried(mutation(ENDLESS_SUM), project, suite)
    assert (verdict.how, verdict.killer) == (how, "tests/unit/test_total.py::test_total[memory]")


@pytest.mark.slow
def test_the_table_says_what_was_caught(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fast test that needs no broker and fails is named; a mutation that all tests pass with fails the run."""
    assert run.run([mutation(WRONG_SUM, "a wrong sum"), mutation(WRONG_FIRST, "a wrong first")], project) == 1
    printed = capsys.readouterr().out
    assert "| a wrong sum | A rule. | tests/unit/test_total.py::test_total[memory] (failed) |" in printed
    assert "| a wrong first | A rule. | nothing: IT SURVIVED |" in printed
    assert printed.endswith("1 of 2 mutations were caught\n")


@pytest.mark.slow
def test_a_run_in_which_all_are_caught_succeeds(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0 then."""
    assert run.run([mutation(WRONG_SUM)], project) == 0
    assert capsys.readouterr().out.endswith("1 of 1 mutations were caught\n")


@pytest.mark.slow
def test_a_test_that_fails_anyway_catches_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What fails without a mutation, too, proves nothing of it."""
    (project / "kjms/__init__.py").write_text(PRODUCT.replace(*WRONG_SUM))
    assert run.run([mutation(WRONG_FIRST)], project) == 1
    assert "test_total[memory] fails without it, too" in capsys.readouterr().out
