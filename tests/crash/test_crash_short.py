"""The crash test, in short: the long one is a chore."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("crash.py")
LIMIT_SECONDS = 240


@pytest.mark.requirement(
    "JMS-3.4.7-1", "JMS-3.5.11-3", "JMS-4.4.12-1", "JMS-4.4.12-2", "JMS-4.7-4", "JMS-4.10-2", "NEV-245", "NEV-262",
)  # fmt: skip
@pytest.mark.timeout(LIMIT_SECONDS + 5)
def test_what_is_killed_paused_and_restarted_loses_and_repeats_nothing() -> None:
    """A round in which processes and the broker are killed, paused and restarted breaks no promise."""
    arguments = ["--rounds", "1", "--seed", "75", "--seconds", "5", "--session-timeout", "2000", "--fatal", "1"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments, "--least", "20", "--plan"],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(
        r"(\d+) messages, (\d+) deliveries, (\d+) redeliveries, .* (\d+) kills, (\d+) killed by messages,"
        r".* (\d+) changes",
        done.stdout,
    )
    assert said is not None, done.stdout
    *counts, kills, deaths, changes = map(int, said.groups())
    assert min(counts) > 0, done.stdout  # a round without redeliveries says nothing of them
    assert changes > 0, done.stdout  # of consumers
    assert kills + deaths > 0, done.stdout  # the process that was to be killed may have been killed by a message before
