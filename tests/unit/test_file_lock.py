"""The lock that lets one program at a time fetch what all of them need: real programs, one of which is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kjms.file_lock import alone_in

pytest.importorskip("fcntl", reason="there are no such locks on Windows")

PROGRAM = """
import logging, sys
from pathlib import Path
from kjms.file_lock import alone_in
logging.basicConfig(level="INFO", stream=sys.stdout, format="%(message)s")
with alone_in(Path(sys.argv[1])) as is_held:
    print("held", is_held, flush=True)
    sys.stdin.readline()
"""


def begun(directory: Path) -> subprocess.Popen[str]:
    """Return a program that takes the lock of *directory*, and keeps it until it is killed or gets a line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory)], **pipes, text=True)


def test_a_program_waits_until_the_other_one_ends_in_whatever_way(tmp_path: Path) -> None:
    """The second says that it waits, and holds the lock once the first is killed; the directory is made."""
    directory = tmp_path / "made" / "here"
    with begun(directory) as first:
        assert first.stdout.readline() == "held True\n"
        with begun(directory) as second:
            try:
                assert second.stdout.readline().startswith(f"another program fetches what is needed into {directory}")
                first.kill()
                assert second.stdout.readline() == "held True\n"
            finally:
                second.communicate("\n")


def test_without_a_directory_nothing_is_locked(tmp_path: Path) -> None:
    """Where the directory cannot be made, the work is done all the same."""
    (tmp_path / "file").write_text("")
    with alone_in(tmp_path / "file" / "cache") as is_held:
        assert not is_held
    with alone_in(tmp_path) as is_held:
        assert is_held
