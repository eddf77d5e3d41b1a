"""Any message survives the journey through a record, and no record stops a consumer."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import JMSException, MessageFormatException, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.identifiers import is_identifier
from kjms.mapping import KafkaRecord, decode, encode
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._avro import KINDS, read_map, read_plain, read_stream, write_plain
from kjms.message._fields import FIELDS
from kjms.message._values import RANGES

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = texts.filter(lambda name: is_identifier(name) and not name.startswith("JMS")) | st.sampled_from(
    ["a", "b", "kjms", "JMSXGroupID", "größe", "$x", "_", "JMS_IBM_Format"]
)
longs = st.integers(*RANGES["long"])
values: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    **{kind: st.integers(*RANGES[kind]) for kind in ("byte", "short", "int", "long")},
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.none() | texts,
}
body_values = values | {
    "char": st.integers(0, 0xFFFF).map(chr),
    "bytes": st.none() | st.binary(max_size=20),
}
typed_values = st.sampled_from(sorted(values)).flatmap(lambda kind: st.tuples(st.just(kind), values[kind]))
typed_body_values = st.sampled_from(sorted(body_values)).flatmap(
    lambda kind: st.tuples(st.just(kind), body_values[kind])
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
destinations = st.builds(
    lambda kind, name: kind(name),
    st.sampled_from([Queue, Topic, TemporaryQueue, TemporaryTopic]),
    texts.filter(bool),
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    kind = draw(st.sampled_from([Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage]))
    message = kind()
    if isinstance(message, TextMessage):
        message.text = draw(st.none() | texts)
    elif isinstance(message, BytesMessage):
        message.write_bytes(draw(st.binary()))
    elif isinstance(message, MapMessage):
        for name, (type_, value) in draw(st.dictionaries(texts.filter(bool), typed_body_values, max_size=5)).items():
            getattr(message, f"set_{type_}")(name, value)
    elif isinstance(message, StreamMessage):
        for type_, value in draw(st.lists(typed_body_values, max_size=5)):
            getattr(message, f"write_{type_}")(value)
    elif isinstance(message, ObjectMessage):
        message.object = draw(plain)
    for name, (type_, value) in draw(st.dictionaries(names, typed_values, max_size=5)).items():
        if name != "JMSXGroupID" or type_ == "string":
            getattr(message, f"set_{type_}_property")(name, value)
    message.jms_message_id = draw(st.none() | texts)
    message.jms_timestamp = message.jms_delivery_time = draw(longs)
    if draw(st.booleans()):
        message.jms_delivery_time = draw(longs.filter(bool))
    if draw(st.booleans()):
        message.jms_correlation_id_as_bytes = draw(st.none() | st.binary(max_size=10))
    else:
        message.jms_correlation_id = draw(st.none() | texts)
    message.jms_reply_to = draw(st.none() | destinations)
    message.jms_type = draw(st.none() | texts)
    message.jms_delivery_mode = draw(st.integers(1, 2))
    message.jms_priority = draw(st.integers(0, 9))
    message.jms_expiration = draw(longs)
    return message


def told(value: Any) -> Any:
    """Values that can be compared: NaN equal to itself, 0.0 not to -0.0, and True not to 1."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return {name: told(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [told(item) for item in value]
    return (type(value), value)


def meaning(message: Message) -> dict[str, Any]:
    """All that an application can learn from a message, but for what the engine says of the delivery."""
    fields = ("message_id", "timestamp", "correlation_id", "correlation_id_as_bytes", "reply_to", "delivery_mode",
              "type",
              "expiration", "delivery_time", "priority")  # fmt: skip
    names = [name for name in message.property_names() if name != "JMSXDeliveryCount"]
    body = bytes(message._body) if isinstance(message, BytesMessage) else message._body
    if isinstance(message, ObjectMessage):
        body = message.object
    return {
        "kind": type(message),
        "fields": {name: getattr(message, f"jms_{name}") for name in fields},
        "properties": {name: (message.property_type(name), told(message.properties[name])) for name in names},
        "body": told(body),
    }


@pytest.mark.requirement("JMS-3.4-1", "JMS-3.5.5-1", "JMS-3.11.4-2", "NET-153", "NEV-24")
@given(messages())
def test_any_message_arrives_as_it_was(source, message: Message) -> None:
    """Kind, header fields, properties with their types and body of the decoded message are those of the sent one."""
    arrived = decode(source(encode(message)), Queue("orders"))
    assert meaning(arrived) == meaning(message)
    assert arrived.damage == ()


@given(messages())
def test_any_received_message_can_be_sent_on_unchanged(source, message: Message) -> None:
    """Sending on what was received, looked at or not, gives the same record."""
    record = encode(message)
    arrived = decode(source(record), Queue("orders"))
    forwarded = encode(arrived)
    assert (forwarded.key, forwarded.value, forwarded.timestamp) == (record.key, record.value, record.timestamp)
    assert sorted(forwarded.headers, key=repr) == sorted(record.headers, key=repr)
    assert forwarded.headers[0][0] == "kjms"
    looked_at = decode(source(record), Queue("orders"))
    meaning(looked_at)
    assert sorted(encode(looked_at).headers, key=repr) == sorted(record.headers, key=repr)
    assert encode(looked_at).value == record.value


@given(messages(), st.data())
def test_looking_at_one_thing_is_looking_at_the_same_thing(source, message: Message, data: st.DataObject) -> None:
    """Whatever is looked at first, by selectors or by getters, reads the same."""
    arrived = decode(source(encode(message)), Queue("orders"))
    for name in data.draw(st.permutations([*message.property_names(), *FIELDS])):
        assert told(arrived.selector_value(name)) == told(message.selector_value(name))
        assert told(arrived.get_object_property(name)) == told(message.get_object_property(name))
    assert meaning(arrived) == meaning(message)


# ----------------------------------------------------------------------------------------------------- damage

layouts = st.builds(
    lambda version, body, types, rest: ";".join([version, body, types, *rest]).encode(),
    st.sampled_from(["1", "1", "1", "2", "0", "", "x", "-1", "999999"]),
    st.sampled_from(["message", "text", "bytes", "map", "stream", "object", "object/java", "weird", "", "text/x"]),
    st.lists(st.sampled_from(["a=int", "b=float", "a=boolean", "c=double", "a", "=int", "b=weird",
                              "JMSCorrelationID=bytes",
                              "kjms=int", "a=bytes", ""]), max_size=4).map(",".join),
    st.lists(texts, max_size=2),
)  # fmt: skip
header_names = st.sampled_from([*FIELDS, "a", "b", "c", "kjms", "JMSXGroupID", "content-type", "JMSXDeliveryCount", ""])
header_values = (
    st.none()
    | st.binary(max_size=12)
    | texts.map(str.encode)
    | st.integers().map(lambda number: b"%d" % number)
    | st.sampled_from([b"true", b"1.5", b"NaN", b"queue://x", b"1_0", b"9" * 5000, b"queue://", b"+5"])
)
headers = st.lists(st.tuples(header_names, header_values), max_size=8)
records = st.builds(
    lambda layout, others, value, key, timestamp: KafkaRecord(
        key, value, ([("kjms", layout)] if layout is not None else []) + others, timestamp
    ),
    st.none() | layouts | st.binary(max_size=8),
    headers,
    st.none() | st.binary(max_size=40) | texts.map(str.encode) | plain.map(write_plain),
    st.none() | st.binary(max_size=8),
    st.integers(-1, 2**63 - 1),
)


@given(records, st.booleans())
def test_no_record_stops_a_consumer(source, record: KafkaRecord, ask_for_damage: bool) -> None:
    """Any record decodes, its header fields and properties can be read, and only its body may raise."""
    message = decode(source(record), Queue("orders"))
    if ask_for_damage:
        assert all(isinstance(note, str) for note in message.damage)
    assert repr(message)
    assert message.jms_priority in range(10)
    assert message.jms_delivery_mode in {1, 2}
    assert all(isinstance(number, int) for number in (message.jms_timestamp, message.jms_expiration))
    for name in FIELDS:
        message.selector_value(name)
    for name in message.property_names():
        kind = message.property_type(name)
        value = message.get_object_property(name)
        assert kind in {"string", *values}
        python_type = {"boolean": bool, "string": str, "float": float, "double": float}.get(str(kind), int)
        assert value is None or type(value) is python_type
        message.get_string_property(name)
    try:
        body = message._body
        if isinstance(message, ObjectMessage) and not body[0]:
            _ = message.object
    except JMSException:
        assert message.damage
    encode(message)
    message.clear_properties()
    message.clear_body()


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        ("boolean", True, b"true"),
        ("boolean", False, b"false"),
        ("long", -(2**63), b"-9223372036854775808"),
        ("double", 0.001, b"0.001"),
        ("double", 0.00099, b"9.9E-4"),
        ("double", 9999999.5, b"9999999.5"),
        ("double", 1e7, b"1.0E7"),
        ("double", -1.5, b"-1.5"),
        ("float", 0.1, b"0.1"),
        ("float", 1e7, b"1.0E7"),
        ("string", "grün", "grün".encode()),
        ("string", None, None),
    ],
)
def test_a_property_is_written_as_java_writes_it(kind: str, value: object, written: bytes | None) -> None:
    message = TextMessage("x")
    getattr(message, f"set_{kind}_property")("p", value)
    layout = b"1;text" if kind == "string" else f"1;text;p={kind}".encode()
    assert encode(message).headers == [("kjms", layout), ("p", written)]
    assert encode(message).headers == [("kjms", layout), ("p", written)]  # of the kept layout


def test_a_text_that_utf_8_cannot_carry_is_named() -> None:
    message = TextMessage("x")
    message.set_string_property("p", "ab\ud800")
    with pytest.raises(MessageFormatException) as raised:
        encode(message)
    assert str(raised.value) == (
        "a text in this TextMessage holds a lone surrogate (at index 2), which UTF-8 cannot carry"
    )


@given(st.binary(max_size=60))
def test_no_bytes_break_the_avro_readers(data: bytes) -> None:
    """What is no body raises ValueError, not IndexError, MemoryError or RecursionError."""
    for reader, kind in ((read_map, dict), (read_stream, list), (read_plain, object)):
        try:
            found = reader(data)
        except ValueError:
            continue
        assert isinstance(found, kind)


def test_a_nest_without_end_is_a_value_error() -> None:
    """Lists in lists, far deeper than Python's stack."""
    array = bytes([2 * 7, 2])
    with pytest.raises(ValueError, match="nested"):
        read_plain(array * 100_000)
    with pytest.raises(ValueError, match="there is no number"):
        read_stream(b"\xff" * 9 + b"\x7f")
    assert len(KINDS) == 11


def test_a_message_can_be_copied(source) -> None:
    """copy.copy and copy.deepcopy of a received message work, and the copies read the same."""
    message = MapMessage({"a": 1})
    message.set_int_property("p", 1)
    arrived = decode(source(encode(message)), Queue("orders"))
    for other in (copy.copy(arrived), copy.deepcopy(arrived)):
        assert meaning(other) == meaning(message)
