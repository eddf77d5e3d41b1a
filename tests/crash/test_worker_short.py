"""The worker test, in short: the long one is a chore."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("worker.py")
LIMIT_SECONDS = 500


@pytest.mark.timeout(LIMIT_SECONDS + 5)
@pytest.mark.parametrize("kinds", ["term,reload,stop,orphan", "kill,kill,kill,reload"], ids=["ended", "killed"])
def test_a_disturbed_worker_loses_nothing_and_repeats_what_was_in_flight(kinds: str) -> None:
    """Processes that are ended and replaced repeat nothing and mark few; killed ones repeat what their sessions had."""
    arguments = ["--seconds", "10", "--kinds", kinds, "--seed", "7", "--pause", "3", "--least", "20"]
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"(\d+) sent, (\d+) handled", done.stdout)
    assert said is not None, done.stdout
    assert said[1] == said[2] != "0"
    if "kill" not in kinds and "\n0 lost a partition" in done.stdout:
        assert " 0 repeated, " in done.stdout
