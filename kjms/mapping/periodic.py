"""The definitions of periodic messages, as records among the delayed messages: pure, no I/O.

A definition is the message that is to be sent, with a header `SCHEDULE` whose value is JSON: the name, the times, and
what becomes of a definition of the same name. The owner of the partition accepts or refuses it, and says in notes when
the message comes next (`kjms.mapping.delayed`). Programs that do not know the header take the record for a message that
is due in the far future, and keep it.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from kjms.mapping._record import KafkaRecord, SourceRecord
from kjms.mapping.internal import FLAG, LONG, TEXT, Kind, MalformedError, optional, read_object
from kjms.options import expiration

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.message import Message

__all__ = [
    "SCHEDULE",
    "SCHEDULED_TIME",
    "SCHEDULE_NAME",
    "Definition",
    "defined",
    "definition_of",
    "template",
    "ticked",
]

SCHEDULE: Final = "kjms-schedule"
SCHEDULE_NAME: Final = "JMS_kjms_Schedule"
SCHEDULED_TIME: Final = "JMS_kjms_ScheduledTime"
VERSION: Final = 1
FAR: Final = (1 << 63) - 1
"""When a definition is due to those that do not know what it is."""
OWN: Final = frozenset(
    {"JMSMessageID", "JMSTimestamp", "JMSExpiration", "JMSDeliveryTime", SCHEDULED_TIME, SCHEDULE, "kjms-delayed"}
)
"""The headers that each message gets anew, or does not get."""


@dataclass(frozen=True)
class Definition:
    """When a periodic message is sent, and what its definition replaces.

    Attributes:
        name: Its name; at a destination, there is one definition of a name.
        cron: The cron expression.
        timezone: The time zone that it counts in.
        destination: The destination, as ``queue://NAME`` or ``topic://NAME``.
        message_id: Names the definition; each message's JMSMessageID begins with it.
        replaces: The message id of the definition that this one replaces; ``*`` replaces any, and None none.
        time_to_live: Milliseconds until each message expires; 0: never.
        is_paused: Whether no message is sent.
        next: When the next message is sent, in milliseconds since the epoch; None: it is not accepted yet.
        last: The scheduled time of the last message; 0: there was none.
    """

    name: str
    cron: str
    timezone: str
    destination: str
    message_id: str
    replaces: str | None = None
    time_to_live: int = 0
    is_paused: bool = False
    next: int | None = None
    last: int = 0


_REQUIRED: Final = dict.fromkeys(("name", "cron", "timezone", "destination", "message_id"), TEXT)
_OTHERS: Final[dict[str, Kind]] = {
    "replaces": optional(TEXT),
    "time_to_live": LONG,
    "is_paused": FLAG,
    "next": optional(LONG),
    "last": LONG,
}


def template(message: Message, name: str, destination: Destination, delivery_mode: int, priority: int) -> KafkaRecord:
    """Return the record of *message*, which is left as it was, with the properties of the periodic message *name*.

    Raises:
        MessageFormatException: A text holds a lone surrogate, which UTF-8 cannot carry.
    """
    from kjms.mapping._encode import encode

    own = copy.copy(message)
    own._settle()
    own._stamp(None, 0, destination, delivery_mode, priority, 0, 0)
    own._properties = {**own._properties, SCHEDULE_NAME: name, SCHEDULED_TIME: 0}
    own._types = {**own._types, SCHEDULED_TIME: "long"}
    return encode(own)


def defined(record: KafkaRecord, definition: Definition) -> KafkaRecord:
    """Return the record of *definition*, of which *record* is the message.

    >>> definition = Definition("tea", "0 16 * * *", "UTC", "queue://kitchen", "ID:1")
    >>> record = defined(KafkaRecord(None, b"tea", [], 0), definition)
    >>> record.headers[0]
    ('JMSDeliveryTime', b'9223372036854775807')
    >>> record.headers[1][1][:40]
    b'{"version": 1, "name": "tea", "cron": "0'
    """
    kept = [header for header in record.headers if header[0] not in {SCHEDULE, "JMSDeliveryTime"}]
    members = {"version": VERSION, **asdict(definition)}
    headers = [*kept, ("JMSDeliveryTime", b"%d" % FAR), (SCHEDULE, json.dumps(members).encode())]
    return record._replace(headers=headers)


def definition_of(data: bytes | None) -> Definition | None:
    """Return what a header `SCHEDULE` says; None: it is damaged, or of a later version.

    >>> definition_of(b'{"version": 2}')
    """
    try:
        return Definition(**read_object(data, VERSION, _REQUIRED, _OTHERS))
    except MalformedError:
        return None


def ticked(record: SourceRecord, definition: Definition, scheduled: int, now: int) -> KafkaRecord:
    """Return the message that *record* defines, sent at *now* for the time *scheduled*."""
    headers = [header for header in record.headers() or () if header[0] not in OWN]
    headers.append(("JMSMessageID", f"{definition.message_id}-{scheduled}".encode()))
    headers.append(("JMSTimestamp", b"%d" % now))
    if expires := expiration(now, definition.time_to_live):
        headers.append(("JMSExpiration", b"%d" % expires))
    headers.append((SCHEDULED_TIME, b"%d" % scheduled))
    return KafkaRecord(record.key(), record.value(), headers, now)
