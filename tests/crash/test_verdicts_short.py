"""Functions that reject and retry in processes that are killed: nothing is lost, or comes more often than is said.

docs/delivery-guarantees.md says how often: a crash repeats what was in progress, marked and counted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kjms import ConnectionFactory, DestinationOptions, JMSContext, Queue
from tests.helpers import ROOT, WAIT_SECONDS, wait_for

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
KILLS, EACH, TRIES = 3, 60, 3
LONG_SECONDS = 12 * WAIT_SECONDS  # also for processes that start on a busy machine


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return each delivery that a function began, oldest first."""
    found = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    return sorted(found, key=lambda line: line["at"])


@pytest.fixture
def servers(kjms_broker: Any) -> str:
    """The brokers' addresses."""
    return str(kjms_broker.bootstrap_servers)


@pytest.fixture
def worker(servers: str, kjms_destination_name: str, tmp_path: Path) -> Iterator[psutil.Process]:
    """The command, with two processes."""
    with (tmp_path / "worker.log").open("wb") as log:
        environment = {
            **os.environ,
            "BOOTSTRAP": servers,
            "PREFIX": kjms_destination_name[-60:],
            "HISTORY": str(tmp_path),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}",
        }
        command = [sys.executable, "-m", "kjms", "worker", "verdicts_application:app", "--processes", "2"]
        process = subprocess.Popen(command, cwd=HERE, env=environment, stderr=log)
        found = psutil.Process(process.pid)
        try:
            yield found
        finally:
            for each in [*found.children(), found]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            process.wait()


def bodies(context: JMSContext, queue: Queue, name: str) -> Counter[str]:
    """Return how often each message is in *queue*, by the property *name*, or by its body."""
    with context.create_browser(queue) as browser:
        return Counter(str(message.get_string_property(name)) if name else message.get_body(str) for message in browser)


@pytest.mark.timeout(900)
def test_killed_processes_reject_and_retry_as_often_as_said(
    worker: psutil.Process, servers: str, kjms_destination_name: str, tmp_path: Path
) -> None:
    """Each rejected message is a dead letter once; each other one is done, once in transactions; crashes repeat few."""
    prefix, chance = kjms_destination_name[-60:], random.Random(7)
    queues = {name: Queue(f"{prefix}.{name}") for name in ("plain", "tasks")}
    names = {
        place: [f"{kind}-{place}-{n}" for n in range(EACH) for kind in ("reject", "retry", "good")] for place in queues
    }
    wait_for(lambda: (tmp_path / "worker.log").read_text("utf-8").count("is ready") == 2, LONG_SECONDS)
    killed: set[int] = set()
    own = ConnectionFactory(
        servers,
        destinations={each.queue_name: DestinationOptions(partitions=2) for each in queues.values()},
        ordering="none",
        kafka={"client.id": "sender"},
    )
    with own.create_context() as context:
        for place, queue in queues.items():
            producer = context.create_producer()
            for each in names[place]:
                producer.set_property("name", each).send(queue, "x")
        for number in range(KILLS):
            begun = len(lines(tmp_path))
            wait_for(lambda begun=begun: len(lines(tmp_path)) > begun + 20, LONG_SECONDS)  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.05))
            child = sorted(worker.children(), key=lambda each: each.pid)[number % 2]
            killed.add(child.pid)
            child.kill()
            wait_for(lambda: len(worker.children()) == 2, LONG_SECONDS)
        done, dead = Queue(f"{prefix}.done"), [Queue(f"{each.queue_name}.dlq") for each in queues.values()]
        rejected = {each for found in names.values() for each in found if each.startswith("reject")}
        others = {each for found in names.values() for each in found} - rejected
        wait_for(lambda: set(bodies(context, done, "")) == others, LONG_SECONDS, pause=1.0)
        wait_for(
            lambda: set().union(*(bodies(context, each, "name") for each in dead)) == rejected, LONG_SECONDS, pause=1.0
        )
        letters = sum((bodies(context, each, "name") for each in dead), Counter[str]())
        finished = bodies(context, done, "")
    assert set(letters.values()) == {1}
    assert {name: count for name, count in finished.items() if count > 1 and "-plain-" in name} == {}
    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines(tmp_path):
        of[line["name"]].append(line)
    assert set(of) == rejected | others
    for name, deliveries in of.items():
        for before, again in itertools.pairwise(deliveries):
            is_asked_for = name.startswith("retry") and before["count"] < TRIES
            assert is_asked_for or before["pid"] in killed, (name, deliveries)
            assert again["marked"], (name, deliveries)
            assert again["count"] > before["count"] or before["pid"] in killed, (name, deliveries)
        crashes = sum(each["pid"] in killed for each in deliveries)
        assert len(deliveries) <= (TRIES if name.startswith("retry") else 1) + crashes, (name, deliveries)
