"""Records of kjms's own topics: each is read as a whole, or refused with the reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.mapping.internal import (
    DEEPEST,
    FLAG,
    LARGEST,
    LONG,
    TEXT,
    TOPIC,
    Kind,
    LaterVersionError,
    MalformedError,
    array,
    integer,
    one_of,
    optional,
    read_array,
    read_number,
    read_object,
    read_text,
)

MEMBERS = {"name": TEXT, "starts": array(LONG), "selector": optional(TEXT), "shared": FLAG}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (None, "it has no content"),
        (b"", "it is no JSON"),
        (b"{", "it is no JSON"),
        (b"\xff", "it is not UTF-8"),
        ('{"a":1}'.encode("utf-16"), "it is not UTF-8"),
        (b"[]", "it is no JSON object"),
        (b"7", "it is no JSON object"),
        (b"[" * 2_000, f"nested more than {DEEPEST} deep"),
        (b'{"a":' * 100_000, f"nested more than {DEEPEST} deep"),
        (b'{"version":1,"a":[[[[]]]]}', f"nested more than {DEEPEST} deep"),
        (b" " * (LARGEST + 1), "1,048,577 bytes; 1,048,576 are allowed"),
        (b'{"version":1,"a":NaN}', "NaN, which is no JSON"),
        (b'{"version":1,"a":' + b"1" * 5_000 + b"}", "a number of 5,000 digits"),
        (b"{}", "it has no version"),
        (b'{"version":true}', "it has no version"),
        (b'{"version":1}', "it has no member 'name'"),
        (b'{"version":1,"name":[]}', "its member 'name' is not a text"),
        (b'{"version":1,"name":"\\ud800"}', "its member 'name' is not a text"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(data: bytes | None, why: str) -> None:
    """Its content, which may be anything, is not in the reason."""
    with pytest.raises(MalformedError, match=why):
        read_object(data, 1, {"name": TEXT}, MEMBERS)


def test_a_record_of_a_later_version_is_told_from_a_damaged_one() -> None:
    with pytest.raises(LaterVersionError, match="version 2; this kjms reads version 1"):
        read_object(b'{"version":2,"name":7}', 1, MEMBERS)


def test_brackets_in_texts_are_no_nesting() -> None:
    name = '[[[[[[[[ \\" ]{{{{'
    assert read_object(json.dumps({"version": 1, "name": name}).encode(), 1, {"name": TEXT}) == {"name": name}
    assert read_array(json.dumps([[1]] * 100).encode()) == [[1]] * 100


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (TEXT, ["", "größe", "\U0001f600"], [None, 7, "\udc00", []]),
        (FLAG, [True, False], [0, 1, None, "true"]),
        (LONG, [0, (1 << 63) - 1], [-1, 1 << 63, True, 1.0, "1"]),
        (integer(-1, 3), [-1, 3], [-2, 4]),
        (optional(TEXT), [None, "a"], [7, []]),
        (one_of(TEXT, LONG), ["a", 7], [None, [], True]),
        (array(TEXT), [[], ["a"]], [None, "a", [7], [[]], {}]),
        (TOPIC, ["a.b_c-D9", "x" * 249], ["", "x" * 250, "a b", "a\0", "ä", 7]),
    ],
)
def test_what_members_may_hold(kind: Kind, good: list[Any], bad: list[Any]) -> None:
    assert [kind.accepts(value) for value in good] == [True] * len(good)
    assert [kind.accepts(value) for value in bad] == [False] * len(bad)


@pytest.mark.parametrize("text", ["", "-1", "+1", " 1", "1_0", "٣", "9" * 19, "1" * 5_000, "0x1"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(MalformedError, match="a number from 0"):
        read_number(text)
    assert read_number("0017") == 17


def test_a_text_that_is_too_large_is_not_read() -> None:
    with pytest.raises(MalformedError, match="bytes"):
        read_text(b"x" * (LARGEST + 1))
    assert read_text("größe".encode()) == "größe"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*MEMBERS, "version"]), inner),
    max_leaves=20,
)
objects = st.fixed_dictionaries({}, optional=dict.fromkeys([*MEMBERS, "version", "other"], json_values))


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()) | st.text().map(str.encode))
def test_anything_is_read_or_refused(data: bytes) -> None:
    """Nothing but MalformedError comes of a record, and what is read has the members of their kinds."""
    try:
        found = read_object(data, 1, {}, MEMBERS)
    except MalformedError:
        found = {}
    assert found.keys() <= MEMBERS.keys()
    try:
        is_array = isinstance(read_array(data), list)
    except MalformedError:
        is_array = False
    assert not (found and is_array)


@given(objects)
def test_members_are_of_their_kinds_or_the_object_is_refused(value: dict[str, Any]) -> None:
    data = json.dumps({"version": 1, **value}).encode()
    try:
        found = read_object(data, 1, {}, MEMBERS)
    except MalformedError:
        return
    assert found == {name: value[name] for name in MEMBERS if name in value}
    assert all(MEMBERS[name].accepts(each) for name, each in found.items())
