"""MapMessage."""

from __future__ import annotations

import pytest

from kjms import MessageFormatException
from kjms.message import MapMessage

VALUES = {
    "boolean": True, "byte": -128, "short": 32767, "char": "\ud800", "int": 2**31 - 1, "long": -(2**63), "float": 0.5,
    "double": 0.1, "string": "grün", "bytes": b"\0\xff",
}  # fmt: skip


@pytest.mark.requirement(
    "JMS-3.11-2", "JMS-3.11.3-1", "JMS-9.4.6-1", "NEV-110", "NET-115", "NET-118", "NET-119", "NET-122"
)
def test_entries_of_all_types_arrive_with_their_types(received) -> None:
    """Each type has its own setter and getter; names can be enumerated and looked up."""
    message = MapMessage()
    for kind, value in VALUES.items():
        getattr(message, f"set_{kind}")(f"a {kind}", value)
    for either in (message, received(message)):
        assert either.names() == list(either) == [f"a {kind}" for kind in VALUES]
        assert len(either) == len(VALUES)
        for kind, value in VALUES.items():
            assert getattr(either, f"get_{kind}")(f"a {kind}") == value
            assert either.get_object(f"a {kind}") == either[f"a {kind}"] == value
            assert either.item_exists(f"a {kind}")
        assert either._body == {f"a {kind}": (kind, value) for kind, value in VALUES.items()}
        assert not either.item_exists("b")
        assert "b" not in either


@pytest.mark.requirement("JMS-3.11.3-2", "NET-123")
@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "boolean"), (6, "int"), (2**31, "long"), (1.5, "double"), ("x", "string"), (b"x", "bytes")],
)
def test_a_generic_set_is_the_set_of_the_python_type(value: object, kind: str) -> None:
    """set_object, map_[...] and the constructor type a value by its Python type."""
    same, generic, item = MapMessage(), MapMessage(), MapMessage()
    getattr(same, f"set_{kind}")("e", value)
    generic.set_object("e", value)  # type: ignore[arg-type]
    item["e"] = value  # type: ignore[assignment]
    assert same._body == generic._body == item._body == MapMessage({"e": value})._body  # type: ignore[dict-item]


@pytest.mark.requirement("JMS-B.4.5.2-1", "NET-116", "NET-117")
@pytest.mark.parametrize("kind", [*VALUES, "object"])
@pytest.mark.parametrize("name", [None, "", 1])
def test_an_entry_needs_a_name(kind: str, name: str) -> None:
    """Each setter raises ValueError for a name that is None, empty or no string."""
    with pytest.raises(ValueError, match="name of a map entry"):
        getattr(MapMessage(), f"set_{kind}")(name, VALUES.get(kind, 1))


@pytest.mark.parametrize("name", ["a b", "NULL", "JMSType", "ü=;,", "\0", "x" * 1000])
def test_any_other_name_will_do(name: str, received) -> None:
    """Map entries are no properties: their names need not be identifiers."""
    assert received(MapMessage({name: 1})).get_int(name) == 1


@pytest.mark.requirement("JMS-3.12-2", "JMS-3.12-5", "JMS-B.2.21-1", "NEV-139", "NEV-140", "NEV-142")
def test_bytes_are_copied_and_come_as_bytes(received) -> None:
    """A bytearray that is changed later does not change the message; part of a value can be set."""
    data = bytearray(b"abcdef")
    message = MapMessage({"object": data})  # type: ignore[dict-item]
    message.set_bytes("bytes", data)
    message.set_bytes("part", memoryview(data), 1, 3)
    message.set_bytes("rest", data, 4)
    message.set_bytes("none", None)
    data[0] = 0
    expected = {"object": b"abcdef", "bytes": b"abcdef", "part": b"bcd", "rest": b"ef", "none": None}
    assert received(message).get_body(dict) == message.get_body(dict) == expected
    assert type(message.get_object("object")) is bytes
    for offset, length in ((-1, 1), (0, 7), (7, None), (2, -1)):
        with pytest.raises(ValueError, match="beyond"):
            message.set_bytes("part", b"abcdef", offset, length)


def test_the_body_as_a_dict_is_a_copy() -> None:
    """Changing it does not change the message."""
    message = MapMessage({"a": 1})
    message.get_body(dict)["a"] = 2  # type: ignore[index]
    assert message["a"] == 1


def test_a_missing_entry() -> None:
    """map_["n"] is Python's and raises KeyError; the getters are JMS's and read it as None."""
    with pytest.raises(KeyError):
        MapMessage()["n"]
    assert MapMessage().get_object("n") is None


def test_an_empty_map_message_is_true() -> None:
    """``if message:`` asks whether there is one."""
    assert MapMessage()
    assert len(MapMessage()) == 0


@pytest.mark.parametrize("value", [[1], {"a": 1}, object(), 1j, 2**70])
def test_other_values_are_refused_without_being_shown(value: object) -> None:
    """MessageFormatException names the entry and the type."""
    with pytest.raises(MessageFormatException, match="'e'") as raised:
        MapMessage({"e": value})  # type: ignore[dict-item]
    assert repr(value) not in str(raised.value)


def test_only_mappings_fill_a_map() -> None:
    """A list of pairs is no mapping."""
    with pytest.raises(MessageFormatException):
        MapMessage([("a", 1)])  # type: ignore[arg-type]


def test_an_entry_that_is_set_again_has_its_new_type(received) -> None:
    """The last type and value count."""
    message = MapMessage({"e": 1})
    message.set_char("e", "x")
    assert received(message)._body == {"e": ("char", "x")}
