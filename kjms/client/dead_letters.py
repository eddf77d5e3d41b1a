"""Messages whose delivery failed: when they are delivered again, and what is written on those that are not."""

from __future__ import annotations

import logging
import os
import random
import socket
import sys
import traceback
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeVar

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic
from kjms.engine import Copy, destination_name
from kjms.errors import BodyConversionException
from kjms.mapping.dead_letters import (
    EXCEPTION,
    EXCEPTION_TEXT,
    FIRST_FAILURE,
    HOST,
    LAST_FAILURE,
    PROCESS,
    TRACEBACK,
    Cause,
    origin_partition,
    retried_record,
)
from kjms.mapping.temporary import letters_name
from kjms.options import RedeliveryPolicy, is_one_of
from kjms.verdicts import Reject, Retry, Verdict

if TYPE_CHECKING:
    from kjms.engine import Delivery, Engine, WantedTopic
    from kjms.mapping import SourceRecord
    from kjms.message import Message
    from kjms.options import FactoryOptions

__all__ = [
    "Redelivery",
    "exception_name",
    "handled_exception",
    "is_rejected",
    "retried_message",
    "says_all",
    "with_handled_exception",
]

T = TypeVar("T")

_log = logging.getLogger("kjms.redelivery")

LONGEST_TEXT: Final = 4_096  # characters of an exception's text
LONGEST_TRACEBACK: Final = 16_384  # characters, the last ones: they name the place that failed
MOVE_SECONDS: Final = 3.0  # for a dead letter to be moved, as closing waits; a queue that takes none holds nothing up
EXPIRED: Final = "expired"


Headers = list[tuple[str, "bytes | None"]]


class Redelivery:
    """What becomes of messages whose delivery failed, as the options of their destinations say.

    Args:
        engine: Moves messages.
        options: The factory's options.
        on_dead_letter: Called with each dead letter's delivery, message and queue, and with what was raised.
    """

    def __init__(
        self,
        engine: Engine,
        options: FactoryOptions,
        on_dead_letter: Callable[[Delivery, Message, Queue, BaseException | None], None] | None = None,
    ) -> None:
        self._engine = engine
        self._options = options
        self._on_dead_letter = on_dead_letter

    def policy(self, destination: Destination) -> RedeliveryPolicy:
        """Return the redelivery policy of *destination*."""
        return self._options.destination(destination_name(destination)).redelivery or RedeliveryPolicy()

    def due(self, delivery: Delivery, releases: int = 0) -> int:
        """Return when *delivery*, which is not the first of its message, may be made.

        Args:
            delivery: The delivery.
            releases: How many deliveries more than its count says count towards the delay.
        """
        assert delivery.slot is not None
        policy = self.policy(delivery.slot.reader.destination)
        delay = policy.delay_before(delivery.count + releases, random.random())
        return self._engine.tuning.now_ms() + delay if delay else 0

    def judges(self, delivery: Delivery, error: BaseException) -> bool:
        """Return whether *error*, a verdict or one that the policy names, decides more of *delivery* than its failure.

        Args:
            delivery: The delivery; a session has it.
            error: What the program raised while it worked on it.
        """
        assert delivery.slot is not None
        policy = self.policy(delivery.slot.reader.destination)
        return isinstance(error, Verdict) or is_rejected(error, policy) or is_one_of(error, policy.retry_on)

    def rejects(self, delivery: Delivery, error: BaseException) -> bool:
        """Return whether *delivery*, for which the program raised *error*, was the last; note why, for people."""
        assert delivery.slot is not None
        is_last = is_rejected(error, self.policy(delivery.slot.reader.destination))
        attempts = delivery.attempts
        attempts.cause = _cause(error, attempts.cause, is_rejected=is_last)
        return is_last

    def due_as_asked(
        self, error: BaseException | None, judged: Delivery, due: Callable[[Delivery], int] | None
    ) -> Callable[[Delivery], int] | None:
        """Return what says when messages may be delivered again: *due*, but of *judged* what *error* asks for."""
        if not isinstance(error, Retry) or error.after is None:
            return due
        at = self._engine.tuning.now_ms() + error.after
        return lambda delivery: at if delivery is judged else due(delivery) if due is not None else 0

    def was_last(self, delivery: Delivery, error: BaseException | None, *, is_rejected: bool = False) -> bool:
        """Tell whether *delivery*, which failed, was the last; if so, move its message to the dead-letter queue.

        Args:
            delivery: The delivery; a session has it.
            error: What was raised, where that is known.
            is_rejected: Whether it was the last however few there were.
        """
        assert delivery.slot is not None
        most = self.policy(delivery.slot.reader.destination).max_deliveries
        if delivery.counted_if_failed < most and not is_rejected:
            return False
        self.dead_letter(delivery, error)
        return True

    def was_released_too_often(self, delivery: Delivery, releases: int) -> bool:
        """Tell whether a client has released *delivery* for the last time; if so, move it to the dead-letter queue.

        Args:
            delivery: The delivery; a session has it.
            releases: How often that client has released its message, this time included.
        """
        assert delivery.slot is not None
        if delivery.counted_if_failed - 1 + releases < self.policy(delivery.slot.reader.destination).max_deliveries:
            return False
        self.dead_letter(delivery, None)
        return True

    def is_one_too_many(self, delivery: Delivery) -> bool:
        """Tell whether *delivery* must not be made: its message was delivered often enough, and is moved.

        That happens where the consumer of the last delivery ended unexpectedly, or had another policy. Where that
        brought several messages to their limit, the oldest is moved, and the others are delivered once more.
        """
        assert delivery.slot is not None
        reader = delivery.slot.reader
        most = self.policy(reader.destination).max_deliveries
        if delivery.counted <= most or not reader.is_to_blame(delivery, most):
            return False
        self.dead_letter(delivery, None)
        reader.relocations.finish(MOVE_SECONDS)  # before the others, one of which may kill this process, too
        return True

    def dead_letter(self, delivery: Delivery, error: BaseException | None) -> None:
        """Move the message of *delivery*, which failed with *error*, to the dead-letter queue, and log that."""
        assert delivery.slot is not None
        reader = delivery.slot.reader
        destination = reader.destination
        is_temporary = isinstance(destination, TemporaryQueue | TemporaryTopic)
        name = letters_name(destination) if is_temporary else destination_name(destination)
        queue = Queue(self.policy(destination).dead_letter_queue(name))
        delivery.decoded = None  # the application may have changed it
        delivery.failed(self._engine.tuning.now_ms())
        message = delivery.message(destination)
        _log.warning(
            "message %s of %s becomes a dead letter in %s after %s: %s",
            message.jms_message_id,
            destination,
            queue,
            "1 delivery" if delivery.made == 1 else f"{delivery.made} deliveries",
            delivery.attempts.cause or "its last consumer did not acknowledge it",
        )
        details = self._options.destination(destination_name(destination)).dead_letter_details
        times = "1 time" if delivery.made == 1 else f"{delivery.made} times"
        cause = f"delivered {times}{delivery.attempts.cause and f'; {delivery.attempts.cause}'}"
        failure = _failure(delivery, error, details)
        why = Cause(cause, str(destination), delivery.made, *failure)
        reader.dead_letter(delivery, why, self._wanted(queue, delivery), "dead letter")
        if self._on_dead_letter is not None:
            self._on_dead_letter(delivery, message, queue, error)

    def expire(self, delivery: Delivery, queue_name: str) -> None:
        """Move the message of *delivery*, which has expired, to the expiry queue *queue_name*."""
        assert delivery.slot is not None
        delivery.count -= 1  # it is not made
        reader = delivery.slot.reader
        why = Cause(EXPIRED, str(reader.destination), delivery.made)
        reader.dead_letter(delivery, why, self._wanted(Queue(queue_name), delivery), "expired")

    def _wanted(self, queue: Queue, delivery: Delivery) -> WantedTopic:
        """Return the Kafka topic of *queue*, which is to take what the topic of *delivery* takes."""
        return self._engine.wanted_topic(queue, self._options, like=delivery.record.topic() or "")


def is_rejected(error: BaseException, policy: RedeliveryPolicy) -> bool:
    """Return whether a message is a dead letter at once by *policy*, because its program raised *error*."""
    if isinstance(error, Verdict):
        return isinstance(error, Reject)
    if is_one_of(error, policy.dead_letter_on):
        return True
    if policy.retry_on:  # what stops a program is no failure of its message, unless it is named
        return isinstance(error, Exception) and not is_one_of(error, policy.retry_on)
    return isinstance(error, BodyConversionException)


def says_all(error: BaseException) -> bool:
    """Return whether the text of *error* is for people and holds no value of a message: no traceback says more."""
    return isinstance(error, Verdict | BodyConversionException)


def _cause(error: BaseException, said: str, *, is_rejected: bool) -> str:
    """Return why a message failed for which *error* was raised; *said* is what is known without looking at that."""
    if isinstance(error, Verdict):
        word = "rejected" if is_rejected else "to be retried"
        return f"{word}: {error.reason[:LONGEST_TEXT]}" if error.reason else word
    if isinstance(error, BodyConversionException):
        return "its body is not what the listener takes"
    return f"{said}, which is not retried" if is_rejected else said


_handled: ContextVar[BaseException | None] = ContextVar("the exception that another thread handles", default=None)


def handled_exception() -> BaseException | None:
    """Return the exception that the program handles at present: most likely why it rolls back, recovers or closes."""
    return sys.exc_info()[1] or _handled.get()


def with_handled_exception(call: Callable[[], T]) -> Callable[[], T]:
    """Return *call* for another thread, where `handled_exception` then says what it says here."""
    error = handled_exception()
    if error is None:
        return call

    def called() -> T:
        token = _handled.set(error)
        try:
            return call()
        finally:
            _handled.reset(token)

    return called


def exception_name(error: BaseException) -> str:
    """Return the name of the exception's type, with its module unless it is a built-in."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _failure(delivery: Delivery, error: BaseException | None, details: str | None) -> tuple[Headers, Headers]:
    """Return the headers that say how *delivery* failed, and those that may hold data or be large."""
    failure: Headers = [
        (HOST, socket.gethostname().encode("ascii", "backslashreplace")),
        (PROCESS, b"%d" % os.getpid()),
        (FIRST_FAILURE, b"%d" % delivery.attempts.first_failure),
        (LAST_FAILURE, b"%d" % delivery.attempts.last_failure),
    ]
    if error is None:
        return failure, []
    failure.insert(0, (EXCEPTION, exception_name(error).encode("utf-8", "backslashreplace")))
    more: Headers = []
    if details is not None or says_all(error):
        more.append((EXCEPTION_TEXT, _text(error)[:LONGEST_TEXT].encode("utf-8", "backslashreplace")))
    if details == "traceback":
        lines = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        more.append((TRACEBACK, lines[-LONGEST_TRACEBACK:].encode("utf-8", "backslashreplace")))
    return failure, more


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as failure:  # an application's exception may fail to describe itself
        return f"<no text: {type(failure).__name__}>"


def retried_message(record: SourceRecord, topic: str, partitions: int, now: int) -> Copy:
    """Return the message again that became the dead letter *record*, for where it came from.

    Args:
        record: The dead letter.
        topic: The Kafka topic that the message came from.
        partitions: How many partitions that has.
        now: Milliseconds since the epoch.
    """
    number = origin_partition(record)
    place = -1 if record.key() is not None else number if 0 <= number < partitions else 0
    return Copy(topic, place, retried_record(record, now))
