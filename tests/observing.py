"""An observer that keeps its events, for tests to look at."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from kjms.observe import Observer, Received, Sending

EVENTS = (
    "sending",
    "sent",
    "received",
    "redelivered",
    "processing",
    "settled",
    "dead_lettered",
    "committed",
    "rolled_back",
    "rebalanced",
    "outage",
    "recovered",
)
"""The methods of an observer."""


class Recorder(Observer):
    """Keeps all events, by the name of the method, and the order in which they came.

    Args:
        headers: What it adds to the record of each message.

    Attributes:
        order: The names of the methods, and ``entered`` and ``left`` for what it returns from `processing`.
        errors: What left each `processing`.
    """

    def __init__(self, *headers: tuple[str, bytes]) -> None:
        self.order: list[str] = []
        self.errors: list[BaseException | None] = []
        self._events: dict[str, list[Any]] = {name: [] for name in EVENTS}
        self._headers = headers
        self._lock = threading.Lock()
        for name in EVENTS:
            if name not in vars(Recorder):
                setattr(self, name, lambda event, name=name: self._note(name, event))

    def __getitem__(self, name: str) -> list[Any]:
        """Return the events that the method *name* was called with."""
        with self._lock:
            return list(self._events[name])

    def _note(self, name: str, event: object) -> None:
        with self._lock:
            self.order.append(name)
            self._events[name].append(event)

    def sending(self, event: Sending) -> tuple[tuple[str, bytes], ...]:
        self._note("sending", event)
        return self._headers

    @contextlib.contextmanager
    def processing(self, event: Received) -> Iterator[None]:
        self._note("processing", event)
        self.order.append("entered")
        try:
            yield
        except BaseException as error:
            self.errors.append(error)
            raise
        else:
            self.errors.append(None)
        finally:
            self.order.append("left")
