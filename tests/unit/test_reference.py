"""The API reference can be written at any time, and leaves nothing public out."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import chores
import kjms
from kjms import aio, naming


@pytest.mark.slow
def test_the_reference_has_every_public_name(tmp_path: Path) -> None:
    """What the chore writes has an entry, with text, for each public name; the generator has nothing to complain of."""
    pdoc = [sys.executable, "-m", "pdoc", "--docformat", "google", "--output-directory", tmp_path]
    run = subprocess.run([*pdoc, *chores.REFERENCE], capture_output=True, text=True, timeout=110, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    for module, page in ((kjms, "kjms.html"), (aio, "kjms/aio.html"), (naming, "kjms/naming.html")):
        text = (tmp_path / page).read_text(encoding="utf-8")
        entries = set(re.findall(r'<section id="([^"]+)"', text))
        assert set(module.__all__) - {"__version__"} <= entries
    text = html.unescape((tmp_path / "kjms.html").read_text(encoding="utf-8"))
    assert "until a send that no broker confirms fails" in text
