"""docs/gateway.md names options that are there, and the defaults that they have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kjms.cli._gateway import DEFAULT_LISTEN

PAGE = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text("utf-8")


def test_the_pages_options_are_the_commands() -> None:
    """Each option on the page is one of ``kjms gateway``, and each of its own options is on the page."""
    run = subprocess.run(
        [sys.executable, "-m", "kjms.cli", "gateway", "--help"], capture_output=True, text=True, check=True
    )
    own = run.stdout.partition("connecting:")[0]
    there = set(re.findall(r"^  (--[a-z-]+)", own, flags=re.MULTILINE))
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) | {"--add-user"} == there
    assert f"`{DEFAULT_LISTEN}`" in PAGE
    assert re.search(r"--max-message-size.*16777216", own, flags=re.DOTALL)
