"""The exactly-once test, in short: the long one is a chore."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("exactly_once.py")
LIMIT_SECONDS = 240


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.10.2-5", "JAK-Session-23", "JAK-Session-28", "NEV-232", "NET-360")
@pytest.mark.timeout(LIMIT_SECONDS + 5)
def test_what_is_killed_paused_and_restarted_moves_each_message_exactly_once() -> None:
    """Processes that move messages in transactions are killed and paused, the broker too; each is moved once."""
    arguments = ["--rounds", "1", "--seed", "958", "--messages", "400", "--seconds", "8", "--session-timeout", "2000"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments, "--no-accidents", "--plan"],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r" [1-9]\d* changes of consumers", done.stdout), done.stdout
