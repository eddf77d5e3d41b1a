"""The messages that a change of a queue has received, and what becomes of them, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kjms.admin._messages import OnProgress, Progress
from kjms.engine import LostError
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException

if TYPE_CHECKING:
    from kjms.engine import Delivery, MessageSource

__all__ = ["BATCH", "BATCH_BYTES", "TOO_LARGE", "UNREADABLE", "CarryOut", "Refused", "Seen", "Taking", "after"]

BATCH: Final = 500  # messages of a transaction
BATCH_BYTES: Final = 4 * 1024 * 1024  # of their bodies; one message may be larger
ATTEMPTS: Final = 5  # of a batch whose partitions move to other consumers
MOST_OTHERS: Final = 10_000  # messages that are not of a change and are held back by it: it ends for their sake

TOO_LARGE: Final = "larger than their destination allows"
UNREADABLE: Final = "with headers that cannot be read"

SIZE_ERRORS: Final = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "_MSG_SIZE_TOO_LARGE"})

CarryOut: TypeAlias = "Callable[[Sequence[Delivery], MessageSource], int]"
"""Processes a batch, all of it or nothing, and returns how much was settled."""


class Refused(Exception):
    """A batch was not carried out: each of its messages stays.

    Args:
        failure: Why.
    """

    def __init__(self, failure: JMSException) -> None:
        super().__init__(str(failure))
        self.failure = failure

    @property
    def is_too_large(self) -> bool:
        """Whether a message was larger than its target allows."""
        return self.failure.error_code in SIZE_ERRORS


class Seen(NamedTuple):
    """What there was when a change began.

    Attributes:
        ends: Where the partitions of the queue's own topic ended.
        matched: How many messages matched, up to the limit.
        latest: The latest JMSTimestamp of them, in milliseconds since the epoch.
    """

    ends: dict[int, int]
    matched: int
    latest: int


class Taking:
    """The messages of one change that were received, and what became of them; one thread uses it.

    Args:
        reader: Where the messages come from.
        seen: What there was when the change began.
        carry_out: Processes a batch, all of it or nothing, and returns how much was settled.
        is_mine: Returns whether a message is of the change; None: all are.
        name: What progress and errors call the queue.
        on_progress: Called after each batch.

    Attributes:
        done: How many were processed.
        stay: How many stay, by reason.
    """

    def __init__(
        self,
        reader: MessageSource,
        seen: Seen,
        carry_out: CarryOut,
        is_mine: Callable[[Delivery], bool] | None,
        name: str,
        on_progress: OnProgress | None,
    ) -> None:
        self._reader = reader
        self._seen = seen
        self._carry_out = carry_out
        self._is_mine = is_mine
        self._name = name
        self._on_progress = on_progress
        self._batch: list[Delivery] = []
        self._size = 0
        self._held: list[Delivery] = []  # that stay, or are not of the change: they are not to come again meanwhile
        self._others = 0  # of those, the ones that are not of the change
        self._attempts = 0
        self.done = 0
        self.stay: Counter[str] = Counter()

    @property
    def wants_more(self) -> bool:
        """Whether there may be more messages of the change."""
        known = self.done + len(self._batch) + self.stay.total()
        return known < self._seen.matched and self._others < MOST_OTHERS

    @property
    def has_batch(self) -> bool:
        """Whether messages wait to be processed."""
        return bool(self._batch)

    @property
    def is_ready(self) -> bool:
        """Whether a batch is complete."""
        return len(self._batch) >= BATCH or self._size >= BATCH_BYTES

    def add(self, delivery: Delivery) -> None:
        """Take *delivery*."""
        record = delivery.record
        is_later = (record.offset() or 0) >= self._seen.ends.get(record.partition() or 0, 0)
        if is_later or not (self._is_mine is None or self._is_mine(delivery)):
            self._held.append(delivery)
            self._others += 1
            return
        self._batch.append(delivery)
        self._size += len(record.value() or b"")

    def carry_out(self) -> None:
        """Process what was taken.

        Raises:
            JMSException: It failed; what was processed before stays so.
        """
        batch, self._size = [each for each in self._batch if self._is_readable(each)], 0
        self._batch = batch
        if not batch:
            return
        try:
            self._process(batch)
        except JMSException as failure:
            raise after(self.done, failure) from failure
        if self._on_progress is not None:
            self._on_progress(Progress(self.done, self._seen.matched, self._name))

    def _is_readable(self, delivery: Delivery) -> bool:
        try:
            delivery.record.headers()
        except Exception:  # the client raises on header names that are no UTF-8
            self._hold([delivery], UNREADABLE)
            return False
        return True

    def _process(self, batch: list[Delivery]) -> None:
        """Process *batch*, which is the end of what was taken."""
        try:
            self.done += self._carry_out(batch, self._reader)
        except Refused as refusal:
            if refusal.is_too_large and len(batch) == 1:
                self._hold(batch, TOO_LARGE)
            elif refusal.is_too_large:
                for delivery in batch:
                    self._process([delivery])
                return
            elif isinstance(refusal.failure, LostError) and self._attempts < ATTEMPTS:
                self._attempts += 1
                self._reader.give_back(batch, is_counted=False)  # what is still held comes again
            else:
                raise refusal.failure from refusal
        done = set(batch)
        self._batch = [each for each in self._batch if each not in done]

    def _hold(self, deliveries: Sequence[Delivery], why: str) -> None:
        self._held += deliveries
        self.stay[why] += len(deliveries)

    def give_back(self) -> None:
        """Give back what was not processed."""
        left = sorted([*self._batch, *self._held], key=lambda each: each.order)
        self._reader.give_back(left, is_counted=False)


def after(done: int, failure: JMSException) -> JMSException:
    """Return the error of a change that failed after *done* messages; it has the type of *failure*."""
    text = f"{done:,} message{'' if done == 1 else 's'} processed before this error: {failure}"
    kind = type(failure) if isinstance(failure, JMSSecurityException | InvalidDestinationException) else JMSException
    return kind(text, failure.error_code, failure)
