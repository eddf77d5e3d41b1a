"""What all bodies have in common: states, clearing, copies, get_body, sending; and text and object messages."""

from __future__ import annotations

import enum
import uuid

import pytest

from kjms import MessageFormatException, MessageNotWriteableException
from kjms.mapping import encode
from kjms.message import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    register_codec,
    unregister_codec,
)


def stream_of(*values: object) -> StreamMessage:
    message = StreamMessage()
    for value in values:
        message.write_object(value)  # type: ignore[arg-type]
    return message


FILLED = {
    TextMessage: lambda: TextMessage("old"),
    BytesMessage: lambda: BytesMessage(b"old"),
    MapMessage: lambda: MapMessage({"old": 1}),
    StreamMessage: lambda: stream_of("old"),
    ObjectMessage: lambda: ObjectMessage(["old"]),
}
WRITES = {
    TextMessage: lambda message: setattr(message, "text", "new"),
    BytesMessage: lambda message: message.write_int(1),
    MapMessage: lambda message: message.set_int("new", 1),
    StreamMessage: lambda message: message.write_int(1),
    ObjectMessage: lambda message: setattr(message, "object", "new"),
}
RECEIVED_READ_ONLY = {
    TextMessage: ("NET-408", "NET-409"), BytesMessage: ("NET-61", "NET-64"), MapMessage: ("NET-124", "NET-125"),
    StreamMessage: ("NET-378", "NET-381"), ObjectMessage: ("NET-333", "NET-334"),
}  # fmt: skip
CLEARED_WRITABLE = {
    TextMessage: ("NET-410",), BytesMessage: ("NET-57", "NET-62"), MapMessage: ("NET-126",),
    StreamMessage: ("NET-374", "NET-379"), ObjectMessage: ("NET-335",),
}  # fmt: skip
SENT_COPIES = {
    TextMessage: (), BytesMessage: ("NET-59", "NET-60"), MapMessage: (), StreamMessage: ("NET-376", "NET-377"),
    ObjectMessage: (),
}  # fmt: skip


def kinds(rows: dict[type[Message], tuple[str, ...]]) -> list:
    return [
        pytest.param(kind, marks=[pytest.mark.requirement(*ids)] if ids else [], id=kind.__name__)
        for kind, ids in rows.items()
    ]


def value_of(message: Message) -> bytes | None:
    return encode(message).value


@pytest.mark.requirement("JMS-3.11.2-1", "NET-40", "NEV-104", "NEV-116", "NEV-328")
@pytest.mark.parametrize("kind", kinds(RECEIVED_READ_ONLY))
def test_a_received_body_is_read_only(kind: type[Message], received) -> None:
    """A write raises MessageNotWriteableException and changes nothing; properties have a state of their own."""
    message = received(FILLED[kind]())
    message.clear_properties()
    with pytest.raises(MessageNotWriteableException, match=kind.__name__):
        WRITES[kind](message)
    assert value_of(message) == value_of(FILLED[kind]())


@pytest.mark.requirement("JMS-3.11.1-1", "JMS-3.11.1-2", "JMS-3.11.2-2", "NEV-105", "NEV-114", "NEV-115")
@pytest.mark.parametrize("kind", kinds(CLEARED_WRITABLE))
def test_a_cleared_body_is_that_of_a_new_message(kind: type[Message], received) -> None:
    """clear_body empties the body, whatever was read before, and makes it writable; properties stay, read-only."""
    for look_first in (False, True):
        message = FILLED[kind]()
        message.set_int_property("p", 1)
        arrived = received(message)
        if look_first:
            _ = arrived._body
        for either in (arrived, message):
            either.clear_body()
            assert value_of(either) == value_of(kind())
            WRITES[kind](either)
            assert either.get_int_property("p") == 1
        assert value_of(message) == value_of(arrived) != value_of(kind())
        with pytest.raises(MessageNotWriteableException):
            arrived.set_int_property("p", 2)


@pytest.mark.requirement("NEV-117")
@pytest.mark.parametrize("kind", list(FILLED))
def test_a_body_that_was_received_and_cleared_is_in_the_state_of_a_new_one(kind: type[Message], received) -> None:
    """After clear_body a received message does what a new one does: it is written, sent and read again."""
    message = received(FILLED[kind]())
    message.clear_body()
    new = kind()
    for each in (message, new):
        WRITES[kind](each)
    assert value_of(message) == value_of(new) == value_of(received(message))


@pytest.mark.requirement("JMS-3.9-1", "JMS-3.9-2")
@pytest.mark.parametrize("kind", kinds(SENT_COPIES))
def test_a_message_can_be_changed_and_sent_again(kind: type[Message]) -> None:
    """What was sent is not touched by later changes, and the same object can be sent any number of times."""
    message = FILLED[kind]()
    first = encode(message)
    before = (first.value, list(first.headers))
    assert encode(message) == first
    WRITES[kind](message)
    message.set_int_property("later", 1)
    assert (first.value, first.headers) == before
    assert encode(message) != first


@pytest.mark.requirement("JMS-11.4.10-1")
@pytest.mark.parametrize("kind", list(FILLED))
def test_a_received_message_can_be_sent_on(kind: type[Message], received) -> None:
    """Sending it on, looked at or not, sends the same body and properties."""
    message = FILLED[kind]()
    message.set_float_property("p", 1.5)
    message.set_string_property("none", None)
    first = encode(message)
    once = received(message)
    assert encode(once) == first
    _ = once._body, dict(once.properties)
    assert encode(once) == first
    assert encode(received(once)) == first


@pytest.mark.requirement("JMS-3.11.4-2", "NET-159", "NEV-134")
@pytest.mark.parametrize("kind", [Message, *FILLED])
def test_a_message_arrives_as_what_it_was(kind: type[Message], received) -> None:
    """Each kind of message arrives as that kind."""
    assert type(received(kind())) is kind


HAVE_ALL_OF_MESSAGE = {
    TextMessage: ("NET-406",), BytesMessage: ("NET-49", "NET-52"), MapMessage: ("NET-121",),
    StreamMessage: ("NET-370",), ObjectMessage: ("NET-331",),
}  # fmt: skip


@pytest.mark.parametrize("kind", kinds(HAVE_ALL_OF_MESSAGE))
def test_messages_need_no_session(kind: type[Message], received) -> None:
    """A message of any kind is made, filled, sent and read without one, and has all that Message has."""
    message = FILLED[kind]()
    assert isinstance(message, Message)
    assert {name for name in dir(Message) if not name.startswith("_")} <= set(dir(message))
    message.set_boolean_property("p", True)
    message.jms_type = "t"
    arrived = received(message)
    assert arrived.get_boolean_property("p") is True
    assert arrived.jms_type == "t"
    assert value_of(arrived) == value_of(message)


# --------------------------------------------------------------------------------------------------- get_body


@pytest.mark.requirement("JMS-B.5.14-1", "JMS-B.5.14-2", "JMS-11.2.5.1-7")
@pytest.mark.parametrize(
    ("message", "body", "fits", "others"),
    [
        (TextMessage("x"), "x", [str, object], [bytes, dict, int]),
        (BytesMessage(b"x"), b"x", [bytes, object], [str, dict, list]),
        (MapMessage({"a": 1}), {"a": 1}, [dict, object], [str, bytes, list]),
        (ObjectMessage([1, "a"]), [1, "a"], [list, object], [str, dict, tuple]),
    ],
)
def test_get_body_gives_the_body_as_the_type_asked_for(message: Message, body: object, fits, others, received) -> None:
    """The type is that of the body or one above it; another raises, and is_body_assignable_to says so before."""
    for either in (message, received(message)):
        for type_ in fits:
            assert either.is_body_assignable_to(type_)
            assert either.get_body(type_) == body
        for type_ in others:
            assert not either.is_body_assignable_to(type_)
            with pytest.raises(MessageFormatException, match=type_.__name__):
                either.get_body(type_)


def test_a_message_without_a_body_fits_any_type(received) -> None:
    """get_body gives None for a Message, and for a text or object message that has none."""
    for message in (Message(), TextMessage(), ObjectMessage(), received(TextMessage())):
        assert message.get_body(str) is message.get_body(bytes) is None
        assert message.is_body_assignable_to(dict)


@pytest.mark.requirement("JMS-9.4.8-1")
def test_get_body_is_not_for_streams(received) -> None:
    """A stream has no one body: MessageFormatException."""
    for message in (stream_of(1), received(stream_of(1))):
        assert not message.is_body_assignable_to(object)
        with pytest.raises(MessageFormatException):
            message.get_body(object)


def test_get_body_does_not_take_a_boolean_for_an_int(received) -> None:
    """Python's bool is an int; JMS's boolean is none."""
    message = received(ObjectMessage(True))
    assert not message.is_body_assignable_to(int)
    with pytest.raises(MessageFormatException, match="is a bool, no int"):
        message.get_body(int)
    assert message.get_body(bool) is message.get_body(object) is True


def test_get_body_of_bytes_leaves_the_read_position(received) -> None:
    """It gives all bytes, also of a message that is still written or half read."""
    message = BytesMessage(b"abc")
    assert message.get_body(bytes) == b"abc"
    message.write_byte(100)
    arrived = received(message)
    arrived.read_byte()
    assert arrived.get_body(bytes) == b"abcd"
    assert arrived.read_byte() == ord("b")


# ------------------------------------------------------------------------------------------------------- text


XML = "<?xml version='1.0'?><a>ü</a>"


@pytest.mark.requirement("JMS-3.11-3", "JMS-9.2.3-1", "NEV-111", "NET-405")
@pytest.mark.parametrize(
    "text",
    [
        *["", "hello", "\0", "𝄞 \n", "x" * 100_000],
        pytest.param(XML, marks=pytest.mark.requirement("NEV-21", "NET-155", "NET-161", "NET-407")),
    ],
)
def test_a_text_arrives(text: str, received) -> None:
    """Any string, empty or XML or with any character, is text and get_body(str) at the other end."""
    message = received(TextMessage(text))
    assert message.text == message.get_body(str) == text


@pytest.mark.requirement("JMS-3.12-3")
def test_no_text_is_not_the_empty_text(received) -> None:
    """None arrives as None."""
    assert received(TextMessage()).text is None
    assert received(TextMessage("")).text == ""


def test_text_is_text() -> None:
    """Bytes and numbers are refused, of a subclass of str the text is kept, and None takes the text away."""

    class Color(str, enum.Enum):
        RED = "red"

    for value in (b"x", 1, ["x"]):
        with pytest.raises(MessageFormatException) as raised:
            TextMessage(value)  # type: ignore[arg-type]
        assert repr(value) not in str(raised.value)
        with pytest.raises(MessageFormatException):
            TextMessage().text = value  # type: ignore[assignment]
    message = TextMessage(Color.RED)
    assert type(message.text) is str
    message.text = None
    assert message.text is None


@pytest.mark.parametrize(
    "fill",
    [
        lambda message: setattr(message, "text", "\ud800"),
        lambda message: message.set_string_property("p", "\udfff"),
        lambda message: setattr(message, "jms_type", "\ud800"),
    ],
)
def test_a_lone_surrogate_is_refused_at_the_send(fill) -> None:
    """UTF-8 cannot carry half a character: an error instead of another text at the other end."""
    message = TextMessage("x")
    fill(message)
    with pytest.raises(MessageFormatException, match="lone surrogate"):
        encode(message)


# ----------------------------------------------------------------------------------------------------- object


class Order:
    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


class SpecialOrder(Order):
    pass


@pytest.fixture
def order_codec():
    register_codec("order", Order, lambda order: b"%d" % order.number, lambda data: Order(int(data)))
    yield
    unregister_codec("order")


PLAIN = [
    True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200), 1.5, float("inf"), "", "grün", b"", b"\0\xff", [], {},
    [1, [2, [3, None]]], {"a": {"b": [1, "x", b"y", None, False, 2**70]}, "": 1.0},
]  # fmt: skip


@pytest.mark.requirement("JMS-3.11-4", "NEV-20", "NEV-112", "NET-154", "NET-162", "NET-330")
@pytest.mark.parametrize("value", PLAIN)
def test_plain_objects_arrive(value: object, received) -> None:
    """Plain values of any nesting, with whole numbers of any size, arrive with their types."""
    message = ObjectMessage(value)
    for either in (message, received(message)):
        assert either.object == value
        assert repr(either.object) == repr(value)


@pytest.mark.requirement("JMS-9.4.10-1", "JMS-3.12-2", "JMS-3.12-5", "NEV-139", "NEV-142")
def test_the_object_in_the_message_is_a_copy(received) -> None:
    """Neither changing what was set nor what was read changes the message."""
    value = [1]
    message = ObjectMessage(value)
    value.append(2)
    message.object.append(3)
    assert message.object == [1]
    message.object = {"a": 1}
    assert received(message).object == {"a": 1}


@pytest.mark.requirement("NET-330")
@pytest.mark.parametrize(
    "value", [object(), (1,), {1}, {1: 2}, [uuid.uuid4()], 1j, lambda: 1, bytearray(b"x"), Order(1)]
)
def test_what_no_codec_can_carry_is_refused_when_it_is_set(value: object) -> None:
    """MessageFormatException names the type and what to do, not the value; the message stays what it was."""
    message = ObjectMessage("before")
    with pytest.raises(MessageFormatException, match="register_codec"):
        message.object = value
    with pytest.raises(MessageFormatException):
        ObjectMessage(value)
    assert message.object == "before"


def test_a_nest_without_end_is_refused() -> None:
    """A list in itself, or one nested too deeply, raises MessageFormatException, not RecursionError."""
    value: list[object] = []
    value.append(value)
    with pytest.raises(MessageFormatException, match="nested"):
        ObjectMessage(value)
    with pytest.raises(MessageFormatException, match="lone surrogate"):
        ObjectMessage(["\ud800"])


def test_a_codec_carries_its_type_and_subclasses(order_codec, received) -> None:
    """The codec's name goes with the record."""
    for value in (Order(7), SpecialOrder(7)):
        message = received(ObjectMessage(value))
        assert message.object == Order(7)
        assert message.is_body_assignable_to(Order)
    assert encode(ObjectMessage(Order(7))).headers[0] == ("kjms", b"1;object/order")
    assert encode(ObjectMessage(Order(7))).value == b"7"


def test_the_codec_of_the_nearest_class_writes(order_codec, received) -> None:
    """A subclass with a codec of its own does not go through its base's."""
    register_codec("special", SpecialOrder, lambda order: b"special", lambda data: SpecialOrder(0))
    try:
        assert type(received(ObjectMessage(SpecialOrder(1))).object) is SpecialOrder
        assert type(received(ObjectMessage(Order(1))).object) is Order
    finally:
        unregister_codec("special")


def test_an_object_of_an_unknown_codec_passes_through(received) -> None:
    """Its bytes, such as those of Java's serialisation, cannot be read here but can be sent on unchanged."""
    message = ObjectMessage()
    message.serialized = ("java", b"\xac\xed\x00\x05")
    arrived = received(message)
    with pytest.raises(MessageFormatException, match="'java', which is not registered"):
        _ = arrived.object
    assert not arrived.is_body_assignable_to(object)
    assert arrived.serialized == ("java", b"\xac\xed\x00\x05")
    assert encode(received(arrived)) == encode(message)
    assert ObjectMessage().serialized is None
    with pytest.raises(MessageFormatException):
        message.serialized = ("", b"x")


def test_codecs_that_fail_say_which(received) -> None:
    """An exception in a codec becomes MessageFormatException with the codec's name, raised from it."""
    register_codec("broken", uuid.UUID, lambda value: value.hex, lambda data: 1 // 0)  # type: ignore[arg-type, return-value]
    try:
        with pytest.raises(MessageFormatException, match="'broken' gave a str"):
            ObjectMessage(uuid.uuid4())
        register_codec("broken", uuid.UUID, lambda value: value.bytes, lambda data: 1 // 0)  # type: ignore[arg-type, return-value]
        with pytest.raises(MessageFormatException, match="'broken' cannot read") as raised:
            _ = received(ObjectMessage(uuid.uuid4())).object
        assert isinstance(raised.value.linked_exception, ZeroDivisionError)
        register_codec("broken", uuid.UUID, lambda value: 1 // 0, lambda data: 1 // 0)  # type: ignore[arg-type, return-value]
        with pytest.raises(MessageFormatException, match="'broken' cannot write"):
            ObjectMessage(uuid.uuid4())
        with pytest.raises(ValueError, match="registered for UUID"):
            register_codec("broken", Order, lambda order: b"", lambda data: Order(1))
    finally:
        unregister_codec("broken")


@pytest.mark.parametrize("name", ["", "a;b", "a b", "a/b", None, ".a"])
def test_a_codecs_name_fits_the_header(name: str) -> None:
    """It is written in the kjms header, and must not end its field."""
    with pytest.raises(ValueError, match="codec's name"):
        register_codec(name, Order, lambda order: b"", lambda data: Order(1))
