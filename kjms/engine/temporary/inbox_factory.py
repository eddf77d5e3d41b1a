"""Creates and deletes the inboxes of an engine, and what reads them."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.destinations import Queue
from kjms.engine.admin.claims import USE
from kjms.engine.admin.janitor import inbox_resource
from kjms.engine.temporary.inbox import CONFIG, Inbox
from kjms.engine.temporary.inbox_browsing import InboxLook
from kjms.engine.temporary.inbox_source import InboxSource
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from kjms.mapping import names
from kjms.mapping.temporary import PARTITIONS

if TYPE_CHECKING:
    from kjms.engine.admin.registry import Registry
    from kjms.engine.admin.topics import Topics
    from kjms.engine.overflows import Overflows
    from kjms.engine.publisher import Publisher
    from kjms.engine.temporary.inbox import Entry
    from kjms.selector import Selector

__all__ = ["InboxFactory"]

_log = logging.getLogger("kjms.inbox")

CLOSE_SECONDS: Final = 5.0  # how long closing waits for a broker that does not answer


class InboxFactory:
    """Creates inboxes with the settings of one engine.

    Args:
        name: The engine's name.
        principal: The user that the broker knows the engine as.
        config: librdkafka's settings of a consumer without a group.
        registry: Where an inbox is claimed, so that others can find out when it has no owner any more.
        topics: Makes and deletes Kafka topics.
        publisher: Writes deletions.
        overflows: Relocates messages, such as to dead-letter queues.
        report: Reports a failure that belongs to no call.
        timeout: Seconds to wait for Kafka.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        name: str,
        principal: str,
        config: Mapping[str, Any],
        registry: Registry,
        topics: Topics,
        publisher: Publisher,
        overflows: Overflows,
        report: Callable[[JMSException], None],
        timeout: float,
        tuning: Tuning,
    ) -> None:
        self._name = name
        self._principal = principal
        self._config = config
        self._registry = registry
        self._topics = topics
        self._publisher = publisher
        self._overflows = overflows
        self._report = report
        self._timeout = timeout
        self._tuning = tuning
        self._lives = itertools.count(1)

    def open(self, replication_factor: int | None, forget: Callable[[Iterable[int]], None]) -> tuple[Inbox, str]:
        """Return a new inbox, and its claim in the registry; *forget* as for `Inbox`.

        Raises:
            JMSException: Kafka does not let us.
        """
        life = next(self._lives)
        topic = names.inbox(self._principal, self._name if life == 1 else f"{self._name}-{life}")
        with self._registry.reading():
            claim = self._registry.put(USE, {"resource": inbox_resource(topic)}).key
            try:
                self._topics.make(topic, PARTITIONS, replication_factor, CONFIG)
                inbox = Inbox(
                    topic,
                    self._config,
                    self._publisher,
                    self._topics,
                    self._overflows.of(topic, ""),
                    forget=forget,
                    report=self._report,
                    timeout=self._timeout,
                    tuning=self._tuning,
                )
            except BaseException:
                self._registry.take_away([claim], wait=False)
                raise
        return inbox, claim

    def source(self, inbox: Inbox, entry: Entry) -> InboxSource:
        """Return a new source for *entry* in *inbox*."""
        return InboxSource(
            entry.destination,
            entry.number,
            inbox.topic,
            inbox.overflow,
            inbox,
            keeps_unmatched=isinstance(entry.destination, Queue),
            prefetch=entry.prefetch,
            on_error=self._report,
        )

    def look(self, inbox: Inbox, entry: Entry, selector: Selector | None) -> InboxLook:
        """Return a look at what the temporary queue *entry* in *inbox* holds.

        Raises:
            JMSException: The broker does not answer.
        """
        ends = self._topics.ends(inbox.topic, PARTITIONS)
        inbox.positions.wait(ends)
        return InboxLook(entry.destination, entry.sources[0], self._config, ends, selector, self._timeout)

    def delete(self, inbox: Inbox) -> bool:
        """Delete the Kafka topic of *inbox*; return whether that succeeded, or else a janitor deletes it later."""
        try:
            self._topics.delete([inbox.topic], min(self._timeout, CLOSE_SECONDS))
        except JMSException as failure:
            _log.warning("%s", failure)
            return False
        return True
