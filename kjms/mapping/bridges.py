"""Where records that other bridges between JMS and Kafka wrote become messages, by the header conventions of each.

Each convention is a function with the signature of `kjms.mapping.decode`. What it does is translate names and number
forms; the rest is the reading of a record that no JMS program wrote. Records of kjms's own are read as such by all of
them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from kjms.destinations import Destination
from kjms.mapping import confluent
from kjms.mapping._decode import decode
from kjms.mapping._record import SourceRecord
from kjms.message import Message

__all__ = ["DECODERS", "Decoder", "decode_camel", "decode_ibm_mq", "decode_solace", "decode_spring", "decoder"]

Decoder = Callable[[SourceRecord, Destination, int], Message]

Headers = dict[str, "bytes | None"]


class _Translated:
    """A record with other headers."""

    def __init__(self, record: SourceRecord, headers: Headers) -> None:
        self._headers = headers
        self.value, self.key, self.timestamp = record.value, record.key, record.timestamp
        self.topic, self.partition, self.offset = record.topic, record.partition, record.offset

    def headers(self) -> list[tuple[str, bytes | None]]:
        return list(self._headers.items())


def _decoded(
    record: SourceRecord,
    destination: Destination,
    delivery_count: int,
    translate: Callable[[Headers], tuple[Headers, dict[str, str]]],
) -> Message:
    try:
        headers = dict(record.headers() or ())
    except Exception:  # decode() tells what is wrong with them
        headers = {"kjms": None}
    if "kjms" in headers:
        return decode(record, destination, delivery_count)
    translated, types = translate(headers)
    message = decode(_Translated(record, translated), destination, delivery_count)
    if types:
        # A record without a kjms header has a layout of its own, which no code has asked for a property yet.
        message._types = message._reader.types = {**message._types, **types}  # type: ignore[union-attr, misc]
    return message


# ------------------------------------------------------------------------------------------------------- IBM MQ

_MQ_INTEGERS: Final = frozenset({"JMS_IBM_Encoding", "JMS_IBM_Feedback", "JMS_IBM_MsgType", "JMS_IBM_PutApplType"})


def decode_ibm_mq(record: SourceRecord, destination: Destination, delivery_count: int = 1) -> Message:
    """Read what IBM's MQ source connector writes with ``mq.jms.properties.copy.to.kafka.headers``.

    The connector writes each JMS property as its text; the types of IBM's own properties are known here.
    """
    return _decoded(record, destination, delivery_count, _from_ibm_mq)


def _from_ibm_mq(headers: Headers) -> tuple[Headers, dict[str, str]]:
    types = {name: "int" for name in headers if name in _MQ_INTEGERS or name.startswith("JMS_IBM_Report_")}
    if "JMS_IBM_Last_Msg_In_Group" in headers:
        types["JMS_IBM_Last_Msg_In_Group"] = "boolean"
    return headers, types


# -------------------------------------------------------------------------------------------------------- Camel

_CAMEL_PREFIX: Final = "CamelHeader."
_NUMBERS: Final = {"JMSTimestamp", "JMSExpiration", "JMSDeliveryTime", "JMSPriority", "JMSDeliveryMode"}


def decode_camel(record: SourceRecord, destination: Destination, delivery_count: int = 1) -> Message:
    """Read what Apache Camel writes when a route goes from JMS to Kafka, and what Camel's Kafka connectors write.

    Camel's Kafka component writes long and int header fields as 8 and 4 bytes; the connectors put ``CamelHeader.``
    before each name. JMSDestination names a place in the other broker, and is left out.
    """
    return _decoded(record, destination, delivery_count, _from_camel)


def _from_camel(headers: Headers) -> tuple[Headers, dict[str, str]]:
    translated: Headers = {}
    for name, data in headers.items():
        plain = name.removeprefix(_CAMEL_PREFIX)
        if plain in _NUMBERS and data is not None and len(data) in {4, 8} and not data.isdigit():
            data = b"%d" % struct.unpack(">i" if len(data) == 4 else ">q", data)[0]  # noqa: PLW2901
        if plain != "JMSDestination":
            translated[plain] = data
    return translated, {}


# ------------------------------------------------------------------------------------------------------- Solace

_SOLACE_FIELDS: Final = {
    "solace_applicationMessageID": "JMSMessageID",
    "solace_applicationMessageType": "JMSType",
    "solace_correlationID": "JMSCorrelationID",
    "solace_senderTimestamp": "JMSTimestamp",
    "solace_expiration": "JMSExpiration",
}


def decode_solace(record: SourceRecord, destination: Destination, delivery_count: int = 1) -> Message:
    """Read what Solace's source connector writes with ``map_solace_standard_properties`` and ``map_user_properties``.

    Solace's priorities go to 255: those from 0 to 9 become JMSPriority. Header fields of Solace that JMS does not
    know are string properties.
    """
    return _decoded(record, destination, delivery_count, _from_solace)


def _from_solace(headers: Headers) -> tuple[Headers, dict[str, str]]:
    translated = {_SOLACE_FIELDS.get(name, name): data for name, data in headers.items()}
    priority = translated.pop("solace_priority", None)
    if priority is not None and len(priority) == 1 and priority.isdigit():
        translated["JMSPriority"] = priority
    mode = translated.pop("solace_deliveryMode", None)
    if mode is not None:
        translated["JMSDeliveryMode"] = b"2" if mode == b"PERSISTENT" else b"1"
    name = translated.pop("solace_replyToDestination", None)
    kind = translated.pop("solace_replyToDestinationType", None)
    if name and kind in {b"queue", b"topic"}:
        translated["JMSReplyTo"] = kind + b"://" + name
    return translated, {}


# ------------------------------------------------------------------------------------------------------- Spring

_SPRING_TYPES_HEADER: Final = "spring_json_header_types"
_SPRING_FIELDS: Final = {
    "jms_messageId": "JMSMessageID",
    "jms_correlationId": "JMSCorrelationID",
    "jms_type": "JMSType",
    "jms_timestamp": "JMSTimestamp",
    "jms_expiration": "JMSExpiration",
    "jms_priority": "JMSPriority",
    "jms_deliveryMode": "JMSDeliveryMode",
}
_SPRING_DROPPED: Final = frozenset({"jms_destination", "jms_replyTo", "jms_redelivered", _SPRING_TYPES_HEADER})
_JAVA_TYPES: Final[Mapping[str, str]] = {
    "java.lang.Boolean": "boolean",
    "java.lang.Byte": "byte",
    "java.lang.Short": "short",
    "java.lang.Integer": "int",
    "java.lang.Long": "long",
    "java.lang.Float": "float",
    "java.lang.Double": "double",
}


def decode_spring(record: SourceRecord, destination: Destination, delivery_count: int = 1) -> Message:
    """Read what Spring for Apache Kafka writes, JMS header fields from Spring's JMS support included.

    The types of properties are those of ``spring_json_header_types``. Destinations, which Spring writes as objects of
    the other broker's classes, are left out.
    """
    return _decoded(record, destination, delivery_count, _from_spring)


def _from_spring(headers: Headers) -> tuple[Headers, dict[str, str]]:
    java_types = _json_object(headers.get(_SPRING_TYPES_HEADER))
    translated: Headers = {}
    types: dict[str, str] = {}
    for name, data in headers.items():
        if name in _SPRING_DROPPED:
            continue
        java_type = str(java_types.get(name))
        if java_type == "java.lang.String" and data is not None and data.startswith(b'"'):
            data = _json_string(data)  # noqa: PLW2901 - as Spring before 2.3 wrote strings
        field = _SPRING_FIELDS.get(name, name)
        translated[field] = data
        if field == name and java_type in _JAVA_TYPES:
            types[name] = _JAVA_TYPES[java_type]
    return translated, types


def _json_object(data: bytes | None) -> dict[str, Any]:
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _json_string(data: bytes) -> bytes:
    try:
        return str(json.loads(data)).encode()
    except (ValueError, RecursionError):
        return data


DECODERS: Final[Mapping[str, Decoder]] = {
    "kjms": decode,
    "confluent": confluent.decode,
    "ibm-mq": decode_ibm_mq,
    "camel": decode_camel,
    "solace": decode_solace,
    "spring": decode_spring,
}
"""What reads the records of each convention that `kjms.options` knows."""


def decoder(convention: str) -> Decoder:
    """Return the function that reads records of *convention*, one of `kjms.options.CONVENTIONS`.

    Raises:
        ValueError: There is no such convention.

    >>> decoder("camel").__name__
    'decode_camel'
    """
    try:
        return DECODERS[convention]
    except KeyError:
        raise ValueError(f"the conventions are {', '.join(DECODERS)}, and not {convention!r}") from None
