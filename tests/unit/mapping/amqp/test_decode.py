"""AMQP messages as JMS sees them (AMQP JMS mapping §3.3, §4, §5.1): those of JMS clients, and all others."""

from __future__ import annotations

import time
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import BytesMessage, MapMessage, Message, ObjectMessage, Queue, StreamMessage, TextMessage, Topic
from kjms.destinations import Destination, TemporaryQueue, TemporaryTopic
from kjms.errors import JMSException, MessageFormatException
from kjms.mapping.amqp import AmqpMessage, AmqpObject, decode, encode
from kjms.mapping.amqp.sections import DATA, SEQUENCE, VALUE, Body, Header, Properties
from kjms.mapping.amqp.types import (
    MAX_ITEMS,
    AmqpDecodeError,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    encode_value,
)

MSG_TYPE = Symbol("x-opt-jms-msg-type")


def read(message: AmqpMessage, destination: Destination | None = None, now_ms: int = 0) -> Message:
    """The message after a journey as bytes."""
    return decode(message.encode(), destination, now_ms=now_ms)


def value(body: Any, **more: Any) -> AmqpMessage:
    return AmqpMessage(body=Body(VALUE, [body]), **more)


# ------------------------------------------------------------------------------------------------------- header


@pytest.mark.requirement("AMQP-3.3.1-1", "AMQP-3.3.1-2", "AMQP-3.3.1-3", "AMQP-3.2.1-17")
@pytest.mark.parametrize(("durable", "mode"), [(None, 1), (False, 1), (True, 2)])
def test_durable_is_the_delivery_mode(durable: bool | None, mode: int) -> None:
    """Durable messages are PERSISTENT; others, and those that do not say, are NON_PERSISTENT."""
    assert read(value(None, header=Header(durable=durable))).jms_delivery_mode == mode


@pytest.mark.requirement("AMQP-3.3.1-4", "AMQP-3.3.1-5", "AMQP-3.3.1-6", "AMQP-3.2.1-30")
@pytest.mark.parametrize(("priority", "expected"), [(None, 4), (0, 0), (9, 9), (10, 9), (255, 9)])
def test_priority_is_at_most_9(priority: int | None, expected: int) -> None:
    """JMSPriority is 4 where nothing is said, and 9 for all that is above."""
    assert read(value(None, header=Header(priority=priority))).jms_priority == expected


@pytest.mark.requirement("AMQP-3.3.1-7", "AMQP-3.3.2-11", "AMQP-3.3.2-12")
@pytest.mark.parametrize(
    ("ttl", "absolute", "expected"), [(None, None, 0), (500, None, 1500), (500, 9000, 9000), (None, 9000, 9000)]
)
def test_expiration(ttl: int | None, absolute: int | None, expected: int) -> None:
    """absolute-expiry-time is JMSExpiration; only without it the ttl counts, from now on."""
    message = value(None, header=Header(ttl=ttl), properties=Properties(absolute_expiry_time=absolute))
    assert read(message, now_ms=1000).jms_expiration == expected


@pytest.mark.requirement(
    "AMQP-3.3.1-10", "AMQP-3.3.1-11", "AMQP-3.3.1-12", "AMQP-3.2.2-4", "AMQP-3.2.1-22"
)  # fmt: skip
@pytest.mark.parametrize(("failed", "count"), [(None, 1), (0, 1), (1, 2), (6, 7)])
def test_delivery_count(failed: int | None, count: int) -> None:
    """JMSXDeliveryCount is one more than delivery-count, and JMSRedelivered says whether that is above 0."""
    message = read(value(None, header=Header(delivery_count=failed)))
    assert message.get_int_property("JMSXDeliveryCount") == count
    assert message.jms_redelivered == (count > 1)


@pytest.mark.requirement("AMQP-3.3.1-8", "AMQP-4-5", "AMQP-4-6")
def test_first_acquirer_is_a_property() -> None:
    """JMS_AMQP_FIRST_ACQUIRER is the boolean of header.first-acquirer, where that is set."""
    message = read(value(None, header=Header(first_acquirer=True)))
    assert message.get_boolean_property("JMS_AMQP_FIRST_ACQUIRER") is True
    assert message.property_type("JMS_AMQP_FIRST_ACQUIRER") == "boolean"
    assert not read(value(None)).property_exists("JMS_AMQP_FIRST_ACQUIRER")


# --------------------------------------------------------------------------------------------------- properties


@pytest.mark.requirement(
    "AMQP-3.2.1-1", "AMQP-3.2.1-7", "AMQP-3.2.1-8", "AMQP-3.2.1-23", "AMQP-3.3.2-6", "AMQP-3.3.2-13",
    "AMQP-3.3.2-14", "AMQP-3.2-1",
)  # fmt: skip
def test_header_fields_of_the_properties_section() -> None:
    """message-id, correlation-id, subject and creation-time are the JMS headers of their meaning; 0 is no timestamp."""
    its = Properties(message_id="ID:a", correlation_id="c", subject="invoice", creation_time=1234)
    message = read(value(None, properties=its))
    assert message.jms_message_id == "ID:a"
    assert message.jms_correlation_id == "c"
    assert message.jms_type == "invoice"
    assert message.jms_timestamp == 1234
    assert read(value(None)).jms_timestamp == 0
    assert read(value(None)).jms_message_id is None


@pytest.mark.requirement("AMQP-3.2.1.1-16")
def test_a_correlation_id_can_be_had_as_bytes() -> None:
    """JMSCorrelationIDAsBytes of a binary correlation-id gives its bytes, that of a string its UTF-8 bytes."""
    message = read(value(None, properties=Properties(correlation_id=b"\xab\xcd")))
    assert message.jms_correlation_id == "ID:AMQP_BINARY:ABCD"
    assert message.jms_correlation_id_as_bytes == b"\xab\xcd"
    message = read(value(None, properties=Properties(correlation_id="grün")))
    assert message.jms_correlation_id_as_bytes == "grün".encode()


@pytest.mark.requirement("AMQP-3.2.2-1", "AMQP-3.2.2-2", "AMQP-3.3.2-2", "AMQP-3.3.2-3")
def test_user_id_is_utf_8() -> None:
    """user-id is JMSXUserID, by way of UTF-8."""
    message = read(value(None, properties=Properties(user_id="jürgen".encode())))
    assert message.get_string_property("JMSXUserID") == "jürgen"


@pytest.mark.requirement("AMQP-3.2.2-5", "AMQP-3.2.2-6", "AMQP-3.3.2-15", "AMQP-3.3.2-16", "AMQP-3.3.2-17")
@pytest.mark.parametrize(("wire", "number"), [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 - 1, -1)])
def test_groups(wire: int, number: int) -> None:
    """group-id and group-sequence are JMSXGroupID and JMSXGroupSeq; large sequence numbers are negative ones."""
    message = read(value(None, properties=Properties(group_id="cars", group_sequence=wire)))
    assert message.get_string_property("JMSXGroupID") == "cars"
    assert message.get_int_property("JMSXGroupSeq") == number
    assert message.property_type("JMSXGroupSeq") == "int"


@pytest.mark.requirement("AMQP-3.3.2-18", "AMQP-4-7", "AMQP-4-8")
def test_reply_to_group_id_is_a_property() -> None:
    """reply-to-group-id is the string property JMS_AMQP_REPLY_TO_GROUP_ID."""
    message = read(value(None, properties=Properties(reply_to_group_id="answers")))
    assert message.get_object_property("JMS_AMQP_REPLY_TO_GROUP_ID") == "answers"


@pytest.mark.requirement("AMQP-9-10", "AMQP-9-14", "AMQP-9-15", "AMQP-3.2.1-32")
@pytest.mark.parametrize("kind", [int, Timestamp, UInt])
def test_delivery_time(kind: type[int]) -> None:
    """x-opt-delivery-time is JMSDeliveryTime; without it that is JMSTimestamp."""
    its = Properties(creation_time=1000)
    annotations = {Symbol("x-opt-delivery-time"): kind(5000)}
    assert read(value(None, properties=its, message_annotations=annotations)).jms_delivery_time == 5000
    assert read(value(None, properties=its)).jms_delivery_time == 1000


def test_a_delivery_time_that_is_no_long_is_refused() -> None:
    """JMSDeliveryTime could not say it, and no reader of the record either."""
    annotations = {Symbol("x-opt-delivery-time"): ULong(2**63)}
    with pytest.raises(MessageFormatException, match="x-opt-delivery-time is 9223372036854775808"):
        read(value(None, message_annotations=annotations))


# ------------------------------------------------------------------------------------------------- destinations


@pytest.mark.requirement("AMQP-5.1-13", "AMQP-3.2.1-16", "AMQP-3.3.2-4", "AMQP-3.3.2-7")
@pytest.mark.parametrize("number_type", [Byte, Short, Int, int, UByte, UShort, UInt, ULong])
@pytest.mark.parametrize(("number", "kind"), list(enumerate([Queue, Topic, TemporaryQueue, TemporaryTopic])))
def test_annotations_tell_the_kind_of_destination(number_type: type[int], number: int, kind: type[Destination]) -> None:
    """0 is a queue, 1 a topic, 2 and 3 the temporary ones, in whatever integral type."""
    annotations = {Symbol(f"x-opt-jms-{of}"): number_type(number) for of in ("dest", "reply-to")}
    message = read(value(None, message_annotations=annotations, properties=Properties(to="a", reply_to="b")))
    assert type(message.jms_destination) is kind
    assert type(message.jms_reply_to) is kind
    assert (message.jms_destination, message.jms_reply_to) == (kind("a"), kind("b"))


@pytest.mark.requirement("AMQP-5.1-9", "AMQP-5.1-10", "AMQP-5.1-11", "AMQP-3.3.2-5")
@pytest.mark.parametrize("kind", [Queue, Topic])
def test_the_link_tells_the_destination_where_the_message_does_not(kind: type[Destination]) -> None:
    """Without annotation an address is of the link's kind; without an address it is the link's destination."""
    link = kind("link")
    assert read(value(None), link).jms_destination == link
    message = read(value(None, properties=Properties(to="a", reply_to="b")), link)
    assert (message.jms_destination, message.jms_reply_to) == (kind("a"), kind("b"))
    assert read(value(None)).jms_destination is None


def test_addresses_that_say_their_kind() -> None:
    """Other AMQP programs may write queue:// or topic://, and answer to a temporary destination by its name."""
    assert read(value(None, properties=Properties(reply_to="amqp://x/y"))).jms_reply_to == Queue("amqp://x/y")
    message = read(value(None, properties=Properties(to="topic://a", reply_to="kjms.inbox.x.y/7")), Queue("link"))
    assert message.jms_destination == Topic("a")
    assert message.jms_reply_to == TemporaryQueue("kjms.inbox.x.y/7")


# --------------------------------------------------------------------------------------- application properties

VALUES = [
    (True, "boolean", True), (Byte(-1), "byte", -1), (Short(-300), "short", -300), (Int(7), "int", 7),
    (7, "long", 7), (Float(0.5), "float", 0.5), (0.1, "double", 0.1), ("x", "string", "x"), (None, "string", None),
    (UByte(200), "short", 200), (UShort(60_000), "int", 60_000), (UInt(2**32 - 1), "long", 2**32 - 1),
    (ULong(7), "long", 7), (ULong(2**63), "string", str(2**63)), (Timestamp(7), "long", 7), (Char("é"), "string", "é"),
    (Symbol("s"), "string", "s"), (uuid.UUID(int=1), "string", str(uuid.UUID(int=1))),
]  # fmt: skip


@pytest.mark.requirement("AMQP-3.3.3-1", "AMQP-3.1-4", "AMQP-3.2-2", "AMQP-3.2.3-1")
@pytest.mark.parametrize(("wire", "kind", "expected"), VALUES)
def test_application_properties_become_properties(wire: object, kind: str, expected: object) -> None:
    """Each value is a property of its type, or, where JMS does not have that, of the next that holds it."""
    message = read(value(None, application_properties={"p": wire}))
    assert (message.property_type("p"), message.get_object_property("p")) == (kind, expected)
    assert encode(message).application_properties["p"] == wire
    assert type(encode(message).application_properties["p"]) is type(wire)


@pytest.mark.requirement("AMQP-4-9", "AMQP-4-10")
def test_our_own_properties_are_not_called_as_the_mappings() -> None:
    """The vendor properties that the mapping adds begin with JMS_kjms, and so not with JMS_AMQP."""
    its = Properties(content_type="image/png", content_encoding="gzip")
    message = read(AmqpMessage(properties=its, footer={Symbol("f"): 1}, body=Body(DATA, [b""])))
    added = [name for name in message.property_names() if name != "JMSXDeliveryCount"]
    assert len(added) == 3
    assert all(name.startswith("JMS_kjms_") for name in added)
    assert encode(message).properties == its


def test_what_jms_does_not_have_passes_through() -> None:
    """Binary and decimal property values, other annotations, a footer and any name are passed on as they came."""
    message = AmqpMessage(
        application_properties={
            "b": b"\1",
            "d": Decimal(b"1234"),
            "a,b;c": Int(5),
            "my-name": Int(5),
            "kjms-to": "1",
            "a\0b": "x",
            "": 1,
            "JMSType": "x",
        },
        message_annotations={Symbol("x-opt-other"): Described(Symbol("d"), [UInt(1)]), MSG_TYPE: Byte(5)},
        footer={Symbol("f"): 1},
        body=Body(VALUE, ["text"]),
    )
    received = read(message)
    assert received.get_string_property("a,b;c") == "5"
    assert received.get_int_property("my-name") == 5
    for name in ("b", "kjms-to", "a\0b", ""):
        assert not received.property_exists(name)
    again = encode(received)
    del message.application_properties["JMSType"]
    assert again.application_properties == message.application_properties
    assert type(again.application_properties["a,b;c"]) is Int
    assert again.message_annotations == message.message_annotations
    assert again.footer == message.footer


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("JMSXRcvTimestamp", marks=pytest.mark.requirement("AMQP-3.2.2-10")),
        pytest.param("JMSXState", marks=pytest.mark.requirement("AMQP-3.2.2-11")),
    ],
)
def test_what_has_no_place_in_amqp_cannot_be_sent(name: str) -> None:
    """Neither property exists in kjms, so no program can set one that would be transported."""
    message = Message()
    with pytest.raises(MessageFormatException, match="reserved"):
        message.set_int_property(name, 1)
    assert name not in encode(message).application_properties


@pytest.mark.requirement("AMQP-3.1-5", "AMQP-3.2.2-3")
def test_jmsx_properties() -> None:
    """JMSXAppID travels with the properties of applications; what a provider sets on receipt does not."""
    message = read(value(None, application_properties={"JMSXAppID": "billing", "JMSXDeliveryCount": Int(9)}))
    assert message.get_string_property("JMSXAppID") == "billing"
    assert message.get_int_property("JMSXDeliveryCount") == 1
    assert encode(message).application_properties == {"JMSXAppID": "billing"}


# --------------------------------------------------------------------------------------------------------- body


@pytest.mark.requirement("AMQP-3.3.4.1-1", "AMQP-3.3.4-1", "AMQP-3.3-1", "AMQP-3.2-4", "AMQP-3.2.4-3")
@pytest.mark.parametrize(
    ("number", "body", "kind"),
    [
        (0, Body(VALUE, [None]), Message),
        (1, Body(VALUE, ["text"]), ObjectMessage),
        (2, Body(VALUE, [{"a": 1}]), MapMessage),
        (2, Body(VALUE, [None]), MapMessage),
        (3, Body(DATA, [b"ab"]), BytesMessage),
        (3, Body(VALUE, [b"ab"]), BytesMessage),
        (4, Body(SEQUENCE, [[1], [2]]), StreamMessage),
        (4, Body(VALUE, [[1, 2]]), StreamMessage),
        (5, Body(VALUE, [None]), TextMessage),
        (5, Body(DATA, [b"text"]), TextMessage),
    ],
)
@pytest.mark.parametrize("number_type", [Byte, UByte, Int])
def test_the_annotation_tells_the_type(number_type: Any, number: int, body: Body, kind: type[Message]) -> None:
    """x-opt-jms-msg-type decides, whatever the body looks like."""
    message = read(AmqpMessage(message_annotations={MSG_TYPE: number_type(number)}, body=body))
    assert type(message) is kind


@pytest.mark.parametrize(
    ("number", "body", "expected"),
    [
        (2, Body(VALUE, [{"a": Int(1), "b": None}]), {"a": 1, "b": None}),
        (2, Body(VALUE, [None]), {}),
        (3, Body(DATA, [b"a", b"b"]), b"ab"),
        (3, Body(VALUE, [b"ab"]), b"ab"),
        (3, Body(VALUE, [None]), b""),
        (3, Body(None, []), b""),
        (5, Body(VALUE, ["text"]), "text"),
        (5, Body(VALUE, [Symbol("text")]), "text"),
        (5, Body(VALUE, [None]), None),
        (5, Body(DATA, ["grün".encode()]), "grün"),
    ],
)
def test_the_body_is_what_the_sections_hold(number: int, body: Body, expected: object) -> None:
    """Whichever kind of section has it, of those that the type may have."""
    found = read(AmqpMessage(message_annotations={MSG_TYPE: Byte(number)}, body=body)).get_body(object)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("body", [Body(SEQUENCE, [[Int(1)], ["x", None]]), Body(VALUE, [[Int(1), "x", None]])])
def test_a_stream_has_the_values_of_all_sections(body: Body) -> None:
    message = read(AmqpMessage(message_annotations={MSG_TYPE: Byte(4)}, body=body))
    assert isinstance(message, StreamMessage)
    assert [message.read_int(), message.read_string(), message.read_object()] == [1, "x", None]


def test_amqp_objects_are_equal_where_value_and_type_are() -> None:
    assert AmqpObject(Int(5)) == AmqpObject(Int(5))
    assert hash(AmqpObject(Int(5))) == hash(AmqpObject(Int(5)))
    for other in (AmqpObject(Int(6)), AmqpObject(5), AmqpObject(Short(5)), Int(5), 5):
        assert AmqpObject(Int(5)) != other
    assert repr(AmqpObject(Int(5))) == "<AmqpObject of type Int>"


@pytest.mark.requirement("AMQP-3.3.4.1-2", "AMQP-3.3.4.3-1", "AMQP-3.3.4.3-2", "AMQP-3.3.4.3-3", "AMQP-3.2.4-2")
@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "image/png", "text/plain; charset=foo"])
def test_data_is_a_bytes_message(content_type: str | None) -> None:
    """Data sections make a BytesMessage where their content type is no other message's."""
    message = read(AmqpMessage(properties=Properties(content_type=content_type), body=Body(DATA, [b"a", b"b"])))
    assert isinstance(message, BytesMessage)
    assert message.read_bytes() == b"ab"


@pytest.mark.requirement("AMQP-3.3.4.3-5", "AMQP-3.3.4.3-6", "AMQP-3.3.4.3-7")
@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain", "text/anything", "TEXT/HTML", "application/xml", "application/xml-dtd", "application/json",
        "application/javascript", "application/ecmascript", "application/soap+xml", "application/hal+json",
    ],
)  # fmt: skip
def test_textual_data_is_a_text_message(content_type: str) -> None:
    """Data of a textual media type makes a TextMessage, and is passed on as that data."""
    source = AmqpMessage(properties=Properties(content_type=content_type), body=Body(DATA, ["grüße".encode()]))
    message = read(source)
    assert isinstance(message, TextMessage)
    assert message.text == "grüße"
    assert encode(message).body.values == source.body.values
    assert encode(message).properties.content_type == content_type


def test_text_has_the_charset_that_its_content_type_says() -> None:
    """Text that came in another charset than UTF-8 is read by it, and goes out in it."""
    its = Properties(content_type="text/plain; charset=iso-8859-1")
    message = read(AmqpMessage(properties=its, body=Body(DATA, ["é".encode("latin-1")])))
    assert isinstance(message, TextMessage)
    assert message.text == "é"
    assert encode(message).body.data == b"\xe9"


@pytest.mark.parametrize("charset", ["latin1", "ISO_8859-1", "iso-8859-1", '"iso-8859-1"', "cp819", "L1"])
def test_a_charset_has_several_names(charset: str) -> None:
    its = Properties(content_type=f"text/plain; charset={charset}")
    assert read(AmqpMessage(properties=its, body=Body(DATA, [b"\xe9"]))).get_body(str) == "é"


def test_what_a_charset_does_not_have_goes_out_as_a_question_mark() -> None:
    """The text that a program put there in place of the one that came."""
    its = Properties(content_type="text/plain; charset=us-ascii")
    message = read(AmqpMessage(properties=its, body=Body(DATA, [b"e"])))
    assert isinstance(message, TextMessage)
    message.clear_body()
    message.text = "é"
    again = encode(message)
    assert (again.body.kind, again.body.data) == (DATA, b"?")


@pytest.mark.requirement("AMQP-3.3.4.3-8")
def test_textual_data_of_no_length_is_an_empty_text() -> None:
    """A text of data sections without a byte is the empty string, not None."""
    message = read(AmqpMessage(properties=Properties(content_type="text/plain"), body=Body(DATA, [b""])))
    assert isinstance(message, TextMessage)
    assert message.text == ""


@pytest.mark.requirement("AMQP-3.3.4.3-4", "AMQP-3.2.4.6-3", "AMQP-3.2.4.6-4", "AMQP-3.2.4.6-6", "AMQP-3.2.4.6-7")
def test_serialised_java_objects_pass_through() -> None:
    """Java-serialised data, in however many sections, is an ObjectMessage, opaque, that goes out as it came in."""
    its = Properties(content_type="application/x-java-serialized-object")
    message = read(AmqpMessage(properties=its, body=Body(DATA, [b"\xac\xed", b"\x00\x05p"])))
    assert isinstance(message, ObjectMessage)
    assert message.serialized == ("java", b"\xac\xed\x00\x05p")
    again = encode(message)
    assert (again.body.kind, again.body.data) == (DATA, b"\xac\xed\x00\x05p")
    assert again.properties.content_type == "application/x-java-serialized-object"
    assert again.message_annotations[MSG_TYPE] == 1
    assert type(again.message_annotations[MSG_TYPE]) is Byte


@pytest.mark.requirement(
    "AMQP-3.3.4.4-1", "AMQP-3.3.4.4-2", "AMQP-3.3.4.4-3", "AMQP-3.3.4.4-4", "AMQP-3.2.4-2"
)  # fmt: skip
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("text", TextMessage), (None, TextMessage), (b"ab", BytesMessage), ({"a": 1}, ObjectMessage),
        ([1], ObjectMessage), (Int(1), ObjectMessage), (Symbol("s"), ObjectMessage), (1.5, ObjectMessage),
        (Described(ULong(1), "x"), ObjectMessage),
    ],
)  # fmt: skip
def test_amqp_values(body: object, kind: type[Message]) -> None:
    """A string or null is a text, a binary is bytes, anything else an object."""
    assert type(read(value(body))) is kind


@pytest.mark.requirement("AMQP-3.3.4.5-1", "AMQP-3.2.4-2")
def test_amqp_sequences_are_objects() -> None:
    """Sequence sections without annotation make an ObjectMessage."""
    message = read(AmqpMessage(body=Body(SEQUENCE, [[Int(1)], ["x"]])))
    assert isinstance(message, ObjectMessage)
    assert message.object == AmqpObject([Int(1), "x"])


@pytest.mark.requirement(
    "AMQP-3.2.4.6-2", "AMQP-3.2.4.6-8", "AMQP-3.2.4.6-9", "AMQP-3.2.4.6-10", "AMQP-3.2.4.6-12"
)  # fmt: skip
@pytest.mark.parametrize(
    "body",
    [
        Body(VALUE, [{"a": [1, 2.5, None, True, b"x"]}]), Body(VALUE, [Int(5)]), Body(SEQUENCE, [[Int(5)], [1]]),
        Body(VALUE, [{Int(1): ULong(2)}]), Body(DATA, [b"x"]), Body(VALUE, [Described(Symbol("d"), UInt(7))]),
    ],
)  # fmt: skip
def test_objects_in_amqps_types_pass_through(body: Body) -> None:
    """An object in AMQP's own types goes out with the same values of the same types, and no Java content type."""
    message = read(AmqpMessage(message_annotations={MSG_TYPE: Byte(1)}, body=body))
    assert isinstance(message, ObjectMessage)
    again = encode(message)
    assert again.body.kind == body.kind
    assert [encode_value(item) for item in again.body.values] == [encode_value(item) for item in body.values]
    assert again.properties.content_type is None
    assert again.message_annotations[MSG_TYPE] == 1


def test_plain_objects_are_readable_without_more() -> None:
    """An object made of what Python has, too, is that."""
    message = read(value({"a": [1, 2.5, None, True, b"x"]}, message_annotations={MSG_TYPE: Byte(1)}))
    assert isinstance(message, ObjectMessage)
    assert message.object == {"a": [1, 2.5, None, True, b"x"]}


@pytest.mark.parametrize(
    ("number", "body", "reason"),
    [
        (2, Body(DATA, [b""]), "the body of a map message cannot be data sections"),
        (2, Body(SEQUENCE, [[]]), "the body of a map message cannot be amqp-sequence sections"),
        (2, Body(VALUE, [[1]]), "the body of a map message cannot be an amqp-value of type list"),
        (2, Body(VALUE, [{1: 1}]), "the body of a map message cannot be an entry whose name is a int"),
        (2, Body(VALUE, [{"": 1}]), "the body of a map message cannot be an entry whose name is a str"),
        (2, Body(VALUE, [{"a": []}]), "the body of a map message cannot be a list among its values"),
        (3, Body(VALUE, ["x"]), "the body of a bytes message cannot be an amqp-value of type str"),
        (3, Body(SEQUENCE, [[]]), "the body of a bytes message cannot be amqp-sequence sections"),
        (4, Body(DATA, [b""]), "the body of a stream message cannot be data sections"),
        (4, Body(VALUE, [[{}]]), "the body of a stream message cannot be a dict among its values"),
        (4, Body(VALUE, [1]), "the body of a stream message cannot be an amqp-value of type int"),
        (5, Body(VALUE, [1]), "the body of a text message cannot be an amqp-value of type int"),
        (5, Body(SEQUENCE, [[]]), "the body of a text message cannot be amqp-sequence sections"),
        (5, Body(DATA, [b"\xff"]), "the body of a text message cannot be bytes that are not utf-8"),
        (6, Body(VALUE, [None]), "x-opt-jms-msg-type is 0 to 5, and not 6 (Byte)"),
        (-1, Body(VALUE, [None]), "x-opt-jms-msg-type is 0 to 5, and not -1 (Byte)"),
    ],
)
def test_a_body_that_is_not_what_its_annotation_says_is_refused(number: int, body: Body, reason: str) -> None:
    """A message that cannot be of the type it says raises MessageFormatException, which says what came."""
    with pytest.raises(MessageFormatException) as raised:
        read(AmqpMessage(message_annotations={MSG_TYPE: Byte(number)}, body=body))
    assert str(raised.value) == f"{reason} (mapping §3.2.4)"


# --------------------------------------------------------------------------------------------------------- wire


@pytest.mark.requirement("AMQP-3.1-1")
@pytest.mark.parametrize("number", [0x70, 0x73])
def test_sections_may_be_named_by_symbols_and_numbers_of_any_size(number: int) -> None:
    """A section's descriptor is a number in whatever encoding, or its symbol."""
    name = {0x70: Symbol("amqp:header:list"), 0x73: Symbol("amqp:properties:list")}[number]
    for descriptor in (encode_value(name), bytes.fromhex(f"80{number:016x}")):
        assert type(decode(b"\0" + descriptor + b"\x45" + bytes.fromhex("00537740"))) is TextMessage


@pytest.mark.parametrize(
    "data",
    [
        "ff", "005370", "005379c00100", "005370a100", "005370c006064040404040", "00537745"[:6], "0053774000537740",
        "00537740005375a000", "005373c0040155010000"[:12], "00537740005370c00100", "005374c004024140"[:12], "0053",
        "005370c003015501", "005375a101",
    ],
)  # fmt: skip
def test_what_is_no_message_is_refused(data: str) -> None:
    """Bytes that are no message raise AmqpDecodeError."""
    with pytest.raises(AmqpDecodeError):
        decode(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("ff", "no section of a message begins at byte 0 (§3.2)"),
        ("005375a00005", "no section of a message begins at byte 5 (§3.2)"),
        ("0053774000537740", "section 0x77 at byte 4 follows section 0x77 (§3.2)"),
        ("0053734500537045", "section 0x70 at byte 4 follows section 0x73 (§3.2)"),
        ("005375a000005376c00100", "the body has sections of two kinds, the second at byte 5 (§3.2)"),
        ("005370a100", "section 0x70 at byte 0 holds a str (§3.2)"),
        ("00537045005373a100", "section 0x73 at byte 4 holds a str (§3.2)"),
        ("005370c003015501", "field 0 of the section at byte 0 is a int (§3.2)"),
        ("00537045005373c00402405501", "field 1 of the section at byte 4 is a int (§3.2)"),
        ("005370c007064040404040" + "40", "the section at byte 0 has 6 fields, more than 5 (§3.2)"),
        ("00537045005373c00f0e" + "40" * 14, "the section at byte 4 has 14 fields, more than 13 (§3.2)"),
    ],
)
def test_what_is_wrong_with_a_section_is_said_with_its_place(data: str, reason: str) -> None:
    with pytest.raises(AmqpDecodeError) as raised:
        decode(bytes.fromhex(data))
    assert str(raised.value) == reason


@given(st.data())
def test_no_damage_does_harm(data: st.DataObject) -> None:
    """A message with any byte changed, or cut off anywhere, reads as some message or raises JMSException."""
    message = AmqpMessage(
        header=Header(durable=True, ttl=7),
        message_annotations={MSG_TYPE: Byte(2)},
        properties=Properties(message_id=ULong(7), to="orders", creation_time=1),
        application_properties={"a": Int(5), "b": "text"},
        body=Body(VALUE, [{"x": Float(1.5), "y": b"\0"}]),
    )
    wire = bytearray(message.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode(bytes(wire[: data.draw(st.integers(0, len(wire)))]))
        again = encode(read).encode()
    except JMSException:
        return
    assert type(decode(again)) is type(read)


# -------------------------------------------------------------------------------------------------------- costs


def test_many_sections_take_time_in_proportion() -> None:
    """A body of very many sections is read in one go (33 s for this one, when it was joined piece by piece)."""
    began = time.thread_time()
    message = AmqpMessage.decode(b"\x00\x53\x75\xa0\x01x" * 130_000)
    assert time.thread_time() - began < 5
    assert message.body.data == b"x" * 130_000
    assert message.encode() == message.body.raw


def test_the_bytes_of_a_body_are_bytes() -> None:
    """An object in AMQP's types keeps its bytes as bytes, also where the message came as a bytearray."""
    message = decode(AmqpMessage.decode(bytearray(value([Int(5)]).encode())))
    assert isinstance(message, ObjectMessage)
    assert message.serialized is not None
    assert type(message.serialized[1]) is bytes


def test_all_sections_share_one_budget() -> None:
    """The values of all sections together are no more than the message's bytes, and than a limit."""
    array = b"\xe0\x02\xfa\x40"  # 250 nulls
    with pytest.raises(AmqpDecodeError, match="more values"):
        AmqpMessage.decode(b"\x00\x53\x76\xc0\x05\x01" + array + b"\x00\x53\x76\xc0\x05\x01" + array)
    with pytest.raises(AmqpDecodeError, match="more values"):
        AmqpMessage.decode(b"\x00\x53\x75\xa0\x00" * (MAX_ITEMS + 1))
