"""The web console: see and steer queues in a browser, and the same as a JSON API.

Needs the extra ``console``. docs/console.md describes how to run it; ``kjms console`` runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms._lazy import loader

if TYPE_CHECKING:
    from kjms.console._options import ConsoleOptions
    from kjms.console._server import Console

_MODULES = {"Console": "kjms.console._server", "ConsoleOptions": "kjms.console._options"}

__all__ = ["Console", "ConsoleOptions"]


__getattr__ = loader(__name__, _MODULES)
