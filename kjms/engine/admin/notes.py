"""What tools read of kjms's own topics, part by part: copies of settlement, and the redelivery log. Pure, no I/O."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kjms.destinations import Queue, Topic
from kjms.mapping.names import BOOKKEEPING, REDELIVERIES

if TYPE_CHECKING:
    from kjms.engine.log_reading import Place
    from kjms.mapping import SourceRecord

__all__ = ["Copies", "RedeliveryFigures"]

COPIES: Final = 0  # the partition of the bookkeeping that has them
KINDS: Final = (Queue.scheme, Topic.scheme)


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
        """Note what *record* says."""
        group, _, rest = (record.key() or b"").decode(errors="replace").partition("\n")
        topic, _, number = rest.partition("\n")
        value = (record.value() or b"").decode(errors="replace")
        if not group:
            if topic and not number:
                self.made[topic] = value
            if topic and record.value() is None:
                self.kinds.pop(topic, None)
            elif topic and number in {"", *KINDS}:
                self.kinds.setdefault(topic, []).append((number or KINDS[0], value))
            return
        offset, _, metadata = value.partition(" ")
        if number.isdecimal():
            if offset.isdecimal():
                self.settlements[group, topic, int(number)] = int(offset), metadata
            else:
                self.settlements.pop((group, topic, int(number)), None)


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
        """Count the event of *record*; one that cannot be read is left out."""
        try:
            event = json.loads(record.value() or b"")
            self.counts.setdefault(str(event["group"]), Counter())[str(event["event"])] += 1
        except (ValueError, TypeError, KeyError):
            return
