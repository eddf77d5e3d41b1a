"""What tools read of kjms's own topics, part by part: copies of settlement, and the redelivery log. Pure, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.destinations import Queue, Topic
from kjms.mapping.internal import LONG, TEXT, Kind, integer, optional, read_number, read_object, read_text
from kjms.mapping.names import BOOKKEEPING, REDELIVERIES

if TYPE_CHECKING:
    from kjms.engine.log_reading import Place
    from kjms.mapping import SourceRecord

__all__ = ["COPIES", "Copies", "RedeliveryFigures", "read_copy", "read_event"]

COPIES: Final = 0  # the partition of the bookkeeping that has them
KINDS: Final = (Queue.scheme, Topic.scheme)
LATEST: Final = 253_402_300_799_999  # milliseconds since the epoch: the end of the year 9999, where calendars end
_EVENTS: Final = Kind("an event", lambda value: value in ("redelivery", "dead letter", "expired"))
_MEMBERS: Final[Mapping[str, Kind]] = {
    "event": _EVENTS,
    "time": integer(0, LATEST),
    "destination": TEXT,
    "group": TEXT,
    "message_id": optional(TEXT),
    "delivery": LONG,
    "cause": TEXT,
}
_OTHERS: Final[Mapping[str, Kind]] = {"host": optional(TEXT), "process": optional(LONG)}


def read_event(data: bytes | None) -> dict[str, Any]:
    """Return what a record of the redelivery log says.

    Raises:
        MalformedError: It says no event.
    """
    return read_object(data, None, _MEMBERS, _OTHERS)


def read_copy(value: bytes | None) -> tuple[int, str]:
    """Return the offset and the metadata that a copy of settlement says.

    Raises:
        MalformedError: It says none.
    """
    offset, _, metadata = read_text(value).partition(" ")
    return read_number(offset), metadata


class Copies:
    """The copies of settlement, and which topics kjms made for queues.

    Attributes:
        place: The partition that has them.
        position: The offset that is to be read next.
        settlements: Offset and metadata by group, topic and partition.
        made: The ids of the topics that kjms made for queues.
        kinds: For which kinds of destinations topics are used, each with the topic's id, the first first.
    """

    place: Final = (BOOKKEEPING, COPIES)

    def __init__(self) -> None:
        self.position = 0
        self.settlements: dict[tuple[str, str, int], tuple[int, str]] = {}
        self.made: dict[str, str] = {}
        self.kinds: dict[str, list[tuple[str, str]]] = {}

    def add(self, record: SourceRecord) -> None:
        """Note what *record* says.

        Raises:
            MalformedError: It cannot be read.
        """
        group, _, rest = read_text(record.key()).partition("\n")
        topic, _, partition = rest.partition("\n")
        value = record.value()
        if not group:
            if value is None:
                self.made.pop(topic, None)
                self.kinds.pop(topic, None)
            elif partition in {"", *KINDS}:
                identity = read_text(value)
                if not partition:
                    self.made[topic] = identity
                self.kinds.setdefault(topic, []).append((partition or KINDS[0], identity))
            return
        place = group, topic, read_number(partition)
        self.settlements.pop(place, None)
        if value is not None:
            self.settlements[place] = read_copy(value)


class RedeliveryFigures:
    """How many events the redelivery log has had.

    Attributes:
        topic: The log.
        positions: The offset of each partition that is to be read next.
        counts: How many events of each kind there were, by consumer group.
    """

    topic: Final = REDELIVERIES

    def __init__(self) -> None:
        self.positions: dict[Place, int] = {}
        self.counts: dict[str, Counter[str]] = {}

    def starts(self, begins: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
        """Return from where to read each partition."""
        starts = {}
        for place, end in ends.items():
            position = self.positions.get(place, 0)
            starts[place] = max(position if position <= end else 0, begins.get(place, 0))  # beyond: made anew
        return starts

    def add(self, record: SourceRecord) -> None:
        """Count the event of *record*.

        Raises:
            MalformedError: It says none.
        """
        event = read_event(record.value())
        self.counts.setdefault(event["group"], Counter())[event["event"]] += 1
