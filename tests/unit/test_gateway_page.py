"""docs/gateway.md names options that are there, and the defaults that they have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kjms.cli._gateway import DEFAULT_LISTEN

PAGE_OF_EXAMPLE = Path(__file__).parents[2] / "examples" / "java-migration" / "README.md"
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


def test_the_page_shows_the_jndi_file_of_the_example() -> None:
    """The first JNDI file on the page, and what the example's page has changed, are lines of the example's own file."""
    example = PAGE_OF_EXAMPLE.with_name("src") / "main" / "resources" / "jndi.properties"
    lines = example.read_text("utf-8").splitlines()
    shown = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)[0].splitlines()
    changed = re.findall(
        r"^[+ ](\S.*)", re.findall(r"```diff\n(.*?)```", PAGE_OF_EXAMPLE.read_text("utf-8"), re.DOTALL)[0], re.M
    )
    assert len(shown) == 3
    assert [line for line in [*shown, *changed] if line not in lines] == []
    assert set(changed) == set(lines[1:])
