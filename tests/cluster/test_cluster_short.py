"""The long runs in short: the long ones are a chore."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.helpers import ROOT, program_environment

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.mark.requirement("JMS-4.4.7-2")
@pytest.mark.parametrize(
    "command",
    ["late --transactions 60 --share 0.5 --seed 1", "restarts --rounds 1 --messages 5000"],
    ids=["late", "restarts"],
)
def test_each_message_is_moved_once(command: str) -> None:
    """Under late requests, and while each broker restarts."""
    name, *options = command.split()
    started = [sys.executable, "-m", f"tests.cluster.{name}", *options]
    done = subprocess.run(started, cwd=ROOT, env=program_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_harm_is_shown_without_what_kjms_does() -> None:
    """Late requests are carried out by Kafka then: the run would find what they change."""
    started = [sys.executable, "-m", "tests.cluster.late", "--transactions", "60", "--share", "0.5", "--seed", "1"]
    done = subprocess.run(
        [*started, "--unfenced"], cwd=ROOT, env=program_environment(), capture_output=True, text=True, check=False
    )
    assert "times carried out" in done.stdout, done.stdout + done.stderr
