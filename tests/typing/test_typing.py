"""kjms is typed for its users: a program of theirs passes mypy's strictest check, and its mistakes are found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_a_users_program_is_checked_strictly() -> None:
    """Each call has the type that it says, and each mistake that the program makes is an error."""
    options = ["--strict", "--no-error-summary", "--follow-imports=silent", "--config-file="]
    cache = ROOT / ".mypy_cache" / "user"
    program = Path(__file__).with_name("user_program.py")
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "--cache-dir", cache, program],
        env={**os.environ, "MYPYPATH": os.fspath(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
