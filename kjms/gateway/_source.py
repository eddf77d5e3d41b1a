"""What one receiver of a client gets its messages from, and the outcomes that the client may give them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from kjms.gateway._window import Window

if TYPE_CHECKING:
    from kjms import Message, MessageConsumer
    from kjms.engine import Delivery

__all__ = ["LinkSink", "LinkSource", "Outcome"]


class Outcome(Enum):
    """The outcome that a client gives a message (AMQP 1.0, part 3, §3.4), or what is known without its answer."""

    ACCEPTED = 0
    RELEASED = 1
    FAILED = 2
    REJECTED = 3
    UNDELIVERABLE = 4  # modified, undeliverable here
    LOST = 5  # the client is gone unexpectedly, and may have processed it
    CUT_OFF = 6  # likewise, since the gateway ends


class LinkSink(Protocol):
    """A link's side in the loop's thread; its methods are called there."""

    def send(self, batch: Sequence[tuple[Delivery | None, bytes]]) -> None:
        """Send messages to the client."""

    def drained(self) -> None:
        """Tell the client that there is nothing more."""

    def fail(self, failure: Exception) -> None:
        """End the link."""


_numbers: Final = itertools.count(1)


class LinkSource:
    """What a client's receiver gets its messages from.

    Args:
        sink: Where they go.
        is_settled: Whether they are settled when they are sent.
        max_unsettled: How many may wait for the client's answer.
    """

    def __init__(self, sink: LinkSink, *, is_settled: bool, max_unsettled: int) -> None:
        self.number = next(_numbers)  # among all links of the process
        self.sink = sink
        self.is_settled = is_settled
        self.max_unsettled = max_unsettled
        self.consumer: MessageConsumer | None = None
        self.browsed: Iterator[Message] | None = None  # a browser's
        self.limit = 0  # how many the client has asked for, since the link began
        self.dispatched = 0
        self.turn = 0  # rises with each message dispatched, and when it begins to wait for one
        self.keeps_turn = False  # whether it was drained, and found too little: it has waited since `turn` rose
        self.unsettled = 0
        self.window = Window()
        self.is_draining = False
        self.is_waiting = False
        self.young_until = 0.0
        self.ends: Mapping[tuple[str, int], int] | None = None  # of the logs, when a drain of a young link began
        self.pauses_until = 0.0

    def is_full(self) -> bool:
        """Return whether the client has enough messages, for the sake of other processes that serve the same queue."""
        return (
            self.unsettled >= self.window.size
            and not self.is_draining
            and self.consumer is not None
            and self.consumer._slot.has_rivals_elsewhere
        )
