"""What a survey counts of one consumer group, what it finds, and which records are messages of it. Pure, no I/O."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.engine.admin.log_index import Facts
from kjms.mapping import SourceRecord
from kjms.mapping.bridges import decoder
from kjms.mapping.delayed import place_of
from kjms.mapping.relocated import original

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.selector import Selector

__all__ = ["Backlog", "Scope", "facts_of"]

ORIGIN: Final = "JMS_kjms_OriginalDestination"
KJMS: Final = "kjms"


class Scope(NamedTuple):
    """What is to be counted: the messages of one consumer group.

    Attributes:
        destination: The queue or topic.
        topic: Its Kafka topic.
        group: The consumer group.
        wanted: Which messages are its own; None is all.
        wanted_by: Equal values select the same messages.
        delayed_before: Of a subscription: where the topic's delayed messages ended when it was made; earlier ones are
            not its own.
        starts: Where each partition begins if nothing is committed; a missing one begins where the log does.
        convention: How records are read that kjms did not write.
    """

    destination: Destination
    topic: str
    group: str
    wanted: Selector | None = None
    wanted_by: Hashable = None
    delayed_before: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    convention: str = KJMS

    @property
    def view(self) -> Hashable:
        """Return what tells its index from those of other scopes of the same topic."""
        plain = self.wanted is None and not self.delayed_before and self.convention == KJMS
        return None if plain else (self.wanted_by, self.delayed_before, self.convention)


@dataclass(frozen=True)
class Backlog:
    """What is not settled of one scope.

    Attributes:
        unsettled_offsets: Offsets that are not settled: an upper bound of the messages.
        is_exact: Whether the messages were counted; the figures below are None otherwise.
        depth: Messages that a consumer gets, or has.
        oldest: When the oldest of them was sent, in milliseconds since the epoch; None: there is none.
        dispatched: Those of them that a consumer may have received.
        dispatched_at: How many of those are in each partition, by topic and number; 0 is left out.
        overflow: Those of them that are in the overflow topic.
        transfer: Those of them that are in transfer partitions.
        expired: Messages that have expired and were not removed yet.
        delayed: Messages that wait for their time.
        overdue: Those of them whose time has come, and that were not moved yet.
        dead_letters: How many are dead letters, by the destination that they came from.
        unreclaimed: Settled offsets that Kafka still keeps, from the start of the logs.
    """

    unsettled_offsets: int
    unreclaimed: int
    is_exact: bool
    depth: int | None = None
    oldest: int | None = None
    dispatched: int | None = None
    overflow: int | None = None
    transfer: int | None = None
    expired: int | None = None
    delayed: int | None = None
    overdue: int | None = None
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    dispatched_at: Mapping[tuple[str, int], int] = field(default_factory=dict)


def facts_of(record: SourceRecord, scope: Scope, *, is_relocated: bool, now: int) -> Facts | None:
    """Return what decides whether the message of *record* is counted; None: it is none of *scope*.

    Args:
        record: The record.
        scope: The queue or subscription.
        is_relocated: Whether it stands in a topic for relocated messages.
        now: The time, in milliseconds since the epoch.
    """
    source: SourceRecord = record
    origin = None
    if is_relocated:
        source, _ = original(record)
        origin = source.topic() or "", source.partition() or 0, source.offset() or 0
    elif scope.delayed_before:
        waited = place_of(record)
        if waited is not None and waited[0] < len(scope.delayed_before) and waited[1] < scope.delayed_before[waited[0]]:
            return None
    try:
        headers = source.headers() or ()
    except Exception:  # the client raises on header names that are no UTF-8
        headers = ()
    label = next((data for name, data in headers if name == ORIGIN), None)
    if scope.wanted is None and scope.convention == KJMS:
        fields = dict(headers)
        sent, expires, due = (
            _number(fields.get(name)) for name in ("JMSTimestamp", "JMSExpiration", "JMSDeliveryTime")
        )
    else:
        message = decoder(scope.convention)(source, scope.destination, 1)
        if scope.wanted is not None and not is_relocated and not scope.wanted.matches(message):
            return None
        sent, expires, due = message.jms_timestamp, message.jms_expiration, message.jms_delivery_time
    return Facts(
        sent or max(source.timestamp()[1], 0),
        expires,
        due if due > max(now, sent) else 0,
        origin,
        (label or b"").decode(errors="replace"),
    )


def _number(data: bytes | None) -> int:
    return int(data) if data is not None and data.isdigit() and len(data) < 20 else 0
