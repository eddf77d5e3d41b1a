"""JMS messages as AMQP carries them (AMQP JMS mapping §3.2, §4, §5.1, §6.1, §9)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import BytesMessage, MapMessage, Message, ObjectMessage, Queue, StreamMessage, TextMessage, Topic
from kjms.destinations import Destination, TemporaryQueue, TemporaryTopic
from kjms.errors import JMSException, MessageFormatException
from kjms.mapping import decode as decode_record
from kjms.mapping.amqp import AmqpMessage, AmqpObject, _transfer, decode, decode_transfer, encode, encode_transfer
from kjms.mapping.amqp.sections import DATA, SEQUENCE, VALUE, Body, Header, Properties
from kjms.mapping.amqp.types import Byte, Char, Float, Int, Short, Symbol, UInt
from kjms.message import register_codec, unregister_codec
from kjms.message._values import float32

MSG_TYPE = Symbol("x-opt-jms-msg-type")


def sent(message: Message | None = None, **fields: Any) -> Message:
    """A message as a send leaves it."""
    message = message or Message()
    for name, value in fields.items():
        setattr(message, f"jms_{name}", value)
    return message


def wire(message: Message, now_ms: int = 0) -> AmqpMessage:
    """The AMQP message after a journey as bytes."""
    return AmqpMessage.decode(encode(message, now_ms=now_ms).encode())


@pytest.mark.requirement("AMQP-3.2.4.7-1", "AMQP-3.2.4.7-2", "AMQP-3.2.4.7-3", "AMQP-3.2.3-2")
def test_a_message_without_body() -> None:
    """A plain message is a null amqp-value, its type the byte 0, without content type and application properties."""
    amqp = wire(sent())
    assert (amqp.body.kind, amqp.body.values) == (VALUE, [None])
    assert amqp.message_annotations == {MSG_TYPE: 0}
    assert type(amqp.message_annotations[MSG_TYPE]) is Byte
    assert amqp.properties == Properties()
    assert b"\x00\x53\x74" not in encode(sent()).encode()


@pytest.mark.requirement("AMQP-3.2.1-17", "AMQP-3.2.1-18", "AMQP-3.2.1-19", "AMQP-3.2.1-29", "AMQP-3.2.1-31")
def test_header_section() -> None:
    """PERSISTENT is durable; the default priority is left out, and so is a header that says nothing."""
    assert wire(sent(delivery_mode=2)).header == Header(durable=True)
    assert wire(sent(delivery_mode=1, priority=4)).header == Header()
    assert wire(sent(delivery_mode=1, priority=0)).header == Header(priority=0)
    assert not encode(sent(delivery_mode=1)).encode().startswith(b"\x00\x53\x70")


KINDS = [
    pytest.param(number, kind, marks=pytest.mark.requirement(f"AMQP-5.1-{number + 3}"))
    for number, kind in enumerate([Queue, Topic, TemporaryQueue, TemporaryTopic])
]


@pytest.mark.requirement(
    "AMQP-3.2.1-15", "AMQP-5.1-1", "AMQP-5.1-2", "AMQP-5.1-7", "AMQP-5.1-8", "AMQP-5.1-12", "AMQP-3.2.1-16"
)
@pytest.mark.parametrize(("number", "kind"), KINDS)
def test_destinations(number: int, kind: type[Destination]) -> None:
    """To and reply-to are the names, and annotations of type byte say the kinds."""
    amqp = wire(sent(destination=kind("a"), reply_to=kind("b")))
    assert (amqp.properties.to, amqp.properties.reply_to) == ("a", "b")
    for name in ("x-opt-jms-dest", "x-opt-jms-reply-to"):
        assert amqp.message_annotations[Symbol(name)] == number
        assert type(amqp.message_annotations[Symbol(name)]) is Byte
    assert Symbol("x-opt-jms-reply-to") not in wire(sent(destination=kind("a"))).message_annotations


@pytest.mark.requirement(
    "AMQP-3.2.1-27", "AMQP-3.2.1-28", "AMQP-6.1-2", "AMQP-6.1-4", "AMQP-6.1-5", "AMQP-6.1-6"
)  # fmt: skip
@pytest.mark.parametrize(
    ("expiration", "ttl"),
    [(0, None), (1_001, 1), (61_000, 60_000), (1_000 + 2**32 - 1, 2**32 - 1), (1_000 + 2**32, None)],
)
def test_expiration(expiration: int, ttl: int | None) -> None:
    """absolute-expiry-time and ttl are left out without expiration, and the ttl where it does not fit."""
    amqp = wire(sent(expiration=expiration), now_ms=1_000)
    assert amqp.properties.absolute_expiry_time == (expiration or None)
    assert amqp.header.ttl == ttl


def test_what_has_expired_lives_a_millisecond() -> None:
    """A ttl of 0 would mean something else to some: what has expired goes out with 1."""
    assert wire(sent(expiration=500), now_ms=1_000).header.ttl == 1


@pytest.mark.requirement("AMQP-4-1", "AMQP-4-2", "AMQP-4-3", "AMQP-4-4", "AMQP-6.1-3")
@pytest.mark.parametrize(("value", "ttl"), [(5_000, 5_000), (0, None), (2**32 - 1, 2**32 - 1), (2**32, 60_000)])
def test_the_ttl_property(value: int, ttl: int | None) -> None:
    """JMS_AMQP_TTL sets the ttl, 0 leaves it out, and it is no application property."""
    message = sent(expiration=61_000)
    message.set_long_property("JMS_AMQP_TTL", value)
    amqp = wire(message, now_ms=1_000)
    assert amqp.header.ttl == ttl
    assert amqp.application_properties == {}


@pytest.mark.requirement("AMQP-3.2.2-1", "AMQP-3.2.2-2", "AMQP-3.2.2-5", "AMQP-3.2.2-6", "AMQP-3.2.2-7", "AMQP-4-7")
@pytest.mark.parametrize(("number", "expected"), [(0, 0), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31), (-1, 2**32 - 1)])
def test_properties_with_places_of_their_own(number: int, expected: int) -> None:
    """Group, sequence, user and reply-to group are fields, and no application properties."""
    message = sent()
    message.set_string_property("JMSXGroupID", "cars")
    message.set_int_property("JMSXGroupSeq", number)
    message.set_string_property("JMS_AMQP_REPLY_TO_GROUP_ID", "answers")
    message._set_provider_property("JMSXUserID", "string", "jürgen")
    amqp = wire(message)
    assert amqp.properties == Properties(
        group_id="cars", group_sequence=UInt(expected), reply_to_group_id="answers", user_id="jürgen".encode()
    )
    assert amqp.application_properties == {}


@pytest.mark.requirement("AMQP-9-12", "AMQP-9-13")
def test_delivery_time() -> None:
    """A delayed message has its delivery time in an annotation of type long; another has none."""
    amqp = wire(sent(timestamp=1_000, delivery_time=6_000))
    assert amqp.message_annotations[Symbol("x-opt-delivery-time")] == 6_000
    assert type(amqp.message_annotations[Symbol("x-opt-delivery-time")]) is int
    assert Symbol("x-opt-delivery-time") not in wire(sent(timestamp=1_000, delivery_time=1_000)).message_annotations


@pytest.mark.requirement("AMQP-10-1")
def test_the_annotations_of_the_mapping() -> None:
    """A delayed message with a reply-to has the four annotations that the mapping defines, and no other."""
    amqp = wire(sent(destination=Queue("a"), reply_to=Topic("b"), timestamp=1_000, delivery_time=6_000))
    names = ("x-opt-delivery-time", "x-opt-jms-dest", "x-opt-jms-reply-to", "x-opt-jms-msg-type")
    assert set(amqp.message_annotations) == {Symbol(name) for name in names}


@pytest.mark.requirement("AMQP-3.3.1-9", "AMQP-3.1-2")
@pytest.mark.parametrize(("delivery", "expected"), [(1, None), (2, 1), (7, 6)])
def test_delivery_count(delivery: int, expected: int | None) -> None:
    """delivery-count is the number of failed deliveries before: it alone changes from one delivery to the next."""
    message = sent(message_id="ID:1", type="invoice", priority=7)
    first = wire(message)
    message._delivery_count = delivery
    again = wire(message)
    assert again.header == replace(first.header, delivery_count=expected)
    assert (again.properties, again.message_annotations) == (first.properties, first.message_annotations)


@pytest.mark.requirement("AMQP-3.2.1.1-2", "AMQP-3.2.1-8")
def test_a_correlation_id_is_a_string_or_bytes() -> None:
    """A correlation id of bytes is sent as binary, one of text as a string."""
    message = sent(correlation_id_as_bytes=b"\xab\xcd")
    assert wire(message).properties.correlation_id == b"\xab\xcd"
    message = sent(correlation_id="order 7")
    assert wire(message).properties.correlation_id == "order 7"


@pytest.mark.requirement("AMQP-3.2.1-3", "AMQP-3.2.1-5")
def test_a_message_id_of_kjms_is_sent_as_a_string_with_its_prefix() -> None:
    """The id that a send gives is a message-id-string on the wire, ID: included."""
    found = wire(sent(message_id="ID:kjms-1")).properties.message_id
    assert (type(found), found) == (str, "ID:kjms-1")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ID:AMQP_UUID:foo", marks=pytest.mark.requirement("AMQP-3.2.1.1-12")),
        pytest.param("ID:AMQP_ULONG:foo", marks=pytest.mark.requirement("AMQP-3.2.1.1-13")),
        pytest.param("ID:AMQP_ULONG:042", marks=pytest.mark.requirement("AMQP-3.2.1.1-14")),
        pytest.param("ID:AMQP_BINARY:ABC", marks=pytest.mark.requirement("AMQP-3.2.1.1-15")),
    ],
)
def test_an_id_that_is_not_what_it_says_stops_nobody(text: str) -> None:
    """Kjms programs may set any correlation id: one that says a type and is not of it is sent as the string it is."""
    message = sent(correlation_id=text)
    assert message.jms_correlation_id == text
    assert type(wire(message).properties.correlation_id) is str
    assert wire(message).properties.correlation_id == text


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("boolean", True, True), ("byte", -1, Byte(-1)), ("short", 300, Short(300)), ("int", 7, Int(7)),
        ("long", 7, 7), ("float", 0.1, Float(float32(0.1))), ("double", 0.1, 0.1), ("string", "x", "x"),
        ("string", None, None),
    ],
)  # fmt: skip
@pytest.mark.requirement("AMQP-3.2-2", "AMQP-3.2.3-1")
def test_properties_keep_their_types(kind: str, value: object, expected: object) -> None:
    """A property is an application property of the AMQP type that is its JMS type."""
    message = sent()
    getattr(message, f"set_{kind}_property")("p", value)
    amqp = wire(message)
    assert amqp.application_properties == {"p": expected}
    assert type(amqp.application_properties["p"]) is type(expected)


@pytest.mark.parametrize(
    ("message", "number", "kind", "values", "content_type"),
    [
        (TextMessage("grüße"), 5, VALUE, ["grüße"], None),
        (TextMessage(), 5, VALUE, [None], None),
        (BytesMessage(b"ab"), 3, DATA, [b"ab"], "application/octet-stream"),
        (BytesMessage(), 3, DATA, [b""], "application/octet-stream"),
        (MapMessage(), 2, VALUE, [{}], None),
        (StreamMessage(), 4, SEQUENCE, [[]], None),
        (ObjectMessage(), 1, VALUE, [None], None),
        (
            ObjectMessage({"a": [1, 2.5, "x", b"y", None, True]}),
            1,
            VALUE,
            [{"a": [1, 2.5, "x", b"y", None, True]}],
            None,
        ),
        (ObjectMessage(2**70), 1, VALUE, [str(2**70)], None),
        (ObjectMessage(AmqpObject(UInt(7))), 1, VALUE, [UInt(7)], None),
    ],
)
@pytest.mark.requirement(
    "AMQP-3.2.4-1", "AMQP-3.2.4-3", "AMQP-3.2.4.6-8", "AMQP-3.2.4.6-9", "AMQP-3.2.4.6-11", "AMQP-3.2.4.6-12"
)  # fmt: skip
def test_bodies(message: Message, number: int, kind: int, values: list[Any], content_type: str | None) -> None:
    """Each type of message has its annotation, of type byte, its kind of section and its content type."""
    amqp = wire(message)
    assert (amqp.message_annotations[MSG_TYPE], type(amqp.message_annotations[MSG_TYPE])) == (number, Byte)
    assert (amqp.body.kind, amqp.body.values) == (kind, values)
    assert [type(value) for value in amqp.body.values] == [type(value) for value in values]
    assert amqp.properties.content_type == content_type


def test_map_and_stream_values_keep_their_types() -> None:
    """Each value of a map or stream has the AMQP type that is its JMS type."""
    map_, stream = MapMessage(), StreamMessage()
    expected = [True, Byte(1), Short(1), Char("c"), Int(1), 1, Float(1.5), 1.5, "s", b"b", None]
    kinds = ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes", "string"]
    for kind, value in zip(kinds, expected, strict=True):
        plain = str(value) if kind == "char" else int(value) if type(value) in {Byte, Short, Int} else value  # type: ignore
        getattr(map_, f"set_{kind}")(f"{kind}{value}", plain)
        getattr(stream, f"write_{kind}")(plain)
    for values in (list(wire(map_).body.values[0].values()), wire(stream).body.values[0]):
        assert values == expected
        assert [type(value) for value in values] == [type(value) for value in expected]


def test_objects_of_codecs_travel_with_their_codecs_name() -> None:
    """What a registered codec wrote comes back as what that codec wrote."""
    register_codec("point", complex, lambda value: str(value).encode(), lambda data: complex(data.decode()))
    try:
        back = decode(encode(ObjectMessage(1 + 2j)).encode())
        assert isinstance(back, ObjectMessage)
        assert back.object == 1 + 2j
    finally:
        unregister_codec("point")


def test_a_lone_surrogate_is_refused() -> None:
    """A text that UTF-8 cannot carry raises MessageFormatException."""
    with pytest.raises(MessageFormatException):
        encode(TextMessage("\ud800")).encode()


def test_what_others_wrote_into_the_rest_does_no_harm() -> None:
    """A damaged JMS_kjms_Amqp is left out."""
    for text in ("?", "AAAA", "AFN0"):
        message = sent()
        message._set_provider_property("JMS_kjms_Amqp", "string", text)
        assert wire(message).application_properties == {}


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
TYPED = st.one_of(
    st.tuples(st.just("boolean"), st.booleans()),
    *(
        st.tuples(st.just(kind), st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))
        for kind, bits in (("byte", 8), ("short", 16), ("int", 32), ("long", 64))
    ),
    st.tuples(st.just("float"), st.floats(width=32, allow_nan=False)),
    st.tuples(st.just("double"), st.floats(allow_nan=False)),
    st.tuples(st.just("string"), st.none() | TEXTS),
)
IN_BODY = st.one_of(
    TYPED,
    st.tuples(st.just("bytes"), st.binary(max_size=8)),
    st.tuples(st.just("char"), st.characters(codec="utf-8", max_codepoint=0xFFFF)),
)


@given(
    properties=st.dictionaries(st.from_regex("[a-z]{3}_", fullmatch=True), TYPED, max_size=5),
    body=st.one_of(
        st.none() | TEXTS, st.binary(max_size=20), st.dictionaries(TEXTS.filter(bool), IN_BODY), st.lists(IN_BODY)
    ),
    correlation_id=st.none() | TEXTS | st.sampled_from(["ID:AMQP_ULONG:7", "ID:AMQP_BINARY:FF", "ID:x"]),
    priority=st.integers(0, 9),
)
def test_every_message_comes_back_as_it_was(
    properties: dict[str, Any], body: Any, correlation_id: str | None, priority: int
) -> None:
    """The law of the mapping: to AMQP and back, a message has the same fields, properties, types and body."""
    message: Message
    if isinstance(body, dict):
        message = MapMessage()
        message._content = body
    elif isinstance(body, list):
        message = StreamMessage()
        message._content = body
    else:
        message = BytesMessage(body) if isinstance(body, bytes) else TextMessage(body)
    for name, (kind, value) in properties.items():
        getattr(message, f"set_{kind}_property")(name, value)
    sent(message, correlation_id=correlation_id, priority=priority, destination=Queue("orders"), message_id="ID:1")
    back = decode(encode(message).encode())
    assert type(back) is type(message)
    assert back._body == message._body
    assert {name: (back.property_type(name), back.get_object_property(name)) for name in properties} == {
        name: (message.property_type(name), message.get_object_property(name)) for name in properties
    }
    assert (back.jms_correlation_id, back.jms_priority) == (correlation_id, priority)
    assert back.jms_destination == Queue("orders")


# -------------------------------------------------------------------------------------------------- in one step

KINDS_OF_DESTINATION = [Queue("orders"), Topic("prices"), TemporaryQueue("temp-1"), TemporaryTopic("temp-2")]
PLAIN = {"JMSMessageID": b"ID:1", "JMSTimestamp": b"1700000000000"}
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "JMSMessageID": st.sampled_from([b"ID:1", b"ID:AMQP_ULONG:7", b"ID:AMQP_UUID:x", b"", b"\xff", None]),
        "JMSTimestamp": st.sampled_from([b"1700000000000", b"0", b"-1", b"9" * 30, b"x", None]),
        "JMSDeliveryMode": st.sampled_from([b"NON_PERSISTENT", b"PERSISTENT", b"1", b"\xff"]),
    },
) | st.just(PLAIN)
OTHERS = st.dictionaries(
    st.sampled_from(
        ["JMSType", "JMSPriority", "JMSExpiration", "JMSDeliveryTime", "JMSReplyTo", "JMSXGroupID", "JMSx"]
    ),
    st.sampled_from([b"1", b"9", b"queue://a", b"2000000000000"]),
    max_size=1,
)
OWN = st.dictionaries(
    st.sampled_from(["p", "q", "r", "größe", ""]), st.sampled_from([b"1", b"-7", b"0.5", b"true", b"x", b"\xff", None])
)


@given(
    layout=st.sampled_from(["text", "bytes", "map", "x"]),
    types=st.sampled_from(["", ";p=int", ";p=double,q=boolean", ";p=long,q=float,r=string"]),
    fields=HEADERS,
    others=OTHERS,
    properties=OWN,
    value=st.sampled_from([b"hello", b"", "grün".encode(), b"\xff", b"x" * 300, None]),
    destination=st.sampled_from(KINDS_OF_DESTINATION),
    count=st.sampled_from([1, 1, 2]),
)
def test_what_is_encoded_in_one_step_is_the_same(
    layout: str,
    types: str,
    fields: dict[str, Any],
    others: dict[str, Any],
    properties: dict[str, Any],
    value: bytes | None,
    destination: Destination,
    count: int,
) -> None:
    """A transfer has the bytes that the sections of its message give, whatever is in the record."""
    headers = [("kjms", f"1;{layout}{types}".encode()), *{**fields, **others, **properties}.items()]
    first, second = (from_record(value, headers, destination, count) for _ in range(2))
    try:
        expected = encode(first, now_ms=1_600_000_000_000).encode()
    except MessageFormatException as failure:
        with pytest.raises(MessageFormatException, match=re.escape(str(failure))):
            encode_transfer(second, now_ms=1_600_000_000_000)
    else:
        assert encode_transfer(second, now_ms=1_600_000_000_000) == expected
        assert sorted(second.damage) == sorted(first.damage)


@pytest.mark.parametrize("destination", KINDS_OF_DESTINATION)
@pytest.mark.parametrize("layout", ["text", "bytes"])
def test_most_messages_are_encoded_in_one_step(
    destination: Destination, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text, or bytes, with an id, a time and properties is not taken apart into sections."""
    monkeypatch.setattr(_transfer, "encode", None)
    headers = [("kjms", f"1;{layout};p=int".encode()), *PLAIN.items(), ("p", b"5"), ("JMSDeliveryMode", b"1")]
    message = AmqpMessage.decode(encode_transfer(from_record(b"hi", headers, destination)))
    assert message.properties.to == destination._name
    assert message.application_properties == {"p": Int(5)}
    assert message.properties.creation_time == 1_700_000_000_000


SLOTS = sorted({slot for kind in BytesMessage.__mro__ for slot in getattr(kind, "__slots__", ())} - {"_position"})


def told(message: Message) -> list[str]:
    """All that a message holds, with the classes of its properties, as text: NaN is like NaN there."""
    classes = [value.__class__ for value in message._properties.values()]
    return [repr(each) for each in (message.__class__, classes, *(getattr(message, slot) for slot in SLOTS))]


OF_QPID_JMS = bytes.fromhex(  # whose lists and maps have sizes of four bytes
    "005370c0020141"
    "005372c12904a30e782d6f70742d6a6d732d646573745100a312782d6f70742d6a6d732d6d73672d747970655105"
    "005373d00000002d0000000aa10f49443a316362333a313a313a312d3140a1066f726465727340404040404083000001a22148056e"
    "005374d10000000900000002a101705405"
    "005377b10000000568656c6c6f"
)


def outcome(read: Callable[..., Message], data: bytes, destination: Destination | None) -> list[str] | str:
    try:
        return told(read(data, destination, now_ms=5))
    except JMSException as failure:
        return repr(failure)


@given(
    body=st.sampled_from(["hi", "x" * 300, None, b"\0\1"]),
    fields=st.fixed_dictionaries(
        {
            "message_id": st.sampled_from(["ID:1", "ID:AMQP_UUID:1", None, "x"]),
            "timestamp": st.sampled_from([0, 1_700_000_000_000]),
            "destination": st.sampled_from(KINDS_OF_DESTINATION),
        },
        optional={
            "priority": st.just(9),
            "delivery_mode": st.just(1),
            "correlation_id": st.just("c"),
            "expiration": st.just(1_800_000_000_000),
        },
    ),
    properties=st.dictionaries(st.sampled_from(["p", "q"]), TYPED, max_size=2),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 2), st.binary(max_size=2)), max_size=2),
    link=st.none() | st.sampled_from(KINDS_OF_DESTINATION),
    is_of_qpid_jms=st.booleans(),
)
def test_what_is_decoded_in_one_step_is_the_same(
    body: Any,
    fields: dict[str, Any],
    properties: dict[str, Any],
    damage: list[tuple[float, int, bytes]],
    link: Destination | None,
    *,
    is_of_qpid_jms: bool,
) -> None:
    """The bytes of a transfer are the message that their sections make, or as wrong, whatever was done to them."""
    message = sent(BytesMessage(body) if isinstance(body, bytes) else TextMessage(body), **fields)
    for name, (kind, value) in properties.items():
        getattr(message, f"set_{kind}_property")(name, value)
    data = bytearray(OF_QPID_JMS if is_of_qpid_jms else encode(message, now_ms=1).encode())
    for where, size, other in damage:
        at = int(where * len(data))
        data[at : at + size] = other
    assert outcome(decode_transfer, data, link) == outcome(decode, bytes(data), link)


@pytest.mark.parametrize("destination", KINDS_OF_DESTINATION)
@pytest.mark.parametrize("body", [TextMessage("hi"), TextMessage("x" * 300), TextMessage(), BytesMessage(b"\0\1")])
def test_most_messages_are_decoded_in_one_step(
    body: Message, destination: Destination, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text, or bytes, with an id, a time and properties is not taken apart into sections."""
    body.set_int_property("p", 5)
    data = encode(sent(body, message_id="ID:1", timestamp=7, destination=destination)).encode()
    expected = told(decode(data))
    monkeypatch.setattr(_transfer, "decode", None)
    assert told(decode_transfer(data)) == expected


def test_a_long_section_is_not_remembered() -> None:
    """A client can have the gateway keep short sections only."""
    before = _transfer._annotated.cache_info().currsize
    annotations = {MSG_TYPE: Byte(5), Symbol("x-opt-jms-dest"): "x" * 300}
    data = AmqpMessage(message_annotations=annotations, body=Body(VALUE, ["hi"])).encode()
    assert outcome(decode_transfer, data, None) == outcome(decode, data, None)
    assert _transfer._annotated.cache_info().currsize == before


def test_what_qpid_jms_sends_is_decoded_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """So is what comes from Qpid JMS, and in proton's bytearrays."""
    monkeypatch.setattr(_transfer, "decode", None)
    message = decode_transfer(bytearray(OF_QPID_JMS))
    assert isinstance(message, TextMessage)
    assert (message.text, message.jms_message_id, message.get_int_property("p")) == ("hello", "ID:1cb3:1:1:1-1", 5)


def test_a_field_that_was_set_since_is_encoded() -> None:
    """A received message that a program has changed goes out as it is now."""
    message = from_record(b"hi", [("kjms", b"1;text"), *PLAIN.items()])
    message.jms_type = "order"
    assert AmqpMessage.decode(encode_transfer(message)).properties.subject == "order"


# ------------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("body_type", "value"),
    [
        ("object", b"\x7f"),
        ("object", b"\x0e\x02"),
        ("object", b"\x0c\x08xyz!"),
        ("object", b"\x0e\x02" * 200),
        ("object", b"\x0c" + b"\x80\x80\x01" + b"1" * 8192),  # a whole number of 32,768 bits
        ("object/amqp", b"\x00\x53\x77"),
        ("object/amqp", b""),
        ("map", b"\x02"),
        ("stream", b"\x02\x7f"),
    ],
    ids=["no type", "no end", "no number", "too deep", "large number", "no AMQP", "no section", "no map", "no stream"],
)
def test_a_damaged_body_is_a_format_error(body_type: str, value: bytes) -> None:
    """A record whose value is no body of its type has no form in AMQP, and MessageFormatException alone says so."""
    with pytest.raises(MessageFormatException):
        encode(from_record(value, [("kjms", f"1;{body_type}".encode())])).encode()


@pytest.mark.parametrize("charset", ["hex", "zlib", "idna", "punycode", "undefined", "a\0", "größe", "x" * 1000])
def test_a_charset_that_is_none_is_left_out(charset: str) -> None:
    """A text whose content type names no charset goes out as a string, without the content type."""
    content_type = f"text/plain; charset={charset}".encode()
    message = encode(from_record(b"hi", [("kjms", b"1;text"), ("JMS_kjms_ContentType", content_type)]))
    assert message.encode()
    assert message.body.kind == VALUE
    assert message.body.values == ["hi"]


def test_a_content_type_that_is_no_symbol_is_left_out() -> None:
    """A content type that is not ASCII, as symbols are, is left out, and the message goes."""
    headers = [("kjms", b"1;bytes"), ("JMS_kjms_ContentType", "größe".encode())]
    sent = AmqpMessage.decode(encode(from_record(b"hi", headers)).encode())
    assert sent.properties.content_type == "application/octet-stream"


def from_record(
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    destination: Destination = Queue("orders"),  # noqa: B008 - it never changes
    count: int = 1,
) -> Message:
    record = SimpleNamespace(
        value=lambda: value, key=lambda: None, headers=lambda: headers, timestamp=lambda: (1, 1_000),
        topic=lambda: "orders", partition=lambda: 0, offset=lambda: 7,
    )  # fmt: skip
    return decode_record(record, destination, count)
