"""Temporary destinations in Kafka: how they are called, what addresses a record to one, and which are gone. Pure.

An engine that has temporary destinations has one Kafka topic for all of them, its inbox. Each is called by the inbox
and a number, as in ``kjms.inbox.anonymous.x8sYqP4mFv2kQw1Z/17``, and a message for it says the number in the header
``kjms-to``. Partition 0 carries the messages, partition 1 says which numbers are deleted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

from kjms.destinations import Destination
from kjms.errors import InvalidDestinationException, shown
from kjms.mapping._record import KafkaRecord, SourceRecord
from kjms.mapping.internal import MalformedError, read_number, read_text
from kjms.mapping.names import INBOX, is_inbox

__all__ = [
    "DELETIONS",
    "MESSAGES",
    "PARTITIONS",
    "TO",
    "Numbers",
    "address",
    "addressed_to",
    "deletion",
    "letters_name",
    "place_of",
    "read_deletion",
    "temporary_name",
]

TO: Final = "kjms-to"
DELETED: Final = "kjms-deleted"
MESSAGES: Final = 0
DELETIONS: Final = 1
PARTITIONS: Final = 2


def temporary_name(inbox: str, number: int) -> str:
    """Return the name of the temporary destination *number* of *inbox*."""
    return f"{inbox}/{number}"


def place_of(destination: Destination) -> tuple[str, int]:
    """Return the inbox that a temporary destination is in, and its number there.

    Raises:
        InvalidDestinationException: No temporary destination is called so.

    >>> from kjms.destinations import TemporaryQueue
    >>> place_of(TemporaryQueue("kjms.inbox.anonymous.x8s/17"))
    ('kjms.inbox.anonymous.x8s', 17)
    """
    inbox, _, number = destination._name.rpartition("/")
    if not is_inbox(inbox) or not number.isascii() or not number.isdigit() or len(number) > 18:
        raise InvalidDestinationException(
            f"{shown(str(destination))} is not a temporary destination: a session creates these (JMS 2.0 §4.4.3)"
        )
    return inbox, int(number)


def address(record: KafkaRecord, number: int) -> KafkaRecord:
    """Address *record* to the temporary destination *number* of the inbox that it is sent to."""
    record.headers.append((TO, b"%d" % number))
    return record


def addressed_to(record: SourceRecord) -> int | None:
    """Return the number of the temporary destination that *record* is for; None: it does not say, or not rightly."""
    try:
        headers = record.headers() or ()
    except Exception:  # the client raises on header names that are no UTF-8
        return None
    for name, value in reversed(headers):
        if name == TO:
            return int(value) if value is not None and value.isdigit() and len(value) <= 18 else None
    return None


class Numbers:
    """A set of whole numbers that are mostly close together: kept as runs.

    >>> numbers = Numbers()
    >>> numbers.add_all([(1, 4), (7, 8), (4, 5)])
    >>> str(numbers), 4 in numbers, 5 in numbers
    ('1-4 7', True, False)
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._pasts: list[int] = []  # the number after the last one of each run

    def add(self, number: int) -> None:
        """Take *number* in."""
        self.add_all([(number, number + 1)])

    def add_all(self, runs: Iterable[tuple[int, int]]) -> None:
        """Take in *runs*: the first number of each, and the one after its last."""
        for first, past in runs:
            low, high = bisect_left(self._pasts, first), bisect_right(self._firsts, past)  # the runs that it joins
            self._firsts[low:high] = [min([first, *self._firsts[low : low + 1]]) if low < high else first]
            self._pasts[low:high] = [max([past, *self._pasts[high - 1 : high]]) if low < high else past]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._pasts[at]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(list(zip(self._firsts, self._pasts, strict=True)))

    def __str__(self) -> str:
        return " ".join(f"{first}" if past == first + 1 else f"{first}-{past - 1}" for first, past in self)


def deletion(numbers: Numbers) -> KafkaRecord:
    """Return the record that says that *numbers* are deleted."""
    return KafkaRecord(None, str(numbers).encode(), [(DELETED, b"1")], 0)


def letters_name(destination: Destination) -> str:
    """Return what stands for the name of a temporary destination where its dead letters go: the principal's.

    >>> from kjms.destinations import TemporaryQueue
    >>> letters_name(TemporaryQueue("kjms.inbox.anonymous.x8s/17"))
    'kjms.temporary.anonymous'
    """
    inbox, _ = place_of(destination)
    return f"kjms.temporary.{inbox.removeprefix(INBOX).rpartition('.')[0]}"


def read_deletion(record: SourceRecord) -> list[tuple[int, int]]:
    """Return the runs of numbers that *record* says are deleted; none if it says nothing of the kind.

    Raises:
        MalformedError: It says so, and not what.

    >>> numbers = Numbers(); numbers.add_all([(3, 4), (5, 9)])
    >>> sent = deletion(numbers)
    >>> class Read:
    ...     headers, value = (lambda self: sent.headers), (lambda self: sent.value)
    >>> read_deletion(Read())
    [(3, 4), (5, 9)]
    """
    try:
        headers = record.headers() or ()
    except Exception:  # the client raises on header names that are no UTF-8
        raise MalformedError("the names of its headers are not UTF-8") from None
    if (DELETED, b"1") not in headers:
        return []
    runs = []
    for run in read_text(record.value()).split():
        first, _, last = run.partition("-")
        begin, past = read_number(first), read_number(last or first) + 1
        if begin >= past:
            raise MalformedError("it has a run that ends before it begins")
        runs.append((begin, past))
    return runs
