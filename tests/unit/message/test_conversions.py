"""The conversion tables of JMS 2.0 §3.5.4 and §3.11.3, cell by cell: properties, maps, streams, new and received."""

from __future__ import annotations

import pytest

from kjms import MessageFormatException
from kjms.message import MapMessage, Message, StreamMessage

NO = object()  # the cell is empty: MessageFormatException

#           written as: value, and what it reads as
TABLE: dict[str, tuple[object, dict[str, object]]] = {
    "boolean": (True, {"boolean": True, "string": "true"}),
    "byte": (-5, {"byte": -5, "short": -5, "int": -5, "long": -5, "string": "-5"}),
    "short": (300, {"short": 300, "int": 300, "long": 300, "string": "300"}),
    "char": ("x", {"char": "x", "string": "x"}),
    "int": (70_000, {"int": 70_000, "long": 70_000, "string": "70000"}),
    "long": (2**40, {"long": 2**40, "string": "1099511627776"}),
    "float": (0.1, {"float": 0.10000000149011612, "double": 0.10000000149011612, "string": "0.1"}),
    "double": (1e10, {"double": 1e10, "string": "1.0E10"}),
    "string": (
        "1",
        {"boolean": False, "byte": 1, "short": 1, "int": 1, "long": 1, "float": 1.0, "double": 1.0, "string": "1"},
    ),
    "bytes": (b"ab", {"bytes": b"ab"}),
}
BODY_TYPES = list(TABLE)
PROPERTY_TYPES = [kind for kind in TABLE if kind not in {"char", "bytes"}]

# Rows of the catalogues: the first ids speak of the cells that are filled, all of them of the row as a whole.
PROPERTY_ROWS = {
    "boolean": ("JMS-3.5.4-1", "NET-183", "NET-184", "NEV-81"),
    "byte": ("JMS-3.5.4-2", "NET-185", "NET-186", "NEV-81"),
    "short": ("JMS-3.5.4-3", "NET-187", "NET-188", "NEV-81"),
    "int": ("JMS-3.5.4-4", "NET-189", "NET-190", "NEV-81"),
    "long": ("JMS-3.5.4-5", "NET-191", "NET-192", "NEV-81"),
    "float": ("JMS-3.5.4-6", "NET-193", "NET-194", "NEV-81"),
    "double": ("JMS-3.5.4-7", "NET-195", "NET-196", "NEV-81"),
    "string": ("JMS-3.5.4-8", "NET-197", "NEV-81"),
}
PROPERTY_COLUMNS = {
    "boolean": "NEV-74", "byte": "NEV-75", "short": "NEV-76", "int": "NEV-77", "long": "NEV-78", "float": "NEV-79",
    "double": "NEV-80", "string": "NEV-81",
}  # fmt: skip
MAP_ROWS = {
    "boolean": ("JMS-3.11.3-3", "NET-127", "NET-128"),
    "byte": ("JMS-3.11.3-4", "NET-129", "NET-130"),
    "short": ("JMS-3.11.3-5", "NET-131", "NET-132"),
    "char": ("JMS-3.11.3-6", "NET-133", "NET-134"),
    "int": ("JMS-3.11.3-7", "NET-135", "NET-136"),
    "long": ("JMS-3.11.3-8", "NET-137", "NET-138"),
    "float": ("JMS-3.11.3-9", "NET-139", "NET-140"),
    "double": ("JMS-3.11.3-10", "NET-141", "NET-142"),
    "string": ("JMS-3.11.3-11", "NET-143", "NET-144"),
    "bytes": ("JMS-3.11.3-12", "NET-145", "NET-146"),
}
STREAM_ROWS = {
    "boolean": ("JMS-3.11.3-3", "NET-382", "NET-383", "NET-37"),
    "byte": ("JMS-3.11.3-4", "NET-384", "NET-385"),
    "short": ("JMS-3.11.3-5", "NET-386", "NET-387"),
    "char": ("JMS-3.11.3-6", "NET-388", "NET-389"),
    "int": ("JMS-3.11.3-7", "NET-390", "NET-391"),
    "long": ("JMS-3.11.3-8", "NET-392", "NET-393"),
    "float": ("JMS-3.11.3-9", "NET-394", "NET-395"),
    "double": ("JMS-3.11.3-10", "NET-396", "NET-397"),
    "string": ("JMS-3.11.3-11", "NET-398", "NET-399"),
    "bytes": ("JMS-3.11.3-12", "NET-400", "NET-401"),
}
BODY_COLUMNS = {
    "boolean": "NEV-118", "byte": "NEV-119", "short": "NEV-120", "char": "NEV-121", "int": "NEV-122",
    "long": "NEV-123", "float": "NEV-124", "double": "NEV-125", "string": "NEV-126", "bytes": "NEV-127",
}  # fmt: skip


def by_row(rows, types):
    return [pytest.param(kind, types, marks=pytest.mark.requirement(*rows[kind]), id=kind) for kind in types]


def by_column(columns, types):
    return [pytest.param(kind, types, marks=pytest.mark.requirement(columns[kind]), id=kind) for kind in types]


def check(expected: object, read) -> None:
    if expected is NO:
        with pytest.raises(MessageFormatException):
            read()
    else:
        value = read()
        assert value == expected
        assert type(value) is type(expected)


def check_property(written: str, wanted: str, received) -> None:
    value, cells = TABLE[written]
    message = Message()
    getattr(message, f"set_{written}_property")("p", value)
    for either in (message, received(message)):
        check(cells.get(wanted, NO), lambda either=either: getattr(either, f"get_{wanted}_property")("p"))


@pytest.mark.parametrize(("written", "types"), by_row(PROPERTY_ROWS, PROPERTY_TYPES))
def test_a_property_reads_as_what_the_table_says_and_as_nothing_else(written: str, types: list[str], received) -> None:
    """Each cell of a row of the properties' table converts, and each empty one raises MessageFormatException."""
    for wanted in types:
        check_property(written, wanted, received)


@pytest.mark.requirement("NEV-82")
@pytest.mark.parametrize(("wanted", "types"), by_column(PROPERTY_COLUMNS, PROPERTY_TYPES))
def test_a_property_type_takes_what_the_table_says(wanted: str, types: list[str], received) -> None:
    """The same table by columns: a type takes its own values, narrower ones and strings."""
    for written in types:
        check_property(written, wanted, received)


def check_map(written: str, wanted: str, received) -> None:
    value, cells = TABLE[written]
    message = MapMessage()
    getattr(message, f"set_{written}")("e", value)
    for either in (message, received(message)):
        check(cells.get(wanted, NO), lambda either=either: getattr(either, f"get_{wanted}")("e"))


def check_stream(written: str, wanted: str, received) -> None:
    value, cells = TABLE[written]
    message = StreamMessage()
    getattr(message, f"write_{written}")(value)
    arrived = received(message)
    message.reset()
    for either in (message, arrived):
        check(cells.get(wanted, NO), lambda either=either: getattr(either, f"read_{wanted}")())


@pytest.mark.requirement("NET-34", "NEV-322", "NEV-128")
@pytest.mark.parametrize(("written", "types"), by_row(MAP_ROWS, BODY_TYPES))
def test_a_map_entry_reads_as_what_the_table_says_and_as_nothing_else(written: str, types: list[str], received) -> None:
    """Each cell of a row of the table converts for map entries, and each empty one raises MessageFormatException."""
    for wanted in types:
        check_map(written, wanted, received)


@pytest.mark.requirement("JMS-7.3-12", "NEV-324", "NEV-128")
@pytest.mark.parametrize(("written", "types"), by_row(STREAM_ROWS, BODY_TYPES))
def test_a_stream_value_reads_as_what_the_table_says_and_as_nothing_else(
    written: str, types: list[str], received
) -> None:
    """Each cell of a row of the table converts for stream values, and each empty one raises MessageFormatException."""
    for wanted in types:
        check_stream(written, wanted, received)


@pytest.mark.parametrize(("wanted", "types"), by_column(BODY_COLUMNS, BODY_TYPES))
def test_a_body_type_takes_what_the_table_says(wanted: str, types: list[str], received) -> None:
    """The same table by columns, for maps and streams."""
    for written in types:
        check_map(written, wanted, received)
        check_stream(written, wanted, received)


@pytest.mark.requirement("JMS-3.5.4-10", "NET-208")
def test_a_property_without_a_value_reads_like_java_reads_null() -> None:
    """None as boolean is False; as a number it raises; as a string or object it is None. So does what was never set."""
    message = Message()
    message.set_string_property("none", None)
    for name in ("none", "never_set"):
        assert message.get_boolean_property(name) is False
        assert message.get_string_property(name) is None
        assert message.get_object_property(name) is None
        for kind in ("byte", "short", "int", "long", "float", "double"):
            with pytest.raises(MessageFormatException, match=f"'{name}' has no value.*read as {kind}"):
                getattr(message, f"get_{kind}_property")(name)


@pytest.mark.requirement("JMS-3.11.3-15", "JMS-3.11.3-16", "JMS-3.11.3-17", "NET-148", "NET-149")
def test_a_map_entry_without_a_value_reads_like_java_reads_null(received) -> None:
    """None as boolean is False, as a number or char it raises; an entry that was never set reads like None."""
    message = MapMessage({"none": None})
    for either in (message, received(message)):
        for name in ("none", "never_set"):
            assert either.get_boolean(name) is False
            assert either.get_string(name) is either.get_bytes(name) is either.get_object(name) is None
            for kind in ("byte", "short", "char", "int", "long", "float", "double"):
                with pytest.raises(MessageFormatException):
                    getattr(either, f"get_{kind}")(name)


@pytest.mark.requirement("JMS-3.11.3-15", "JMS-3.11.3-16", "NET-403", "NET-404")
def test_a_stream_value_none_reads_like_java_reads_null(received) -> None:
    """None as a number or char raises and stays where it is; as boolean it is False, as a string or object None."""
    message = StreamMessage()
    for _ in range(4):
        message.write_object(None)
    message = received(message)
    for kind in ("byte", "short", "char", "int", "long", "float", "double"):
        with pytest.raises(MessageFormatException):
            getattr(message, f"read_{kind}")()
    assert message.read_boolean() is False
    assert message.read_string() is None
    assert message.read_object() is None
    assert message.read_bytes() is None


REFUSED = {"byte": "128", "short": "32768", "int": "2147483648", "long": "9223372036854775808", "double": "1,5"}


@pytest.mark.requirement("JMS-3.5.4-9", "JMS-7.3-14", "NEV-130", "NEV-326", "NET-38", "NET-198", "NEV-129")
@pytest.mark.parametrize(("kind", "text"), REFUSED.items())
def test_a_string_property_that_is_no_number_raises(kind: str, text: str) -> None:
    """Text that Java's valueOf refuses raises MessageFormatException, a ValueError, which shows value and rule."""
    message = Message()
    message.set_string_property("weight", text)
    with pytest.raises(ValueError, match=rf"'weight' holds '{text}' \(str\).*read as {kind} .*§3\.5\.4") as raised:
        getattr(message, f"get_{kind}_property")("weight")
    assert type(raised.value) is MessageFormatException


@pytest.mark.requirement("JMS-3.11.3-13", "NET-147", "NET-402", "JMS-3.11.3-18", "NEV-130")
@pytest.mark.parametrize(("kind", "text"), REFUSED.items())
def test_body_text_that_is_no_number_raises_and_is_not_shown(kind: str, text: str) -> None:
    """Text that Java's valueOf refuses raises; the error does not show what stands in a body; a stream stays put."""
    map_, stream = MapMessage({"e": text}), StreamMessage()
    stream.write_string(text)
    stream.reset()
    for read in (lambda: getattr(map_, f"get_{kind}")("e"), getattr(stream, f"read_{kind}")):
        with pytest.raises(MessageFormatException) as raised:
            read()
        assert isinstance(raised.value, ValueError)
        assert text not in str(raised.value)
    assert stream.read_string() == text


@pytest.mark.requirement("JMS-3.11.3-14", "NEV-131")
@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("tRuE", True), ("1", False), ("", False)])
def test_text_is_a_boolean_as_java_reads_it(text: str, value: bool) -> None:
    """Only 'true', in any case, is True; all other text is False."""
    message = Message()
    message.set_string_property("p", text)
    stream = StreamMessage()
    stream.write_string(text)
    stream.reset()
    assert message.get_boolean_property("p") is value
    assert MapMessage({"p": text}).get_boolean("p") is value
    assert stream.read_boolean() is value
