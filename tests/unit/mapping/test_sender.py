"""The record header that names the sender of a message."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Topic
from kjms.client.no_local import NotLocal
from kjms.mapping import client_sender, connection_sender, decode, encode, sign
from kjms.message import Message, TextMessage
from kjms.selector import parse_selector


def signed(source: Any, sender: str | None, *, amount: int | None = None, message_id: str | None = None) -> Message:
    message = TextMessage("x")
    message.jms_message_id = message_id
    if amount is not None:
        message.set_int_property("amount", amount)
    record = encode(message)
    if sender is not None:
        sign(record, sender.encode())
    return decode(source(record), Topic("prices"))


@pytest.mark.parametrize("client", ["billing", "a;b=c,d", "größe 価格", "50%", "client=x;;"])
@pytest.mark.parametrize("amount", [None, 5])
def test_the_note_is_read_and_disturbs_nothing(source: Any, client: str, amount: int | None) -> None:
    """Whatever the client identifier holds, the message reads as without the note."""
    message = signed(source, client_sender(client), amount=amount)
    assert message._reader is not None
    assert message._reader.sender == client_sender(client)
    assert message.damage == ()
    assert dict(message.properties) == {"JMSXDeliveryCount": 1, **({} if amount is None else {"amount": amount})}
    assert b"client" not in (encode(message).headers[0][1] or b"")


@pytest.mark.parametrize(
    ("amount", "header"),
    [(None, b"1;text;;client=a%2Fb%3Bc%3F"), (5, b"1;text;amount=int;client=a%2Fb%3Bc%3F")],
)
def test_the_golden_note(amount: int | None, header: bytes) -> None:
    """It is the fourth part of the header, also where the third is empty, and is quoted as in a URL."""
    message = TextMessage("x")
    if amount is not None:
        message.set_int_property("amount", amount)
    record = encode(message)
    sign(record, client_sender("a/b;c\ud800").encode())
    assert record.headers[0] == ("kjms", header)


@pytest.mark.parametrize(
    ("client", "sender", "message_id", "wanted"),
    [
        ("me", client_sender("me"), "ID:c1-1-1", False),
        ("me", client_sender("me"), None, False),
        ("me", client_sender("you"), "ID:c1-1-1", True),
        ("me", None, "ID:c1-1-1", True),
        (None, None, "ID:c1-1-1", False),
        (None, None, "ID:c12-1-1", True),
        (None, None, None, True),
        (None, connection_sender("c1"), None, False),
        (None, connection_sender("c2"), None, True),
        (None, client_sender("you"), "ID:c2-1-1", True),
    ],
)
def test_whose_message_it_is(source: Any, client: str | None, sender: str, message_id: str, wanted: bool) -> None:
    """With a client identifier that decides, else the connection, by the message's id or by the note."""
    message = signed(source, sender, amount=5, message_id=message_id)
    assert NotLocal(None, client, "c1").matches(message) is wanted
    assert NotLocal(parse_selector("amount = 5"), client, "c1").matches(message) is wanted
    assert NotLocal(parse_selector("amount = 6"), client, "c1").matches(message) is False


def test_two_that_say_the_same_of_others_are_not_the_same() -> None:
    """What is its own differs, so they are equal only to themselves; the text is the selector's."""
    selector = parse_selector("amount = 5")
    first, second = NotLocal(selector, "1", "c1"), NotLocal(selector, "2", "c1")
    assert first != second
    assert len({first, second, selector}) == 3
    assert (first.text, NotLocal(None, "1", "c1").text) == ("amount = 5", "")
