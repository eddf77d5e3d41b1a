"""A session that takes messages in batches, for a program that processes each elsewhere and settles it at once."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from kjms.client.brokered_session import BrokeredSession
from kjms.engine import KafkaSource

if TYPE_CHECKING:
    from kjms.client.consumer import MessageConsumer
    from kjms.engine import Delivery
    from kjms.message import Message

__all__ = ["BatchSession"]

REVOKE_SECONDS: Final = 120.0  # Kafka waits five minutes for a member of a group (max.poll.interval.ms)
_in_log_order = attrgetter("partition.topic", "partition.number", "offset")


class BatchSession(BrokeredSession):
    """Takes, settles and gives back messages by the batch; to it, a batch of 100,000 messages is a few runs of offsets.

    A message whose delivery failed before, alone, is recorded before it is delivered again. A message of a batch that
    was only possibly processed is not: the dispatch limit tells as much of it.
    """

    def take(self, consumer: MessageConsumer, most: int, most_bytes: int) -> tuple[list[Delivery], int]:
        """Return the messages that are at hand for *consumer*, and the bytes of their bodies.

        If there are none, `wait` returns when there may be some.

        Args:
            consumer: The consumer.
            most: The most messages.
            most_bytes: The most bytes of their bodies, but for the last message's.

        Raises:
            JMSException: Kafka did not take the note that a message is delivered again; none is taken then.
            JMSSecurityException: Kafka does not let this user read there.
        """
        core, slot, destination = self._core, consumer._slot, consumer._destination
        taken: list[tuple[Delivery, Message]] = []
        left = most_bytes
        with core.guard.taken_to("receive"), core.delivering:
            try:
                while len(taken) < most and left > 0:
                    delivery = slot.poll()
                    if delivery is None:
                        slot.reader.refusal.check()
                        break
                    message = core.acceptable(delivery, destination, records=delivery.counted > 1)
                    if message is not None:
                        taken.append((delivery, message))
                        left -= len(delivery.record.value() or b"")
            except BaseException:
                self._brokered.hold(taken)
                self.release([delivery for delivery, _ in taken])
                raise
            self._brokered.hold(taken)
        return [delivery for delivery, _ in taken], most_bytes - left

    def keep(self, consumer: MessageConsumer, *, is_processing: bool) -> None:
        """Have rebalances wait while a batch is processed, for two minutes, so that no other consumer gets it, too."""
        source = consumer._slot.reader
        if isinstance(source, KafkaSource):
            source.wait_before_revoking(REVOKE_SECONDS if is_processing else 0.0)

    def position(self, consumer: MessageConsumer) -> int | None:
        """Return how far the partitions that are held were read; None: none is, or a message is ready or under way."""
        source = consumer._slot.reader
        if not isinstance(source, KafkaSource):
            return 0
        now = source.statistics()
        if not now.partitions or now.ready or now.in_flight or now.moving or now.group_blocked:
            return None
        return sum(each.position for each in now.partitions)

    def settle(self, deliveries: Sequence[Delivery]) -> int:
        """Settle *deliveries* durably; return of how many partitions it came too late: others deliver those messages.

        Raises:
            JMSException: Kafka did not take it.
        """
        self.accept(sorted(deliveries, key=_in_log_order))
        return self._brokered.flush()
