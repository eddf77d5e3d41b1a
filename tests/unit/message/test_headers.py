"""Header fields: what can be set, what is refused, what arrives."""

from __future__ import annotations

import pytest

from kjms import (
    InvalidDestinationException,
    JMSException,
    MessageFormatException,
    Queue,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage

CLASSES = [Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage]
NOW = 1_750_000_000_000

DEFAULTS = {
    "jms_message_id": None, "jms_timestamp": 0, "jms_correlation_id": None, "jms_correlation_id_as_bytes": None,
    "jms_reply_to": None, "jms_destination": None, "jms_delivery_mode": 2, "jms_redelivered": False, "jms_type": None,
    "jms_expiration": 0, "jms_delivery_time": 0, "jms_priority": 4,
}  # fmt: skip
VALUES = {
    "jms_message_id": "ID:1", "jms_timestamp": NOW, "jms_correlation_id": "ID:2", "jms_reply_to": Topic("replies"),
    "jms_delivery_mode": 1, "jms_type": "order", "jms_expiration": NOW + 60_000, "jms_delivery_time": NOW + 5_000,
    "jms_priority": 9,
}  # fmt: skip


def filled(message: Message) -> Message:
    for name, value in VALUES.items():
        setattr(message, name, value)
    return message


@pytest.mark.requirement("JMS-3.3-1", "NEV-22", "NET-156", "NEV-23", "NET-150", "NET-157")
@pytest.mark.parametrize("kind", CLASSES)
def test_all_messages_have_the_same_header_fields_properties_and_a_body(kind: type[Message], received) -> None:
    """Every kind of message has the header fields with their defaults, properties and a body that can be cleared."""
    for message in (kind(), received(kind())):
        fields = {name: getattr(message, name) for name in DEFAULTS}
        assert fields == DEFAULTS | ({"jms_destination": Queue("orders")} if message.jms_destination else {})
        assert isinstance(message, Message)
        message.clear_body()
        message.clear_properties()
        message.set_int_property("a", 1)


@pytest.mark.requirement("JMS-3.4-1", "NET-158")
@pytest.mark.parametrize("kind", CLASSES)
def test_header_fields_arrive(kind: type[Message], received) -> None:
    """What was set before the send is what the consumer reads, in each kind of message."""
    arrived = received(filled(kind()))
    assert {name: getattr(arrived, name) for name in VALUES} == VALUES


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param(name, value, marks=pytest.mark.requirement(*ids))
        for name, value, *ids in (
            ("jms_correlation_id", "ID:another-message", "JMS-3.4.5-1", "JMS-3.4.11-8", "NET-164", "NET-165"),
            ("jms_correlation_id", "order 7", "JMS-3.4.5-1", "JMS-3.4.11-8", "NET-166", "NEV-41", "NEV-65"),
            ("jms_reply_to", Topic("replies"), "JMS-3.4.6-1", "JMS-3.4.11-9", "NEV-42", "NEV-66"),
            ("jms_type", "order", "JMS-3.4.8-1", "JMS-3.4.11-10", "NEV-45", "NEV-67"),
            ("jms_expiration", NOW + 60_000, "JMS-3.4.9-4"),
            ("jms_delivery_time", NOW + 5_000, "JMS-3.4.13-4"),
        )
    ],
)
def test_a_header_field_arrives(name: str, value: object, received) -> None:
    """A field that was set alone is what the consumer reads, and no other field is changed by it."""
    message = Message()
    setattr(message, name, value)
    arrived = received(message)
    expected = DEFAULTS | {"jms_destination": Queue("orders"), name: value}
    if name == "jms_correlation_id":
        expected["jms_correlation_id_as_bytes"] = str(value).encode()
    assert {each: getattr(arrived, each) for each in DEFAULTS} == expected


@pytest.mark.requirement("NET-5")
def test_the_defaults_of_a_message_are_constants() -> None:
    """Message.DEFAULT_... are the values of a new message."""
    assert Message.DEFAULT_DELIVERY_MODE == Message().jms_delivery_mode == 2
    assert Message.DEFAULT_PRIORITY == Message().jms_priority == 4
    assert Message.DEFAULT_TIME_TO_LIVE == Message.DEFAULT_DELIVERY_DELAY == 0


@pytest.mark.requirement("JMS-3.4.1-2")
def test_the_destination_is_where_it_was_read_from(received) -> None:
    """JMSDestination of a received message equals the queue that it was read from."""
    assert received(Message()).jms_destination == Queue("orders")


@pytest.mark.requirement("JMS-3.4.6-1", "JMS-3.4.6-2")
@pytest.mark.parametrize(
    "place", [None, Queue("a"), Topic("a"), TemporaryQueue("a"), TemporaryTopic("a"), Queue("x://y z"), Topic("größe")]
)
def test_reply_destinations_keep_kind_and_name(place: object, received) -> None:
    """A queue arrives as a queue, a temporary topic as one, None as None."""
    message = Message()
    message.jms_reply_to = place  # type: ignore[assignment]
    assert received(message).jms_reply_to == place


@pytest.mark.requirement("JMS-3.10-1", "NEV-103", "NET-168", "NET-180", "JMS-3.4.11-14")
def test_header_fields_can_be_set_on_a_received_message(received) -> None:
    """Header fields are never read-only, and what is set stays when others are read, and when it is sent on."""
    message = received(filled(TextMessage("x")))
    message.jms_type, message.jms_priority, message.jms_correlation_id = "new", 0, None
    message.jms_redelivered = True
    message.jms_destination = Topic("elsewhere")
    assert (message.jms_type, message.jms_priority, message.jms_correlation_id) == ("new", 0, None)
    assert message.jms_redelivered
    assert message.jms_destination == Topic("elsewhere")
    assert message.jms_message_id == "ID:1"
    again = received(message)
    assert (again.jms_type, again.jms_priority, again.jms_correlation_id, again.jms_timestamp) == ("new", 0, None, NOW)
    assert not again.jms_redelivered


@pytest.mark.requirement("JMS-3.4.5-3", "NET-167")
@pytest.mark.parametrize("data", [b"", b"\xff\x00\x80", b"plain", bytearray(b"copy")])
def test_correlation_ids_can_be_bytes(data: bytes, received) -> None:
    """Bytes arrive as the bytes they are."""
    message = Message()
    message.jms_correlation_id_as_bytes = data
    for either in (message, received(message)):
        assert either.jms_correlation_id_as_bytes == data
        assert type(either.jms_correlation_id_as_bytes) is bytes
        assert isinstance(either.jms_correlation_id, str)


def test_a_correlation_string_reads_as_bytes_and_replaces_bytes(received) -> None:
    """The string's UTF-8 form is its form in bytes; the last of both to be set counts, also on received messages."""
    message = Message()
    message.jms_correlation_id_as_bytes = b"\xff"
    message = received(message)
    message.jms_correlation_id = "grün"
    for either in (message, received(message)):
        assert either.jms_correlation_id == "grün"
        assert either.jms_correlation_id_as_bytes == "grün".encode()
    message.jms_correlation_id_as_bytes = None
    assert received(message).jms_correlation_id is None


def test_a_correlation_string_that_has_no_bytes_says_so() -> None:
    """Half a surrogate pair has no UTF-8 form; the error is JMS's, as on sending."""
    message = Message()
    message.jms_correlation_id = "\ud800"
    with pytest.raises(MessageFormatException, match="lone surrogate"):
        _ = message.jms_correlation_id_as_bytes


@pytest.mark.requirement("JMS-3.4.3-6", "NEV-36", "JMS-3.4.4-5")
def test_message_id_and_timestamp_may_be_switched_off(received) -> None:
    """A message that was sent without them has None and 0, not values made up by the consumer."""
    arrived = received(TextMessage("x"))
    assert arrived.jms_message_id is None
    assert arrived.jms_timestamp == 0


def test_the_delivery_time_of_a_message_without_delay_is_its_timestamp(received) -> None:
    """JMSDeliveryTime is send time plus delay (§3.4.13)."""
    message = Message()
    message.jms_timestamp = message.jms_delivery_time = NOW
    assert received(message).jms_delivery_time == NOW


def test_redelivery_follows_the_count(received) -> None:
    """JMSRedelivered is set from the second delivery on, as the engine counts."""
    assert [received(Message(), count).jms_redelivered for count in (1, 2, 5)] == [False, True, True]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("jms_message_id", [1, b"x"]),
        ("jms_correlation_id", [1, b"x"]),
        ("jms_correlation_id_as_bytes", ["x", 1]),
        ("jms_type", [1, b"x"]),
        ("jms_timestamp", ["1", 1.0, True, None, 2**63]),
        ("jms_expiration", ["1", 1.0, True, None, 2**63]),
        ("jms_delivery_time", ["1", 1.0, True, None, 2**63]),
        ("jms_delivery_mode", [0, 3, "2", True, 2.0, None, []]),
        ("jms_priority", [-1, 10, 4.0, "4", True, None]),
        ("jms_redelivered", [1, None, "yes"]),
    ],
)
def test_a_header_field_takes_its_own_type(field: str, values: list[object]) -> None:
    """What is of another type or out of range raises ValueError, or a JMSException that is one, naming the field."""
    message = Message()
    for value in values:
        with pytest.raises(ValueError, match=field):
            setattr(message, field, value)
    assert getattr(message, field) == DEFAULTS[field]


@pytest.mark.parametrize("field", ["jms_reply_to", "jms_destination"])
def test_a_destination_is_an_object(field: str) -> None:
    """A name alone does not say whether it is a queue or a topic."""
    with pytest.raises(InvalidDestinationException, match=field):
        setattr(Message(), field, "orders")


def test_acknowledge_goes_to_the_receipt(received) -> None:
    """Without a receipt, on new messages and with automatic acknowledgement, acknowledge() does nothing."""
    calls: list[str] = []

    class Receipt:
        def acknowledge(self) -> None:
            calls.append("acknowledged")

    message = received(Message())
    message.acknowledge()
    Message().acknowledge()
    message._receipt = Receipt()
    message.acknowledge()
    assert calls == ["acknowledged"]


def test_repr_tells_state_and_nothing_of_the_content(received) -> None:
    """Neither the body nor the value of a property is in it."""
    message = filled(TextMessage("secret body"))
    message.set_string_property("name", "secret value")
    for either in (message, received(message, 3)):
        assert "secret" not in repr(either)
        assert "TextMessage" in repr(either)
        assert "ID:1" in repr(either)
    assert "delivery 3" in repr(received(message, 3))


def test_messages_take_no_attributes_of_their_own() -> None:
    """A misspelt header field is an error, not a new attribute."""
    with pytest.raises(AttributeError):
        Message().jms_typ = "x"  # type: ignore[attr-defined]
    assert issubclass(JMSException, Exception)
