"""The bridge's crash test, in short: the long one is a chore."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from java_remote import Java

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "crash" / "bridge.py"
LIMIT_SECONDS = 120


@pytest.mark.timeout(LIMIT_SECONDS + 5)
def test_a_bridge_that_is_killed_moves_each_message_once(java: Java, kjms_broker: Any) -> None:
    """Messages of all kinds leave a real Artemis while the bridge is killed: each is there once, and unchanged."""
    arguments = [
        "--messages",
        "3000",
        "--kills",
        "1",
        "--in-only",
        "--seed",
        "5",
        "--bootstrap",
        kjms_broker.bootstrap_servers,
    ]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
