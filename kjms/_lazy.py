"""Load what a package offers when it is first used, so that importing the package costs little."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

__all__ = ["loader"]


def loader(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of *package*, which offers names of other modules (PEP 562).

    Args:
        package: The package's ``__name__``.
        modules: Name -> the module that has it.
    """

    def load(name: str) -> object:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
