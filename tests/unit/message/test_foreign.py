"""Messages of other implementations."""

from __future__ import annotations

import pytest

from kjms import MessageFormatException, Queue, Topic
from kjms.message import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    from_foreign,
)


class ForeignQueue:
    queue_name = "theirs"


class Foreign:
    """Another provider's implementation of Message, around one of kjms."""

    def __init__(self, message: Message, *hidden: str) -> None:
        self._message = message
        self._hidden = hidden

    def __getattr__(self, name: str) -> object:
        if name in self._hidden or name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._message, name)


def stream_of(*values: object) -> StreamMessage:
    message = StreamMessage()
    for value in values:
        message.write_object(value)  # type: ignore[arg-type]
    return message


MESSAGES = [
    Message(), TextMessage("x"), TextMessage(), BytesMessage(b"\0x"), BytesMessage(), MapMessage({"a": 1, "b": None}),
    StreamMessage(), stream_of(1, "x", b"y", None), ObjectMessage({"a": [1]}), ObjectMessage(),
]  # fmt: skip


TO_ANOTHER_PROVIDER = {
    Message: "JAK-createMessage-5", TextMessage: "JAK-createTextMessage-5", BytesMessage: "JAK-createBytesMessage-4",
    MapMessage: "JAK-createMapMessage-4", StreamMessage: "JAK-createStreamMessage-4",
    ObjectMessage: "JAK-createObjectMessage-5",
}  # fmt: skip


@pytest.mark.requirement("JMS-3.12-1", "NEV-137")
@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            message,
            id=f"{type(message).__name__}-{number}",
            marks=pytest.mark.requirement(TO_ANOTHER_PROVIDER[type(message)]),
        )
        for number, message in enumerate(MESSAGES)
    ],
)
def test_a_message_passes_between_providers_by_its_public_interface(message: Message) -> None:
    """What reads nothing but Message's public interface, as a foreign provider does, finds all that is in it."""
    message.jms_type, message.jms_correlation_id, message.jms_priority = "t", "c", 9
    message.jms_reply_to, message.jms_message_id = Topic("replies"), "ID:x"
    message.set_string_property("s", "x")
    message.set_int_property("n", 5)
    ours = from_foreign(Foreign(message))
    assert type(ours) is type(message)
    assert ours._body == message._body
    assert dict(ours.properties) == {"s": "x", "n": 5}
    assert (ours.jms_type, ours.jms_correlation_id, ours.jms_priority) == ("t", "c", 9)
    assert (ours.jms_reply_to, ours.jms_message_id) == (Topic("replies"), "ID:x")


def test_property_types_are_kept_where_they_are_told() -> None:
    """With ``property_type`` a short stays one; without it the Python type says what it is."""
    message = Message()
    message.set_short_property("n", 5)
    assert from_foreign(Foreign(message)).property_type("n") == "short"
    assert from_foreign(Foreign(message, "property_type")).property_type("n") == "int"


@pytest.mark.requirement("JMS-3.12-1")
def test_what_its_provider_set_stays_behind(received) -> None:
    """A received foreign message has properties that only a provider sets; they are not taken over."""
    message = Message()
    message.set_string_property("JMSXGroupID", "g")
    message._set_provider_property("JMSXUserID", "string", "ann")
    message._set_provider_property("JMS_kjms_Cause", "string", "x")
    foreign = Foreign(received(message))
    assert {"JMSXDeliveryCount", "JMSXUserID", "JMS_kjms_Cause"} <= set(foreign.property_names())
    ours = from_foreign(foreign)
    assert ours.property_names() == ["JMSXGroupID"]
    ours.set_int_property("new", 1)


@pytest.mark.requirement("JMS-3.12-1", "JMS-3.4.11-15")
@pytest.mark.parametrize("unset", [0, -1, "", b"", object()])
def test_fields_that_a_send_sets_do_not_matter(unset: object) -> None:
    """Whatever another implementation has there before the send, the message can be sent."""
    fields = ["message_id", "timestamp", "destination", "delivery_mode", "redelivered", "expiration", "priority"]
    names = [f"jms_{field}" for field in [*fields, "delivery_time"]]
    foreign = Foreign(TextMessage("x"), *names)
    for name in names:
        setattr(foreign, name, unset)
    ours = from_foreign(foreign)
    assert (ours.get_body(str), ours.jms_destination) == ("x", None)
    foreign.jms_type = 5  # type: ignore[attr-defined]
    with pytest.raises(MessageFormatException, match="jms_type"):
        from_foreign(foreign)


@pytest.mark.requirement("NET-225")
@pytest.mark.parametrize(("place", "expected"), [(ForeignQueue(), Queue("theirs")), (object(), None)])
def test_a_foreign_destination(place: object, expected: object) -> None:
    """A destination with a queue_name or topic_name is understood, another is dropped."""
    foreign = Foreign(Message(), "jms_reply_to")
    foreign.jms_reply_to = place  # type: ignore[attr-defined]
    assert from_foreign(foreign).jms_reply_to == expected


def test_our_own_messages_are_returned_themselves() -> None:
    """Also those of an application's subclass."""

    class Mine(TextMessage):
        pass

    message = Mine("x")
    assert from_foreign(message) is message


def test_a_bytes_correlation_id_is_taken_over() -> None:
    """Where the string form cannot be taken."""
    foreign = Foreign(Message(), "jms_correlation_id")
    foreign.jms_correlation_id = b"\xff"  # type: ignore[attr-defined]
    foreign.jms_correlation_id_as_bytes = b"\xff"  # type: ignore[attr-defined]
    assert from_foreign(foreign).jms_correlation_id_as_bytes == b"\xff"


@pytest.mark.requirement("JMS-7.3-13", "NEV-325")
@pytest.mark.parametrize("thing", [None, "text", 5, object(), {"a": 1}])
def test_what_is_no_message_is_refused(thing: object) -> None:
    """MessageFormatException."""
    with pytest.raises(MessageFormatException, match=f"a {type(thing).__name__} is not a message"):
        from_foreign(thing)
