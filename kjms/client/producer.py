"""Sending messages: what a producer adds to a message, and how long it waits."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, overload

from kjms.client.closing import AutoCloseable
from kjms.destinations import Destination, Queue, Topic
from kjms.errors import IllegalStateException, InvalidDestinationException, MessageFormatException, shown
from kjms.message import Message, from_foreign
from kjms.options import (
    LARGEST_LONG,
    DeliveryMode,
    checked_delivery_mode,
    checked_priority,
    expiration,
    milliseconds,
)

if TYPE_CHECKING:
    from kjms.client.completion_listener import CompletionListener
    from kjms.client.session_sender import SessionSender

__all__ = ["MessageProducer"]

KINDS: Final = (Queue, Topic)  # what a message is sent to; `Queue | Topic` would be made anew for each send


class MessageProducer(AutoCloseable):
    """Sends messages to a destination, or to one named with each send; made by `kjms.Session.create_producer`.

    Spec: JMS 2.0 §4.6.
    """

    def __init__(
        self,
        sender: SessionSender,
        destination: Destination | None,
        on_close: Callable[[MessageProducer], None] | None = None,
    ) -> None:
        self._sender = sender
        self._on_close = on_close
        self._destination = destination
        self._route = sender.route(destination) if destination is not None else None
        self._delivery_mode = DeliveryMode.PERSISTENT
        self._priority = 4
        self._time_to_live = 0
        self._delivery_delay = 0
        self._disable_message_id = False
        self._disable_message_timestamp = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._delivery_mode.name}, priority {self._priority}"
        return f"<{type(self).__name__} to {self._destination!r}: {state}>"

    @property
    def destination(self) -> Destination | None:
        """Where the producer sends to; None when each send says it (JMS 2.0 §4.6)."""
        self._check_open("destination")
        return self._destination

    @property
    def delivery_mode(self) -> DeliveryMode:
        """The delivery mode of sends that name none; PERSISTENT unless set (JMS 2.0 §3.4.2)."""
        self._check_open("delivery_mode")
        return self._delivery_mode

    @delivery_mode.setter
    def delivery_mode(self, mode: DeliveryMode | int) -> None:
        self._check_open("delivery_mode")
        self._delivery_mode = checked_delivery_mode(mode, "delivery_mode")

    @property
    def priority(self) -> int:
        """The priority of sends that name none, 0 to 9; 4 unless set (JMS 2.0 §3.4.10)."""
        self._check_open("priority")
        return self._priority

    @priority.setter
    def priority(self, priority: int) -> None:
        self._check_open("priority")
        self._priority = checked_priority(priority)

    @property
    def time_to_live(self) -> int:
        """How long messages live from their sending, in milliseconds (JMS 2.0 §3.4.9).

        0, and what ends beyond the times that a long holds, is without limit.
        """
        self._check_open("time_to_live")
        return self._time_to_live

    @time_to_live.setter
    def time_to_live(self, duration: int | timedelta) -> None:
        self._check_open("time_to_live")
        self._time_to_live = milliseconds(duration, "time_to_live")

    @property
    def delivery_delay(self) -> int:
        """How long messages wait from their sending before they may be delivered, in milliseconds (JMS 2.0 §3.4.13)."""
        self._check_open("delivery_delay")
        return self._delivery_delay

    @delivery_delay.setter
    def delivery_delay(self, duration: int | timedelta) -> None:
        self._check_open("delivery_delay")
        self._delivery_delay = milliseconds(duration, "delivery_delay")

    @property
    def disable_message_id(self) -> bool:
        """Whether messages go without an id (JMS 2.0 §3.4.3)."""
        self._check_open("disable_message_id")
        return self._disable_message_id

    @disable_message_id.setter
    def disable_message_id(self, value: bool) -> None:
        self._check_open("disable_message_id")
        self._disable_message_id = bool(value)

    @property
    def disable_message_timestamp(self) -> bool:
        """Whether messages go without a JMSTimestamp (JMS 2.0 §3.4.4)."""
        self._check_open("disable_message_timestamp")
        return self._disable_message_timestamp

    @disable_message_timestamp.setter
    def disable_message_timestamp(self, value: bool) -> None:
        self._check_open("disable_message_timestamp")
        self._disable_message_timestamp = bool(value)

    @overload
    def send(
        self,
        message: Message,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> None: ...
    @overload
    def send(
        self,
        destination: Destination,
        message: Message,
        /,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> None: ...
    def send(
        self,
        message: Any,
        destination: Any = None,
        delivery_mode: DeliveryMode | int | None = None,
        priority: int | None = None,
        time_to_live: int | timedelta | None = None,
        delivery_delay: int | timedelta | None = None,
        completion_listener: CompletionListener | None = None,
    ) -> None:
        """Send *message*; its JMS headers are set by this call (JMS 2.0 §3.4.11).

        A destination may stand before the message, as in JMS: ``send(destination, message)``.

        A PERSISTENT message is sent when all in-sync replicas have it: this call returns then, or, with a
        *completion_listener*, that is called then. A NON_PERSISTENT message is not waited for.

        Args:
            message: Any object with the interface of a JMS message (JMS 2.0 §3.12).
            destination: Where to, when not to the producer's own.
            delivery_mode: PERSISTENT or NON_PERSISTENT; None: the producer's.
            priority: 0 to 9; None: the producer's.
            time_to_live: Milliseconds until it expires, 0 for never; None: the producer's. What ends beyond the times
                that a long holds never expires either.
            delivery_delay: Milliseconds until it may be delivered; None: the producer's.
            completion_listener: Makes the send asynchronous (JMS 2.0 §4.6.2).

        Raises:
            MessageFormatException: *message* is None or no message.
            InvalidDestinationException: There is no destination, it is none, or Kafka has no such topic.
            ResourceAllocationException: The message is too large, or the buffer stayed full.
            JMSException: Kafka did not confirm it within the send timeout.
            ValueError: A mode, priority or duration is out of its range.
        """
        if self._is_closed:
            self._check_open("send")
        if not isinstance(message, Message) or not (destination is None or isinstance(destination, KINDS)):
            message, destination = _message_and_destination(message, destination)
        target = self._destination if destination is None else destination
        if target is None:
            raise InvalidDestinationException(
                "send: neither the producer nor the call names a destination (JMS 2.0 §4.6)"
            )
        if completion_listener is not None and not callable(getattr(completion_listener, "on_completion", None)):
            raise ValueError(f"a completion listener has on_completion, and is not {shown(completion_listener)}")
        own = message if isinstance(message, Message) else from_foreign(message)
        delay = self._delivery_delay if delivery_delay is None else milliseconds(delivery_delay, "delivery_delay")
        self._set_headers(own, target, delivery_mode, priority, time_to_live, delay)
        route = self._route if destination is None else None
        if route is None:
            route = self._sender.route(target)
        if delay:
            route = self._sender.delayed(route)
        if own is not message:
            _copy_headers(own, message)  # before: a completion listener may be called while this thread still sends
        self._sender.send(own, route, completion_listener, message)

    def _set_headers(
        self,
        message: Message,
        destination: Destination,
        delivery_mode: DeliveryMode | int | None,
        priority: int | None,
        time_to_live: int | timedelta | None,
        delivery_delay: int,
    ) -> None:
        now = self._sender.now_ms()
        if delivery_delay > LARGEST_LONG - now:
            raise ValueError(f"delivery_delay: {delivery_delay} ms end beyond what a long holds (JMS 2.0 §3.4.13)")
        lives = self._time_to_live if time_to_live is None else milliseconds(time_to_live, "time_to_live")
        message._stamp(
            None if self._disable_message_id else self._sender.next_message_id(),
            0 if self._disable_message_timestamp else now,
            destination,
            self._delivery_mode if delivery_mode is None else checked_delivery_mode(delivery_mode, "delivery_mode"),
            self._priority if priority is None else checked_priority(priority),
            expiration(now, lives) if lives else 0,
            now + delivery_delay,
        )

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            self._sender.check_own(doing)
            raise IllegalStateException(f"{doing}: this producer is closed (JMS 2.0 §4.6)")

    def close(self) -> None:
        """Close the producer, after its asynchronous sends have completed (JMS 2.0 §4.6.2.4).

        Raises:
            IllegalStateException: A completion listener of its session called it.
        """
        if not self._is_closed:
            self._sender.finish("close")
            self._is_closed = True
            if self._on_close is not None:
                self._on_close(self)


def _message_and_destination(first: object, second: object) -> tuple[Any, Destination | None]:
    """Return the message and the destination of a send, which may stand in either order.

    Raises:
        MessageFormatException: There is no message.
        InvalidDestinationException: What stands beside the message is no destination.
    """
    if isinstance(first, KINDS) or isinstance(second, Message):  # the order of JMS
        first, second = second, first
    if first is None:
        raise MessageFormatException("send: the message is None (JMS 2.0 §4.6)")
    if isinstance(first, KINDS):
        raise MessageFormatException(
            f"send: {second} and {first} are both destinations; name one destination and the message (JMS 2.0 §4.6)"
        )
    if second is not None and not isinstance(second, KINDS):
        raise InvalidDestinationException(
            f"send: a destination is a Queue or a Topic, not {shown(second)} (JMS 2.0 §4.6)"
        )
    return first, second


def _copy_headers(source: Message, target: Message) -> None:
    for name in (
        "jms_destination",
        "jms_delivery_mode",
        "jms_priority",
        "jms_expiration",
        "jms_delivery_time",
        "jms_timestamp",
        "jms_message_id",
    ):
        setattr(target, name, getattr(source, name))
