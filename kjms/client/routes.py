"""Routes: where in Kafka a session's messages to a destination go, and in what layout."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from kjms.mapping import ANY_PARTITION, KafkaRecord, confluent, encode
from kjms.mapping.delayed import DELIVERY_TIME
from kjms.mapping.temporary import MESSAGES, address

if TYPE_CHECKING:
    from kjms.engine import Address
    from kjms.message import Message
    from kjms.options import DestinationOptions

__all__ = ["Route", "TemporaryRoute"]


class Route:
    """Where a session's messages to one destination go: the Kafka topic, the partition without a group, the layout."""

    __slots__ = (
        "delayed",
        "encode",
        "group_partition",
        "partition",
        "partitions",
        "sender",
        "sender_without_id",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partitions: int,
        options: DestinationOptions,
        session_id: str,
        sender: bytes | None = None,
        sender_without_id: bytes | None = None,
    ) -> None:
        self.topic = topic
        self.partitions = partitions
        # What is noted in records, so that consumers can leave out their own; apart for messages without an id.
        is_signed = options.convention != "confluent"  # that layout has no place for it
        self.sender = sender if is_signed else None
        self.sender_without_id = sender_without_id if is_signed else None
        # One session's messages stay in order because they share a partition, chosen once and for good.
        in_order = options.ordering != "none"
        self.partition = zlib.crc32(session_id.encode()) % partitions if in_order else ANY_PARTITION
        self.group_partition = ANY_PARTITION
        self.encode: Callable[[Message], KafkaRecord] = (
            confluent.encode if options.convention == "confluent" else encode
        )
        self.delayed: Route | None = None

    def to_later(self, topic: str) -> Route:
        """Return the route to where messages wait until they are due."""
        route = copy(self)
        route.topic = topic
        if self.encode is not encode:  # that layout has no place for the time
            route.encode = self._encode_with_time
        return route

    def _encode_with_time(self, message: Message) -> KafkaRecord:
        record = self.encode(message)
        record.headers.append((DELIVERY_TIME, b"%d" % message.jms_delivery_time))
        return record


class TemporaryRoute(Route):
    """Where messages for a temporary destination go, as long as it is not deleted."""

    __slots__ = ("_address",)

    def __init__(
        self, to: Address, options: DestinationOptions, session_id: str, senders: tuple[bytes | None, bytes | None]
    ) -> None:
        super().__init__(to.inbox, 1, options, session_id, *senders)
        self._address = to
        self.partition = self.group_partition = MESSAGES
        self.encode = self._encode

    def _encode(self, message: Message) -> KafkaRecord:
        self._address.check()
        return address(encode(message), self._address.number)
