"""The chore `test`: it runs the fast tests or the slow ones, each once, and fails with any of them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.slow  # it runs pytest, in a folder of its own

ROOT = Path(__file__).parents[2]
# Each test leaves a line that says that it ran; the flaky one passes from the second time on.
TESTS = """
from pathlib import Path
import pytest

def ran(name):
    with Path("ran").open("a") as file:
        file.write(f"{name}\\n")

def test_fast():
    ran("fast")

@pytest.mark.slow
def test_slow():
    ran("slow")

@pytest.mark.slow
@pytest.mark.long
def test_long():
    ran("long")

@pytest.mark.skipif(not Path("flaky").exists(), reason="not wanted")
def test_flaky():
    ran("flaky")
    assert Path("ran").read_text().count("flaky") > 1
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
    monkeypatch.setattr("os.cpu_count", lambda: 0)  # one process is enough
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    long\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the others take longer to load than these tests
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin")
    (tmp_path / "test_it.py").write_text(TESTS)
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    return module


def ran(chores: ModuleType) -> list[str]:
    return sorted((chores.HERE / "ran").read_text().split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], ["fast"]), (["--slow"], ["slow"]), (["--long"], ["long"]), (["-m", ""], ["fast", "long", "slow"])],
)
def test_which_tests_run(arguments: list[str], expected: list[str], chores: ModuleType) -> None:
    """Without an argument the fast tests run, with --slow and --long those; arguments of pytest choose others."""
    assert chores.test(arguments) == 0
    assert ran(chores) == expected


def test_a_failed_test_fails_the_run(chores: ModuleType) -> None:
    """A test that would pass the second time is run once, and its failure is the run's."""
    (chores.HERE / "flaky").touch()
    assert chores.test([]) == 1
    assert ran(chores) == ["fast", "flaky"]


def test_coverage_is_measured_in_workers_and_reported(
    chores: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With --coverage the tests run as without, and each file is reported that has branches which they do not take."""
    pytest.importorskip("coverage")
    monkeypatch.setenv("PYTHONPATH", str(chores.HERE), prepend=os.pathsep)
    (chores.HERE / "ours").mkdir()
    (chores.HERE / "ours/__init__.py").write_text("def sign(n):\n    if n < 0:\n        return -1\n    return 1\n")
    (chores.HERE / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text().replace('source_pkgs = ["kjms"]', 'source_pkgs = ["ours"]')
    )
    (chores.HERE / "test_it.py").write_text("import ours\n\ndef test_sign():\n    assert ours.sign(1) == 1\n")
    assert chores.test(["--coverage", "--numprocesses", "1"]) == 0
    printed = capfd.readouterr().out
    assert "ours/__init__.py" in printed
    assert "67%" in printed  # three of four lines, and one of two branches
    assert chores.run("test", "-m", "coverage", "report", "--format", "total") == 0
    assert capfd.readouterr().out == "67\n"
