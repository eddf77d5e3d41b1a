"""docs/cluster.md names the topics, groups and figures that there are."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from kjms import ConnectionFactory, Queue, Session
from kjms.engine.statistics import EngineStatistics, GroupConsumerStatistics, TransactionStatistics
from kjms.mapping import names

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "cluster.md").read_text("utf-8")


def fields(kind: type) -> set[str]:
    properties = {name for name, each in vars(kind).items() if isinstance(each, property)}
    return {field.name for field in dataclasses.fields(kind)} | properties  # type: ignore[arg-type]


@pytest.mark.parametrize("page", ["cluster.md", "security.md"])
def test_the_pages_factories_can_be_made(page: str) -> None:
    """Each program that makes a factory runs unchanged."""
    programs = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), flags=re.DOTALL)
    factories = [each for each in programs if "ConnectionFactory(" in each]
    for program in factories:
        found = {"ConnectionFactory": ConnectionFactory}
        exec(program, found)
        assert "kafka-1:9" in repr(found["factory"])
    assert len(factories) == 1


def test_the_file_for_kafkas_tool_is_json() -> None:
    """The file gives both partitions of a topic of kjms three replicas."""
    (file,) = re.findall(r"```json\n(.*?)```", PAGE, flags=re.DOTALL)
    partitions = json.loads(file)["partitions"]
    assert [(each["topic"], each["partition"]) for each in partitions] == [
        (names.BOOKKEEPING, 0),
        (names.BOOKKEEPING, 1),
    ]
    assert all(sorted(each["replicas"]) == [1, 2, 3] for each in partitions)


def test_the_pages_topics_are_those_of_kjms() -> None:
    """Each topic that kjms keeps for itself is on the page, and each one on the page is internal."""
    table = PAGE.partition("**Topics of kjms itself.**")[2].partition("**Consumer groups**")[0]
    found = set(re.findall(r"^\| `([^`]+)` \|", table, flags=re.MULTILINE)) - {"NAME.dlq"}
    subscription = "kjms.sub.NAME:1::daily"
    made = {
        names.REGISTRY,
        names.BOOKKEEPING,
        names.REDELIVERIES,
        names.inbox("USER", "ENGINE"),
        names.delayed("NAME"),
        *(of("NAME", names.queue_group("NAME")) for of in (names.overflow, names.handover, names.interest)),
        "NAME.kjms.bridged.…",
    }
    assert found == made
    assert names.bridged("NAME", "bridge").startswith("NAME.kjms.bridged.")
    assert all(names.is_internal(topic.replace("…", "0123456789ab")) for topic in found)
    assert names.overflow("NAME", subscription).startswith("NAME.kjms.overflow.")


def test_the_pages_groups_and_transactional_ids_are_those_of_kjms() -> None:
    """The names of groups and transactional ids follow the page's patterns."""
    ids = {*names.transactional_ids("ENGINE"), names.delayed_transactional_id("TOPIC", 0).replace(".0", ".PARTITION")}
    for name in (names.queue_group("TOPIC"), names.delayed_group("TOPIC"), *ids):
        assert f"`{name}`" in PAGE
    assert names.subscription_group("TOPIC", "daily", None, 1).startswith("kjms.sub.TOPIC:")
    assert names.bridge_transactional_id("NOTES") == "kjms-bridge.NOTES"


def test_the_pages_figures_are_there(kjms_factory: ConnectionFactory, capsys) -> None:
    """The page's program prints figures of a queue that is read, and each figure of the table is one."""
    (program,) = [each for each in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL) if "statistics" in each]
    with kjms_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        session.create_producer(Queue("orders")).send(session.create_text_message("one"))
        assert session.create_consumer(Queue("orders")).receive(10_000) is not None
        exec(program, {})
    assert "queue://orders 0 1 0 0\n" in capsys.readouterr().out
    table = PAGE.partition("| Figure | Meaning |")[2].partition("\n\n")[0]
    rows = [row.split(" | ")[0] for row in table.splitlines()[2:]]
    figures = [name for row in rows for name in re.findall("`([^`]+)`", row)]
    sources = fields(GroupConsumerStatistics)
    engines = fields(EngineStatistics)
    transactions = fields(TransactionStatistics)
    for figure in figures:
        whole, _, part = figure.rpartition(".")
        known = engines if not part or (not whole and not figure.startswith(".")) else sources
        known = transactions if whole in {"commits", "moves"} else known
        assert part in known, figure
    assert len(figures) >= 10
