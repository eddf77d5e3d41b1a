"""The chore `test`: what failed beside other tests is run once more, alone."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
# The first time it fails; by itself it passes, as often as *passes* says.
TEST = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({tests}))
def test_it(number):
    ran = Path(f"ran-{{number}}")
    try:
        assert ran.exists() and {passes}
    finally:
        ran.touch()
"""


@pytest.fixture
def chores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The chores, of a project in a folder of its own; nothing is installed."""
    spec = importlib.util.spec_from_file_location("chores", ROOT / "chores.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "ready", lambda extras, is_needed=True: sys.executable)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    return module


@pytest.mark.parametrize(
    ("tests", "passes", "code", "is_named"),
    [(2, True, 0, True), (2, False, 1, False), (4, True, 1, False)],
    ids=["passes alone", "fails alone, too", "too many"],
)
def test_what_failed_is_run_alone(
    tests: int, passes: bool, code: int, is_named: bool, chores: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    """A few tests that pass by themselves fail no run, and are named; others fail it."""
    (chores.HERE / "test_it.py").write_text(TEST.format(tests=tests, passes=passes))
    assert chores.test([]) == code
    assert ("and pass alone:\n  test_it.py::test_it[" in capfd.readouterr().err) is is_named


def test_chosen_tests_run_once(chores: ModuleType) -> None:
    """Who says which tests are to run gets what they say."""
    (chores.HERE / "test_it.py").write_text(TEST.format(tests=1, passes=True))
    assert chores.test(["test_it.py"]) == 1
