"""The group consumers of one engine: opened for its destinations, shared by consumers of the process, and closed."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kjms.destinations import Queue
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.intake import NOTHING
from kjms.engine.consumer.kafka_source import KafkaSource
from kjms.engine.outage import CloseTimeout
from kjms.engine.settings import consumer_settings
from kjms.engine.transactions.deduplicator import Deduplicator
from kjms.errors import JMSException
from kjms.mapping.bridges import decoder
from kjms.mapping.names import queue_group
from kjms.observe import Rebalanced

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.retention import RetentionCleaner
    from kjms.engine.admin.topics import Topics
    from kjms.engine.consumer.rebalancing import Change
    from kjms.engine.delayed.schedule import Schedule
    from kjms.engine.handover.service import HandoverService
    from kjms.engine.overflows import Overflows
    from kjms.engine.statistics import GroupConsumerStatistics
    from kjms.observe._observers import Told
    from kjms.options import FactoryOptions
    from kjms.selector import Selector

__all__ = ["KafkaSources"]

_log = logging.getLogger("kjms.consumer")


class KafkaSources:
    """Opens and closes what reads queues, subscriptions and topics.

    A queue has one source in a process, which stays open until the engine closes; others belong to one subscription,
    or to one consumer.

    Args:
        settings: librdkafka's settings of all clients of the engine.
        application: The name that the program goes by; None: that of what was started.
        topics: Knows Kafka topics.
        overflows: Relocates messages.
        schedule: Serves the delayed messages of what is read.
        handover: Hands messages over to other processes.
        retention: Deletes what queues have settled.
        report: Reports a failure that belongs to no call.
        observed: Tells observers of an event.
        is_out: Returns whether no broker answers, as far as is known.

    Attributes:
        retention: Deletes what queues have settled.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        application: str | None,
        topics: Topics,
        overflows: Overflows,
        schedule: Schedule,
        handover: HandoverService,
        retention: RetentionCleaner,
        report: Callable[[JMSException], None],
        observed: Callable[[Told, object], None],
        is_out: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._application = application
        self._topics = topics
        self._overflows = overflows
        self._schedule = schedule
        self._handover = handover
        self.retention = retention
        self._report = report
        self._observed = observed
        self._is_out = is_out
        self._queues: dict[str, KafkaSource] = {}  # by Kafka topic
        self._lock = threading.Lock()  # of the queues' sources; held while one is opened
        self._all: weakref.WeakSet[KafkaSource] = weakref.WeakSet()
        self._all_lock = threading.Lock()  # of that set; never held while another lock is waited for

    def __repr__(self) -> str:
        return f"<KafkaSources: {len(self._queues)} queues>"

    def statistics(self) -> list[GroupConsumerStatistics]:
        """Return what each of them holds and does, by name."""
        return sorted((source.statistics() for source in self._open_ones()), key=lambda each: each.name)

    def threads(self) -> list[threading.Thread | None]:
        """Return their threads, and those that serve them."""
        return [self.retention.thread, self._handover.thread, *(source.thread for source in self._open_ones())]

    def _open_ones(self) -> list[KafkaSource]:
        with self._all_lock:
            return [source for source in self._all if not source.is_closed]

    # Opening.

    def open(
        self,
        destination: Destination,
        topic: str,
        group: str | None,
        options: FactoryOptions,
        *,
        starts: Mapping[int, int] | None = None,
        delayed_before: Mapping[int, int] = NOTHING,
        identity: str = "-",
        is_shared: bool = False,
    ) -> KafkaSource:
        """Return a new source of *destination*.

        Args:
            destination: The destination.
            topic: Its Kafka topic.
            group: The consumer group; None: it reads without one, from *starts*.
            options: The options of the factory.
            starts: Where each partition begins; None: where the group has committed.
            delayed_before: Where the delayed messages end that were sent before; those are not for this source.
            identity: Kafka's id of the topic, ``-`` where it is not known.
            is_shared: Whether other processes may have consumers of the same group.
        """
        name = destination._name
        chosen = options.destination(name)
        source = KafkaSource(
            destination,
            name,
            consumer_settings(
                self._settings,
                group,
                has_one_partition=self._topics.partitions(topic) == 1,
                application=self._application,
            ),
            topic,
            self._overflows.of(topic, group or ""),
            starts=starts,
            keeps_unmatched=isinstance(destination, Queue),
            prefetch=chosen.prefetch or 1,
            decode=decoder(chosen.convention or "kjms"),
            on_error=self._report,
            delayed_before=delayed_before,
            identity=identity,
            handover=self._handover if is_shared and chosen.hand_over is not False else None,
            repeats=Deduplicator() if options.drop_duplicates else None,
            on_rebalance=partial(self._rebalanced, destination, group or ""),
        )
        self._schedule.watch(source)
        with self._all_lock:
            self._all.add(source)
        return source

    def _rebalanced(
        self, destination: Destination, group: str, change: Change, partitions: list[int], seconds: float
    ) -> None:
        self._observed("rebalanced", Rebalanced(destination, group, change, tuple(partitions), seconds * 1000))

    def open_topic_slot(
        self,
        destination: Destination,
        topic: str,
        partitions: int,
        options: FactoryOptions,
        selector: Selector | None,
        wakeup: threading.Event,
    ) -> ConsumerSlot:
        """Return a slot for a consumer of a topic without a subscription, from where the topic stands now."""
        delayed_before = self._schedule.ends(topic)
        identity = self._topics.ids.find(topic)  # first: it may be deleted and made again at any time
        starts = self._topics.ends(topic, partitions)
        source = self.open(
            destination, topic, None, options, starts=starts, delayed_before=delayed_before, identity=identity
        )
        return ConsumerSlot(source, selector, wakeup)

    def open_queue_slot(
        self, queue: Queue, topic: str, options: FactoryOptions, selector: Selector | None, wakeup: threading.Event
    ) -> ConsumerSlot:
        """Return a slot for a consumer of *queue*, whose source the consumers of this process share."""
        with self._lock:
            source = self._queues.get(topic)
            if source is None:
                source = self._queues[topic] = self.open(queue, topic, queue_group(topic), options, is_shared=True)
            self.retention.look_after(source, options.destination(queue.queue_name).kept_ms)
            return ConsumerSlot(source, selector, wakeup)

    def flush_queue(self, topic: str) -> None:
        """Commit what this process has settled of the queue in *topic*, if it reads it.

        Raises:
            JMSException: The broker refused it.
        """
        source = self._queues.get(topic)
        if source is not None:
            source.flush()

    # Closing.

    def close_unshared(self, sources: Iterable[KafkaSource]) -> None:
        """Close those of *sources* that are not of queues."""
        shared = set(self._queues.values())
        _close([source for source in sources if source not in shared], CloseTimeout(self._is_out))

    def flush_before_exit(self, timeout: CloseTimeout) -> None:
        """Commit what was settled of queues; a failure is logged."""
        for source in list(self._queues.values()):
            try:
                source.flush_before_exit(timeout=timeout)
            except JMSException as failure:
                _log.warning("%s", failure)

    def close(self, timeout: CloseTimeout) -> None:
        """Close those of queues, the last ones of the engine, and what serves all."""
        self.retention.close(timeout)
        _close(self._queues.values(), timeout)
        self._handover.close(timeout)


def _close(sources: Collection[KafkaSource], timeout: CloseTimeout) -> None:
    """Close *sources*, all at the same time."""
    for source in sources:
        source.begin_to_close()
    for source in sources:
        source.close(timeout)
