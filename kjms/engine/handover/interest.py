"""Publishes what this process wants of a queue, and records for how long its claims to transfer partitions hold."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.delivery_reports import failure_of
from kjms.engine.handover.peers import write_interest
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord

if TYPE_CHECKING:
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.engine.publisher import Publisher, Report

__all__ = ["Interest"]

_log = logging.getLogger("kjms.handover")

# A transfer partition is another's after the lease; its holder stops using it earlier, by the margin, which is longer
# than the session timeout: meanwhile Kafka removes from the group a process that slept and takes it for its own.
VALID_SECONDS: Final = 7.0  # after an interest was published
IDLE_VALID_SECONDS: Final = 32.0
SELECTORS_AT_ONCE: Final = 1_000  # in one record


class Interest:
    """What this process has published about one queue; the caller holds the consumer's lock.

    Args:
        topic: The interest topic.
        engine: The engine's name.
        publisher: Writes the records.
        margin: Seconds from the end of a claim to the end of the lease that others see.

    Attributes:
        selectors: Those that were published.
        is_requested: Whether a peer has asked for all of them.
        is_idle: Whether nothing moves, so that claims are repeated seldom.
        published_at: When the last record was.
        valid_until: Until when the claims surely hold, by the records that Kafka has or may have.
    """

    def __init__(self, topic: str, engine: str, publisher: Publisher, margin: float) -> None:
        self.topic = topic
        self.margin = margin
        self._engine = engine
        self._publisher = publisher
        self.selectors: set[str | None] = set()
        self.is_requested = False
        self.is_idle = False
        self.published_at = 0.0
        self.valid_until = 0.0
        self._has_published = False

    @property
    def _valid_seconds(self) -> float:
        """For how many seconds after the last record that Kafka has the claims surely hold."""
        return IDLE_VALID_SECONDS if self.is_idle else VALID_SECONDS

    @property
    def lease(self) -> int:
        """For how many seconds peers count this process as alive after its next record."""
        return math.ceil(self._valid_seconds + self.margin)

    def publish_changes(self, wants: set[str | None], state: Mapping[str, Any]) -> None:
        """Publish *state*, and of the selectors *wants* what has changed, or all of them where a peer asked."""
        changes: dict[str, Any] = {}
        if self.is_requested or not self._has_published:
            first, *rest = _chunks(sorted(wants, key=str))
            changes["selectors"] = first
        else:
            first, *rest = _chunks(sorted(wants - self.selectors, key=str))
            if first:
                changes["added"] = first
            less = self.selectors - wants
            if less:
                changes["removed"] = sorted(less, key=str)
        self.selectors = wants
        self.is_requested = False
        self.publish({**state, **changes})
        for chunk in rest:
            self.publish({**state, "added": chunk})

    def publish_end(self) -> None:
        """Publish that this process takes part no more, if it ever did."""
        if self._has_published:
            self.publish({"leaving": True})

    def publish(self, interest: dict[str, Any], report: Report | None = None) -> None:
        """Publish *interest*, and extend the claims once Kafka has it.

        Args:
            interest: The record.
            report: Receives the outcome instead; the claims are not extended.
        """
        milliseconds = round(time.monotonic() * 1000)
        now, seconds = milliseconds / 1000, self._valid_seconds
        self._has_published = True
        self.published_at = now
        self.valid_until = min(self.valid_until, now + seconds)  # peers may receive it, and no report come back

        def proved(error: KafkaError | None, record: KafkaMessage) -> None:
            if failure_of(error, record) is None:
                self._prove(now, seconds)

        interest["published_at"] = milliseconds  # for this process alone: another machine's clock says nothing
        value = write_interest(self._engine, interest)
        try:
            self._publisher.send(self.topic, 0, KafkaRecord(None, value, [], 0), report or proved)
        except JMSException as failure:
            _log.debug("%s", failure)

    def received(self, published_at: float, *, is_idle: bool) -> None:
        """Record that this process's own record came back."""
        self._prove(published_at, IDLE_VALID_SECONDS if is_idle else VALID_SECONDS)

    def _prove(self, published_at: float, seconds: float) -> None:
        """Record that peers receive what was published at a time; what was published later they may receive, too.

        The publisher's thread calls it without the lock, which a thread may hold that waits for the publisher.
        """
        self.valid_until = published_at + seconds
        if published_at < self.published_at:
            self.valid_until = min(self.valid_until, published_at + VALID_SECONDS)


def _chunks(wants: list[str | None]) -> list[list[str | None]]:
    return [wants[at : at + SELECTORS_AT_ONCE] for at in range(0, len(wants), SELECTORS_AT_ONCE)] or [[]]
