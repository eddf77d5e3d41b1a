"""Periodic messages of several processes that are killed, on a real Kafka: one message for each time."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue
from kjms.schedule import Schedules
from tests.helpers import SHORT_SESSION, Desk, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TIME = "JMS_kjms_ScheduledTime"
PROCESSES = 3
ROUNDS = 6
CLOCKS = (0.0, 0.7, -0.7)
"""Seconds by which the clocks of the processes are ahead."""


class Processes:
    """Programs that use a queue, and so send its periodic messages."""

    def __init__(self, servers: str, queue: Queue) -> None:
        self._arguments = [servers, queue.queue_name]
        self._clocks = itertools.cycle(CLOCKS)
        self.running: list[subprocess.Popen[str]] = []

    def start(self) -> None:
        """Start another one."""
        program = str(Path(__file__).parent / "other_program.py")
        command = [sys.executable, program, "consume", *self._arguments, str(next(self._clocks))]
        self.running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def kill(self) -> None:
        """Kill the oldest one."""
        process = self.running.pop(0)
        process.kill()
        process.communicate()


@pytest.fixture
def processes(kjms_broker: Any, queue: Queue) -> Iterator[Processes]:
    """Programs that are killed when the test ends."""
    found = Processes(kjms_broker.bootstrap_servers, queue)
    yield found
    while found.running:
        found.kill()


def test_each_time_comes_once(desk: Desk, queue: Queue, processes: Processes) -> None:
    """While the processes that send a message each second are killed, one or all of them, no time is lost or repeated.

    Their clocks differ. A process that takes over makes up what was missed meanwhile.
    """

    def times() -> list[int]:
        return [int(dict(record.headers() or ())[TIME] or 0) for record in desk.records(queue.queue_name)]

    factory = ConnectionFactory(desk.servers, kafka={**SHORT_SESSION, "client.id": "schedules"})
    with Schedules(factory) as schedules:
        schedules.add("tea", queue, "tea", cron="* * * * * *")
    for _ in range(PROCESSES):
        processes.start()
    for number in range(ROUNDS):
        before = len(times())
        wait_for(lambda before=before: len(times()) >= before + 2, 60, pause=0.1)  # type: ignore[misc]
        for _ in range(1 + number % PROCESSES):  # all of them in every third round
            processes.kill()
            processes.start()
    with Schedules(factory) as schedules:
        schedules.remove("tea", queue)
    found = times()
    assert len(found) >= 2 * ROUNDS
    assert found == list(range(found[0], found[-1] + 1, 1_000))
