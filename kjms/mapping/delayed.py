"""The records of a topic for messages that are not due yet (``<topic>.kjms.delayed``): pure, no I/O.

A message stands there as it was sent; the header ``JMSDeliveryTime`` says when it is due. The process that serves
a partition writes *notes* beside the messages: records with a header ``kjms-delayed`` of ``1;<what>``, where
``<what>`` is ``moved``, ``cancelled`` or ``rewritten``, and a value that is a JSON array: the offsets of the messages
concerned. Any program may write a note ``1;cancel``, which asks for cancellation, or ``1;deliver``, which asks for
delivery before the time. The copy of a message carries its first place: ``kjms-delayed`` is ``1;<partition>;<offset>``
then.

Definitions of periodic messages (`kjms.mapping.periodic`) stand there as well. An array in a note ``moved``,
``[offset, next, last]``, says when the message of a definition comes next, and which time it was sent for last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from kjms.mapping._record import KafkaRecord, SourceRecord
from kjms.mapping.internal import LONG, LONGEST, MalformedError, read_array
from kjms.mapping.periodic import SCHEDULE, Definition, definition_of

__all__ = [
    "CANCEL",
    "CANCELLED",
    "DELAYED",
    "DELIVER",
    "DELIVERY_TIME",
    "MOVED_ON",
    "REQUESTS",
    "REWRITTEN",
    "Note",
    "Progress",
    "copied",
    "due_at",
    "early",
    "noted",
    "place_of",
    "read",
]

DELAYED: Final = "kjms-delayed"
DIGITS: Final = 20  # more than that has
DELIVERY_TIME: Final = "JMSDeliveryTime"

CANCEL: Final = "cancel"
CANCELLED: Final = "cancelled"
DELIVER: Final = "deliver"
MOVED_ON: Final = "moved"
REWRITTEN: Final = "rewritten"
_KINDS: Final = {b"1;" + kind.encode(): kind for kind in (CANCEL, CANCELLED, DELIVER, MOVED_ON, REWRITTEN)}
REQUESTS: Final = frozenset({CANCEL, DELIVER})
"""Notes that ask the owner of the partition for something; the others say what became of messages."""


class Progress(NamedTuple):
    """What a note says of the definition of a periodic message; it never goes back.

    Attributes:
        offset: Where the definition stands.
        next: When the message is sent next, in milliseconds since the epoch.
        last: The time that it was sent for last; 0: it was not sent yet.
    """

    offset: int
    next: int
    last: int


class Note(NamedTuple):
    """What a record says of messages in its partition: `CANCEL`, `CANCELLED`, `DELIVER`, `MOVED_ON` or `REWRITTEN`."""

    kind: str
    offsets: tuple[int, ...]
    progress: tuple[Progress, ...] = ()


def noted(kind: str, offsets: Sequence[int | Progress]) -> KafkaRecord:
    """Return the record of a note.

    >>> noted(CANCEL, [5, 8])
    KafkaRecord(key=None, value=b'[5, 8]', headers=[('kjms-delayed', b'1;cancel')], timestamp=0)
    >>> noted(MOVED_ON, [5, Progress(8, next=2_000, last=1_000)]).value
    b'[5, [8, 2000, 1000]]'
    """
    return KafkaRecord(None, json.dumps(offsets).encode(), [(DELAYED, f"1;{kind}".encode())], 0)


def read(record: SourceRecord) -> int | Note | Definition:
    """Return when the message of *record* is due, in milliseconds since the epoch, or the note or definition it is.

    A message that does not say is due at once; so is one of which that cannot be read.

    Raises:
        MalformedError: Its headers cannot be read, or it is a note that cannot.
    """
    due = 0
    try:
        headers = record.headers() or ()
    except Exception:  # the client raises on header names that are no UTF-8
        raise MalformedError("the names of its headers are not UTF-8") from None
    for name, data in headers:
        if name == DELIVERY_TIME:
            due = _number(data)
        elif name == DELAYED and data in _KINDS:
            return _note(_KINDS[data], record)
        elif name == SCHEDULE:
            definition = definition_of(data)
            if definition is not None:
                return definition
    return due


def due_at(record: SourceRecord) -> int:
    """Return when the message of *record* is due, in milliseconds since the epoch; 0 where it does not say."""
    try:
        return next((_number(data) for name, data in record.headers() or () if name == DELIVERY_TIME), 0)
    except Exception:  # the client raises on header names that are no UTF-8
        return 0


def copied(record: SourceRecord) -> KafkaRecord:
    """Return the copy of a waiting message: all that was sent, and where it stood first."""
    headers = list(record.headers() or ())
    if _place(headers) is None:
        headers = [header for header in headers if header[0] != DELAYED]
        headers.append((DELAYED, b"1;%d;%d" % (record.partition() or 0, record.offset() or 0)))
    return KafkaRecord(record.key(), record.value(), headers, max(record.timestamp()[1], 0))


def early(record: KafkaRecord, now: int) -> KafkaRecord:
    """Return *record*, the copy of a message that was to be delivered later, as one that is due *now*.

    >>> early(KafkaRecord(None, b"", [("JMSDeliveryTime", b"9000")], 0), 2_000).headers
    [('JMSDeliveryTime', b'2000')]
    """
    due = b"%d" % now
    return record._replace(headers=[(name, due if name == DELIVERY_TIME else data) for name, data in record.headers])


def place_of(record: SourceRecord) -> tuple[int, int] | None:
    """Return the partition and the offset where the message of a copy waited first; None: it is no copy."""
    try:
        return _place(record.headers() or ())
    except Exception:  # the client raises on header names that are no UTF-8
        return None


def _place(headers: Sequence[tuple[str, bytes | None]]) -> tuple[int, int] | None:
    for name, data in headers:
        if name == DELAYED:
            version, _, place = (data or b"").partition(b";")
            number, _, offset = place.partition(b";")
            if version == b"1" and number.isdigit() and offset.isdigit():
                return int(number), int(offset)
    return None


def _number(data: bytes | None) -> int:
    if data is None or not data.isdigit():
        return 0
    return min(int(data), LONGEST) if len(data) < DIGITS else LONGEST


def _note(kind: str, record: SourceRecord) -> Note:
    found = read_array(record.value())
    numbers = [each for each in found if isinstance(each, int)]
    arrays = [
        each
        for each in found
        if isinstance(each, list) and len(each) == 3 and all(isinstance(part, int) for part in each)
    ]
    if not all(map(LONG.accepts, (*numbers, *(part for each in arrays for part in each)))):
        raise MalformedError("it has something other than offsets and times")
    own = record.offset() or 0
    if kind in REQUESTS:  # what is not there does not wait
        return Note(kind, tuple(offset for offset in numbers if offset < own))
    if any(offset >= own for offset in (*numbers, *(each[0] for each in arrays))):
        raise MalformedError("it is about a record that comes after it")
    return Note(kind, tuple(numbers), tuple(Progress(*each) for each in arrays))
