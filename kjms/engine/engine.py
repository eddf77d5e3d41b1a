"""One engine per process, cluster and credentials: what all connections with the same settings share."""

from __future__ import annotations

import atexit
import base64
import itertools
import logging
import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic
from kjms.engine.admin.admin import Admin
from kjms.engine.admin.bookkeeping import Bookkeeping
from kjms.engine.admin.dead_letter_check import DeadLetterCheck
from kjms.engine.admin.group_progress import GroupProgress, find_progress
from kjms.engine.admin.kinds import DestinationKinds
from kjms.engine.admin.leftovers import Leftovers
from kjms.engine.admin.questions import Questions
from kjms.engine.admin.registry import Registry
from kjms.engine.admin.retention import RetentionCleaner
from kjms.engine.admin.scan import Position, Scan
from kjms.engine.admin.scopes import Scope
from kjms.engine.admin.survey import Survey
from kjms.engine.admin.topics import Topics, WantedTopic
from kjms.engine.admin.trial import Trial
from kjms.engine.browsing import Browsing
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.kafka_source import KafkaSource
from kjms.engine.delayed.schedule import Schedule
from kjms.engine.handover.service import HandoverService
from kjms.engine.kafka import wall_clock_of
from kjms.engine.monitor import ConnectionMonitor, Listener
from kjms.engine.outage import CloseTimeout
from kjms.engine.overflows import Overflows
from kjms.engine.patched_threads import check_threads
from kjms.engine.publisher import Publisher
from kjms.engine.settings import admin_settings, common_settings, consumer_settings, producer_settings
from kjms.engine.skipped import SkippedRecords
from kjms.engine.sources import KafkaSources
from kjms.engine.statistics import EngineStatistics
from kjms.engine.subscriptions.definitions import Identity, Terms
from kjms.engine.subscriptions.subscriptions import OnLost, Subscriptions
from kjms.engine.temporary.deletions import Deletions
from kjms.engine.temporary.inbox_factory import InboxFactory
from kjms.engine.temporary.temporary_destinations import Temporaries
from kjms.engine.transactions.group_committer import GroupCommitter
from kjms.engine.tuning import DEFAULTS, Tuning, current
from kjms.errors import InvalidDestinationException, JMSException, ResourceAllocationException
from kjms.mapping.bridges import decoder
from kjms.mapping.names import REGISTRY, queue_group, topic_for, transactional_ids
from kjms.options import FactoryOptions, RedeliveryPolicy
from kjms.selector import Selector

__all__ = ["Engine", "process_statistics"]

_log = logging.getLogger("kjms.engine")

_engines: dict[object, Engine] = {}
_making: dict[object, threading.Lock] = {}
_engines_lock = threading.Lock()
_numbers = itertools.count(1)

BULK_LINGER_MS: Final = 5  # asynchronous sends: twice the throughput of none
MOVES_SECONDS: Final = 5.0  # how long closing waits for moves; what was not moved is found again
REGISTRY_WAIT_MS: Final = 500  # a record ends the wait; a fetch that brings none is repeated after that


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
        timeout = options.send_timeout / 1000
        self.monitor = ConnectionMonitor(
            options.bootstrap_servers,
            f"kjms-engine-{self.number}-outage",
            lambda seconds: self.topics.connect(seconds, []),
            tuning,
        )
        report = self.monitor.report
        self.settings = common_settings(options.bootstrap_servers, options.kafka, user, password, self.monitor.error)
        reading, writing = consumer_settings(self.settings, None), producer_settings(self.settings)
        name = base64.urlsafe_b64encode(secrets.token_bytes(12)).decode()  # in Kafka: no two engines share one
        self.topics = Topics(admin_settings(self.settings), options.send_timeout, tuning)
        self.topics.follow(options.defaults.replication_factor)
        self._dead_letter_check = DeadLetterCheck(lambda: self.topics.admin, timeout, report)
        # Idempotent producers ask for their ids in the background: they have them by the time of the first send.
        self.prompt = self._publisher("prompt", 0, tuning)  # for synchronous sends
        try:
            self.bulk = self._publisher("bulk", BULK_LINGER_MS, tuning)  # for the others: it gathers records
        except BaseException:
            self.prompt.close()
            raise
        self.skipped = SkippedRecords()
        bookkeeping = Bookkeeping(self.topics, self.bulk, reading, self.skipped)
        self.kinds = DestinationKinds(self.topics, bookkeeping, report)
        self.overflows = Overflows(name, writing, self.topics, self._ensure, bookkeeping, self.bulk, report, tuning)
        self.committer = GroupCommitter(writing, transactional_ids(name)[1], bookkeeping, tuning)
        self.registry = self._registry(reading, timeout, tuning)
        self.schedule = Schedule(
            partial(consumer_settings, self.settings), writing, self.topics, report, self.skipped, tuning
        )
        self.sources = KafkaSources(
            self.settings,
            options.application,
            self.topics,
            self.overflows,
            self.schedule,
            HandoverService(name, reading, self.prompt, self.skipped),
            RetentionCleaner(self.topics, bookkeeping, timeout, tuning),
            report,
            self.monitor.observed,
            self._is_out,
        )
        self.subscriptions = Subscriptions(self.registry, self.topics, timeout, self.schedule.ends, bookkeeping.forget)
        inboxes = InboxFactory(
            name,
            str(self.settings.get("sasl.username") or "anonymous"),
            reading,
            self.registry,
            self.topics,
            self.prompt,
            self.overflows,
            report,
            timeout,
            tuning,
        )
        deletions = Deletions(reading, timeout, self.skipped)
        self.temporaries = Temporaries(inboxes, deletions, self.registry, self.topics, report)
        try:
            self.topics.connect(timeout, self.monitor.last_error)
        except BaseException:
            self._close()
            raise

    def __repr__(self) -> str:
        return f"<Engine {self.number} at {self.options.bootstrap_servers}: {len(self.monitor.listeners)} connections>"

    @property
    def admin(self) -> Admin:
        """What tools ask of the cluster."""
        timeout = self.options.send_timeout / 1000
        bookkeeping = self.overflows.bookkeeping
        return Admin(self.topics, self.subscriptions, self.schedule, self.prompt, bookkeeping, self.skipped, timeout)

    def survey(self) -> Survey:
        """Return what counts the messages of many destinations, which the caller closes."""
        reading, timeout = consumer_settings(self.settings, None), self.options.send_timeout / 1000
        return Survey(self.topics, reading, self.sources.flush_queue, timeout, self.skipped, self.tuning)

    def leftovers(self) -> Leftovers:
        """Return what finds what faults have left in the cluster."""
        timeout = self.options.send_timeout / 1000
        return Leftovers(
            self.admin,
            self.topics,
            self.registry,
            self.subscriptions,
            self.overflows.bookkeeping,
            Questions(self.topics, timeout),
            self.prompt,
            consumer_settings(self.settings, None),
            timeout,
            self.tuning.open_transaction_seconds,
        )

    def trial(self) -> Trial:
        """Return what tries the cluster out, with clients of its own."""
        reading, timeout = partial(consumer_settings, self.settings), self.options.send_timeout / 1000
        return Trial(admin_settings(self.settings), producer_settings(self.settings), reading, timeout)

    def statistics(self) -> EngineStatistics:
        """Return what the engine holds and does now; it asks nothing of Kafka."""
        threads = [
            self.prompt.thread,
            self.bulk.thread,
            self.monitor.outage.thread,
            self.committer.thread,
            self.overflows.thread,
            self.registry.thread,
            self.kinds.thread,
            *self.schedule.threads(),
            *self.temporaries.threads(),
            *self.sources.threads(),
        ]
        moves, in_flight_moves = self.overflows.statistics()
        return EngineStatistics(
            number=self.number,
            name=self.overflows.engine,
            bootstrap_servers=self.options.bootstrap_servers,
            connections=len(self.monitor.listeners),
            is_cluster_lost=self.monitor.outage.is_reported,
            disconnections=self.monitor.outage.suspicions,
            group_consumers=tuple(self.sources.statistics()),
            commits=self.committer.statistics(),
            moves=moves,
            in_flight_moves=in_flight_moves,
            cleanings=self.sources.retention.rounds,
            delayed=tuple(self.schedule.statistics()),
            inbox=self.temporaries.statistics(),
            registry=self.registry.statistics(),
            client_ids=tuple(self.subscriptions.client_ids()),
            subscriptions=tuple(self.subscriptions.names()),
            skipped=self.skipped.counts(),
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
            JMSSecurityException: The broker refused the credentials.
            JMSException: No broker answered within the send timeout.
            ResourceAllocationException: The process can have no more threads, or no more memory.
            IllegalStateException: The process has replaced Python's threads.
        """
        check_threads()
        tuning = current()
        key = (
            tuning,
            options.bootstrap_servers,
            tuple(sorted((name, _hashable(value)) for name, value in options.kafka.items())),
            user,
            password,
            options.send_timeout,
            options.application,
        )
        with _engines_lock:
            making = _making.setdefault(key, threading.Lock())
        with making:  # only connections to the same cluster wait for it
            with _engines_lock:
                engine = _engines.get(key)
                if engine is not None:
                    engine.monitor.listeners.append(listener)
                    engine.topics.follow(options.defaults.replication_factor)
                    return engine
            try:
                engine = cls(options, user, password, tuning)
            except JMSException:
                raise
            except (MemoryError, RuntimeError) as error:  # a RuntimeError: no thread can be started
                raise ResourceAllocationException(
                    f"connect to {options.bootstrap_servers}: the process has no memory, or no threads, left ({error});"
                    " see `ulimit -u` and `ulimit -v`, and the limits of its container"
                ) from error
            with _engines_lock:
                _engines[key] = engine
                engine.monitor.listeners.append(listener)
                return engine

    def release(self, listener: Listener) -> None:
        """Give the engine back; the last user's release closes every client and thread."""
        with _engines_lock:
            if listener in self.monitor.listeners:  # else an interrupt ended the call before
                self.monitor.listeners.remove(listener)
            if self.monitor.listeners:
                return
            for key, engine in list(_engines.items()):
                if engine is self:
                    del _engines[key]
        self._close()

    def _close(self) -> None:
        timeout = CloseTimeout(self._is_out)
        self.sources.flush_before_exit(timeout)  # while the relocator can use the overflow for their last commits
        self.schedule.close(timeout)
        self.committer.close(MOVES_SECONDS)
        self.overflows.close(MOVES_SECONDS)
        self.subscriptions.close()
        self.sources.close(timeout)
        self.temporaries.close()
        self.kinds.close(timeout)
        self.registry.close()
        self.overflows.finish()
        self.prompt.close()
        self.bulk.close()
        self.monitor.outage.close()
        self.topics.close()

    def _is_out(self) -> bool:
        """Return whether no broker answers, as far as is known."""
        return self.monitor.outage.is_suspected

    # Sending.

    def _publisher(self, name: str, linger_ms: int, tuning: Tuning) -> Publisher:
        settings = producer_settings(self.settings, linger_ms=linger_ms)
        if linger_ms == 0:
            settings["linger.ms"] = 0  # a waiting caller pays for every millisecond
        name = f"kjms-engine-{self.number}-{name}"
        return Publisher(settings, name, self.options.send_timeout, self.topics.largest, tuning)

    # What processes have to agree on.

    def _registry(self, config: Mapping[str, Any], timeout: float, tuning: Tuning) -> Registry:
        def lost(key: str) -> None:
            self.subscriptions.lost(key)
            self.temporaries.lost(key)

        return Registry(
            {**config, "fetch.wait.max.ms": REGISTRY_WAIT_MS},
            self.prompt,
            prepare=lambda: self.topics.ensure_compacted(REGISTRY),
            on_lost=lost,
            on_error=self.monitor.report,
            timeout=timeout,
            skipped=self.skipped,
            tuning=tuning,
        )

    # Destinations.

    def topic_of(
        self, destination: Destination, options: FactoryOptions, *, is_consumed: bool = False
    ) -> tuple[str, int]:
        """Return the Kafka topic of *destination* and its number of partitions; it is made where *options* say so.

        Args:
            destination: The destination.
            options: Of the factory.
            is_consumed: Whether it is consumed, and not only sent to or looked at.

        Raises:
            InvalidDestinationException: There is no such topic, the name cannot be one, it is temporary, or Kafka's or
                kjms's own; or it is used as the other kind of destination, which *options* refuse.
        """
        if isinstance(destination, TemporaryQueue | TemporaryTopic):
            raise InvalidDestinationException(f"{destination} is temporary, and has no Kafka topic of its own")
        wanted = self.wanted_topic(destination, options)
        if isinstance(destination, Queue) and not self.topics.partitions(wanted.topic):
            wanted = self.wanted_topic(destination, options, like=_source_of(destination, options))
        topic, count = self._ensure(wanted)
        self.kinds.use(topic, destination, is_consumed=is_consumed, is_strict=options.strict_kinds)
        return topic, count

    def wanted_topic(self, destination: Destination, options: FactoryOptions, *, like: str = "") -> WantedTopic:
        """Return the Kafka topic that *destination* needs, as *options* say; nothing is asked of Kafka.

        Args:
            destination: A queue or topic.
            options: The factory's options.
            like: The topic whose messages it takes as dead letters; empty: none.
        """
        chosen = options.destination(destination_name(destination))
        return WantedTopic(
            destination,
            options.queue_prefix,
            options.topic_prefix,
            options.create_destinations,
            chosen.partitions or 1,
            chosen.replication_factor,
            like,
        )

    def _ensure(self, wanted: WantedTopic) -> tuple[str, int]:
        found = self.topics.ensure(wanted)
        if self.topics.new_queues:
            self.sources.retention.begin()
        return found

    # Receiving.

    def open_slot(
        self,
        destination: Destination,
        options: FactoryOptions,
        selector: Selector | None,
        wakeup: threading.Event,
    ) -> ConsumerSlot:
        """Return a slot for a consumer of *destination*: of the queue, or of the topic from where it stands now."""
        topic, partitions = self.topic_of(destination, options, is_consumed=True)
        self._check_dead_letters(destination, topic, options)
        if isinstance(destination, Queue):
            return self.sources.open_queue_slot(destination, topic, options, selector, wakeup)
        return self.sources.open_topic_slot(destination, topic, partitions, options, selector, wakeup)

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
        self._check_dead_letters(terms.destination, terms.topic, options)

        def open_source(group: str, delayed_before: Mapping[int, int]) -> KafkaSource:
            return self.sources.open(
                terms.destination,
                terms.topic,
                group,
                options,
                delayed_before=delayed_before,
                is_shared=terms.is_shared,
            )

        return self.subscriptions.open(identity, terms, wanted, wakeup, open_source, on_lost)

    def _check_dead_letters(self, destination: Destination, topic: str, options: FactoryOptions) -> None:
        """Have it reported where the messages of *destination* could not become dead letters, or expire."""
        name = destination_name(destination)
        chosen = options.destination(name)
        policy = chosen.redelivery or RedeliveryPolicy()
        for target in (policy.dead_letter_queue(name), chosen.expiry_queue):
            if target is not None:
                wanted = self.wanted_topic(Queue(target), options, like=topic)
                self._dead_letter_check.check(wanted, asks=isinstance(destination, Queue))

    def close_slots(self, slots: Sequence[ConsumerSlot]) -> None:
        """Close *slots*, and the group consumers without other slots."""
        for slot in slots:
            slot.close()
        slots = self.temporaries.leave(slots)
        sources = [slot.reader for slot in slots if isinstance(slot.reader, KafkaSource)]
        self.sources.close_unshared(source for source in sources if not self.subscriptions.keeps(source))
        self.subscriptions.leave(slots)

    def browse(self, queue: Queue, options: FactoryOptions, selector: Selector | None) -> Browsing:
        """Return a look at *queue*; what is settled in this process is settled for it.

        Raises:
            InvalidDestinationException: There is no such queue, and it may not be created.
            JMSException: The broker does not answer.
        """
        topic, _ = self.topic_of(queue, options)
        group = queue_group(topic)
        self.sources.flush_queue(topic)
        return Browsing(
            queue,
            consumer_settings(self.settings, group),
            topic,
            self.overflows.of(topic, group),
            decoder(options.destination(queue.queue_name).convention or "kjms"),
            selector,
            self.options.send_timeout / 1000,
        )

    def scan(self, scope: Scope, position: Position | None = None) -> Scan:
        """Return a reading of the unsettled messages of *scope*; what is settled in this process is settled for it.

        Args:
            scope: The queue or subscription.
            position: Where an earlier one has got to; None: from the start.

        Raises:
            JMSException: The broker does not answer.
        """
        self.sources.flush_queue(scope.topic)
        overflow = self.overflows.of(scope.topic, scope.group)
        config, timeout = consumer_settings(self.settings, scope.group), self.options.send_timeout / 1000
        return Scan(scope, config, overflow, timeout, position)

    def progress(self, destination: Destination, topic: str, group: str) -> list[tuple[GroupProgress, int]]:
        """Return the progress of *group* in the topics of *destination*, and where each of their partitions begins.

        Raises:
            JMSException: The broker does not answer, or the settlement was written by a later kjms.
        """
        self.sources.flush_queue(topic)
        config, overflow = consumer_settings(self.settings, group), self.overflows.of(topic, group)
        return find_progress(config, str(destination), topic, overflow, decoder("kjms"))


def destination_name(destination: Destination) -> str:
    """Return the name by which options and threads call *destination*."""
    return destination._name


def _source_of(queue: Queue, options: FactoryOptions) -> str:
    """Return the Kafka topic of the queue whose dead letters go to *queue* alone; empty: the options name none."""
    name = (options.defaults.redelivery or RedeliveryPolicy()).source_of(queue.queue_name)
    for each in [*options.destinations, *([] if name is None else [name])]:
        policy = options.destination(each).redelivery or RedeliveryPolicy()
        if policy.source_of(queue.queue_name) == each:
            with suppress(InvalidDestinationException):
                return topic_for(Queue(each), options.queue_prefix, options.topic_prefix)
    return ""


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
