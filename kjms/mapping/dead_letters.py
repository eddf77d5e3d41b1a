"""What a dead letter carries: the message, why it is one, and where it came from: pure, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kjms.mapping._record import KafkaRecord, SourceRecord
from kjms.mapping.delayed import DELAYED

__all__ = [
    "CAUSE",
    "CUT",
    "DELIVERIES",
    "DESTINATION",
    "DETAILS",
    "EXCEPTION",
    "EXCEPTION_TEXT",
    "EXPIRATION",
    "FIRST_FAILURE",
    "HOST",
    "LAST_FAILURE",
    "NUMBERS",
    "OFFSET",
    "PARTITION",
    "PROCESS",
    "TOPIC",
    "TRACEBACK",
    "Cause",
    "dead_letter",
    "origin_partition",
    "retried_record",
]

CAUSE: Final = "JMS_kjms_Cause"
DESTINATION: Final = "JMS_kjms_OriginalDestination"
TOPIC: Final = "JMS_kjms_OriginalTopic"
PARTITION: Final = "JMS_kjms_OriginalPartition"
OFFSET: Final = "JMS_kjms_OriginalOffset"
DELIVERIES: Final = "JMS_kjms_Deliveries"
EXPIRATION: Final = "JMS_kjms_OriginalExpiration"
CUT: Final = "JMS_kjms_Omitted"
EXCEPTION: Final = "JMS_kjms_Exception"
EXCEPTION_TEXT: Final = "JMS_kjms_ExceptionMessage"
TRACEBACK: Final = "JMS_kjms_Traceback"
HOST: Final = "JMS_kjms_Host"
PROCESS: Final = "JMS_kjms_Process"
FIRST_FAILURE: Final = "JMS_kjms_FirstFailure"
LAST_FAILURE: Final = "JMS_kjms_LastFailure"
FAILURE: Final = (EXCEPTION, EXCEPTION_TEXT, TRACEBACK, HOST, PROCESS, FIRST_FAILURE, LAST_FAILURE)
# Where a delayed message waited goes as well: it says which subscriptions of a topic are to get it, and no more does.
OWN: Final = frozenset({CAUSE, DESTINATION, TOPIC, PARTITION, OFFSET, DELIVERIES, EXPIRATION, CUT, DELAYED, *FAILURE})
NUMBERS: Final[Mapping[str, str]] = {
    DELIVERIES: "int",
    PARTITION: "int",
    OFFSET: "long",
    EXPIRATION: "long",
    PROCESS: "int",
    FIRST_FAILURE: "long",
    LAST_FAILURE: "long",
}
"""The types of those properties of a dead letter that are numbers: their names say it, and no header does.

So they are numbers also where the message has no header for the types of its properties.
"""
EXPIRES: Final = "JMSExpiration"
DETAILS: Final = "details"
"""What `CUT` says where the text and the traceback of the exception are left out: of the message itself, nothing is."""

Headers = Sequence[tuple[str, "bytes | None"]]


class Cause(NamedTuple):
    """Why a message becomes a dead letter.

    Attributes:
        text: In words.
        destination: The destination that it came from.
        deliveries: How often it was delivered.
        failure: Headers that say how its last delivery failed.
        details: Those that may be large, and are left out where the dead letter is too large with them.
    """

    text: str
    destination: str
    deliveries: int
    failure: Headers = ()
    details: Headers = ()


def dead_letter(record: SourceRecord, cause: Cause, *, has_details: bool = True) -> KafkaRecord:
    """Return the dead letter of the message in *record*. It does not expire.

    Args:
        record: The message; all of it is kept.
        cause: Why it is one.
        has_details: Whether the dead letter has the details; else it says that they are left out.
    """
    own = [header for header in record.headers() or () if header[0] not in OWN]
    headers: list[tuple[str, bytes | None]] = [(EXPIRATION if name == EXPIRES else name, data) for name, data in own]
    headers += [
        (CAUSE, cause.text.encode()),
        (DELIVERIES, b"%d" % cause.deliveries),
        (DESTINATION, cause.destination.encode()),
        (TOPIC, str(record.topic()).encode()),
        (PARTITION, b"%d" % (record.partition() or 0)),
        (OFFSET, b"%d" % (record.offset() or 0)),
        *cause.failure,
    ]
    headers += cause.details if has_details else [(CUT, DETAILS.encode())]
    return KafkaRecord(record.key(), record.value(), headers, max(record.timestamp()[1], 0))


def origin_partition(record: SourceRecord) -> int:
    """Return the partition that the dead letter *record* came from."""
    return _number(dict(record.headers() or ()).get(PARTITION))


def retried_record(record: SourceRecord, now: int) -> KafkaRecord:
    """Return the message again that became the dead letter *record*.

    It is as it was, without a trace of its deliveries. It expires when it would have, unless that time is over.

    Args:
        record: The dead letter.
        now: Milliseconds since the epoch.
    """
    expiration = dict(record.headers() or ()).get(EXPIRATION)
    headers = [header for header in record.headers() or () if header[0] not in OWN]
    if _number(expiration) > now:
        headers.append((EXPIRES, expiration))
    return KafkaRecord(record.key(), record.value(), headers, max(record.timestamp()[1], 0))


def _number(data: bytes | None) -> int:
    try:
        return int(data or b"0")
    except ValueError:
        return 0
