"""The page on the simplified API is true."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "simplified-api.md"


def test_the_page_prints_what_it_says(kjms_broker: Any) -> None:
    """The program in docs/simplified-api.md runs unchanged, and prints the output below it."""
    page = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (output,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        env={**os.environ, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers},
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr, run.stdout) == (0, "", output)
