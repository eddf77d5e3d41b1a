"""The stress test in short: the long one is a chore."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STRESS = Path(__file__).with_name("stress.py")


@pytest.mark.requirement("JMS-2.8-1", "NEV-12", "NEV-13", "NET-66", "NEV-175", "NEV-200", "NEV-179", "NEV-203")
def test_lifecycle_calls_from_many_threads(kjms_broker: Any) -> None:
    """Nothing hangs, and no thread, consumer or file descriptor is left; nor is memory, after many connections."""
    options = "--seconds 4 --threads 8 --seed 1 --connections 300 --engines 8 --outage 0 --soak 0"
    run(options, kjms_broker.bootstrap_servers)


@pytest.mark.requirement("JMS-4.3.8-4", "NEV-187", "NET-421", "NET-417", "NET-418")
def test_an_outage_under_load(kjms_broker: Any) -> None:
    """Work continues after an outage, nothing confirmed is lost, and the exception listener gets it once."""
    run("--seconds 0 --connections 0 --engines 0 --outage 2 --soak 0", kjms_broker.bootstrap_servers)


def test_a_mixed_soak(kjms_broker: Any) -> None:
    """Nothing is lost, doubled or left where one process does everything that kjms offers at once."""
    run("--seconds 0 --connections 0 --engines 0 --outage 0 --soak 15 --seed 3", kjms_broker.bootstrap_servers)


def run(options: str, servers: str) -> None:
    """Run it in a process of its own, whose threads and memory are its own."""
    environment = {**os.environ, "KJMS_BOOTSTRAP": servers}
    done = subprocess.run(
        [sys.executable, STRESS, *options.split()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
