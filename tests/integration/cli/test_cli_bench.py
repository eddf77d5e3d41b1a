"""``kjms bench`` on a real Kafka: it measures, says so, and leaves no topic behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from kjms.broker import Broker
from tests.helpers import Kjms, wait_for


@pytest.fixture
def prefix() -> str:
    """What the topics of this test's own begin with."""
    return f"bench-{uuid.uuid4().hex[:8]}-"


@pytest.fixture
def topics(kjms_broker: Broker, prefix: str) -> Callable[[], list[str]]:
    """A function that returns the topics that are there with the prefix."""
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    return lambda: [name for name in admin.list_topics(timeout=10).topics if name.startswith(prefix)]


@pytest.mark.slow
def test_bench_measures_both_sides_and_deletes_its_topics(
    kjms: Kjms, prefix: str, topics: Callable[[], list[str]]
) -> None:
    """The table has a line for each side; before, it is said what will be done; after, no topic is left."""
    run = kjms(
        "bench",
        "--only",
        "send-sync",
        "--only",
        "listen-selector",
        "--rounds",
        "1",
        "--messages",
        "1000",
        "--prefix",
        prefix,
    )

    said = run.stderr.decode()
    assert said.startswith("kjms bench: 2 workloads at ")
    assert f"named {prefix}" in said
    assert "send-sync, 40: round 1 of 1, kjms" in said
    table = run.stdout.decode()
    assert re.search(r"raw, produce and flush +[0-9.]+ +ms +[0-9.]+ \*.*aim 1\.15x: [0-9.]+x", table)
    assert re.search(r"raw, poll, look and call +[0-9,.]+ +messages/s +[0-9.]+", table)
    assert "broker" not in table
    wait_for(lambda: not topics())


def test_bench_writes_json_for_programs(kjms: Kjms, prefix: str) -> None:
    """``--json`` writes one object, and nothing else, to stdout."""
    run = kjms("bench", "--only", "send-sync", "--rounds", "2", "--messages", "25", "--prefix", prefix, "--json")

    (result,) = json.loads(run.stdout)["results"]
    assert result["name"] == "send-sync"
    assert {len(side["rounds"]) for side in result["sides"]} == {2}


@pytest.mark.slow
def test_bench_deletes_its_topics_after_ctrl_c(
    start: Callable[..., subprocess.Popen[bytes]],
    prefix: str,
    topics: Callable[[], list[str]],
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    """Ctrl-C in the middle of a round ends the command soon, and no topic is left."""
    process = start(
        "bench", "--only", "send-async", "--messages", "1000000", "--prefix", prefix, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    assert any(b"send-async, 1,000,000: warm-up" in line for line in process.stderr)
    eventually(topics)

    process.send_signal(signal.SIGINT)

    assert process.wait(60) == 130
    assert process.stderr.read().count(b"Traceback") == 0
    wait_for(lambda: not topics())


def test_bench_lists_its_workloads_without_a_broker(kjms: Kjms) -> None:
    """``--list`` connects to nothing."""
    run = kjms("bench", "--list", "--bootstrap", "127.0.0.1:9")
    assert b"send-async" in run.stdout
    assert run.stderr == b""
