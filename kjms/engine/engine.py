"""One engine per process, cluster and credentials: what all connections with the same settings share."""

from __future__ import annotations

import atexit
import base64
import itertools
import logging
import os
import secrets
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic
from kjms.engine.admin.admin import Admin
from kjms.engine.admin.bookkeeping import Bookkeeping
from kjms.engine.admin.group_progress import GroupProgress, find_progress
from kjms.engine.admin.registry import Registry
from kjms.engine.admin.retention import RetentionCleaner
from kjms.engine.admin.topics import Topics
from kjms.engine.browsing import Browsing
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.intake import NOTHING
from kjms.engine.consumer.kafka_source import KafkaSource
from kjms.engine.consumer.overflow import Overflow
from kjms.engine.delayed.schedule import Schedule
from kjms.engine.handover.service import HandoverService
from kjms.engine.kafka import wall_clock_of
from kjms.engine.monitor import ConnectionMonitor, Listener
from kjms.engine.publisher import Publisher
from kjms.engine.settings import admin_settings, common_settings, consumer_settings, producer_settings
from kjms.engine.statistics import EngineStatistics
from kjms.engine.subscriptions.definitions import Identity, Terms
from kjms.engine.subscriptions.subscriptions import OnLost, Subscriptions
from kjms.engine.temporary.temporary_destinations import Temporaries
from kjms.engine.transactions.deduplicator import Deduplicator
from kjms.engine.transactions.group_committer import GroupCommitter
from kjms.engine.transactions.redelivery_log import RedeliveryLog
from kjms.engine.transactions.relocator import Relocator
from kjms.engine.transactions.sync_relocator import SyncRelocator
from kjms.engine.tuning import DEFAULTS, Tuning, current
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.bridges import decoder
from kjms.mapping.names import REGISTRY, is_internal, queue_group, topic_for, transactional_ids
from kjms.options import FactoryOptions
from kjms.selector import Selector

__all__ = ["Engine", "process_statistics"]

_log = logging.getLogger("kjms.engine")

_engines: dict[object, Engine] = {}
_making: dict[object, threading.Lock] = {}
_engines_lock = threading.Lock()
_numbers = itertools.count(1)

BULK_LINGER_MS: Final = 5  # asynchronous sends: twice the throughput of none
MOVES_SECONDS: Final = 5.0  # how long closing waits for moves; what was not moved is found again
REGISTRY_WAIT_MS: Final = 500  # news ends the wait; a fetch that brings none is repeated after that


class Engine:
    """The Kafka clients of one process for one cluster and one set of credentials.

    Connections are views on it: `acquire` gives the engine that is there or makes it, and the last `release` ends it.
    """

    def __init__(
        self, options: FactoryOptions, user: str | None, password: str | None, tuning: Tuning = DEFAULTS
    ) -> None:
        if tuning.wall_clock is DEFAULTS.wall_clock:
            tuning = replace(tuning, wall_clock=wall_clock_of(options.bootstrap_servers))
        self.tuning = tuning
        self.number = next(_numbers)
        self.options = options
        self.monitor = ConnectionMonitor(
            options.bootstrap_servers,
            f"kjms-engine-{self.number}-outage",
            lambda seconds: self.topics.connect(seconds, []),
            tuning,
        )
        self._lock = threading.Lock()
        self._readers: dict[str, KafkaSource] = {}  # of queues, by Kafka topic
        self._all_readers: weakref.WeakSet[KafkaSource] = weakref.WeakSet()
        self._all_lock = threading.Lock()  # of that set; never held while another lock is waited for
        self.settings = common_settings(options.bootstrap_servers, options.kafka, user, password, self.monitor.error)
        self.name = base64.urlsafe_b64encode(secrets.token_bytes(12)).decode()  # in Kafka: no two engines share one
        self.topics = Topics(admin_settings(self.settings), options.send_timeout, tuning)
        self.topics.follow(options.defaults.replication_factor)
        # Idempotent producers ask for their ids in the background: they have them by the time of the first send.
        self.prompt = self._publisher("prompt", 0)  # for synchronous sends
        self.bulk = self._publisher("bulk", BULK_LINGER_MS)  # for the others: it gathers records into batches
        self.bookkeeping = Bookkeeping(self.topics, lambda: self.bulk, consumer_settings(self.settings, None))
        self.retention = RetentionCleaner(self.topics, self.bookkeeping, options.send_timeout / 1000, tuning)
        self.redelivery_log = RedeliveryLog(self.topics, lambda: self.bulk, tuning)
        relocator, committer, sync_relocator = transactional_ids(self.name)
        self.relocator = Relocator(
            producer_settings(self.settings), relocator, self.monitor.report, self.bookkeeping.is_visible, tuning
        )
        self.committer = GroupCommitter(producer_settings(self.settings), committer, self.bookkeeping, tuning)
        self.sync_relocator = SyncRelocator(producer_settings(self.settings), sync_relocator, tuning)
        self.handover = HandoverService(self.name, consumer_settings(self.settings, None), self.prompt)
        self.registry = self._registry()
        self.schedule = Schedule(
            lambda group: consumer_settings(self.settings, group),
            producer_settings(self.settings),
            self.topics,
            self.monitor.report,
            tuning,
        )
        self.subscriptions = Subscriptions(self.registry, self.topics, options.send_timeout / 1000, self.schedule.ends)
        self.temporaries = Temporaries(
            self.name,
            str(self.settings.get("sasl.username") or "anonymous"),
            consumer_settings(self.settings, None),
            self.registry,
            self.topics,
            self.prompt,
            overflow=self.overflow,
            report=self.monitor.report,
            timeout=options.send_timeout / 1000,
            tuning=tuning,
        )
        try:
            self.topics.connect(options.send_timeout / 1000, self.monitor.last_error)
        except BaseException:
            self._close()
            raise

    def __repr__(self) -> str:
        return f"<Engine {self.number} at {self.options.bootstrap_servers}: {len(self.monitor.listeners)} connections>"

    @property
    def admin(self) -> Admin:
        """What tools ask of the cluster."""
        return Admin(self.topics, self.subscriptions, self.schedule, self.prompt, self.options.send_timeout / 1000)

    def statistics(self) -> EngineStatistics:
        """Return what the engine holds and does now; it asks nothing of Kafka."""
        with self._all_lock:
            readers = [reader for reader in self._all_readers if not reader.is_closed]
        threads = [
            self.prompt.thread,
            self.bulk.thread,
            self.monitor.outage.thread,
            *(part.thread for part in (self.committer, self.relocator, self.retention, self.handover, self.registry)),
            *self.schedule.threads(),
            *self.temporaries.threads(),
            *(reader.thread for reader in readers),
        ]
        consumers = sorted((reader.statistics() for reader in readers), key=lambda each: each.name)
        return EngineStatistics(
            number=self.number,
            name=self.name,
            bootstrap_servers=self.options.bootstrap_servers,
            connections=len(self.monitor.listeners),
            is_cluster_lost=self.monitor.outage.is_reported,
            disconnections=self.monitor.outage.suspicions,
            group_consumers=tuple(consumers),
            commits=self.committer.statistics(),
            moves=self.relocator.statistics(),
            rescues=self.sync_relocator.statistics(),
            cleanings=self.retention.rounds,
            delayed=tuple(self.schedule.statistics()),
            inbox=self.temporaries.statistics(),
            registry=self.registry.statistics(),
            client_ids=tuple(self.subscriptions.client_ids()),
            subscriptions=tuple(self.subscriptions.names()),
            threads=tuple(sorted(thread.name for thread in threads if thread is not None and thread.is_alive())),
        )

    # Life.

    @classmethod
    def acquire(
        cls,
        options: FactoryOptions,
        user: str | None,
        password: str | None,
        listener: Listener,
    ) -> Engine:
        """Return the process's engine for these settings; failures are reported to *listener* until `release`.

        Raises:
            JMSSecurityException: Kafka refused the credentials.
            JMSException: No broker answered within the send timeout.
        """
        tuning = current()
        key = (
            tuning,
            options.bootstrap_servers,
            tuple(sorted((name, _hashable(value)) for name, value in options.kafka.items())),
            user,
            password,
            options.send_timeout,
        )
        with _engines_lock:
            making = _making.setdefault(key, threading.Lock())
        with making:  # only who wants the same cluster waits for it
            with _engines_lock:
                engine = _engines.get(key)
                if engine is not None:
                    engine.monitor.listeners.append(listener)
                    engine.topics.follow(options.defaults.replication_factor)
                    return engine
            engine = cls(options, user, password, tuning)
            with _engines_lock:
                _engines[key] = engine
                engine.monitor.listeners.append(listener)
                return engine

    def release(self, listener: Listener) -> None:
        """Give the engine back; the last user's release closes every client and thread."""
        with _engines_lock:
            self.monitor.listeners.remove(listener)
            if self.monitor.listeners:
                return
            for key, engine in list(_engines.items()):
                if engine is self:
                    del _engines[key]
        self._close()

    def _close(self) -> None:
        readers = list(self._readers.values())
        for reader in readers:  # while the relocator can still make room for their last commits
            try:
                reader.flush_before_exit()
            except JMSException as failure:
                _log.warning("%s", failure)
        self.schedule.close()
        self.committer.close(MOVES_SECONDS)
        self.relocator.close(MOVES_SECONDS)
        self.retention.close()
        _close_readers(readers)
        self.subscriptions.close()
        self.handover.close()
        self.temporaries.close()
        self.registry.close()
        self.redelivery_log.write()
        self.prompt.close()
        self.bulk.close()
        self.monitor.outage.close()
        self.topics.close()

    # Sending.

    def _publisher(self, name: str, linger_ms: int) -> Publisher:
        settings = producer_settings(self.settings, linger_ms=linger_ms)
        if linger_ms == 0:
            settings["linger.ms"] = 0  # a waiting caller pays for every millisecond
        name = f"kjms-engine-{self.number}-{name}"
        return Publisher(settings, name, self.options.send_timeout, self.topics.largest, self.tuning)

    # What processes have to agree on.

    def _registry(self) -> Registry:
        def lost(key: str) -> None:
            self.subscriptions.lost(key)
            self.temporaries.lost(key)

        return Registry(
            {**consumer_settings(self.settings, None), "fetch.wait.max.ms": REGISTRY_WAIT_MS},
            self.prompt,
            prepare=lambda: self.topics.ensure_compacted(REGISTRY),
            on_lost=lost,
            on_error=self.monitor.report,
            timeout=self.options.send_timeout / 1000,
            tuning=self.tuning,
        )

    # Destinations.

    def topic_of(self, destination: Destination, options: FactoryOptions) -> tuple[str, int]:
        """Return the Kafka topic of *destination* and its number of partitions; it is made where *options* say so.

        Raises:
            InvalidDestinationException: There is no such topic, the name cannot be one, it is temporary, or Kafka's or
                kjms's own.
        """
        if isinstance(destination, TemporaryQueue | TemporaryTopic):
            raise InvalidDestinationException(f"{destination} is temporary, and has no Kafka topic of its own")
        name = destination_name(destination)
        topic = topic_for(destination, options.queue_prefix, options.topic_prefix)
        if is_internal(topic) or topic.startswith("__"):
            raise InvalidDestinationException(f"{destination} is no destination: kjms, or Kafka, keeps its own there")
        chosen = options.destination(name)
        count = self.topics.ensure(
            topic,
            create=options.create_destinations,
            partitions=chosen.partitions or 1,
            replication_factor=chosen.replication_factor,
            queue=isinstance(destination, Queue),
        )
        if self.topics.new_queues:
            self.retention.begin()
        return topic, count

    # Receiving.

    def open_slot(
        self,
        destination: Destination,
        options: FactoryOptions,
        selector: Selector | None,
        wakeup: threading.Event,
    ) -> ConsumerSlot:
        """Return a slot for a consumer of *destination*: of the queue, or of the topic from where it stands now."""
        topic, partitions = self.topic_of(destination, options)
        name = destination_name(destination)
        chosen = options.destination(name)
        if not isinstance(destination, Queue):
            before = self.schedule.ends(topic)
            identity = self.topics.ids.find(topic)  # first: it may be deleted and made again at any time
            starts = self.topics.ends(topic, partitions)
            reader = self._new_reader(destination, topic, None, starts, options, before, identity, is_shared=False)
            return reader.add_slot(selector, wakeup)
        with self._lock:
            queue_reader = self._readers.get(topic)
            if queue_reader is None:
                queue_reader = self._readers[topic] = self._new_reader(
                    destination, topic, queue_group(topic), None, options, is_shared=True
                )
            self.retention.look_after(queue_reader, chosen.kept_ms)
            return queue_reader.add_slot(selector, wakeup)

    def open_subscription(
        self,
        identity: Identity,
        terms: Terms,
        options: FactoryOptions,
        wanted: Selector | None,
        wakeup: threading.Event,
        on_lost: OnLost,
    ) -> ConsumerSlot:
        """Return a slot for a consumer of a named subscription; see `Subscriptions.open`."""

        def new_reader(group: str, delayed_before: Mapping[int, int]) -> KafkaSource:
            return self._new_reader(
                terms.destination, terms.topic, group, None, options, delayed_before, is_shared=terms.is_shared
            )

        return self.subscriptions.open(identity, terms, wanted, wakeup, new_reader, on_lost)

    def close_slots(self, slots: Sequence[ConsumerSlot]) -> None:
        """Close *slots*, and the group consumers without other slots."""
        for slot in slots:
            slot.reader.remove_slot(slot)
        slots = self.temporaries.leave(slots)
        shared = set(self._readers.values())
        _close_readers(
            [
                slot.reader
                for slot in slots
                if isinstance(slot.reader, KafkaSource)
                and slot.reader not in shared
                and not self.subscriptions.keeps(slot.reader)
            ]
        )
        self.subscriptions.leave(slots)

    def _new_reader(
        self,
        destination: Destination,
        topic: str,
        group: str | None,
        starts: Mapping[int, int] | None,
        options: FactoryOptions,
        delayed_before: Mapping[int, int] = NOTHING,
        identity: str = "-",
        *,
        is_shared: bool,
    ) -> KafkaSource:
        chosen = options.destination(destination_name(destination))
        reader = KafkaSource(
            destination,
            destination_name(destination),
            consumer_settings(self.settings, group),
            topic,
            self.overflow(topic, group or ""),
            starts=starts,
            keeps_unmatched=isinstance(destination, Queue),
            prefetch=chosen.prefetch or 1,
            decode=decoder(chosen.convention or "kjms"),
            on_error=self.monitor.report,
            delayed_before=delayed_before,
            identity=identity,
            handover=self.handover if is_shared and chosen.hand_over is not False else None,
            repeats=Deduplicator() if options.drop_duplicates else None,
        )
        self.schedule.watch(reader)
        with self._all_lock:
            self._all_readers.add(reader)
        return reader

    def overflow(self, topic: str, group: str) -> Overflow:
        """Return what a reader of *topic* in *group* needs of the engine."""
        return Overflow(
            self.relocator,
            self.sync_relocator,
            self.topics,
            self.bookkeeping,
            self.redelivery_log,
            group,
            topic,
            self.name,
            self.tuning,
        )

    def browse(self, queue: Queue, options: FactoryOptions, selector: Selector | None) -> Browsing:
        """Return a look at *queue*; what is settled in this process is settled for it.

        Raises:
            InvalidDestinationException: There is no such queue, and it may not be created.
            JMSException: Kafka does not answer.
        """
        topic, _ = self.topic_of(queue, options)
        group = queue_group(topic)
        reader = self._readers.get(topic)
        if reader is not None:
            reader.flush()
        return Browsing(
            queue,
            consumer_settings(self.settings, group),
            topic,
            self.overflow(topic, group),
            self.topics,
            decoder(options.destination(queue.queue_name).convention or "kjms"),
            selector,
            self.options.send_timeout / 1000,
        )

    def progress(self, destination: Destination, topic: str, group: str) -> list[tuple[GroupProgress, int]]:
        """Return the progress of *group* in the topics of *destination*, and where each of their partitions begins.

        Raises:
            JMSException: Kafka does not answer, or the settlement was written by a later kjms.
        """
        reader = self._readers.get(topic)
        if reader is not None:
            reader.flush()
        config = consumer_settings(self.settings, group)
        return find_progress(config, str(destination), topic, self.overflow(topic, group), self.topics, decoder("kjms"))


def destination_name(destination: Destination) -> str:
    """Return the name by which options and threads call *destination*."""
    return destination._name


def _close_readers(readers: Sequence[KafkaSource]) -> None:
    """Close *readers*, all at the same time."""
    for reader in readers:
        reader.begin_to_close()
    for reader in readers:
        reader.close()


def _hashable(value: Any) -> object:
    """Return something that equal settings share: callbacks are the same only if they are the same object."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


def close_all() -> None:
    """End every engine that a program left open, so that the interpreter can end."""
    with _engines_lock:
        left = list(_engines.values())
        _engines.clear()
    for engine in left:
        engine._close()


def process_statistics() -> list[EngineStatistics]:
    """Return what each engine of this process holds and does now, oldest first: for metrics and the console."""
    with _engines_lock:
        engines = list(_engines.values())
    return sorted((engine.statistics() for engine in engines), key=lambda each: each.number)


def _disown_all() -> None:
    """Begin, in a forked child, without the engines of its parent, whose locks its other threads may have held."""
    global _engines_lock  # noqa: PLW0603 - the old one may be held by a thread that is not there
    for engine in _engines.values():
        engine.temporaries.is_inherited = True
    _engines.clear()
    _making.clear()
    _engines_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown_all)
atexit.register(close_all)
