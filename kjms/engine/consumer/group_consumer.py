"""The thread that reads one Kafka topic, as a member of a consumer group or without one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.consumer.lifecycle import Event, State
from kjms.engine.consumer.offset_committer import TICK_SECONDS
from kjms.engine.kafka import ConsumerPort, KafkaException, KafkaMessage, jms_error, open_consumer
from kjms.engine.outage import FULL_TIMEOUT, CloseTimeout
from kjms.engine.threads import start_thread
from kjms.errors import ResourceAllocationException

if TYPE_CHECKING:
    from kjms.engine.consumer.access_denial import AccessDenial
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.fetch_positions import FetchPositions
    from kjms.engine.consumer.flow_control import FlowControl
    from kjms.engine.consumer.lifecycle import Lifecycle
    from kjms.engine.consumer.rebalancing import Rebalancing
    from kjms.engine.consumer.slots import StartedSlots
    from kjms.engine.consumer.standalone import StandaloneReading
    from kjms.engine.consumer.topic_identity import TopicIdentity
    from kjms.engine.consumer.upkeep import Upkeep

__all__ = ["GroupConsumer"]

_log = logging.getLogger("kjms.consumer")

RETRY_SECONDS: Final = 1.0  # between a failure of the thread and its next start
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a broker that does not answer


class GroupConsumer:
    """Owns the Kafka consumer and its thread: polls, pauses, and follows the group.

    The thread runs, and is a member of the group, while a started slot is there. It alone polls. Other threads use the
    client, to commit, when it is out of its poll (`ConsumerClient`).

    Args:
        name: The destination's name, for thread names and logs.
        config: librdkafka's settings of the consumer.
        client: Holds the Kafka consumer.
        lifecycle: The state of the thread.
        slots: Know whether there is anything to read for.
        rebalancing: The part in the group.
        standalone: Reads without a group; None: there is one.
        fetch: What the client fetches.
        flow: How much is read, and when.
        upkeep: Commits now and then.
        identities: Notices that a topic was made again.
        access: Receives failures.
        arrived: Takes records in.
        changed: The condition of the group consumer's lock.
    """

    def __init__(
        self,
        name: str,
        config: Mapping[str, Any],
        client: ConsumerClient,
        lifecycle: Lifecycle,
        slots: StartedSlots,
        rebalancing: Rebalancing,
        standalone: StandaloneReading | None,
        fetch: FetchPositions,
        flow: FlowControl,
        upkeep: Upkeep,
        identities: TopicIdentity,
        access: AccessDenial,
        arrived: Callable[[Sequence[KafkaMessage]], None],
        changed: threading.Condition,
    ) -> None:
        self.thread: threading.Thread | None = None
        self._name = name
        self._config = config
        self._client = client
        self._lifecycle = lifecycle
        self._slots = slots
        self._rebalancing = rebalancing
        self._standalone = standalone
        self._fetch = fetch
        self._flow = flow
        self._upkeep = upkeep
        self._identities = identities
        self._access = access
        self._arrived = arrived
        self._changed = changed

    def __repr__(self) -> str:
        return f"<GroupConsumer {self._name}: {self._lifecycle.state.name}>"

    @property
    def is_closed(self) -> bool:
        """Whether closing was asked for."""
        return self._lifecycle.is_closed

    @property
    def is_paused(self) -> bool:
        """Whether nothing is fetched, since consumers have had enough for a while."""
        return self._fetch.reading.is_paused

    def start(self) -> None:
        """Begin to read, unless a thread does, or closing was asked for; the caller holds the lock.

        Raises:
            JMSException: librdkafka refuses a setting.
            ResourceAllocationException: The process may have no more threads.
        """
        if self._lifecycle.state is not State.IDLE:
            return
        try:
            self._client.consumer = open_consumer(self._config)
        except KafkaException as error:
            raise jms_error(error, f"read {self._name}") from error
        self._lifecycle.apply(Event.START)
        try:
            self.thread = start_thread(self._run, f"kjms-consumer-{self._name}")
        except ResourceAllocationException:
            self._client.consumer = None
            self._lifecycle.apply(Event.LEAVE)
            self._lifecycle.apply(Event.LEFT)
            raise

    def begin_to_close(self) -> None:
        """Have the thread leave the group and end; messages in flight go to the next owner of their partitions."""
        with self._changed:
            self._lifecycle.apply(Event.CLOSE)
            self._changed.notify_all()

    def close(self, timeout: CloseTimeout = FULL_TIMEOUT) -> None:
        """Leave the group and end the thread; where the broker does not answer, the thread ends when it does."""
        self.begin_to_close()
        thread = self.thread
        if thread is None:
            return
        if not timeout.join(thread, CLOSE_SECONDS):
            _log.warning(
                "consumer of %s: the broker does not answer; its partitions are released when it does", self._name
            )

    # The thread.

    def _run(self) -> None:
        consumer = self._client.consumer
        assert consumer is not None
        try:
            self._join(consumer)
            self._upkeep.begin()
            checked = time.monotonic()
            while not (self._may_end() or self._lifecycle.is_outdated):
                self._upkeep.prove()
                self._fetch.open_forgotten(consumer)
                if self._flow.is_full():
                    self._wait_for_space(consumer)
                else:
                    self._read(consumer)
                    self._flow.wait_for_demand()
                self._flow.release()
                self._flow.rank()
                self._flow.end_stuck_rotations()
                self._flow.share()
                self._fetch.reread(consumer)
                now = time.monotonic()
                if now - checked >= TICK_SECONDS:
                    self._check_topics()
                    self._flow.wake_others()
                    checked = now
                if self._upkeep.tick(now):
                    self._read_added(consumer, now)
        except Exception as error:  # it must be reported before the thread ends
            self._access.failed(self._name, error)
            self._flow.wait_after_failure(RETRY_SECONDS)
        finally:
            self._leave(consumer)

    def _join(self, consumer: ConsumerPort) -> None:
        if self._standalone is None:
            self._rebalancing.join(consumer)
            return
        self._standalone.begin()
        with self._client.turn:
            self._standalone.assign(consumer)

    def _may_end(self) -> bool:
        if self._slots.count or self._standalone is not None:
            return self._lifecycle.is_closed
        return self._lifecycle.is_closed or self._slots.may_rest

    def _read(self, consumer: ConsumerPort) -> None:
        """Take what the broker has; wait for it only while a consumer here waits, too."""
        room = self._flow.room()
        with self._client.turn:
            self._fetch.unassign_left(consumer)
            first = self._rebalancing.poll(consumer, self._flow.poll_seconds())
            records = [] if first is None else [first]
            if records and room > 1:
                records += consumer.consume(room - 1, 0)
            has_read = len(records) > 1 or (first is not None and first.error() is None)  # else it is an end, if at all
            self._fetch.reading.resume_later(consumer, has_read=has_read)
            if not records:
                return
        self._arrived(records)
        self._fetch.skip_known(consumer)

    def _wait_for_space(self, consumer: ConsumerPort) -> None:
        """Wait until consumers have taken half of what is ready; meanwhile stay a member of the group."""
        if not self._flow.wait_for_space():
            return
        with self._client.turn:
            self._fetch.reading.pause(consumer)
        while not (self._flow.has_space() or self._may_end() or self._lifecycle.is_outdated):
            self._flow.wait_for_change()
            self._upkeep.prove()
            self._check_topics()
            self._flow.wake_others()
            self._flow.release()
            self._flow.rank()
            self._flow.end_stuck_rotations()
            self._flow.share()
            self._upkeep.commit()
            with self._client.turn:
                record = self._rebalancing.poll(consumer, 0)  # nothing of what is paused, but of a new partition
            if record is not None:
                self._arrived([record])
        with self._client.turn:
            self._fetch.reading.resume(consumer)

    def _check_topics(self) -> None:
        """Begin anew, with another client, where a topic was deleted and made again."""
        if self._identities.give_up_former():
            with self._changed:
                self._lifecycle.apply(Event.OUTDATE)
            if self._standalone is not None:
                self._standalone.restart()

    def _read_added(self, consumer: ConsumerPort, now: float) -> None:
        """Read partitions that were added to a topic that is read without a group."""
        standalone = self._standalone
        if standalone is not None and standalone.is_due(now) and standalone.find_added():
            with self._client.turn:
                standalone.assign(consumer)

    def _leave(self, consumer: ConsumerPort) -> None:
        with self._changed:
            self._lifecycle.apply(Event.LEAVE)
        self._rebalancing.leave(consumer)
        with self._changed:
            self._client.consumer = self.thread = None
            self._lifecycle.apply(Event.LEFT)
            if self._slots.count:  # a slot was started meanwhile, or the thread failed
                self.start()
