"""Tests see of the engine what statistics show: a change of its structure leaves them alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
NAMING = {Path(__file__), Path(__file__).with_name("test_architecture.py"), TESTS / "architecture.py"}
"""Files that name modules of the engine and import none."""
PARTS = ("unit/engine", "integration/engine")
"""Where a test makes one part of the engine, and uses its public methods."""
DOORS = {"kjms.engine", "kjms.engine.kafka", "kjms.engine.statistics", "kjms.engine.tuning"}
LIVE = {"engine_of", "source_of"}
"""What gives a live object of the engine."""
INTO = {"_engine", "_engines", "_slot"}
"""Attributes of the API's objects that are of the engine."""
ALLOWED = {
    # It throws damaged records at the readers of the engine's own topics.
    "fuzz_records.py": {
        "kjms.engine.admin.claims",
        "kjms.engine.admin.notes",
        "kjms.engine.handover.peers",
        "kjms.engine.subscriptions.definitions",
    },
    # file: what it may use though it is elsewhere, and why
    "integration/cluster/test_replication.py": {"engine_of"},  # makes internal topics whose making can only be refused
    # Reads the records of the registry and of interest as they stand in Kafka; the claims of one engine by its name.
    "contract/test_wire_records.py": {"engine_of", "kjms.engine.log_reading"},
    "integration/delay/test_serving.py": {"engine_of"},  # cancelling; `kjms.admin` will do it
    "unit/test_configuration_page.py": {"kjms.engine.settings"},  # the page lists what kjms sets and refuses there
    "contract/test_handover.py": {"kjms.engine.handover.peers"},  # forges the interest of a process that does not exist
    # Interrupts the engine's own conditions, which nothing outside has.
    "unit/faults/test_interrupts.py": {"kjms.engine.interrupts"},
    "unit/faults/test_lost_answers.py": {"kjms.engine.transactions"},  # shortens what a transaction waits for an answer
    # Leaves producers of delayed messages and of bridges with a doubtful transaction, which nothing outside can time.
    "unit/faults/test_left_producers.py": {
        "engine_of",
        "kjms.engine.delayed.partition",
        "kjms.engine.settings",
        "kjms.engine.transactions.bridged",
        "kjms.engine.transactions.errors",
        "kjms.engine.transactions.plan",
    },
    # Takes away what the engine does against late requests, to show the harm.
    "cluster/late.py": {"kjms.engine.transactions.transactional_producer"},
    "simulation/world.py": {"kjms.engine.interrupts"},  # names it, to replace what it has
    "amqp/test_limits.py": {"_engine"},  # the gateway's AMQP engine, which has the same name
}
WHITE_BOXES = {
    # Claims on transfer partitions lapse between two steps of the group consumer, which nothing outside can meet.
    "integration/engine/test_transfer_partitions.py",
}
KAFKA_ERROR = "KafkaError"  # its codes of the client library begin with an underscore


def modules() -> list[Path]:
    return sorted(path for path in TESTS.rglob("*.py") if path not in NAMING)


def name_of(path: Path) -> str:
    return path.relative_to(TESTS).as_posix()


def uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return what a module uses of the engine's inside, with the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kjms"):
            module = node.module or ""
            if module.startswith("kjms.engine") and module not in DOORS:
                yield node.lineno, module
            for each in node.names:
                is_part = module == "kjms.engine" and each.name.islower() and each.name != "process_statistics"
                if each.name in LIVE or is_part:
                    yield node.lineno, each.name
        elif isinstance(node, ast.Import):
            for each in node.names:
                if each.name.startswith("kjms.engine") and each.name not in DOORS:
                    yield node.lineno, each.name
        elif isinstance(node, ast.Attribute) and node.attr in INTO:
            yield node.lineno, node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("kjms.engine."):
            yield node.lineno, node.value


def private(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Return the private attributes of other objects that a module uses."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not node.attr.startswith("_") or node.attr.startswith("__"):
            continue
        if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", KAFKA_ERROR}):
            yield node.lineno, node.attr


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_no_test_reaches_into_the_engine(path: Path) -> None:
    """Let tests of other things use statistics, tuning and the ports; let tests of a part use what is public of it."""
    tree = ast.parse(path.read_text("utf-8"))
    name = name_of(path)
    if name.startswith(PARTS):
        found = [] if name in WHITE_BOXES else list(private(tree))
    else:
        found = [use for use in uses(tree) if use[1] not in ALLOWED.get(name, set())]
    assert not found, f"{name}: use kjms.testing.engine: statistics, or tuned, instead of {found}"


def test_what_is_allowed_is_needed() -> None:
    """Keep the list of exceptions short: each is of a file that is there, and that needs it."""
    for name, allowed in ALLOWED.items():
        found = {what for _, what in uses(ast.parse((TESTS / name).read_text("utf-8")))}
        assert allowed <= found, name
    for name in WHITE_BOXES:
        assert list(private(ast.parse((TESTS / name).read_text("utf-8")))), name


@pytest.mark.parametrize(
    "line",
    [
        "from kjms.engine.consumer.group_consumer import Reader",
        "import kjms.engine.consumer.assignment",
        "from kjms.engine.delayed import delayed_delivery",
        "from kjms.testing.engine import engine_of",
        "connection._engine.topics",
        "consumer._slot.reader",
        "monkeypatch.setattr('kjms.engine.consumer.dispatcher.LIMIT', 1)",
    ],
)
def test_ways_into_the_engine_are_seen(line: str) -> None:
    """Find each way into the engine that tests once took."""
    assert list(uses(ast.parse(line)))
