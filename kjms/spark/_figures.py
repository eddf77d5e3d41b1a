"""The figures of a report: what went through destinations in intervals of time. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Figures", "Incident", "Replies", "Traffic", "Waiting"]


@dataclass(frozen=True)
class Traffic:
    """The messages that came to a destination in an interval; sizes are those of bodies, in bytes."""

    begin: int
    destination: str
    messages: int
    per_second: float
    bytes: int
    median_size: int
    largest_size: int
    damaged: int


@dataclass(frozen=True)
class Replies:
    """How long requests waited for their replies, in milliseconds, by when the replies came."""

    begin: int
    destination: str
    """Where the requests went."""
    replies: int
    median: int
    p95: int
    slowest: int


@dataclass(frozen=True)
class Incident:
    """How many messages were delivered again, became dead letters or expired in an interval, by cause."""

    begin: int
    event: str
    """``redelivery``, ``dead letter`` or ``expired``."""
    destination: str
    cause: str
    messages: int
    median_age: int | None
    """Milliseconds since they were sent; None where the report's time does not reach back to that."""


@dataclass(frozen=True)
class Waiting:
    """What a queue holds now; the age of its oldest message in milliseconds, None if it is empty."""

    destination: str
    messages: int
    delivered_before: int
    oldest_age: int | None


@dataclass(frozen=True)
class Figures:
    """What was found; times are in milliseconds since 1970 UTC.

    Attributes:
        since: Where it begins.
        until: Where it ends; that moment is not part of it.
        interval: The length of an interval.
        traffic: By interval and destination.
        replies: By interval, and destination of the requests.
        incidents: By interval, event, destination and cause.
        waiting: By queue, at the moment when the report was made.
    """

    since: int
    until: int
    interval: int
    traffic: tuple[Traffic, ...]
    replies: tuple[Replies, ...]
    incidents: tuple[Incident, ...]
    waiting: tuple[Waiting, ...]
