"""The observers that configuration files and the environment can name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Final

from kjms.errors import shown
from kjms.observe._observer import Observer

__all__ = ["named_observers"]

_CLASSES: Final = {
    "prometheus": ("kjms.observe.prometheus", "PrometheusObserver"),
    "otel": ("kjms.observe.otel", "OpenTelemetryObserver"),
}


def named_observers(names: Iterable[object], place: str) -> tuple[Observer, ...]:
    """Return the observers called *names*, with their default settings.

    Args:
        names: ``prometheus`` or ``otel``.
        place: Where the names stand, for errors.

    Raises:
        ImportError: The extra of that name is not installed.
        ValueError: There is no such observer.
    """
    found: list[Observer] = []
    for name in names:
        if not isinstance(name, str) or name not in _CLASSES:
            raise ValueError(f"{place}: an observer is one of {', '.join(_CLASSES)}, not {shown(name)}")
        module, kind = _CLASSES[name]
        found.append(getattr(import_module(module), kind)())
    return tuple(found)
