"""A process sleeps for seconds, as with its machine, and continues: on a real Kafka."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Queue
from tests.helpers import now_ms, pause, wait_past

ROUNDS = 6
TIMES = 120  # as much work as takes a part of a second
SLEEP_MS = 2_500  # longer than a process may sleep and be certain of its partitions


@pytest.mark.requirement("JAK-Session-27")
def test_a_transacted_session_continues_after_a_sleep(programs: Callable[[], Any], queue: Queue) -> None:
    """What it rolled back before comes again as soon as it is certain that no other process has the partitions."""
    program = programs()
    program.do("consume", queue.queue_name)
    program.do("work", TIMES)
    for number in range(ROUNDS):
        program.ask("work", TIMES)
        wait_past(now_ms() + 20 * number)
        pause(program.process.pid)
        try:
            wait_past(now_ms() + SLEEP_MS)
        finally:
            os.kill(program.process.pid, signal.SIGCONT)
        assert program.answer() is None
