"""Which request each reply is to, and what a reply says: for requests that share one reply destination."""

from __future__ import annotations

import itertools
import logging
import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from kjms.errors import ReplyException
from kjms.mapping.dead_letters import CAUSE, EXCEPTION
from kjms.message import Message, TextMessage

if TYPE_CHECKING:
    from kjms.destinations import Destination

__all__ = ["PendingReplies", "error_reply", "failure_in"]

_log = logging.getLogger("kjms.requests")

W = TypeVar("W")


class PendingReplies(Generic[W]):
    """The requests that wait for their replies; any thread may use it.

    A reply names its request by JMSCorrelationID: the request's own, which is set before the request is sent, or, as
    many services do it, the request's JMSMessageID, which the send sets.

    Attributes:
        late: How many replies came to no request that waits: too late, or a second time.
    """

    def __init__(self) -> None:
        self.late = 0
        self._prefix = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[Message, W]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Message, replies: Destination, waiting: W) -> str:
        """Set the header fields of *request*, for whose reply *waiting* waits; return its correlation id."""
        number = f"{self._prefix}-{next(self._numbers)}"
        request.jms_correlation_id = number
        request.jms_reply_to = replies
        with self._lock:
            self._waiting[number] = request, waiting
        return number

    def discard(self, number: str) -> None:
        """Note that the request *number* waits no more."""
        with self._lock:
            self._waiting.pop(number, None)

    def take(self, reply: Message) -> W | None:
        """Return what waits for *reply*, and waits no more; None: nothing does, which is counted."""
        number = reply.jms_correlation_id
        with self._lock:
            found = None if number is None else self._waiting.pop(number, None)
            if found is None and number is not None:
                same = next((key for key, (each, _) in self._waiting.items() if each.jms_message_id == number), "")
                found = self._waiting.pop(same, None)
            if found is not None:
                return found[1]
            self.late += 1
        _log.info("reply %s is dropped: no request waits for it (JMSCorrelationID %s)", reply.jms_message_id, number)
        return None

    def take_all(self) -> Iterator[W]:
        """Return what waits, and waits no more."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        return iter([each for _, each in waiting.values()])


def failure_in(reply: Message) -> ReplyException | None:
    """Return the exception that *reply* carries instead of a result; None: it is a result."""
    if not reply.property_exists(EXCEPTION) or reply.property_exists(CAUSE):  # a dead letter may be a result
        return None
    name = reply.get_string_property(EXCEPTION)
    said = reply.text if isinstance(reply, TextMessage) else None
    what = f"the service raised {name}: {said}" if said else f"the service raised {name}"
    return ReplyException(what, name, reply=reply)


def error_reply(name: str, text: str) -> Message:
    """Return the reply that says that the service raised an exception of the class *name*, with *text*."""
    message = TextMessage(text)
    message._set_provider_property(EXCEPTION, "string", name)
    return message
