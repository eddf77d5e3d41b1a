"""Message and correlation ids keep AMQP's type through JMS's strings (AMQP JMS mapping §3.2.1.1)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.errors import MessageFormatException
from kjms.mapping.amqp import amqp_id, correlation_id_text, message_id_text
from kjms.mapping.amqp.types import Int, ULong

A_UUID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")


def row(number: int, value: Any, text: str) -> Any:
    return pytest.param(value, text, marks=pytest.mark.requirement(f"AMQP-3.2.1.1-{number}"))


@pytest.mark.requirement("AMQP-3.2.1.1-1", "AMQP-3.2.1-2", "AMQP-3.2.1-4", "AMQP-3.3.2-1", "AMQP-3.2.1.1-23")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        row(17, "ID:my-string-id", "ID:my-string-id"),
        row(18, "non-prefixed-string-id", "ID:AMQP_NO_PREFIX:non-prefixed-string-id"),
        row(6, "", "ID:AMQP_NO_PREFIX:"),
        row(19, A_UUID, f"ID:AMQP_UUID:{A_UUID}"),
        row(4, uuid.UUID(int=0), "ID:AMQP_UUID:00000000-0000-0000-0000-000000000000"),
        row(20, ULong(42), "ID:AMQP_ULONG:42"),
        row(5, ULong(2**64 - 1), "ID:AMQP_ULONG:18446744073709551615"),
        row(21, b"\xab\xcd\xef", "ID:AMQP_BINARY:ABCDEF"),
        row(3, b"", "ID:AMQP_BINARY:"),
        row(22, "ID:AMQP_ULONG:string-id", "ID:AMQP_STRING:ID:AMQP_ULONG:string-id"),
        row(9, "ID:AMQP_OTHER:x", "ID:AMQP_OTHER:x"),
    ],
)
def test_a_message_id_becomes_a_jms_message_id_and_back(value: Any, text: str) -> None:
    """JMSMessageID stands for the message-id in its type, and as JMSCorrelationID gives the same id back."""
    assert message_id_text(value) == text
    back = amqp_id(text)
    assert (type(back), back) == (type(value), value)


@pytest.mark.requirement("AMQP-3.2.1-9", "AMQP-3.3.2-8")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        row(27, "ID:my-string-id", "ID:my-string-id"),
        row(28, "non-prefixed-string-id", "non-prefixed-string-id"),
        row(29, A_UUID, f"ID:AMQP_UUID:{A_UUID}"),
        row(30, ULong(42), "ID:AMQP_ULONG:42"),
        row(31, b"\xab\xcd\xef", "ID:AMQP_BINARY:ABCDEF"),
        row(32, "ID:AMQP_ULONG:string-id", "ID:AMQP_STRING:ID:AMQP_ULONG:string-id"),
        row(33, "AMQP_ULONG:foo", "AMQP_ULONG:foo"),
    ],
)
def test_a_correlation_id_becomes_a_jms_correlation_id_and_back(value: Any, text: str) -> None:
    """JMSCorrelationID stands for the correlation-id in its type; other strings are as they are."""
    assert correlation_id_text(value) == text
    back = amqp_id(text)
    assert (type(back), back) == (type(value), value)


@pytest.mark.requirement("AMQP-3.2.1.1-8", "AMQP-3.2.1.1-9")
@pytest.mark.parametrize("kind", ["BINARY", "UUID", "ULONG", "NO_PREFIX", "STRING"])
def test_a_string_that_begins_like_an_escape_is_escaped(kind: str) -> None:
    """A message-id or correlation-id that is a string with one of the five prefixes gets ID:AMQP_STRING: before it."""
    value = f"ID:AMQP_{kind}:42"
    assert message_id_text(value) == correlation_id_text(value) == f"ID:AMQP_STRING:{value}"
    back = amqp_id(f"ID:AMQP_STRING:{value}")
    assert (type(back), back) == (str, value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        row(24, "application-specific", "application-specific"),
        row(25, "AMQP_ULONG:42", "AMQP_ULONG:42"),
        row(26, "AMQP_ULONG:foo", "AMQP_ULONG:foo"),
        row(7, "ID:AMQP_NO_PREFIX:original", "original"),
        row(11, "ID:AMQP_BINARY:abCDef", b"\xab\xcd\xef"),
    ],
)
@pytest.mark.requirement("AMQP-3.2.1-10", "AMQP-3.2.1-11")
def test_what_an_application_sets_as_correlation_id(text: str, value: Any) -> None:
    """A correlation id that does not say a type is sent as a string; hexadecimal digits may be small."""
    assert amqp_id(text) == value
    assert type(amqp_id(text)) is type(value)


@pytest.mark.requirement("AMQP-3.2.1.1-10")
def test_binary_ids_are_written_with_capital_digits() -> None:
    """The hexadecimal digits after ID:AMQP_BINARY: are capital letters."""
    assert message_id_text(bytes.fromhex("deadbeef")) == correlation_id_text(bytes.fromhex("deadbeef"))
    assert message_id_text(bytes.fromhex("deadbeef")) == "ID:AMQP_BINARY:DEADBEEF"


@pytest.mark.parametrize(
    "text",
    [
        "ID:AMQP_ULONG:foo",
        "ID:AMQP_ULONG:042",
        "ID:AMQP_BINARY:ABC",
        "ID:AMQP_ULONG:18446744073709551616",
        "ID:AMQP_ULONG:",
        "ID:AMQP_ULONG:-1",
        "ID:AMQP_BINARY:GG",
        "ID:AMQP_UUID:6ba7b810",
        "ID:AMQP_UUID:{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
    ],
)
def test_an_id_that_is_not_what_it_says_is_refused(text: str) -> None:
    """A string that says binary, uuid or ulong and cannot be converted raises."""
    with pytest.raises(MessageFormatException) as raised:
        amqp_id(text)
    kind = text.split(":")[1].removeprefix("AMQP_").lower()
    said = f"{text!r} (str) says that it is an id of AMQP type {kind}, and is none (mapping §3.2.1.1)"
    assert str(raised.value) == said


def test_no_id_and_other_types() -> None:
    """No id is no id; what AMQP does not allow as one is refused."""
    assert message_id_text(None) is correlation_id_text(None) is amqp_id(None) is None
    for text_of in (message_id_text, correlation_id_text):
        with pytest.raises(MessageFormatException, match=r"^an id is a string, uuid, ulong or binary, and no Int \("):
            text_of(Int(5))


@given(st.one_of(st.text(), st.binary(), st.uuids(), st.integers(0, 2**64 - 1).map(ULong)))
def test_every_id_survives_its_string(value: Any) -> None:
    """message-id to JMSMessageID to correlation-id, and to JMSCorrelationID and back: the same value and type."""
    for text in (message_id_text(value), correlation_id_text(value)):
        back = amqp_id(text)
        assert (type(back), back) == (type(value), value)
