"""Serve the delayed messages of an engine's destinations, and create the topics where new ones wait.

A destination whose messages are not due for a while, and that gets no others, has no clients of its own: one request
every two seconds finds out for all such destinations whether anything has changed.

It serves those of each destination that has a reading consumer here, that a delayed message was sent to from here, or
that `serve` was called for.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.delayed.delayed_delivery import DelayedDelivery
from kjms.engine.delayed.rest import Rest, was_made_again
from kjms.engine.interrupts import Event
from kjms.engine.outage import CloseTimeout, level_of
from kjms.engine.skipped import SkippedRecords
from kjms.engine.statistics import DelayedStatistics
from kjms.engine.threads import start_thread
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException
from kjms.mapping.names import delayed

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.engine.consumer.kafka_source import KafkaSource

__all__ = ["Schedule"]

_log = logging.getLogger("kjms.schedule")

CLOSE_SECONDS: Final = 6.0  # how long closing waits for a broker that does not answer
LOOK_SECONDS_EACH: Final = 0.002  # between looks, for each topic: to ask for one takes about a tenth of that


class Schedule:
    """Serves delayed messages, in a thread that looks where there are some, and one for each destination that has.

    Args:
        consumer_config: Gives librdkafka's settings of a consumer in a group, or in none.
        producer_config: Those of producers.
        topics: Knows and makes Kafka topics.
        report: Reports a lasting failure.
        skipped: Counts the records that cannot be read.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        consumer_config: Callable[[str | None], Mapping[str, Any]],
        producer_config: Mapping[str, Any],
        topics: Topics,
        report: Callable[[JMSException], None],
        skipped: SkippedRecords | None = None,
        tuning: Tuning = DEFAULTS,
    ) -> None:
        self._tuning = tuning
        self._consumer_config = consumer_config
        self._producer_config = producer_config
        self._topics = topics
        self._looked_for = 0  # topics, at the last look
        self._report = report
        self.skipped = SkippedRecords() if skipped is None else skipped
        self._sources: weakref.WeakSet[KafkaSource] = weakref.WeakSet()
        self._asked: set[str] = set()
        self._deliveries: dict[str, DelayedDelivery] = {}
        self._resting: dict[str, Rest] = {}  # those that have nothing to do for a while: they are looked at
        self._lock = threading.Lock()
        self._wake = Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Schedule: {sorted(self._deliveries)}>"

    @property
    def reading(self) -> Mapping[str, Any]:
        """Librdkafka's settings of a consumer that looks from outside, in no group."""
        return self._consumer_config(None)

    def statistics(self) -> list[DelayedStatistics]:
        """Return what is served, by topic."""
        with self._lock:
            resting = [DelayedStatistics(topic, (), 0, is_committed=True, is_resting=True) for topic in self._resting]
        serving = [each.statistics() for each in self._deliveries.copy().values()]
        return sorted([*resting, *serving], key=lambda each: each.topic)

    def threads(self) -> list[threading.Thread | None]:
        """Return its threads."""
        return [self._thread, *(each.thread for each in self._deliveries.copy().values())]

    def watch(self, source: KafkaSource) -> None:
        """Serve what *source* reads, whenever it does."""
        with self._lock:
            self._sources.add(source)
            self._begin()

    def serve(self, topic: str) -> None:
        """Serve the delayed messages of the Kafka topic *topic* from now on."""
        if topic in self._asked and topic not in self._resting:
            return
        with self._lock:
            self._asked.add(topic)
            self._resting.pop(topic, None)
            self._begin()
        self._wake.set()

    def prepare(self, topic: str, partitions: int) -> str:
        """Return the Kafka topic for delayed messages of *topic*, which is made where it is missing, and serve it.

        Raises:
            JMSException: It cannot be made.
        """
        name = self.make(topic, partitions)
        self.serve(topic)
        return name

    def make(self, topic: str, partitions: int) -> str:
        """Return the Kafka topic for delayed messages of *topic*, which is made where it is missing.

        Raises:
            JMSException: It cannot be made.
        """
        name = delayed(topic)
        there = self._topics.look_up(name)
        if not there:
            self._topics.ensure_internal(name, like=topic, partitions=partitions, smallest=0)  # too large is too large
        elif there < partitions:
            self._topics.grow(name, partitions)
        return name

    def ends(self, topic: str) -> dict[int, int]:
        """Return where each partition with delayed messages of *topic* ends now; what comes later is not among them.

        Raises:
            JMSException: The broker did not answer, or refused.
        """
        name = delayed(topic)
        return self._topics.ends(name) if self._topics.partitions(name) else {}

    def close(self, timeout: CloseTimeout) -> None:
        """End the threads; other processes take over their partitions."""
        with self._lock:
            self._is_closing = True
        self._wake.set()
        for each in list(self._deliveries.values()):
            each.begin_to_close()
        if self._thread is not None:
            timeout.join(self._thread, CLOSE_SECONDS)

    def _begin(self) -> None:
        if self._thread is None and not self._is_closing:
            self._thread = start_thread(self._run, "kjms-schedule")

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.clear()
            try:
                self._look()
            except JMSException as error:
                _log.log(level_of(error, logging.INFO), "%s", error)
            except Exception:
                if self._is_closing:  # the broker has not answered, and the engine has not waited for it
                    return
                _log.exception("the search for delayed messages failed; kjms tries again")
            if not self._is_closing:
                self._wake.wait(max(self._tuning.delayed_check_seconds, LOOK_SECONDS_EACH * self._looked_for))
        self._end(list(self._deliveries))

    def _look(self) -> None:
        with self._lock:
            wanted = self._asked | {source.topic for source in self._sources if source.is_reading}
        self._let_rest()
        self._look_at_resting(wanted)
        self._looked_for = len(wanted)
        for topic in self._with_delayed(wanted - self._deliveries.keys() - self._resting.keys()):
            if not self._is_closing:
                self._deliveries[topic] = DelayedDelivery(
                    topic,
                    self._consumer_config,
                    self._producer_config,
                    self._topics,
                    self._share,
                    self._report,
                    self.skipped,
                    self._tuning,
                )
        self._end([topic for topic in self._deliveries if topic not in wanted])

    def _let_rest(self) -> None:
        for topic, each in list(self._deliveries.items()):
            if each.rest is not None:
                del self._deliveries[topic]
                each.close()
                with self._lock:
                    self._resting[topic] = each.rest

    def _look_at_resting(self, wanted: Collection[str]) -> None:
        """Let no topic rest whose messages are due soon, whose log has changed, or that is not *wanted* any more."""
        now = self._tuning.now_ms()
        resting = dict(self._resting)
        up = {topic for topic, rest in resting.items() if topic not in wanted or rest.due <= now}
        up.update(
            topic
            for topic in resting.keys() - up
            if was_made_again(self._topics, delayed(topic), resting[topic].identity, self._report)
        )
        try:
            ends = self._topics.log_ends([delayed(topic) for topic in resting.keys() - up])
        except JMSException as error:
            _log.log(level_of(error, logging.INFO), "%s", error)
        else:
            up.update(topic for topic in resting.keys() - up if ends.get(delayed(topic)) != resting[topic].ends)
        with self._lock:
            for topic in up:
                self._resting.pop(topic, None)

    def _with_delayed(self, topics: Collection[str]) -> list[str]:
        """Return those of *topics* of which there are, or were, delayed messages."""
        there = self._topics.counts([delayed(topic) for topic in topics])
        return [topic for topic in topics if delayed(topic) in there]

    def _end(self, topics: Collection[str]) -> None:
        """Serve *topics* no more."""
        going = [self._deliveries.pop(topic) for topic in topics]
        for each in going:
            each.begin_to_close()
        for each in going:
            each.close()

    def _share(self) -> int:
        """Return how many messages a partition may hold in memory."""
        partitions = sum(each.partitions for each in list(self._deliveries.values()))
        return max(self._tuning.delayed_held_each, self._tuning.delayed_held // max(partitions, 1))
