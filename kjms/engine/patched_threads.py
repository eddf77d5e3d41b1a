"""Refuse to run where Python's threads are not threads: kjms's own wait inside of the Kafka client."""

from __future__ import annotations

import sys
from typing import Final

from kjms.errors import IllegalStateException

__all__ = ["check_threads"]

_PATCHED: Final = (
    ("gevent.monkey", "is_module_patched", ("threading", "_thread"), "gevent", "gevent.monkey.patch_all(thread=False)"),
    ("eventlet.patcher", "is_monkey_patched", ("thread",), "eventlet", "eventlet.monkey_patch(thread=False)"),
)


def check_threads() -> None:
    """Return if threads of this process run by themselves.

    Raises:
        IllegalStateException: gevent or eventlet has replaced them: the first that waits for Kafka would stop them all.
    """
    for module_name, asks, names, library, remedy in _PATCHED:
        is_patched = getattr(sys.modules.get(module_name), asks, None)  # it is not imported for that
        if is_patched is not None and any(is_patched(name) for name in names):
            raise IllegalStateException(
                f"connect: {library} has replaced Python's threads, so the first one that waits inside of the Kafka"
                f" client would stop all others; call {remedy}, or connect in a process of its own"
            )
