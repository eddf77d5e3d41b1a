"""StreamMessage: order, states, read position, byte fields."""

from __future__ import annotations

import pytest

from kjms import (
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
)
from kjms.message import StreamMessage

VALUES = {
    "boolean": True, "byte": -128, "short": 32767, "char": "\ud800", "int": 2**31 - 1, "long": -(2**63), "float": 0.5,
    "double": 0.1, "string": "grün", "bytes": b"\0\xff",
}  # fmt: skip
READS = ["boolean", "byte", "short", "char", "int", "long", "float", "double", "string", "bytes", "object"]


def filled() -> StreamMessage:
    message = StreamMessage()
    for kind, value in VALUES.items():
        getattr(message, f"write_{kind}")(value)
    return message


def stream(*values: object) -> StreamMessage:
    message = StreamMessage()
    for value in values:
        message.write_object(value)  # type: ignore[arg-type]
    message.reset()
    return message


@pytest.mark.requirement("JMS-3.11-1", "JMS-3.11.3-1", "NEV-109", "NET-160", "NET-369", "NET-371", "NET-378")
def test_values_of_all_types_are_read_in_order(received) -> None:
    """Each type has its own write and read; a received stream begins at its first value, a reset goes back there."""
    message = filled()
    arrived = received(message)
    message.reset()
    for either in (message, arrived):
        for _ in range(2):
            assert [getattr(either, f"read_{kind}")() for kind in VALUES] == list(VALUES.values())
            either.reset()
        assert [either.read_object() for _ in VALUES] == list(VALUES.values())
        assert either._body == list(VALUES.items())


@pytest.mark.requirement("JMS-3.11.3-2", "NET-372")
@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "boolean"), (6, "int"), (2**31, "long"), (1.5, "double"), ("x", "string"), (b"x", "bytes")],
)
def test_a_generic_write_is_the_write_of_the_python_type(value: object, kind: str) -> None:
    """write_object types a value by its Python type."""
    same, generic = StreamMessage(), StreamMessage()
    getattr(same, f"write_{kind}")(value)
    generic.write_object(value)  # type: ignore[arg-type]
    assert same._body == generic._body == [(kind, value)]


@pytest.mark.requirement("NET-36", "JMS-3.11.3-1", "JMS-7.3-12", "NET-33", "NEV-321", "NEV-323")
@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), 1j, 2**63])
def test_other_values_are_refused(value: object) -> None:
    """MessageFormatException, and nothing is written."""
    message = StreamMessage()
    with pytest.raises(MessageFormatException):
        message.write_object(value)  # type: ignore[arg-type]
    assert message._body == []


@pytest.mark.requirement("NET-39", "NET-373", "NET-374", "NET-380", "JMS-7.3-15", "NEV-327")
@pytest.mark.parametrize("kind", READS)
def test_a_new_or_cleared_stream_is_write_only(kind: str, received) -> None:
    """Any read raises MessageNotReadableException."""
    cleared = received(filled())
    cleared.clear_body()
    for message in (filled(), cleared):
        with pytest.raises(MessageNotReadableException):
            getattr(message, f"read_{kind}")()
        message.write_int(1)


@pytest.mark.requirement("NET-375", "NET-381")
@pytest.mark.parametrize("kind", READS)
def test_a_reset_stream_is_read_only(kind: str) -> None:
    """Any write raises MessageNotWriteableException, also after a second reset."""
    message = filled()
    message.reset()
    message.reset()
    with pytest.raises(MessageNotWriteableException):
        getattr(message, f"write_{kind}")(VALUES.get(kind, 1))


@pytest.mark.requirement("NET-26", "JMS-7.3-10", "NEV-320")
@pytest.mark.parametrize("kind", READS)
def test_the_end_is_an_error_that_can_be_repeated(kind: str, received) -> None:
    """MessageEOFException, which is an EOFError, for each read; of an empty stream, too."""
    message = received(stream(1))
    message.read_int()
    for ended in (message, received(StreamMessage())):
        for _ in range(2):
            with pytest.raises(MessageEOFException):
                getattr(ended, f"read_{kind}")()
    assert issubclass(MessageEOFException, EOFError)


@pytest.mark.requirement("JMS-3.11.3-18", "NEV-132", "NEV-133")
def test_a_read_that_fails_does_not_move_on(received) -> None:
    """After MessageFormatException the same value is read as another type."""
    message = received(stream("12x", 5))
    for kind in ("int", "double", "char", "bytes"):
        with pytest.raises(MessageFormatException):
            getattr(message, f"read_{kind}")()
    assert message.read_string() == "12x"
    with pytest.raises(MessageFormatException):
        message.read_bytes()
    assert message.read_int() == 5


@pytest.mark.requirement("JMS-3.12-3", "NEV-140")
def test_none_is_a_value(received) -> None:
    """None can be written as string, bytes or object, and comes back."""
    message = StreamMessage()
    message.write_string(None)
    message.write_bytes(None)
    message.write_object(None)
    message = received(message)
    assert (message.read_string(), message.read_bytes(), message.read_object()) == (None, None, None)
    with pytest.raises(MessageEOFException):
        message.read_object()


class TestByteFields:
    """read_bytes gives a field in pieces."""

    def test_a_field_is_read_in_pieces(self, received) -> None:
        """A short piece ends the field; then other values are read."""
        message = received(stream(b"abcdef", 1))
        assert [message.read_bytes(4), message.read_bytes(4)] == [b"abcd", b"ef"]
        assert message.read_int() == 1

    def test_none_ends_a_field_that_was_read_to_the_byte(self, received) -> None:
        """When the last piece was full, None says that nothing is left, and only then the next value is read."""
        message = received(stream(b"abcd", 1))
        assert [message.read_bytes(2), message.read_bytes(2)] == [b"ab", b"cd"]
        with pytest.raises(MessageFormatException, match="None"):
            message.read_int()
        with pytest.raises(MessageFormatException):
            message.read_object()
        assert message.read_bytes(2) is None
        assert message.read_int() == 1

    def test_a_field_must_be_read_through(self, received) -> None:
        """The next value cannot be read in the middle of one."""
        message = received(stream(b"abcd", 1))
        message.read_bytes(3)
        with pytest.raises(MessageFormatException):
            message.read_int()
        assert message.read_bytes(3) == b"d"
        assert message.read_int() == 1

    def test_none_comes_after_a_short_piece_where_no_field_follows(self, received) -> None:
        """A loop until None ends at the end of the field, at another value or at the end of the message."""
        for follower in ((), (1,)):
            message = received(stream(b"abcdef", *follower))
            assert list(iter(lambda message=message: message.read_bytes(4), None)) == [b"abcd", b"ef"]
            if follower:
                assert message.read_int() == 1
            else:
                with pytest.raises(MessageEOFException):
                    message.read_bytes(4)

    def test_fields_in_a_row(self, received) -> None:
        """Without a length a field comes as a whole, and the next call gives the next; an empty field is b""."""
        message = received(stream(b"ab", b"", b"cd", None, b"e"))
        assert [message.read_bytes() for _ in range(5)] == [b"ab", b"", b"cd", None, b"e"]

    def test_read_object_gives_the_whole_field(self, received) -> None:
        """As one copy."""
        message = received(stream(b"abcd"))
        assert message.read_object() == b"abcd"

    def test_a_reset_in_the_middle_begins_anew(self, received) -> None:
        """The field can be read from its first byte again."""
        message = received(stream(b"abcd"))
        message.read_bytes(1)
        message.reset()
        assert message.read_bytes() == b"abcd"

    def test_lengths(self, received) -> None:
        """A negative length is refused; of a written value a part can be given."""
        with pytest.raises(ValueError, match="negative"):
            received(stream(b"x")).read_bytes(-1)
        message = StreamMessage()
        message.write_bytes(b"abcdef", 1, 3)
        with pytest.raises(ValueError, match="beyond"):
            message.write_bytes(b"abc", 2, 2)
        assert received(message).read_bytes() == b"bcd"


@pytest.mark.requirement("JMS-3.12-2", "NEV-139")
def test_bytes_are_copied() -> None:
    """A bytearray that is changed later does not change the message."""
    data = bytearray(b"abc")
    message = StreamMessage()
    message.write_bytes(data)
    message.write_object(data)  # type: ignore[arg-type]
    data[0] = 0
    message.reset()
    assert (message.read_bytes(), message.read_bytes()) == (b"abc", b"abc")
