"""Calling observers: what they raise is logged once a minute, and one that does nothing is not called."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kjms import Queue, TextMessage
from kjms.observe import Observer, Received, Sending, Sent
from kjms.observe._observers import REPEAT_SECONDS, Observers, _Complaints

SENDING = Sending(Queue("orders"), TextMessage("x"))
RECEIVED = Received(Queue("orders"), TextMessage("x"))


class Adding(Observer):
    """Adds headers."""

    def __init__(self, *headers: tuple[str, bytes]) -> None:
        self._headers = headers

    def sending(self, event: Sending) -> Any:
        return self._headers


def test_complaints_are_made_once_a_minute() -> None:
    """The first failure of a method is logged, and after a minute the next one, with how many were passed over."""
    now = 0.0
    complaints = _Complaints(lambda: now)
    observer = Adding()
    assert [complaints.next(observer, "sent") for _ in range(4)] == [0, None, None, None]
    assert complaints.next(observer, "received") == 0
    now = REPEAT_SECONDS
    assert [complaints.next(observer, "sent") for _ in range(2)] == [3, None]


def test_the_last_header_of_a_name_counts() -> None:
    """Headers of several observers are put together."""
    first = Adding(("traceparent", b"1"), ("kept", b"1"))
    assert Observers([first, Observer(), Adding(("traceparent", b"2"))]).sending(SENDING) == [
        ("traceparent", b"2"),
        ("kept", b"1"),
    ]


def test_what_does_nothing_is_not_called() -> None:
    """A method of the base class is left out, one of a derived class or of the object itself is not."""
    seen: list[Sent] = []
    observer = Observer()
    observer.sent = seen.append  # type: ignore[method-assign]
    observers = Observers([observer, Adding()])
    assert [name for name in ("sent", "sending", "received", "processing") if observers.has(name)] == [
        "sent",
        "sending",
    ]
    observers.tell("sent", event := Sent(SENDING, 1.0))
    assert seen == [event]


class Nested(Observer):
    """Notes when a listener's call begins and ends, and tries to suppress what it raises."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order

    @contextlib.contextmanager
    def processing(self, event: Received) -> Iterator[None]:
        self._order.append(f"{self._name} in")
        with contextlib.suppress(ValueError):
            yield
        self._order.append(f"{self._name} out")


def test_the_first_observer_is_the_outermost_and_none_suppresses() -> None:
    """What observers return is nested in their order, and a listener's exception goes through it."""
    order: list[str] = []
    observers = Observers([Nested("first", order), Nested("second", order)])
    with pytest.raises(ValueError, match="no"), observers.processing(RECEIVED):
        raise ValueError("no")
    assert order == ["first in", "second in", "second out", "first out"]
