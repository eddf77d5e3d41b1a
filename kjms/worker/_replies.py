"""Replies of workers: what goes to the JMSReplyTo of a message, and what is dropped because the asker has gone."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from kjms.client.creating import message_of
from kjms.client.dead_letters import exception_name
from kjms.client.replies import error_reply
from kjms.destinations import TemporaryQueue, TemporaryTopic
from kjms.verdicts import Retry

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.errors import InvalidDestinationException
    from kjms.message import Message
    from kjms.worker._listener import Listener

__all__ = ["DroppedReplies", "answers", "reply_to", "with_exception"]

_log = logging.getLogger("kjms.worker")


class DroppedReplies:
    """Counts the replies whose asker has gone; any thread may use it.

    Attributes:
        count: How many there were.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, listener: Listener, request: Message, failure: InvalidDestinationException) -> None:
        """Count a reply that was not sent because of *failure*.

        Raises:
            InvalidDestinationException: It is *failure*: what it was to be sent to is no temporary destination, which
                goes with the asker.
        """
        if not isinstance(request.jms_reply_to, TemporaryQueue | TemporaryTopic):
            raise failure
        with self._lock:
            self.count += 1
        _log.info("%s: the reply to message %s is dropped: %s", listener.name, request.jms_message_id, failure)


def reply_to(request: Message, value: Any) -> tuple[Destination, Message] | None:
    """Return where the reply *value* to *request* goes, and as what; None where none is asked for.

    It names the request by its JMSCorrelationID, or else by its JMSMessageID (JMS 2.0 §3.4.5).
    """
    destination = request.jms_reply_to
    if destination is None:
        return None
    message: Message = message_of(value)
    text, data = request.jms_correlation_id, request.jms_correlation_id_as_bytes
    if text is None or data is None:
        message.jms_correlation_id = request.jms_message_id
    elif data != text.encode() and data.decode(errors="replace") == text:  # set as bytes, which are no text
        message.jms_correlation_id_as_bytes = data
    else:
        message.jms_correlation_id = text
    return destination, message


def answers(listener: Listener, request: Message, error: BaseException) -> bool:
    """Return whether *error*, which the function raised for *request*, is its reply."""
    is_answer = isinstance(error, Exception) and not isinstance(error, Retry)
    return listener.error_replies and is_answer and request.jms_reply_to is not None


def with_exception(error: BaseException) -> Message:
    """Return the reply that says what the function raised."""
    return error_reply(exception_name(error), str(error))
