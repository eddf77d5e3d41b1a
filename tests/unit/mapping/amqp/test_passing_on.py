"""What an AMQP message is when it has been a JMS message in between: its properties and body are as they were."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import Message, Queue
from kjms.mapping.amqp import AmqpMessage, decode_transfer, encode_transfer
from kjms.mapping.amqp.sections import DATA, SEQUENCE, VALUE, Body, Header, Properties
from kjms.mapping.amqp.types import Byte, Symbol, UInt, ULong

QUEUE = Queue("q")
MSG_TYPE = Symbol("x-opt-jms-msg-type")
TEXT, BYTES, STREAM = Byte(5), Byte(3), Byte(4)


def received(message: AmqpMessage, link: Queue | None = QUEUE) -> Message:
    """The JMS message that comes to *link*, with the destination that a send gives it."""
    found = decode_transfer(message.encode(), link, now_ms=1)
    found._destination = link or found._destination
    return found


def passed_on(message: AmqpMessage, link: Queue | None = QUEUE) -> AmqpMessage:
    """The message that leaves the gateway, when *message* came to *link*."""
    return AmqpMessage.decode(encode_transfer(received(message, link)))


def amqp(*values: Any, kind: int = VALUE, said: Byte | None = None, ttl: int | None = None, **its: Any) -> AmqpMessage:
    return AmqpMessage(
        header=Header(ttl=ttl),
        message_annotations={} if said is None else {MSG_TYPE: said},
        properties=Properties(**its),
        body=Body(kind, list(values)),
    )


@pytest.mark.requirement("AMQP-3.1-3")
@pytest.mark.parametrize(
    "message",
    [
        amqp("x", user_id=b"\xff\xfe"),
        amqp("x", user_id="\u00e9".encode()),
        amqp("x", content_type="text/plain"),
        amqp("x", content_type="application/json"),
        amqp("x", content_type="application/octet-stream"),
        amqp("x", content_type="application/x-java-serialized-object"),
        amqp(b"x"),
        amqp(b"x", content_type="image/png"),
        amqp(b"x", kind=DATA),
        amqp(b"x", kind=DATA, content_type="application/octet-stream"),
        amqp(b"x", kind=DATA, said=BYTES),
        amqp(b"x", kind=DATA, said=BYTES, to="q", content_type="application/octet-stream"),
        amqp(b"x", kind=DATA, said=BYTES, to="elsewhere", content_type="application/octet-stream"),
        amqp(b"x", kind=DATA, content_type="text/plain"),
        amqp(b"x", kind=DATA, said=TEXT),
        amqp([1, 2], kind=SEQUENCE, said=STREAM),
        amqp([1, 2], said=STREAM),
        amqp({"a": 1}, content_type="application/octet-stream"),
        amqp("x", to="q"),
        amqp("x", to="elsewhere"),
        amqp("x", to="elsewhere", said=TEXT),
        amqp("x", to="queue://q", reply_to="topic://answers"),
        amqp("x", said=TEXT, ttl=5_000),
        amqp("x", ttl=5_000, absolute_expiry_time=5_001),
        amqp("x", subject="s", group_id="g", group_sequence=3_000_000_000, reply_to_group_id="r"),
    ],
    ids=str,
)
def test_properties_and_body_are_as_they_were(message: AmqpMessage) -> None:
    """All properties, the kind of the body and its values leave as they came: none changed, added or dropped."""
    whole = AmqpMessage.decode(message.encode())
    found = passed_on(message)
    assert found.properties == whole.properties
    assert (found.body.kind, found.body.values) == (whole.body.kind, whole.body.values)


@pytest.mark.requirement("AMQP-3.2.1-2", "AMQP-3.2.1.1-1", "AMQP-3.2.1.1-5")
@pytest.mark.parametrize("said", [None, TEXT])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ULong(7), "ID:AMQP_ULONG:7"),
        (uuid.UUID(int=5), f"ID:AMQP_UUID:{uuid.UUID(int=5)}"),
        (b"\xab\x01", "ID:AMQP_BINARY:AB01"),
        ("ID:a", "ID:a"),
        ("a", "ID:AMQP_NO_PREFIX:a"),
    ],
)
def test_ids_of_all_types_are_read_and_leave_as_they_came(value: Any, text: str, said: Byte | None) -> None:
    """A message id of each type becomes a JMSMessageID that tells the type, and leaves in it; likewise in replies."""
    message = amqp("x", said=said, to="q", message_id=value, correlation_id=value)
    assert received(message).jms_message_id == text
    its = passed_on(message).properties
    assert (its.message_id, its.correlation_id) == (value, value)
    assert its.message_id.__class__ is value.__class__


TEXTS = st.none() | st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=8)


@given(
    st.builds(
        Properties,
        user_id=st.none() | st.binary(max_size=8),
        to=st.none() | st.sampled_from(["q", "elsewhere", "queue://q", "topic://q", "q?x=1"]),
        subject=TEXTS,
        reply_to=st.none() | st.sampled_from(["a", "queue://a", "topic://a"]),
        content_type=st.none()
        | st.sampled_from(
            ["text/plain", "text/plain; charset=latin-1", "application/json", "application/octet-stream", "image/png"]
        ),
        content_encoding=st.none() | st.just("gzip"),
        absolute_expiry_time=st.none() | st.integers(1, 1 << 40),
        creation_time=st.none() | st.integers(1, 1 << 40),
        group_id=TEXTS,
        group_sequence=st.none() | st.integers(0, (1 << 32) - 1),
        reply_to_group_id=TEXTS,
    ),
    st.sampled_from([(VALUE, "x"), (VALUE, b"x"), (VALUE, None), (DATA, b"x"), (DATA, b""), (SEQUENCE, [1])]),
    st.none() | st.integers(1, 1 << 31),
)
@pytest.mark.requirement("AMQP-3.1-3")
def test_any_properties_are_as_they_were(its: Properties, body: tuple[int, Any], ttl: int | None) -> None:
    """Whatever the properties of a message are, they leave as they came."""
    message = AmqpMessage(header=Header(ttl=ttl and UInt(ttl)), properties=its, body=Body(body[0], [body[1]]))
    whole = AmqpMessage.decode(message.encode())
    found = passed_on(message)
    assert found.properties == whole.properties
    assert (found.body.kind, found.body.values) == (whole.body.kind, whole.body.values)
