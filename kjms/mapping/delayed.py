"""The records of a topic for messages that are not due yet (``<topic>.kjms.delayed``): pure, no I/O.

A message stands there as it was sent; the header ``JMSDeliveryTime`` says when it is due. The process that serves
a partition writes *notes* beside the messages: records with a header ``kjms-delayed`` of ``1;<what>``, where
``<what>`` is ``moved``, ``cancelled`` or ``rewritten``, and a value that is a JSON array: the offsets of the messages
concerned. Any program may write a note ``1;cancel``, which asks for cancellation. The copy of a message carries its
first place: ``kjms-delayed`` is ``1;<partition>;<offset>`` then.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from kjms.mapping._record import KafkaRecord, SourceRecord

__all__ = [
    "CANCEL",
    "CANCELLED",
    "DELAYED",
    "DELIVERY_TIME",
    "MOVED_ON",
    "REWRITTEN",
    "Note",
    "copied",
    "due_at",
    "noted",
    "place_of",
    "read",
]

DELAYED: Final = "kjms-delayed"
LATEST: Final = (1 << 63) - 1  # what a JMS long can say
DIGITS: Final = 20  # more than that has
DELIVERY_TIME: Final = "JMSDeliveryTime"

CANCEL: Final = "cancel"
CANCELLED: Final = "cancelled"
MOVED_ON: Final = "moved"
REWRITTEN: Final = "rewritten"
_KINDS: Final = {b"1;" + kind.encode(): kind for kind in (CANCEL, CANCELLED, MOVED_ON, REWRITTEN)}


class Note(NamedTuple):
    """What a record says of messages in the same partition: `CANCEL`, `CANCELLED`, `MOVED_ON` or `REWRITTEN`."""

    kind: str
    offsets: tuple[int, ...]


def noted(kind: str, offsets: list[int]) -> KafkaRecord:
    """Return the record of a note.

    >>> noted(CANCEL, [5, 8])
    KafkaRecord(key=None, value=b'[5, 8]', headers=[('kjms-delayed', b'1;cancel')], timestamp=0)
    """
    return KafkaRecord(None, json.dumps(offsets).encode(), [(DELAYED, f"1;{kind}".encode())], 0)


def read(record: SourceRecord) -> int | Note:
    """Return when the message of *record* is due, in milliseconds since the epoch, or the note that it is.

    A message that does not say is due at once; so is one of which that cannot be read.
    """
    due = 0
    for name, data in record.headers() or ():
        if name == DELIVERY_TIME:
            due = _number(data)
        elif name == DELAYED and data in _KINDS:
            return Note(_KINDS[data], _offsets(record.value()))
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


def place_of(record: SourceRecord) -> tuple[int, int] | None:
    """Return the partition and the offset where the message of a copy waited first; None: it is no copy."""
    try:
        return _place(record.headers() or [])
    except Exception:  # the client raises on header names that are no UTF-8
        return None


def _place(headers: list[tuple[str, bytes | None]]) -> tuple[int, int] | None:
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
    return min(int(data), LATEST) if len(data) < DIGITS else LATEST


def _offsets(value: bytes | None) -> tuple[int, ...]:
    try:
        offsets = json.loads(value or b"")
    except ValueError:
        return ()
    return tuple(each for each in offsets if isinstance(each, int)) if isinstance(offsets, list) else ()
