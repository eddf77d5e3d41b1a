"""What kjms needs of a Kafka is in one table: the page has it, and each need is judged by requests and trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from kjms import ConnectionFactory
from kjms.admin import Admin
from kjms.admin._compatibility import APIS, NEEDS, fitness, needs_table, ping_of
from kjms.cli._ping import table
from kjms.engine import Failure, Pong
from kjms.testing import MemoryKafka

PAGE = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")
ALL = dict.fromkeys(APIS.values(), (0, 99))
DONE: dict[str, Failure | None] = {need.step: None for need in NEEDS if need.step}


def test_the_page_has_the_table() -> None:
    """Show the needs on the page as they are in the code."""
    assert "\n".join(needs_table()) in PAGE


def test_a_cluster_that_does_all_is_fit() -> None:
    """Find nothing missing, and say so in one sentence."""
    found = fitness(ALL, DONE)
    assert {each.state for each in found} == {"ok"}
    assert table(found).endswith("This cluster has all that kjms cannot work without.")


def test_a_request_that_brokers_do_not_take_is_missing() -> None:
    """Name the request and the version, whatever the trial says."""
    older = {**ALL, APIS["TxnOffsetCommit"]: (0, 2)}
    (missing,) = (each for each in fitness(older, DONE) if each.state != "ok")
    assert missing.detail == "the broker does not take the requests TxnOffsetCommit 3"
    assert missing.required


def test_a_step_that_failed_is_missing_or_unknown() -> None:
    """Distinguish what the cluster cannot do from what this user may not do; say what is worse without it."""
    tried = {**DONE, "metadata": Failure(True, "too large"), "delete": Failure(False, "not allowed")}
    found = {each.name: each for each in fitness(ALL, tried)}
    metadata, deleting = found["commit metadata of 4,000 characters"], found["delete topics"]
    assert (metadata.state, metadata.required) == ("missing", False)
    assert metadata.detail == "too large; more messages go to the overflow topic"
    assert (deleting.state, deleting.required, deleting.detail) == ("unknown", True, "not allowed")
    shown = table(list(found.values()))
    assert "! delete topics: unknown: not allowed" in shown
    required = sum(not need.otherwise for need in NEEDS)
    assert shown.endswith(f"This cluster has {required - 1} of {required} things that kjms cannot work without.")


@pytest.mark.parametrize(("last", "release"), [(7, "2.1"), (9, "2.8"), (13, "4.1"), (40, "4.1"), (6, None)])
def test_the_release_is_that_of_the_requests(last: int, release: str | None) -> None:
    """Name the first release that takes such requests; none where they are older than all that is known."""
    assert ping_of(Pong("c", ("b:1",), 0.5, {APIS["Produce"]: (0, last)})).release == release


def test_a_kafka_in_memory_has_what_kjms_needs() -> None:
    """Run the whole trial on MemoryKafka: only the requests of its brokers, of which it has none, are unknown."""
    with MemoryKafka() as kafka, Admin(ConnectionFactory(kafka.bootstrap_servers)) as admin:
        assert admin.ping().release is None
        found = admin.compatibility()
        assert {each.name: each.detail for each in found if each.state != "ok"} == {
            "change the settings of topics": "the broker does not say which requests it takes"
        }
        assert not [each.topic for each in admin.destinations(internal=True) if each.topic.startswith("kjms-ping-")]
