"""The ports to Kafka: the one place that imports its client, and protocols that confluent-kafka's classes fit."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest

import kjms
from kjms.engine.kafka import AdminPort, ConsumerPort, ProducerPort

ROOT = Path(kjms.__file__).parent
# Programs about Kafka itself: what a plain client does, beside kjms.
PLAIN = ("bench", "broker", "cli/_shop.py")


def imports(path: Path) -> set[str]:
    """Return the modules that the file at *path* imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


def test_one_module_imports_the_client_of_kafka() -> None:
    """All others use the ports, so that an in-memory Kafka can take its place."""
    importing = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if any(name.partition(".")[0] == "confluent_kafka" for name in imports(path))
    ]
    assert [name for name in importing if not name.startswith(PLAIN)] == ["engine/kafka.py"]


@pytest.mark.parametrize(
    ("port", "client"),
    [
        (ConsumerPort, confluent_kafka.Consumer),
        (ProducerPort, confluent_kafka.Producer),
        (AdminPort, confluent_kafka.admin.AdminClient),
    ],
    ids=["consumer", "producer", "admin"],
)
def test_a_port_holds_what_the_client_has_and_the_engine_calls(port: type, client: type[Any]) -> None:
    """Each method of a port is one of confluent-kafka's class, and is called somewhere."""
    methods = [name for name, _ in inspect.getmembers(port, inspect.isfunction) if not name.startswith("_")]
    assert methods
    called = {
        node.func.attr
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert [name for name in methods if not callable(getattr(client, name, None))] == []
    assert set(methods) - called == set()
