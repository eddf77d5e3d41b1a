"""Find the application that the command line names."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import types
from collections.abc import Callable
from typing import Any, cast

from kjms.errors import shown
from kjms.worker._application import Application
from kjms.worker._listener import listeners_of

__all__ = ["UnknownApplication", "load"]

_log = logging.getLogger("kjms.worker")


class UnknownApplication(Exception):
    """The name means no application; the text says why."""


def load(name: str) -> Application:
    """Return the application *name*: ``module``, whose listeners it has, or ``module:attribute``.

    An attribute that is a listener is run alone.

    Modules are looked up in the current directory first.

    Raises:
        UnknownApplication: There is no such module or attribute, or it is no application.
        TypeError: A listener has the wrong arguments, or an annotation that cannot be used.
        ValueError: A listener or the application has a setting that is out of its range.
        Exception: What the module raises.
    """
    directory = os.getcwd()
    if directory not in sys.path:
        sys.path.insert(0, directory)
    module_name, _, attribute = name.partition(":")
    module = _module(module_name)
    if attribute:
        found: object = module
        for part in attribute.split("."):
            if not hasattr(found, part):
                raise UnknownApplication(f"{name!r}: {found!r} has no attribute {part!r}")
            found = getattr(found, part)
    else:
        own = getattr(module, "app", None)
        found = own if isinstance(own, Application) else module
    if isinstance(found, types.ModuleType):
        return Application(listeners=[found])
    if listeners_of(found):
        return Application(listeners=[cast("Callable[..., Any]", found)])
    if not isinstance(found, Application):
        raise UnknownApplication(
            f"{name!r} is {shown(found)}: an application is a module, a kjms.worker.Application, or a function with"
            " @listener(...)"
        )
    return found


def _module(name: str) -> types.ModuleType:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise UnknownApplication(f"{name!r} is no module: an application is named as 'module' or 'module:attribute'")
    try:
        return importlib.import_module(name)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            text = f"there is no module {error.name!r} in {os.getcwd()} or on Python's path"
            raise UnknownApplication(text) from error
        _log.exception("importing %s failed", name)  # the program's own lines are in the traceback
        raise
