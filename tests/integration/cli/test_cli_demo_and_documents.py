"""The demo, the examples and the page on the commands: what is shown to people works as it is shown."""

from __future__ import annotations

import doctest
import re
import runpy
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from kjms.broker import Broker
from tests.helpers import Eventually, Kjms

ROOT = Path(__file__).parents[3]
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def test_the_demo_checks_itself_and_leaves_nothing_behind(
    kjms: Kjms, kjms_broker: Broker, eventually: Eventually
) -> None:
    """The demo plays on the cluster that it is given: each claim holds, and its topics go."""
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    run = kjms("demo", "--no-spark")
    assert run.stderr == b""
    lines = run.stdout.decode().splitlines()
    assert re.fullmatch(r"✓ The shop handled 13 orders, each once, in [0-9.]+ s; (\d+) claims checked\.", lines[-1])
    assert sum(line.startswith("   ✓ ") for line in lines) == int(lines[-1].split("; ")[1].split()[0])
    assert "\033" not in run.stdout.decode()
    eventually(lambda: not [name for name in admin.list_topics(timeout=10).topics if name.startswith("shop.")])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("hello", {"Ada wants two pounds of coffee"}),
        ("work_queue", {*(f"order {number}" for number in range(1, 11))}),
        ("listeners", {"packed: 10 pens", "packed: 1 globe", 'dead letter: {"item": "atlas", "count": 0}'}),
        ("transaction", {"steel from ore"}),
        ("request_reply", {"1 + 2 + 3 = 6", "4 + 5 = 9", "6 + 7 + 8 = 21"}),
        (
            "publish_subscribe",
            {
                "everything: AAPL costs 231.5",
                "everything: ASML costs 640.0",
                "everything: SAP costs 243.1",
                "everything: AMZN costs 198.2",
                "bargains: AAPL costs 231.5",
                "bargains: AMZN costs 198.2",
            },
        ),
        ("simplified", {"invoice: 2 pounds of tea", "invoice: 3 pounds of coffee"}),
        ("asynchronous", {*(f"packed: order {number}" for number in range(1, 6))}),
        ("delay", {"put the kettle on: on time", "the tea is ready: on time"}),
        ("periodic", {"tick and tick 1000 ms later"}),
        (
            "plain_kafka",
            {
                "plain Kafka read '42.50 EUR', customer Ada",
                "kjms received '42.50 EUR', customer Ada, due in 30 days",
                "kjms received '9.99 EUR', customer Björn, due in 14 days",
            },
        ),
    ],
)
def test_an_example_runs(
    name: str,
    expected: set[str],
    kjms_broker: Broker,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Each example ends by itself and prints what it says."""
    monkeypatch.setenv("KJMS_BOOTSTRAP", kjms_broker.bootstrap_servers)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    output, errors = capfd.readouterr()
    assert errors == ""
    lines = output.splitlines()
    assert len(lines) == len(expected)
    assert {re.sub(r"^\w+ has packed ", "", line) for line in lines} == expected


PAGES = [
    ("transactions", "transaction"),
    ("request-reply", "request_reply"),
    ("delivery-delay", "delay"),
    ("periodic-messages", "periodic"),
    ("asyncio", "asynchronous"),
]


@pytest.mark.parametrize(("page", "name"), PAGES)
def test_a_page_shows_its_example(page: str, name: str) -> None:
    """The first program on the page is the example, as it is."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    program = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    example = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    assert example.split('"""\n\n', 1)[1] == program


def test_every_example_is_run() -> None:
    """No example is left out above."""
    (parameters,) = [mark for mark in test_an_example_runs.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == {name for name, _ in parameters.args[1]}


@pytest.mark.slow
def test_the_page_on_the_commands_is_true(pipeline: Callable[[str], bytes], tmp_path: Path) -> None:
    """What docs/commands.md shows is what the commands do, line by line; ``...`` stands for anything."""
    # The page's destinations are its own, also on a Kafka where it was tested before.
    (tmp_path / "kjms.toml").write_text(f"queue_prefix = 'page-{uuid.uuid4().hex[:8]}.'\n", encoding="utf-8")
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    commands = [found for block in CONSOLE.findall(page) for found in COMMAND.findall(block)]
    assert len(commands) > 15
    checker = doctest.OutputChecker()
    for command, wanted in commands:
        got = pipeline(command).decode()
        same = checker.check_output(wanted, got, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        assert same, f"$ {command}\nshould print\n{wanted}\nand prints\n{got}"
