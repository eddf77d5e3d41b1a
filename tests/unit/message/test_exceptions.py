"""Which exception a message raises for which mistake, in the words of the specification."""

from __future__ import annotations

import pytest

from kjms import (
    BytesMessage,
    MapMessage,
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
    StreamMessage,
    TextMessage,
)


@pytest.mark.requirement("JMS-7.3-10", "NEV-320")
@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_the_end_comes_unexpectedly(kind: type[BytesMessage | StreamMessage]) -> None:
    """Reading on after the last byte, or item, is a MessageEOFException."""
    message = kind()
    message.write_byte(1)
    message.reset()
    assert message.read_byte() == 1
    with pytest.raises(MessageEOFException):
        message.read_byte()


@pytest.mark.requirement("JMS-7.3-12", "NEV-323", "NEV-324", "NEV-321", "NEV-322", "NEV-128")
def test_a_type_does_not_fit() -> None:
    """Writing what no JMS type is, and reading an item as what it cannot be, are MessageFormatExceptions."""
    stream = StreamMessage()
    with pytest.raises(MessageFormatException):
        stream.write_object({"a": 1})
    stream.write_boolean(True)
    stream.reset()
    with pytest.raises(MessageFormatException):
        stream.read_short()
    assert stream.read_boolean() is True  # nothing was lost by the attempt


@pytest.mark.requirement("JMS-7.3-15", "NEV-327")
@pytest.mark.parametrize("kind", [BytesMessage, StreamMessage])
def test_a_body_that_is_being_written_is_not_readable(kind: type[BytesMessage | StreamMessage]) -> None:
    """Reading before reset is a MessageNotReadableException."""
    message = kind()
    message.write_int(1)
    with pytest.raises(MessageNotReadableException):
        message.read_int()


@pytest.mark.requirement("NEV-328", "NEV-84", "NEV-116")
def test_what_was_received_is_not_writable(received) -> None:
    """Changing the properties, or the body, of a received message is a MessageNotWriteableException."""
    sent = TextMessage("body")
    sent.set_int_property("n", 1)
    arrived = received(sent)
    with pytest.raises(MessageNotWriteableException):
        arrived.set_int_property("n", 2)
    with pytest.raises(MessageNotWriteableException):
        arrived.text = "changed"
    assert (arrived.get_int_property("n"), arrived.text) == (1, "body")


@pytest.mark.requirement("NEV-82", "NEV-88", "NEV-130")
def test_a_property_does_not_fit() -> None:
    """A setter refuses another type, and an object of no JMS type; text that is no number is not read as one."""
    message = TextMessage()
    with pytest.raises(MessageFormatException):
        message.set_int_property("n", 1.5)  # type: ignore[arg-type]
    with pytest.raises(MessageFormatException):
        message.set_object_property("n", [1])  # type: ignore[arg-type]
    message.set_string_property("n", "one")
    with pytest.raises(ValueError, match="'one'"):
        message.get_int_property("n")


@pytest.mark.requirement("NEV-141")
def test_bytes_know_no_null() -> None:
    """Writing None into a BytesMessage raises; a MapMessage and a StreamMessage have room for it."""
    with pytest.raises(MessageFormatException):
        BytesMessage().write_object(None)
    stream, map_ = StreamMessage(), MapMessage()
    stream.write_object(None)
    map_["n"] = None
    stream.reset()
    assert stream.read_object() is map_["n"] is None
