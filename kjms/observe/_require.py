"""What an extra of kjms needs, and what is said where it is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["required"]


@contextmanager
def required(extra: str) -> Iterator[None]:
    """Import within it what the *extra* brings.

    Raises:
        ImportError: A package is missing; the text says what to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ImportError(
            f"kjms.observe.{extra} needs {error.name}, which is not installed: pip install 'kjms[{extra}]'",
            name=error.name,
        ) from None
