"""A Kafka at hand for development and tests: a child process, a container, or a cluster that runs already.

Names are loaded when they are first used: every pytest run loads the plugin in this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kjms.broker._find import Broker, find_broker
    from kjms.broker._foreground import run_foreground
    from kjms.broker._local import LocalBroker

_MODULES: Final = {
    "Broker": "kjms.broker._find",
    "LocalBroker": "kjms.broker._local",
    "find_broker": "kjms.broker._find",
    "run_foreground": "kjms.broker._foreground",
}

__all__ = ["Broker", "LocalBroker", "find_broker", "run_foreground"]


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
