"""Ownership: which process made a connection, so that a fork of that process refuses to use it."""

from __future__ import annotations

import os

from kjms.engine.kafka import inherited

__all__ = ["Ownership"]


class Ownership:
    """The process that made a connection, with all that the connection made.

    Attributes:
        process: The identifier of that process.
        is_inherited: Whether the present process is a fork of it.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.is_inherited = False

    def check(self, doing: str) -> None:
        """Raise IllegalStateException in a fork of the process."""
        if self.is_inherited:
            raise inherited(doing, self.process)

    def disown(self) -> None:
        """Refuse every further use: this is a fork of the process."""
        self.is_inherited = True
