"""What Apache Qpid JMS puts on the wire, and what the mapping makes of it and back (tests/amqp/capture.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kjms import MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.mapping.amqp import AmqpMessage, AmqpObject, decode, encode
from kjms.mapping.amqp.sections import VALUE
from kjms.mapping.amqp.types import Int, encode_value
from kjms.message._values import float32

CAPTURES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[3] / "amqp" / "captures.json").read_text("utf-8")
)
KINDS = {"JmsQueue": Queue, "JmsTopic": Topic, "JmsTemporaryQueue": TemporaryQueue, "JmsTemporaryTopic": TemporaryTopic}


def captured(name: str) -> AmqpMessage:
    return AmqpMessage.decode(bytes.fromhex(CAPTURES[name]["transfer"]))


def received(name: str) -> Message:
    return decode(captured(name), now_ms=CAPTURES[name]["timestamp"])


@pytest.mark.requirement("AMQP-3.2.1-6", "AMQP-3.2.1-24", "AMQP-3.2.1-25", "AMQP-3.2.1-26", "AMQP-3.1-3")
@pytest.mark.parametrize("name", CAPTURES)
def test_header_fields_are_read_as_the_client_set_them(name: str) -> None:
    """Every header field of a message of Qpid JMS reads as that client says it is."""
    message, said = received(name), CAPTURES[name]
    kind, text = said["destination"]
    assert message.jms_destination == KINDS[kind](text)
    expected = {
        "message_id": message.jms_message_id,
        "timestamp": message.jms_timestamp,
        "expiration": message.jms_expiration if name != "ttl_property" else 0,  # the client's own is without its effect
        "delivery_time": message.jms_delivery_time if name != "no_id_no_timestamp" else said["delivery_time"],
        "delivery_mode": message.jms_delivery_mode,
        "priority": message.jms_priority,
        "correlation_id": message.jms_correlation_id,
        "type": message.jms_type,
    }
    assert expected == {field: said[field] for field in expected}
    assert message.get_string_property("JMSXUserID") == "ann"


@pytest.mark.requirement("AMQP-3.2.4-1", "AMQP-3.1-1", "AMQP-3.2-1", "AMQP-3.2-2", "AMQP-3.2-3", "AMQP-3.2-4")
@pytest.mark.parametrize("name", CAPTURES)
def test_what_is_passed_on_is_what_came(name: str) -> None:
    """Each section goes out with the values and types that Qpid JMS wrote; of the body, the very bytes."""
    its, ours = captured(name), AmqpMessage.decode(encode(received(name), now_ms=CAPTURES[name]["timestamp"]).encode())
    if name == "ttl_property":
        its.properties.absolute_expiry_time = ours.properties.absolute_expiry_time  # a ttl expires there
    if its.body.kind is None:  # Qpid JMS leaves out the section that §3.2.4.7 demands
        assert (ours.body.kind, ours.body.values) == (VALUE, [None])
    else:
        assert ours.body.raw == its.body.raw
    assert encode_value(ours.application_properties) == encode_value(its.application_properties)
    assert {key: encode_value(value) for key, value in ours.message_annotations.items()} == {
        key: encode_value(value) for key, value in its.message_annotations.items()
    }
    assert ours.header == its.header
    assert ours.properties == its.properties
    for field in ("message_id", "correlation_id"):
        assert type(getattr(ours.properties, field)) is type(getattr(its.properties, field))


def test_bodies() -> None:
    """Bodies of every type have the values that the program wrote, in their types."""
    map_, stream = received("map"), received("stream")
    assert isinstance(map_, MapMessage)
    assert isinstance(stream, StreamMessage)
    values = [True, -5, 300, "é", 70_000, 5, float32(0.1), 0.1, "text", b"\x00\xff", None]
    assert list(map_._body.values()) == stream._body
    assert [value for _, value in stream._body] == values
    assert [kind for kind, _ in stream._body] == [
        "boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes", "string",
    ]  # fmt: skip
    texts = [received(name) for name in ("text", "text_empty", "text_null")]
    assert [text.text for text in texts if isinstance(text, TextMessage)] == ["grüße", "", None]


@pytest.mark.requirement("AMQP-3.2.4.6-2", "AMQP-3.2.4.6-5")
def test_objects() -> None:
    """Objects are opaque where Java serialised them, also null, and have their types where AMQP has."""
    java, null, typed = (received(name) for name in ("object_java", "object_java_null", "object_typed"))
    assert isinstance(java, ObjectMessage)
    assert isinstance(null, ObjectMessage)
    assert isinstance(typed, ObjectMessage)
    assert java.serialized is not None
    assert java.serialized[1].startswith(b"\xac\xed")
    assert null.serialized == ("java", b"\xac\xed\x00\x05\x70")
    assert typed.object == AmqpObject([Int(5), 5, "text"])


def test_properties() -> None:
    """Properties of every type are of that type."""
    message = received("properties")
    kinds = {name: message.property_type(name) for name in message.property_names() if name.startswith("a_")}
    assert kinds == {
        f"a_{kind}": kind for kind in ("boolean", "byte", "short", "int", "long", "float", "double", "string")
    } | {"a_null": "string"}
