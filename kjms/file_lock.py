"""A lock between programs: one of them does what the others then find done."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

__all__ = ["alone_in"]

_log = logging.getLogger("kjms.cache")


@contextlib.contextmanager
def alone_in(directory: Path) -> Iterator[bool]:
    """Hold the lock of *directory* for the length of a ``with`` statement; first wait until no other program does.

    The system lets go of the lock when a program ends, in whatever way. Nothing is locked where the directory cannot be
    written, and on Windows, where a file cannot be locked like this.

    Args:
        directory: It is made if it is not there.

    Yields:
        Whether the lock is held.
    """
    is_held = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ImportError, OSError):
            directory.mkdir(parents=True, exist_ok=True)
            import fcntl

            lock = stack.enter_context(open(directory / ".lock", "wb"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.info("another program fetches what is needed into %s; waiting for it", directory)
                fcntl.flock(lock, fcntl.LOCK_EX)
            is_held = True
        yield is_held
