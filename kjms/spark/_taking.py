"""The driver's consumer: what it consumes, and which messages are in its next batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kjms.client.batch_session import BatchSession
from kjms.client.engine_access import engine_of, options_of
from kjms.destinations import Destination, Queue
from kjms.errors import InvalidDestinationException, shown
from kjms.mapping.names import queue_group
from kjms.spark._cluster import connected, source_options, topic_of
from kjms.spark._pending import pending_records
from kjms.spark._plans import place_of, runs_below
from kjms.spark._reading import Subscription, destination_struct

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kjms import Connection, ConnectionFactory
    from kjms.client.consumer import MessageConsumer
    from kjms.engine import Delivery
    from kjms.spark._former import FormerBatches

__all__ = ["Source", "Taker"]

MOST_BYTES: Final = 128 * 1024 * 1024  # of the bodies of a batch: the driver holds them meanwhile
MOST_RUNS: Final = 5_000  # of a batch: each is a row of a table that all executors get
LINGER_SECONDS: Final = 0.1  # without another message, until a batch is complete
FULL_SECONDS: Final = 5.0  # until a batch is complete to which messages are still added
IDLE_SECONDS: Final = 10.0  # without any message, until an empty batch ends; its function is not called
LOOK_SECONDS: Final = 0.2  # how soon the end of the query is noticed
QUIET_SECONDS: Final = 3.0  # without a message, until what was pending counts as consumed
JOIN_SECONDS: Final = 15.0  # longer than Kafka takes to notice that the driver before this one was killed


class Source:
    """What is consumed, and how the driver becomes a consumer of it; the arguments are those of `consume_stream`.

    Attributes:
        destination: The queue, or the topic of the subscription.
        topic: Its Kafka topic.
        group: The consumer group.
        told: What people call it.
        struct: The destination as a struct, as text of SQL.
        options: The options of Spark's Kafka source for the cluster.
    """

    def __init__(
        self,
        factory: ConnectionFactory,
        queue: Queue | Subscription,
        selector: str | None,
        user: str | None,
        password: str | None,
    ) -> None:
        self._factory = factory
        self._credentials = user, password
        self._selector = selector
        self._subscription = queue if isinstance(queue, Subscription) else None
        self._no_local = self._is_shared = False
        with connected(factory, user, password) as connection:
            if isinstance(queue, Subscription):
                if selector is not None:
                    raise ValueError(f"selector: subscription {queue.name!r} has its own; give none")
                self._find(connection, queue)
            elif type(queue) is Queue:
                self.destination: Destination = queue
                self.topic = topic_of(factory, queue)
                self.group = queue_group(self.topic)
                self.told = str(queue)
                engine_of(connection).topic_of(queue, options_of(factory), is_consumed=True)
            else:
                raise InvalidDestinationException(f"a queue or a Subscription is consumed, not {shown(queue)}")
        self.struct = destination_struct(self.destination)
        self.options = source_options(factory, user, password)

    def _find(self, connection: Connection, subscription: Subscription) -> None:
        for found in engine_of(connection).admin.subscriptions():
            if (found.identity.name, found.identity.client_id) == (subscription.name, subscription.client_id):
                terms = found.terms
                self.destination, self.topic, self.group = terms.destination, terms.topic, found.group
                self._selector = None if terms.selector is None else terms.selector.text
                self._no_local, self._is_shared = terms.no_local, terms.is_shared
                self.told = f"subscription {found.identity} on {terms.destination}"
                return
        whose = "" if subscription.client_id is None else f" of client {subscription.client_id!r}"
        raise InvalidDestinationException(f"there is no subscription {subscription.name!r}{whose}")

    def connect(self) -> Connection:
        """Return the connection of the driver's consumer, not started."""
        from kjms.client.connection import Connection

        client_id = None if self._subscription is None else self._subscription.client_id
        return Connection(replace(options_of(self._factory), client_id=client_id), *self._credentials)

    def open(self, session: BatchSession) -> MessageConsumer:
        """Return the driver's consumer."""
        if self._subscription is None:
            return session.create_consumer(self.destination, self._selector)
        create = session.create_shared_durable_consumer if self._is_shared else session.create_durable_consumer
        name = self._subscription.name
        return create(self.destination, name, self._selector, self._no_local)  # type: ignore[arg-type]

    def pending(self, spark: SparkSession, options: Mapping[str, str]) -> DataFrame:
        """Return the records of all messages that are not settled, as they were sent."""
        queues = {self.topic: self.destination}
        return pending_records(spark, self._factory, queues, options, *self._credentials, self.group)

    def unsettled(self) -> list[tuple[str, int, int, int]] | None:
        """Return the runs of offsets that may be unsettled: topic, partition, first and one past.

        None: messages stand where they were moved, and were perhaps sent anywhere.
        """
        with connected(self._factory, *self._credentials) as connection:
            found = engine_of(connection).progress(self.destination, self.topic, self.group)
        runs: list[tuple[str, int, int, int]] = []
        for standing, low in found:
            state, end = standing.state, standing.end
            mine = [
                (standing.topic, standing.number, max(first, state.committed_offset, low), min(past, end))
                for first, past in (*state.runs, (state.known, end))
            ]
            mine = [run for run in mine if run[2] < run[3]]
            if mine and standing.topic != self.topic:
                return None
            runs += mine
        return runs


class Taker:
    """Takes the messages of one batch after the other; used by the query's thread.

    Args:
        source: What is consumed.
        former: The batches that were processed, and not settled as a whole.
        most: The most messages of a batch.
        ends: Whether it is to be noticed when what was pending is consumed.

    Attributes:
        connection: The connection of the driver's consumer.
        session: The session, which the query's thread alone uses.
        consumer: The consumer.
        settled: How many messages were settled so far.
        is_over: Set when what was pending is consumed.
    """

    def __init__(self, source: Source, former: FormerBatches, most: int, *, ends: bool) -> None:
        self.settled = 0
        self.is_over = threading.Event()
        self._former = former
        self._most = most
        self._ends = ends
        self._begin = self._quiet_since = time.monotonic()
        self._position: int | None = None
        self.connection = source.connect()
        try:
            self.session = self.connection._open_session(BatchSession, BatchSession.INDIVIDUAL_ACKNOWLEDGE)
            self.consumer = source.open(self.session)
        except BaseException:
            self.connection.close()
            raise

    def take(self, is_active: Callable[[], bool]) -> list[Delivery]:
        """Return the messages of the next batch; none: there were none for a while, or the query ends.

        Raises:
            JMSException: Kafka does not answer, or does not let this user read.
        """
        session, consumer = self.session, self.consumer
        taken: list[Delivery] = []
        size = 0
        begin = changed = time.monotonic()
        try:
            while is_active():
                some, more = session.take(consumer, self._most - len(taken), MOST_BYTES - size)
                now = time.monotonic()
                if some:
                    begin = begin if taken else now
                    taken += self._without_processed(some)
                    size += more
                    changed = self._quiet_since = now
                if taken:
                    is_full = len(taken) >= self._most or size >= MOST_BYTES or now - begin > FULL_SECONDS
                    if is_full or now - changed > LINGER_SECONDS:
                        return self._in_few_runs(taken)
                elif self._is_all_consumed(now):
                    self.is_over.set()  # and no batch begins any more: the query ends during this one
                elif now - changed > IDLE_SECONDS and not self._ends:
                    return []
                if not some:
                    session.wait(LINGER_SECONDS if taken else LOOK_SECONDS)
        except BaseException:
            session.release(taken)
            raise
        finally:
            session.rest(consumer)
        session.release(taken)
        return []

    def _in_few_runs(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return so many of *deliveries* that they are not too many runs; the others go back."""
        placed = sorted(
            (each.partition.topic, each.partition.number, each.offset, at) for at, each in enumerate(deliveries)
        )
        fits = list(runs_below((place[:3] for place in placed), MOST_RUNS))
        if fits[-1]:
            return deliveries
        kept = {place[3] for place, is_inside in zip(placed, fits, strict=True) if is_inside}
        self.session.release([each for at, each in enumerate(deliveries) if at not in kept])
        return [each for at, each in enumerate(deliveries) if at in kept]

    def _without_processed(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Return those of *deliveries* that no former batch had; settle the others as that batch would have."""
        if not self._former:
            return deliveries
        fresh: list[Delivery] = []
        done: list[Delivery] = []
        for delivery in deliveries:
            outcome = self._former.outcome(place_of(delivery), delivery.counted - 1)
            if outcome is None:
                fresh.append(delivery)
            elif outcome:
                self.session.fail([delivery], outcome)
            else:
                done.append(delivery)
        if done:
            self.settled += len(done)
            self.session.settle(done)
        return fresh

    def _is_all_consumed(self, now: float) -> bool:
        """Return whether nothing came for a while, although partitions are held, or Kafka would have given some."""
        if not self._ends:
            return False
        position = self.session.position(self.consumer)
        if position != self._position or (position is None and now - self._begin < JOIN_SECONDS):
            self._position, self._quiet_since = position, now
        return now - self._quiet_since > QUIET_SECONDS

    def settle(self, deliveries: Sequence[Delivery], failed: Mapping[tuple[str, int, int], str]) -> int:
        """Settle *deliveries*, but for those that *failed*, which the redelivery policy gets.

        Returns:
            Of how many partitions it came too late: other consumers get their messages, too.

        Raises:
            JMSException: Kafka did not take it.
        """
        done = list(deliveries)
        if failed:
            done = []
            for delivery in deliveries:
                reason = failed.get(place_of(delivery))
                if reason is None:
                    done.append(delivery)
                else:
                    self.session.fail([delivery], reason)
        self.settled += len(done)
        return self.session.settle(done)
