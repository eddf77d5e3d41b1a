"""docs/configuration.md lists the settings that there are, with their defaults."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory, DestinationOptions, Queue, RedeliveryPolicy
from kjms.client.config import configuration
from kjms.engine.settings import (
    KEEP_BROKERS,
    OWNED,
    admin_settings,
    common_settings,
    consumer_settings,
    producer_settings,
)
from kjms.engine.tuning import Tuning
from kjms.mapping.names import topic_for

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text("utf-8")
ROW = re.compile(r"^\| (`[^|]+`) \| (.+) \|$", re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def defaults(title: str, column: int) -> dict[str, str]:
    """Return what the table under *title* has in *column*, by setting."""
    return {name.strip("`"): rest.split(" | ")[column] for name, rest in ROW.findall(section(title))}


def of_dataclass(kind: Any) -> dict[str, object]:
    return {field.name: field.default for field in dataclasses.fields(kind)}


def of_factory() -> dict[str, object]:
    return {name: each.default for name, each in inspect.signature(ConnectionFactory).parameters.items()}


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("ConnectionFactory", of_factory()),
        ("RedeliveryPolicy", of_dataclass(RedeliveryPolicy)),
        ("DestinationOptions", of_dataclass(DestinationOptions)),
    ],
)
def test_the_settings_are_those_of_the_code(title: str, expected: dict[str, object]) -> None:
    """Each setting is on the page once, in the code's order, with its default."""
    found = {name: ast.literal_eval(default.strip("`")) for name, default in defaults(title, 1).items()}
    assert list(found.items()) == list(expected.items())


def test_the_tuning_is_that_of_the_code() -> None:
    """Each field of the tuning is on the page, with its default."""
    expected = of_dataclass(Tuning)
    del expected["wall_clock"]
    found = defaults("Tuning", 0)
    assert found.pop("wall_clock") == "the cluster's"
    assert {name: ast.literal_eval(default.strip("`")) for name, default in found.items()} == expected


def test_a_producers_attributes_are_those_of_the_code(kjms_factory: ConnectionFactory) -> None:
    """Each attribute is on the page, with its default; what a send takes as well is one of its arguments."""
    with kjms_factory.create_connection() as connection:
        producer = connection.create_session().create_producer(None)
        found = {name: ast.literal_eval(each.strip("`")) for name, each in defaults("Producers and sends", 1).items()}
        assert {name: getattr(producer, name) for name in found} == found
        arguments = set(inspect.signature(producer.send).parameters) - {"message", "destination", "completion_listener"}
    assert arguments == {name for name in found if not name.startswith("disable_")}


def test_the_kafka_settings_are_those_of_the_code() -> None:
    """The page names what kjms sets, with its value, and what it refuses."""
    common = common_settings("localhost:9092", {}, None, None, print)
    clients: dict[str, Mapping[str, Any]] = {
        "producers": producer_settings(common),
        "consumers": consumer_settings(common, "group"),
        "admin client": admin_settings(common),
        "transactional producers": {**KEEP_BROKERS, **producer_settings(common)},
    }
    tables = section("kafka").partition("refuses them")
    rows = {name.strip("`"): rest.split(" | ")[:2] for name, rest in ROW.findall(tables[0])}
    for name, (value, kinds) in rows.items():
        for kind in clients if kinds == "all" else kinds.split(", "):
            assert str(clients[kind][name]) == value.strip("`"), name
    set_here = {name for settings in clients.values() for name in settings} - set(OWNED)
    assert set_here == set(rows)
    assert {name for names, _ in ROW.findall(tables[2]) for name in re.findall("`([^`]+)`", names)} == set(OWNED)


def test_the_environment_is_that_of_the_code() -> None:
    """Each variable that the source names is on the page, and no other."""
    pattern = re.compile(r"\bKJMS_[A-Z]+(?:_[A-Z]+)*\b")
    source = "".join(path.read_text("utf-8") for path in (ROOT / "kjms").rglob("*.py"))
    settings = {f"KJMS_{name.upper()}" for name in of_factory()}
    assert set(pattern.findall(PAGE)) - settings == set(pattern.findall(source)) - settings


def test_the_examples_say_the_same(tmp_path: Path) -> None:
    """The page's program and its file make equal factories."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (file,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    found: dict[str, Any] = {}
    exec(program, found)
    (tmp_path / "kjms.toml").write_text(file, "utf-8")
    settings = configuration(tmp_path / "kjms.toml", inspect.signature(ConnectionFactory).parameters, {}).settings
    assert ConnectionFactory(**settings)._options == found["factory"]._options


def test_a_name_holds_no_options() -> None:
    """A question mark is a part of the name."""
    (name,) = re.findall(r'`Queue\("(orders\?[^"]+)"\)`', PAGE)
    assert topic_for(Queue(name)) == "--orders-3fprefetch-3d10"
