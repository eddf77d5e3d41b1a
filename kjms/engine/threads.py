"""How the engine's threads begin."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kjms.errors import ResourceAllocationException

__all__ = ["start_thread"]


def start_thread(run: Callable[..., object], name: str, *arguments: Any) -> threading.Thread:
    """Return a thread called *name*, which was started: it calls *run* with *arguments*, and keeps no process alive.

    Raises:
        ResourceAllocationException: The process has no memory, or no threads, left, or its interpreter ends.
    """
    thread = threading.Thread(target=run, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except (MemoryError, RuntimeError) as error:
        behind = error.__context__  # Ctrl-C inside of `start`, which unlocks then what is not locked
        if behind is not None and not isinstance(behind, Exception):
            raise behind from None
        raise ResourceAllocationException(
            f"start the thread {name}: the process has no memory, or no threads, left ({error}); see ulimit -u and -v",
            None,
            error,
        ) from error
    return thread
