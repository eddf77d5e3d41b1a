"""What docs/testing.md says is so, and the pytest plugin costs little."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import ConnectionFactory
from kjms.testing import MemoryKafka, simulated
from kjms.testing.engine import statistics

pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")


def examples(kind: str) -> list[str]:
    return re.findall(rf"<!-- tested: {kind} -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize(
    ("number", "printed"), [(0, "`ten pens`"), (1, "`None` and `call Maria`"), (2, "`POLICY_VIOLATION` and `ten pens`")]
)
def test_a_program_prints_what_the_page_says(number: int, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The page's programs run unchanged."""
    exec(examples("program")[number], {})
    assert f"It prints {printed}." in PAGE
    assert capsys.readouterr().out.splitlines() == re.findall("`([^`]+)`", printed)


def test_the_fixtures_work_as_shown(pytester: pytest.Pytester) -> None:
    """The page's test file passes, with the fixtures that kjms brings."""
    (file,) = examples("pytest")
    pytester.makepyfile(file)
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=file.count("\ndef test_"))


def test_the_simulation_finds_the_wrong_handler(pytester: pytest.Pytester) -> None:
    """Of the page's two handlers, some seed finds the mistake of the first one, and shows the history."""
    (file,) = examples("simulation")
    pytester.makepyfile(file)
    run = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider")
    outcomes = run.parseoutcomes()
    assert outcomes["failed"] >= 3
    assert outcomes["passed"] == 100 - outcomes["failed"]
    run.stdout.no_fnmatch_line("FAILED *_by_its_key*")
    run.stdout.fnmatch_lines(["FAILED *_by_a_note*"])
    if sys.version_info >= (3, 11):
        (shown,) = re.findall(r"what was simulated, with seed 4:\n(.*?)\n\n", PAGE, flags=re.DOTALL)
        run.stdout.fnmatch_lines(
            ["*what was simulated, with seed 4:", *(f"*{line.strip()}" for line in shown.split("\n"))]
        )


def test_the_simulation_takes_a_source_of_hypothesis() -> None:
    """The page's sketch has the names that hypothesis and kjms have."""
    (block,) = re.findall(r"```python\n(@given.*?)```", PAGE, flags=re.DOTALL)
    scope: dict[str, Any] = {"given": given, "st": st, "simulated": simulated}
    exec(block, scope)
    scope["test_each_order_is_paid_once"]()


def test_two_factories_are_two_programs() -> None:
    """The page's factories differ in their client id alone, so each has an engine of its own."""
    (block,) = re.findall(r"```python\n(one = .*?)```", PAGE, flags=re.DOTALL)
    with MemoryKafka() as kafka:
        scope: dict[str, Any] = {"ConnectionFactory": ConnectionFactory, "kafka": kafka}
        exec(block, scope)
        with scope["one"].create_connection() as one, scope["two"].create_connection() as two:
            assert statistics(one).name != statistics(two).name


def test_the_plugin_loads_little() -> None:
    """Each run of pytest loads it, so it brings neither Kafka's client nor the engine, and few modules at all."""
    program = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import kjms.broker.pytest_plugin\n"
        "print(*(set(sys.modules) - before))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    heavy = {"confluent_kafka", "fastavro", "lark", "asyncio", "ssl", "kjms.engine", "kjms.testing", "kjms.aio"}
    assert "kjms.broker.pytest_plugin" in loaded
    assert heavy.isdisjoint(loaded)
    assert len(loaded) < 30
