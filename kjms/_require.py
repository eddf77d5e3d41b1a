"""What an extra of kjms brings, and what is said where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["required"]


@contextmanager
def required(package: str, extra: str) -> Iterator[None]:
    """Import within it what the *extra* brings for *package*.

    Raises:
        ModuleNotFoundError: It is not installed; the text says how to install it, and ``name`` is the module's.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "kjms").partition(".")[0]
        if missing == "kjms":  # it is no extra that is missing
            raise
        text = f"{package} needs {missing}, which is not installed: pip install 'kjms[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from None
