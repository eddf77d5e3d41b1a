"""A consumer's membership in its group: what its rebalance callbacks raise comes out of the poll that ran them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from kjms.engine.kafka import ConsumerPort, KafkaMessage, TopicPartition

__all__ = ["Membership", "OnRebalance"]

JOIN_SECONDS: Final = 2.0  # how long closing waits for the member id, and polls are short for the first partitions
LEAVE_SECONDS: Final = 5.0  # how long partitions may take to be given up before the consumer is closed all the same
POLL_SECONDS: Final = 0.005

_log = logging.getLogger("kjms.consumer")

OnRebalance: TypeAlias = Callable[[ConsumerPort, list[TopicPartition]], None]


class Membership:
    """Polls a consumer that is a member of a group; used by one thread.

    Kafka's client does not handle an exception of a callback properly, so it is kept until the poll has ended.
    """

    def __init__(self) -> None:
        self._failure: Exception | None = None
        self._joins_until = 0.0  # nothing is assigned yet, and until then it may be soon
        self._assigned: set[tuple[str, int]] = set()  # by the group; what the consumer reads besides is not in it

    @property
    def has_failed(self) -> bool:
        """Whether the next `poll` raises what a callback raised meanwhile."""
        return self._failure is not None

    def subscribe(
        self,
        consumer: ConsumerPort,
        topic: str,
        *,
        on_assign: OnRebalance,
        on_revoke: OnRebalance,
        on_lost: OnRebalance,
    ) -> None:
        """Join the group of *consumer*, to read *topic*; the callbacks are called by `poll`."""
        self._joins_until = time.monotonic() + JOIN_SECONDS
        consumer.subscribe(
            [topic],
            on_assign=self._keeping(on_assign, self._joined),
            on_revoke=self._keeping(on_revoke, self._assigned.difference_update),
            on_lost=self._keeping(on_lost, self._assigned.difference_update),
        )

    def poll(self, consumer: ConsumerPort, seconds: float) -> KafkaMessage | None:
        """Return a record of *consumer*, or None if none came within *seconds*; raise what a callback raised.

        A poll does not end when a callback has assigned partitions, but what the callback put off waits for its end. So
        polls are short until the first partitions are assigned.
        """
        if self._joins_until and time.monotonic() < self._joins_until:
            seconds = min(seconds, POLL_SECONDS)
        record = consumer.poll(seconds)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return record

    def close(self, consumer: ConsumerPort) -> None:
        """Give up what the group assigned to *consumer*, as the callbacks say, leave the group, and close it.

        Closing alone would call them as well. But librdkafka may then end the group while they give partitions up,
        and forget to answer them: the thread waits without end, and with it all others of the process. Or it ends the
        group without a LeaveGroup request, and the other members' next rebalance, with their commits behind it, waits
        for the session time-out. The member id goes with that request. Partitions that *consumer* reads without the
        group (`Consumer.incremental_assign`) are not waited for: the group never revokes them.

        A consumer that has no member id yet may have asked for one. Without it, librdkafka cannot leave, while the
        broker has every rebalance wait, for the session time-out, until that member joins.
        """
        for step in (self._receive_id, self._leave):
            try:
                step(consumer)
            except Exception:
                _log.exception("giving up partitions failed")
        consumer.close()

    def _receive_id(self, consumer: ConsumerPort) -> None:
        self._poll_while(lambda: not consumer.memberid(), consumer, JOIN_SECONDS)

    def _leave(self, consumer: ConsumerPort) -> None:
        consumer.unsubscribe()
        self.poll(consumer, 0)
        self._poll_while(lambda: self._assigned or consumer.memberid(), consumer, LEAVE_SECONDS)

    def _poll_while(self, condition: Callable[[], object], consumer: ConsumerPort, seconds: float) -> None:
        """Poll while *condition* holds, for *seconds* at the most; what comes is read again by the next owner."""
        deadline = time.monotonic() + seconds
        while condition() and time.monotonic() < deadline:
            self.poll(consumer, POLL_SECONDS)

    def _joined(self, places: Iterable[tuple[str, int]]) -> None:
        self._joins_until = 0.0
        self._assigned.update(places)

    def _keeping(self, callback: OnRebalance, change: Callable[[Iterable[tuple[str, int]]], None]) -> OnRebalance:
        def call(consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
            change([(each.topic, each.partition) for each in partitions])
            try:
                callback(consumer, partitions)
            except Exception as error:
                self._failure = error

        return call
