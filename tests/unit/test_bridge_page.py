"""docs/bridge.md names options that are there, and its commands are understood."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kjms.cli import _parser
from kjms.cli._bridge import PASSWORD_VARIABLE
from kjms.destinations import Destination

PAGE = (Path(__file__).parents[2] / "docs" / "bridge.md").read_text("utf-8")
COMMANDS = [line.strip() for line in PAGE.splitlines() if line.strip().startswith("kjms bridge ")]


def test_the_pages_options_are_the_commands() -> None:
    """Each option on the page is one of ``kjms bridge``, and each of its own options is on the page."""
    run = subprocess.run(
        [sys.executable, "-m", "kjms.cli", "bridge", "--help"], capture_output=True, text=True, check=True
    )
    own = run.stdout.partition("connecting:")[0]
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) == set(re.findall(r"^  (--[a-z-]+)", own, flags=re.MULTILINE))
    assert f"`{PASSWORD_VARIABLE}`" in PAGE


@pytest.mark.parametrize("command", COMMANDS)
def test_the_pages_commands_are_understood(command: str) -> None:
    """Each command on the page has a direction, a broker, a source and options that there are."""
    arguments = _parser("bridge").parse_args(shlex.split(command)[1:])
    assert arguments.direction in {"in", "out"}
    assert isinstance(arguments.source, Destination)


def test_there_are_commands() -> None:
    """The page shows how the bridge is used."""
    assert len(COMMANDS) >= 6
