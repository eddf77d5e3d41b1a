"""What the two directions of the mapping share: names and numbers on the wire, and destinations as addresses. Pure."""

from __future__ import annotations

from typing import Any, Final

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic, parse_destination
from kjms.errors import InvalidDestinationException
from kjms.mapping.amqp.types import Symbol
from kjms.mapping.temporary import place_of
from kjms.message._property_names import CONTENT_TYPE

__all__ = [
    "CONTENT_ENCODING",
    "CONTENT_TYPE",
    "DELIVERY_TIME",
    "DEST",
    "FIRST_ACQUIRER",
    "JAVA",
    "KINDS",
    "MSG_TYPE",
    "OBJECT_CODEC",
    "OCTETS",
    "OWN",
    "REPLY_TO",
    "REPLY_TO_GROUP",
    "REST",
    "SENT_TO",
    "SERIALIZED",
    "TTL",
    "TYPED",
    "kind_number",
    "parse_address",
]

# Message annotations (mapping §10).
MSG_TYPE: Final = Symbol("x-opt-jms-msg-type")
DEST: Final = Symbol("x-opt-jms-dest")
REPLY_TO: Final = Symbol("x-opt-jms-reply-to")
DELIVERY_TIME: Final = Symbol("x-opt-delivery-time")
OBJECT_CODEC: Final = Symbol("x-opt-kjms-codec")
"""Ours: which codec of kjms wrote the data of an ObjectMessage."""

SENT_TO: Final = Symbol("x-opt-kjms-sent-to")
"""Ours, in REST alone: the name of the destination that a message was sent to whose 'to' is another one, or none."""

# Properties of the mapping (§4).
TTL: Final = "JMS_AMQP_TTL"
FIRST_ACQUIRER: Final = "JMS_AMQP_FIRST_ACQUIRER"
REPLY_TO_GROUP: Final = "JMS_AMQP_REPLY_TO_GROUP_ID"

# Our own, for what JMS has no place for.
CONTENT_ENCODING: Final = "JMS_kjms_ContentEncoding"
REST: Final = "JMS_kjms_Amqp"
"""Base64 of the sections with what else is left: other annotations, property values of other types, the footer, and
fields of the properties and kinds of bodies that the message does not tell."""
OWN: Final = frozenset({CONTENT_TYPE, CONTENT_ENCODING, REST})

OCTETS: Final = "application/octet-stream"
SERIALIZED: Final = "application/x-java-serialized-object"

# Codecs of ObjectMessages.
JAVA: Final = "java"
"""Objects that Java serialised: they pass through, and are not read (docs/wire-format.md)."""
TYPED: Final = "amqp"
"""Objects in AMQP's own types, where JMS's plain values would lose something: the body's sections as they came."""

KINDS: Final[tuple[type[Destination], ...]] = (Queue, Topic, TemporaryQueue, TemporaryTopic)
_SCHEMES: Final = frozenset(kind.scheme for kind in KINDS)


def kind_number(destination: Destination) -> int:
    """Return the number that annotations have for the kind of *destination* (mapping §5.1)."""
    return KINDS.index(type(destination))


def parse_address(address: str | None, number: Any, default: Destination | None) -> Destination | None:
    """Return the destination at *address*.

    Args:
        address: An address-string. Where *number* does not say the kind, ``queue://orders`` and the like do.
        number: The annotation that says its kind, of any integral type; anything else says nothing.
        default: The destination of the link, whose kind it is where nothing says another; None: a queue.

    Raises:
        InvalidDestinationException: The address is no name of that kind of destination.

    >>> parse_address("prices", 1, None), parse_address("orders", None, Topic("prices"))
    (Topic('prices'), Topic('orders'))
    """
    if not address:
        return None
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(KINDS):
        return KINDS[number](address)
    if "://" in address and address.partition("://")[0] in _SCHEMES:
        return parse_destination(address)
    if default is not None and default._name == address:
        return default
    try:
        place_of(TemporaryQueue(address))
    except InvalidDestinationException:
        return (Topic if isinstance(default, Topic) else Queue)(address)
    return TemporaryQueue(address)
