"""The JSON form of messages, back and forth."""

from __future__ import annotations

import json
import math
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kjms.destinations import Queue, Topic
from kjms.mapping import encode
from kjms.mapping.json_form import from_json, plain_body, to_json
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.options import DeliveryMode

texts = st.text(st.characters(codec="utf-8"), max_size=20)
names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: (
        name.upper() not in {"NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE"}
    )
)


def numbers(width: Literal[32, 64]) -> st.SearchStrategy[float]:
    """Return floats; of the many forms of NaN one, since the others say nothing more in JMS."""
    return st.floats(width=width).map(lambda number: math.nan if math.isnan(number) else number)


PROPERTIES: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": numbers(32),
    "double": numbers(64),
    "string": st.none() | texts,
}
ENTRIES = {**PROPERTIES, "char": st.characters(max_codepoint=0xFFFF), "bytes": st.binary(max_size=20)}
plain_objects = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers(64) | texts | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.sampled_from(["bytes", "map", "double"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@st.composite
def typed_values(draw: st.DrawFn, kinds: dict[str, st.SearchStrategy[Any]]) -> tuple[str, Any]:
    kind = draw(st.sampled_from(sorted(kinds)))
    return kind, draw(kinds[kind])


@st.composite
def messages(draw: st.DrawFn) -> Message:
    message = draw(
        st.one_of(
            st.builds(Message),
            st.builds(TextMessage, st.none() | texts),
            bytes_messages(),
            map_messages(),
            stream_messages(),
            st.builds(ObjectMessage, plain_objects),
        )
    )
    for name, (kind, value) in draw(st.dictionaries(names, typed_values(PROPERTIES), max_size=4)).items():
        getattr(message, f"set_{kind}_property")(name, value)
    message.jms_type = draw(st.none() | texts)
    if draw(st.booleans()):
        message.jms_correlation_id = draw(st.none() | texts)
    else:
        message.jms_correlation_id_as_bytes = b"\xff" + draw(st.binary(max_size=8))
    message.jms_reply_to = draw(st.sampled_from([None, Queue("answers"), Topic("news")]))
    return message


@st.composite
def bytes_messages(draw: st.DrawFn) -> Message:
    message = BytesMessage()
    message.write_bytes(draw(st.binary(max_size=30)))
    return message


@st.composite
def map_messages(draw: st.DrawFn) -> Message:
    message = MapMessage()
    for name, (kind, value) in draw(st.dictionaries(texts.filter(bool), typed_values(ENTRIES), max_size=4)).items():
        getattr(message, f"set_{kind}")(name, value)
    return message


@st.composite
def stream_messages(draw: st.DrawFn) -> Message:
    message = StreamMessage()
    for kind, value in draw(st.lists(typed_values(ENTRIES), max_size=4)):
        getattr(message, f"write_{kind}")(value)
    return message


@given(messages())
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_again(message: Message) -> None:
    """A message comes out of its JSON form as the very record that it went in as, types included."""
    if isinstance(message, BytesMessage | StreamMessage):
        message.reset()
    line = json.dumps(to_json(message))
    again = from_json(line, 0).message
    before, after = encode(message), encode(again)
    assert (after.key, after.value) == (before.key, before.value)
    assert sorted(after.headers[1:]) == sorted(before.headers[1:])
    assert types_of(after.headers[0]) == types_of(before.headers[0])


def types_of(header: tuple[str, bytes | None]) -> tuple[bytes, set[bytes]]:
    """Return the body type and the set of typed properties that the header ``kjms`` names."""
    assert header[0] == "kjms"
    body, _, types = (header[1] or b"").removeprefix(b"1;").partition(b";")
    return body, set(types.split(b","))


def test_json_has_plain_values_where_they_tell_the_type() -> None:
    """What JSON can say stands there as it is, so that other programs read it without knowing more."""
    message = TextMessage("hi")
    message.set_int_property("small", 1)
    message.set_long_property("big", 2**40)
    message.set_double_property("ratio", 0.5)
    message.set_boolean_property("urgent", True)
    message.set_string_property("region", "EU")
    message.set_short_property("short", 5)
    message.set_long_property("long", 5)
    message.set_double_property("none", float("nan"))
    assert to_json(message)["properties"] == {
        "big": 2**40,
        "long": {"long": 5},
        "none": {"double": "NaN"},
        "ratio": 0.5,
        "region": "EU",
        "short": {"short": 5},
        "small": 1,
        "urgent": True,
    }


def test_headers_that_a_send_decides_become_its_arguments() -> None:
    """Priority, delivery mode and what is left of the life are the send's to set; those that it makes are left out."""
    headers = {
        "JMSPriority": 7,
        "JMSDeliveryMode": "NON_PERSISTENT",
        "JMSExpiration": 5_000,
        "JMSMessageID": "ID:old",
        "JMSTimestamp": 17,
        "JMSRedelivered": True,
        "JMSDestination": "queue://old",
    }
    draft = from_json(
        json.dumps(
            {"headers": headers, "properties": {"JMSXDeliveryCount": 3, "JMSXUserID": "ann", "JMS_kjms_Cause": "x"}}
        ),
        2_000,
    )
    assert draft.how == {"priority": 7, "delivery_mode": DeliveryMode.NON_PERSISTENT, "time_to_live": 3_000}
    assert draft.message.jms_message_id is None
    assert draft.message.property_names() == []


def test_what_has_expired_stays_expired() -> None:
    """A message whose time is over is not sent with an endless life: 0 would mean that."""
    assert from_json('{"headers": {"JMSExpiration": 5}}', 1_000).how == {"time_to_live": 1}
    assert from_json('{"headers": {"JMSExpiration": 0}}', 1_000).how == {"time_to_live": 0}  # which is never


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[]", "a message is a JSON object"),
        ('{"text": "hi"}', "body, properties and headers"),
        ('{"body": 5}', "a body must be text, null"),
        ('{"body": {"word": "hi"}}', "a body must be text, null"),
        ('{"body": {"bytes": "?"}}', "base64"),
        ('{"body": {"stream": {}}}', "JSON array"),
        ('{"body": {"map": {"": 1}}}', "map entry"),
        ('{"properties": []}', "properties: must be a JSON object"),
        ('{"properties": {"a": [1]}}', "property 'a'"),
        ('{"properties": {"a": {"byte": 128}}}', "property 'a'"),
        ('{"properties": {"a": {"float": "heavy"}}}', "'heavy' (str) is not a valid float"),
        ('{"properties": {"a": {"bytes": "AA=="}}}', "property 'a'"),
        ('{"properties": {"a": 9223372036854775808}}', "property 'a'"),
        ('{"properties": {"two words": 1}}', "'two words'"),
        ('{"headers": {"JMSFlavour": "x"}}', "'JMSFlavour'"),
        ('{"headers": {"JMSPriority": 11}}', "11"),
        ('{"headers": {"JMSDeliveryMode": 2}}', "PERSISTENT"),
        ('{"headers": {"JMSReplyTo": "answers"}}', "queue://NAME"),
        ('{"headers": {"JMSType": 5}}', "jms_type"),
        ('{"headers": {"JMSExpiration": "soon"}}', "JMSExpiration"),
        ('{"properties": {"a": ' + "1" * 5_000 + "}}", "a number has too many digits"),
        ('{"properties": {"a": ' + "1" * 4_000 + "}}", "which is no long"),
        ('{"body": {"object": {"integer": "0xyz"}}}', "0xyz"),
        ('{"body": {"object": ' + "[" * 2_000 + "]" * 2_000 + "}}", "nested too deeply"),
        ('{"body": {"object": ' + '{"a":' * 900 + "1" + "}" * 900 + "}}", "nested too deeply"),
    ],
)
def test_what_is_no_message_is_refused(line: str, said: str) -> None:
    """An object that means nothing is refused with what is wrong; nothing is guessed and nothing ignored."""
    with pytest.raises(ValueError) as caught:
        from_json(line, 0)
    assert said in str(caught.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["bytes", "map", "stream", "object", "short", "codec", "JMSType", "a"]), inner
        )
    ),
    max_leaves=6,
)


@given(st.fixed_dictionaries({}, optional=dict.fromkeys(("body", "properties", "headers"), json_values)))
@settings(max_examples=150, deadline=None)
def test_any_json_is_a_message_or_a_value_error(form: dict[str, Any]) -> None:
    """Whatever JSON there is, it is a message or refused with a ValueError; nothing else happens."""
    try:
        draft = from_json(json.dumps(form), 0)
    except ValueError:
        return
    assert isinstance(draft.message, Message)
    assert json.loads(json.dumps(to_json(draft.message)))


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (TextMessage("grün"), "grün"),
        (TextMessage(), ""),
        (Message(), ""),
        (MapMessage({"n": 1, "data": b"\x00"}), '{"n": 1, "data": "AA=="}'),
        (ObjectMessage(["ä", 1]), '["ä", 1]'),
    ],
)
def test_a_body_as_one_reads_it(message: Message, line: str) -> None:
    """A plain body is the text, or JSON without types."""
    assert plain_body(message) == line


def object_of_a_codec() -> ObjectMessage:
    message = ObjectMessage()
    message.serialized = "java", b"\xac\xed"
    return message


def stream(*values: Any) -> StreamMessage:
    message = StreamMessage()
    for value in values:
        message.write_object(value)
    return message


BODIES: list[tuple[Message, object, str]] = [
    (Message(), None, ""),
    (TextMessage("grün"), "grün", "grün"),
    (TextMessage(""), "", ""),
    (TextMessage(), {"text": None}, ""),
    (BytesMessage(b"\0\x01"), {"bytes": "AAE="}, "AAE="),
    (BytesMessage(), {"bytes": ""}, ""),
    (MapMessage({"n": 1, "b": b"\0", "none": None}), {"map": {"n": 1, "b": {"bytes": "AA=="}, "none": None}},
     '{"n": 1, "b": "AA==", "none": null}'),
    (stream(True, "ä", b"\0", 1.5), {"stream": [True, "ä", {"bytes": "AA=="}, 1.5]},
     '[true, "ä", "AA==", 1.5]'),
    (ObjectMessage(["ä", 1]), {"object": ["ä", 1]}, '["ä", 1]'),
    (ObjectMessage(), {"object": None}, "null"),
    (ObjectMessage({"bytes": b"\0"}), {"object": {"map": {"bytes": {"bytes": "AA=="}}}}, '{"bytes": "AA=="}'),
    (ObjectMessage({"double": 1}), {"object": {"map": {"double": 1}}}, '{"double": 1}'),
    (ObjectMessage({"integer": 1}), {"object": {"map": {"integer": 1}}}, '{"integer": 1}'),
    (ObjectMessage([2**2_048, -(2**2_048)]), {"object": [{"integer": hex(2**2_048)}, {"integer": hex(-(2**2_048))}]},
     '["0x1000000000… (2,049 bits)", "-0x1000000000… (2,049 bits)"]'),
    (ObjectMessage({"n": [10**5_000]}), {"object": {"n": [{"integer": hex(10**5_000)}]}},
     '{"n": ["0x31e2080103… (16,610 bits)"]}'),
    (ObjectMessage({"map": 1}), {"object": {"map": {"map": 1}}}, '{"map": 1}'),
    (ObjectMessage({"map": 1, "a": math.inf}), {"object": {"map": 1, "a": {"double": "Infinity"}}},
     '{"map": 1, "a": Infinity}'),
    (object_of_a_codec(), {"codec": "java", "bytes": "rO0="}, "rO0="),
]  # fmt: skip


@pytest.mark.parametrize(("message", "form", "plain"), BODIES)
def test_each_kind_of_body(message: Message, form: object, plain: str) -> None:
    """In JSON with the types that it does not have itself, and in plain text without."""
    if isinstance(message, BytesMessage | StreamMessage):
        message.reset()
    assert to_json(message)["body"] == form
    assert plain_body(message) == plain
    again = from_json(json.dumps({"body": form}), 0).message
    assert type(again) is type(message)
    assert encode(again).value == encode(message).value


def test_the_header_fields_of_a_received_message(read: Any) -> None:
    """Those that are not set are left out."""
    headers = [
        ("kjms", b"1;text"), ("JMSMessageID", b"ID:1"), ("JMSTimestamp", b"1750000000000"), ("JMSType", b"order"),
        ("JMSCorrelationID", b"c"), ("JMSReplyTo", b"topic://replies"), ("JMSDeliveryMode", b"1"),
        ("JMSPriority", b"7"), ("JMSExpiration", b"1750000000009"),
    ]  # fmt: skip
    assert to_json(read(b"x", headers)) == {
        "body": "x",
        "properties": {"JMSXDeliveryCount": 1},
        "headers": {
            "JMSMessageID": "ID:1",
            "JMSTimestamp": 1_750_000_000_000,
            "JMSDestination": "queue://orders",
            "JMSDeliveryMode": "NON_PERSISTENT",
            "JMSPriority": 7,
            "JMSRedelivered": False,
            "JMSType": "order",
            "JMSCorrelationID": "c",
            "JMSReplyTo": "topic://replies",
            "JMSExpiration": 1_750_000_000_009,
        },
    }
    assert to_json(Message())["headers"] == {
        "JMSDeliveryMode": "PERSISTENT",
        "JMSPriority": 4,
        "JMSRedelivered": False,
    }


@pytest.mark.parametrize(
    ("data", "form"),
    [("grün".encode(), "grün"), (b"\xff", {"bytes": "/w=="}), (None, None)],
)
def test_a_correlation_id_that_is_no_text_is_written_as_bytes(data: bytes | None, form: object) -> None:
    message = Message()
    message.jms_correlation_id_as_bytes = data
    assert to_json(message)["headers"].get("JMSCorrelationID") == form


@pytest.mark.parametrize("body_type", ["map", "stream", "object"])
def test_a_body_that_cannot_be_read_is_passed_on(body_type: str, read: Any) -> None:
    """Its type and its bytes are kept, the damage is named; what is sent from that has the same bytes."""
    message = read(b"\xff\xff", [("kjms", f"1;{body_type}".encode()), ("p", b"1")])
    form = to_json(message)
    assert form["body"] == {"damaged": body_type, "bytes": "//8="}
    assert form["properties"]["p"] == "1"
    (damage,) = form["damage"]
    assert damage == message.damage[0]
    assert plain_body(message) == f"! {damage}: //8="
    again = encode(from_json(json.dumps(form), 0).message)
    assert again.value == b"\xff\xff"
    assert again.headers == [("kjms", f"1;{body_type}".encode()), ("p", b"1")]


def test_a_message_without_damage_has_none_in_its_form() -> None:
    assert to_json(TextMessage("x")).keys() == {"body", "properties", "headers"}
