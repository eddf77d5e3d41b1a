"""Which process of which machine something belongs to, and whether that process is gone: for processes side by side.

Only Linux says what tells machines, containers and processes apart. Elsewhere nothing is known of any process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

__all__ = ["is_gone", "this_process"]

_PROC: Final = Path("/proc")


def this_process() -> list[str | int]:
    """Return what `is_gone` needs to know of this process; empty: it cannot be known here.

    It holds the machine's boot and the container, in which a process has its number, the number, and the time of its
    start, since numbers are used again.
    """
    place, pid = _place(), os.getpid()
    state = _state(pid)
    return [place, pid, state[1]] if place and state is not None else []


def is_gone(process: object) -> bool:
    """Return whether the process that said *process* of itself has ended; False where that is not known."""
    if not (isinstance(process, Sequence) and len(process) == 3 and process[0] == _place()):
        return False
    _, pid, started = process
    if not (isinstance(pid, int) and pid > 0):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass  # another user's
    state = _state(pid)
    return state is not None and (state[0] in "ZX" or state[1] != started)


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot} {os.readlink(_PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _state(pid: int) -> tuple[str, int] | None:
    """Return the state of a process, a character, and its start time, in ticks since the machine started."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
