"""The process's side of Kafka, and its only door: the only package with threads and Kafka clients.

Each name is loaded when it is first used, so that the pure parts of the engine load without Kafka.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kjms.engine.consumer.offset_committer import Receipt
    from kjms.engine.engine import Engine, process_statistics

_MODULES = {
    "Engine": "kjms.engine.engine",
    "Receipt": "kjms.engine.consumer.offset_committer",
    "process_statistics": "kjms.engine.engine",
}

__all__ = ["Engine", "Receipt", "process_statistics"]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value
