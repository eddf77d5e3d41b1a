"""BytesMessage: Java's data streams, states, read position."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import (
    MessageEOFException,
    MessageFormatException,
    MessageNotReadableException,
    MessageNotWriteableException,
)
from kjms.message import BytesMessage

# What java.io.DataOutputStream writes.
WRITTEN = [
    ("boolean", True, "01"), ("boolean", False, "00"), ("byte", -2, "fe"), ("short", -2, "fffe"),
    ("char", "ü", "00fc"),
    ("char", "\ud834", "d834"), ("int", 6, "00000006"), ("int", -(2**31), "80000000"), ("long", -1, "ff" * 8),
    ("float", 0.1, "3dcccccd"), ("double", 0.1, "3fb999999999999a"), ("double", 5, "4014000000000000"),
    ("utf", "", "0000"), ("utf", "abc", "0003616263"), ("utf", "\0", "0002c080"), ("utf", "ü", "0002c3bc"),
    ("utf", "€", "0003e282ac"), ("utf", "𝄞", "0006eda0b4edb49e"), ("utf", "\ud834", "0003eda0b4"),
    ("bytes", b"\0x", "0078"),
]  # fmt: skip
READS = [
    "boolean", "byte", "unsigned_byte", "short", "unsigned_short", "char", "int", "long", "float", "double", "utf",
]  # fmt: skip


def with_body(data: bytes) -> BytesMessage:
    message = BytesMessage(data)
    message.reset()
    return message


@pytest.mark.requirement("NET-50")
def test_the_reader_decides_what_the_bytes_are(received) -> None:
    """One body reads as a long, as ints, shorts, characters or bytes: it says nothing of how it was written."""
    message = BytesMessage()
    message.write_int(0x00410042)
    message.write_utf("CD")
    readings = {
        "long": [0x0041_0042_0002_4344], "int": [0x00410042, 0x00024344], "short": [0x41, 0x42, 2, 0x4344],
        "char": ["A", "B", "\2", "\u4344"], "byte": [0, 0x41, 0, 0x42, 0, 2, 0x43, 0x44],
    }  # fmt: skip
    for kind, values in readings.items():
        arrived = received(message)
        assert [getattr(arrived, f"read_{kind}")() for _ in values] == values
    assert received(message).read_bytes() == b"\0A\0B\0\2CD"


@pytest.mark.requirement("JMS-3.11-5", "NET-48", "NET-54", "NEV-113")
@pytest.mark.parametrize(("kind", "value", "written"), WRITTEN)
def test_values_are_written_as_java_writes_them_and_read_back(kind: str, value: object, written: str, received) -> None:
    """The body is exactly those bytes, with no framing, and reads back as the value."""
    message = BytesMessage()
    getattr(message, f"write_{kind}")(value)
    assert message.get_body(bytes) == bytes.fromhex(written)
    result = getattr(received(message), f"read_{kind}")()
    assert result == (value if kind != "float" else 0.10000000149011612)
    assert isinstance(result, type(value)) or kind == "double"


@pytest.mark.requirement("JMS-3.11-5")
def test_unsigned_reads() -> None:
    """The same bytes read as numbers without a sign."""
    assert with_body(b"\xff").read_unsigned_byte() == 255
    assert with_body(b"\xff\xfe").read_unsigned_short() == 65534
    assert with_body(b"\x05").read_boolean() is True


@pytest.mark.requirement("NET-55")
@pytest.mark.parametrize(
    ("value", "kind"), [(True, "boolean"), (6, "int"), (2**31, "long"), (1.5, "double"), ("x", "utf"), (b"x", "bytes")]
)
def test_a_generic_write_is_the_write_of_the_python_type(value: object, kind: str) -> None:
    """write_object(6) is write_int(6)."""
    same, generic = BytesMessage(), BytesMessage()
    getattr(same, f"write_{kind}")(value)
    generic.write_object(value)  # type: ignore[arg-type]
    assert generic.get_body(bytes) == same.get_body(bytes)


@pytest.mark.requirement("JMS-3.12-4", "NEV-141")
@pytest.mark.parametrize("kind", ["object", "bytes", "utf", "int", "char", "boolean"])
def test_none_cannot_be_written(kind: str) -> None:
    """Java's NullPointerException is MessageFormatException, and nothing is written."""
    message = BytesMessage()
    with pytest.raises(MessageFormatException):
        getattr(message, f"write_{kind}")(None)
    assert message.get_body(bytes) == b""


@pytest.mark.parametrize(
    ("kind", "value"),
    [("byte", 128), ("short", 1 << 15), ("int", True), ("long", 1.0), ("char", "ab"), ("float", "1"), ("utf", b"x"),
     ("bytes", "x"), ("object", [1]), ("boolean", 1)],
)  # fmt: skip
def test_values_of_other_types_or_out_of_range_are_refused(kind: str, value: object) -> None:
    """MessageFormatException, and nothing is written."""
    message = BytesMessage()
    with pytest.raises(MessageFormatException):
        getattr(message, f"write_{kind}")(value)
    assert message.get_body(bytes) == b""


@pytest.mark.requirement("NET-39", "NET-56", "NET-57", "NET-63", "JMS-7.3-15", "NEV-327")
@pytest.mark.parametrize("kind", [*READS, "bytes"])
def test_a_new_or_cleared_message_is_write_only(kind: str, received) -> None:
    """Any read, and the length, raise MessageNotReadableException."""
    cleared = received(BytesMessage(b"x" * 8))
    cleared.clear_body()
    for message in (BytesMessage(b"x" * 8), cleared):
        with pytest.raises(MessageNotReadableException):
            getattr(message, f"read_{kind}")()
        with pytest.raises(MessageNotReadableException):
            _ = message.body_length
        message.write_int(1)


@pytest.mark.requirement("NET-58", "NET-64")
@pytest.mark.parametrize(("kind", "value", "_"), WRITTEN)
def test_a_reset_message_is_read_only(kind: str, value: object, _: str) -> None:
    """Any write raises MessageNotWriteableException."""
    message = with_body(b"x")
    with pytest.raises(MessageNotWriteableException):
        getattr(message, f"write_{kind}")(value)
    with pytest.raises(MessageNotWriteableException):
        message.write_object(1)


@pytest.mark.requirement("NET-27", "JMS-7.3-10", "NEV-320")
@pytest.mark.parametrize("kind", READS)
@pytest.mark.parametrize("body", [b"", b"\0"])
def test_the_end_is_an_error(kind: str, body: bytes, received) -> None:
    """A read of more bytes than are left raises MessageEOFException and consumes none of them."""
    message, rest = received(BytesMessage(body)), body
    if body and kind in {"boolean", "byte", "unsigned_byte"}:
        getattr(message, f"read_{kind}")()
        rest = b""
    for _ in range(2):
        with pytest.raises(MessageEOFException):
            getattr(message, f"read_{kind}")()
    assert message.read_bytes() == (rest or None)


@pytest.mark.requirement("JMS-3.11.3-18", "NEV-132", "NEV-133")
@pytest.mark.parametrize(
    ("data", "error"),
    [("0001ff", MessageFormatException), ("0002c320", MessageFormatException), ("0001c3", MessageFormatException),
     ("000261", MessageEOFException), ("0001f0", MessageFormatException), ("00", MessageEOFException)],
)  # fmt: skip
def test_a_failed_read_of_a_string_does_not_move_on(data: str, error: type[Exception]) -> None:
    """The bytes can be read again as something else."""
    message = with_body(bytes.fromhex(data))
    with pytest.raises(error):
        message.read_utf()
    assert message.read_bytes() == bytes.fromhex(data)


def test_a_string_has_a_limit() -> None:
    """65,535 bytes in modified UTF-8 can be written, one more cannot."""
    message = BytesMessage()
    message.write_utf("x" * 65_535)
    with pytest.raises(MessageFormatException, match="65535"):
        message.write_utf("x" * 65_534 + "\0")
    message.reset()
    assert message.read_utf() == "x" * 65_535


@given(st.text(st.characters(), max_size=50))
def test_any_string_is_read_back(text: str) -> None:
    """Also NUL, lone surrogates and what is beyond 16 bits, and with no byte that is 0."""
    message = BytesMessage()
    message.write_utf(text)
    assert b"\0" not in message.get_body(bytes)[2:]  # type: ignore[index]
    message.reset()
    assert message.read_utf() == text


class TestReadBytes:
    """read_bytes gives what is there, and then None."""

    @pytest.mark.requirement("JMS-9.4.4-1", "JMS-B.2.20-1")
    def test_it_goes_through_the_body_in_pieces(self, received) -> None:
        """At most *length* bytes each time, None at the end, and reading continues from there."""
        message = received(BytesMessage(b"abcdef"))
        assert [message.read_bytes(4), message.read_bytes(4), message.read_bytes(4)] == [b"abcd", b"ef", None]
        message.reset()
        assert message.read_byte() == ord("a")
        assert message.read_bytes() == b"bcdef"
        assert message.read_bytes() is None

    def test_edges(self) -> None:
        """Nothing of an empty body, no bytes for length 0, no negative length."""
        assert with_body(b"").read_bytes() is None
        assert with_body(b"x").read_bytes(0) == b""
        with pytest.raises(ValueError, match="negative"):
            with_body(b"x").read_bytes(-1)


@pytest.mark.requirement("JMS-9.4.4-2")
def test_the_body_has_a_length(received) -> None:
    """All bytes count, whatever has been read."""
    message = received(BytesMessage(b"abcdef"))
    message.read_int()
    assert message.body_length == 6
    assert received(BytesMessage()).body_length == 0


def test_part_of_a_value_can_be_written() -> None:
    """From *offset* on, *length* bytes; not beyond the value."""
    message = BytesMessage(bytearray(b"ab"))
    message.write_bytes(b"abcdef", 1, 3)
    message.write_bytes(memoryview(b"xyz"), offset=2)
    assert message.get_body(bytes) == b"abbcdz"
    for offset, length in ((-1, 1), (0, 4), (4, None), (2, -1)):
        with pytest.raises(ValueError, match="beyond"):
            message.write_bytes(b"abc", offset, length)


def test_bytes_are_bytes() -> None:
    """The constructor takes nothing else."""
    for value in ("x", 5, None, [1]):
        with pytest.raises(MessageFormatException):
            BytesMessage(value)  # type: ignore[arg-type]
