"""A Kafka at hand for development and tests: a child process, a container, or a cluster that runs already.

Names are loaded when they are first used: every pytest run loads the plugin in this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kjms._lazy import loader

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


__getattr__ = loader(__name__, _MODULES)


def __dir__() -> list[str]:
    return __all__
