"""Bodies are Avro under the published schemas, as an Avro library of its own reads and writes it."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.mapping import body_schema
from kjms.message._avro import (
    KINDS,
    PLAIN,
    read_map,
    read_plain,
    read_stream,
    write_map,
    write_plain,
    write_stream,
)
from kjms.message._values import RANGES

SCHEMAS = {name: fastavro.parse_schema(json.loads(body_schema(name))) for name in ("map", "stream", "object")}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
values: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(), **{kind: st.integers(*RANGES[kind]) for kind in ("byte", "short", "int", "long")},
    "char": st.integers(0, 0xFFFF).map(chr), "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False), "string": st.none() | texts, "bytes": st.binary(max_size=10),
}  # fmt: skip
typed = st.sampled_from(sorted(values)).flatmap(lambda kind: st.tuples(st.just(kind), values[kind]))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def library_reads(name: str, data: bytes) -> Any:
    source = io.BytesIO(data)
    result = fastavro.schemaless_reader(source, SCHEMAS[name], None, return_record_name=name != "object")
    assert source.read() == b""
    return result


def library_writes(name: str, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMAS[name], datum)
    return out.getvalue()


def as_read(kind: str, value: Any) -> Any:
    """The value as the library gives it: named branches with their names."""
    if kind in {"byte", "short", "char"}:
        return (f"kjms.{kind.title()}", {"value": ord(value) if kind == "char" else value})
    return value


def as_written(kind: str, value: Any) -> Any:
    """The value as the library takes it: with the branch it is to choose."""
    if value is None:
        return None
    return as_read(kind, value) if kind in {"byte", "short", "char"} else (kind, value)


def as_object(value: Any) -> Any:
    if isinstance(value, list):
        return {"value": [as_object(item) for item in value]}
    if isinstance(value, dict):
        return {"value": {name: as_object(item) for name, item in value.items()}}
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return {"value": {"hexadecimal": f"{value:x}"}}
    return {"value": value}


@pytest.mark.requirement("NET-153")
@given(st.dictionaries(texts.filter(bool), typed, max_size=5))
def test_an_avro_library_agrees_on_maps(entries: dict[str, tuple[str, Any]]) -> None:
    """What is written reads there, and what is written there reads here, with the types."""
    data = write_map(entries)
    assert library_reads("map", data) == {name: as_read(*item) for name, item in entries.items()}
    same = library_writes("map", {name: as_written(*item) for name, item in entries.items()})
    assert read_map(same) == read_map(data) == entries_of(entries)


def entries_of(entries: dict[str, tuple[str, Any]]) -> dict[str, tuple[str, Any]]:
    return {name: (kind if value is not None else "string", value) for name, (kind, value) in entries.items()}


@given(st.lists(typed, max_size=5))
def test_an_avro_library_agrees_on_streams(items: list[tuple[str, Any]]) -> None:
    """The same for streams, byte for byte."""
    data = write_stream(items)
    assert library_reads("stream", data) == [as_read(*item) for item in items]
    assert library_writes("stream", [as_written(*item) for item in items]) == data
    assert read_stream(data) == items


@given(plain)
def test_an_avro_library_agrees_on_objects(value: Any) -> None:
    """The same for plain objects."""
    data = write_plain(value)
    assert library_reads("object", data) == as_object(value)
    assert read_plain(library_writes("object", as_object(value))) == value
    assert repr(read_plain(data)) == repr(value)


def test_blocks_with_sizes_and_several_blocks_are_read() -> None:
    """Other writers split long arrays, and may write a block's size for readers that skip it."""
    one, two = b"\x0a\x02", b"\x0a\x04"  # int 1, int 2
    for data in (b"\x02" + one + b"\x02" + two + b"\x00", b"\x03\x08" + one + two + b"\x00"):
        assert read_stream(data) == library_typed(data) == [("int", 1), ("int", 2)]


def library_typed(data: bytes) -> list[tuple[str, Any]]:
    return [("int", value) for value in library_reads("stream", data)]


@pytest.mark.parametrize(
    "data",
    [b"", b"\x02", b"\x02\x0a", b"\x02\x16\x00", b"\x02\x01\x00", b"\x02\x04\x80\x02\x00",
     b"\x02\x0a\x80\x80\x80\x80\x20\x00", b"\x02\x08\x80\x80\x08\x00", b"\x02\x12\x02\xff\x00",
     b"\x02\x14\x01\x00", b"\x00\x00", b"\x02\x10\x00\x00"],
)  # fmt: skip
def test_what_is_no_stream_is_a_value_error(data: bytes) -> None:
    """Cut off, an unknown branch, a number out of range, no UTF-8, a negative length, something behind it."""
    with pytest.raises(ValueError, match=r".") as raised:
        read_stream(data)
    assert not isinstance(raised.value, struct.error)


def test_the_branches_are_those_of_the_schemas() -> None:
    """The order of the branches is what their numbers on the wire mean."""
    names = [
        branch if isinstance(branch, str) else branch["name"].lower()
        for branch in json.loads(body_schema("map"))["values"]
    ]
    assert names == list(KINDS)
    assert json.loads(body_schema("stream"))["items"] == json.loads(body_schema("map"))["values"]
    branches = json.loads(body_schema("object"))["fields"][0]["type"]
    kinds = [branch if isinstance(branch, str) else branch.get("name", branch["type"]).lower() for branch in branches]
    assert kinds == list(PLAIN)
    with pytest.raises(ValueError, match="text"):
        body_schema("text")
