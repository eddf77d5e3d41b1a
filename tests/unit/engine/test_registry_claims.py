"""What follows from the registry's log, for every kind of record and whatever compaction leaves of it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.engine.admin.claims import ALIVE, ASK, DEFINITION, LOCK, USE, Claims, read_value, resource, written_value
from kjms.mapping.internal import MalformedError

CLAIMS = (LOCK, USE, DEFINITION)
Record = tuple[int, str, "dict[str, Any] | None"]


TERMS: dict[str, Any] = {"destination": "prices", "topic": "prices", "starts": [0]}


def apply(claims: Claims, offset: int, key: str, value: dict[str, Any] | None) -> None:
    """Take in a record with *value*; that of a definition has terms."""
    terms = TERMS if key.startswith(DEFINITION) else {}
    claims.apply(offset, key, None if value is None else written_value({**terms, **value}))


def folded(log: list[Record]) -> Claims:
    claims = Claims()
    for offset, key, value in log:
        apply(claims, offset, key, value)
    return claims


@pytest.mark.parametrize("kind", CLAIMS)
def test_the_first_claim_counts_and_the_next_after_it(kind: str) -> None:
    """Of claims on one resource the first in the log has it; when its key is taken away, the next."""
    claims = folded(
        [(3, f"{kind}:a", {"resource": "x", "engine": "1"}), (4, f"{kind}:b", {"resource": "x", "engine": "2"})]
    )
    assert [claim.engine for claim in claims.all(kind, "x")] == ["1", "2"]
    first = claims.first(kind, "x")
    assert first is not None
    assert (first.key, first.offset) == (f"{kind}:a", 3)
    claims.apply(5, f"{kind}:a", None)
    assert f"{kind}:a" not in claims
    assert [claim.engine for claim in claims.all(kind, "x")] == ["2"]
    claims.apply(6, f"{kind}:b", None)
    assert claims.first(kind, "x") is None
    claims.apply(7, f"{kind}:b", None)  # twice is once


@pytest.mark.parametrize("kind", CLAIMS)
def test_kinds_and_resources_have_nothing_to_do_with_each_other(kind: str) -> None:
    """A claim is seen under its own kind and resource alone."""
    claims = folded([(0, f"{kind}:a", {"resource": "x", "engine": "1"})])
    seen = [(other, of) for other in CLAIMS for of in "xy" if claims.first(other, of)]
    assert seen == [(kind, "x")]


def test_a_claim_written_again_goes_to_the_end() -> None:
    """Only a key's last record counts, since compaction leaves no other: so does its place."""
    claims = folded(
        [
            (0, "use:a", {"resource": "x", "engine": "1"}),
            (1, "use:b", {"resource": "x", "engine": "2"}),
            (2, "use:a", {"resource": "x", "engine": "1"}),
        ]
    )
    assert [claim.key for claim in claims.all(USE, "x")] == ["use:b", "use:a"]


def test_what_an_engine_leaves() -> None:
    """Locks, uses and signs of life of an engine are left by it; definitions stay, and what is others' too."""
    claims = folded(
        [
            (0, "use:a", {"resource": "x", "engine": "1"}),
            (1, "lock:b", {"resource": "y", "engine": "1"}),
            (2, "definition:c", {"resource": "x", "engine": "1"}),
            (3, "use:d", {"resource": "x", "engine": "2"}),
            (4, "ask:1", {"question": "q"}),
            (5, "alive:1", {}),
        ]
    )
    assert sorted(claims.left_by("1")) == ["alive:1", "ask:1", "lock:b", "use:a"]
    assert [claim.key for claim in claims.definitions()] == ["definition:c"]
    assert (claims.last_answer("1"), claims.last_answer("2")) == (5, -1)
    for offset, key in enumerate(claims.left_by("1"), 6):
        claims.apply(offset, key, None)
    assert claims.left_by("1") == []
    assert claims.last_answer("1") == -1


def test_the_garbage_collector_looks_at_no_claim() -> None:
    """There may be very many, and each collection would take the longer."""
    log = [(n, f"definition:{n}", {"resource": f"r{n}", "engine": "1", "starts": [0, n]}) for n in range(1_000)]
    for _ in range(2):  # what holds another tuple is looked at once more
        gc.collect()
    before = len(gc.get_objects())
    claims = folded(log)
    for _ in range(2):
        gc.collect()
    assert len(gc.get_objects()) - before < len(log) // 10
    assert [claim.value["starts"] for claim in claims.definitions()] == [[0, n] for n in range(1_000)]


def test_of_several_definitions_the_first_is_listed() -> None:
    """A definition that came too late is not listed."""
    claims = folded(
        [(0, "definition:a", {"resource": "x", "engine": "1"}), (1, "definition:b", {"resource": "x", "engine": "2"})]
    )
    assert [claim.key for claim in claims.definitions()] == ["definition:a"]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"7", b'"x"', b"\xff", b"{}", b"[" * 2_000, b'{"a":' * 2_000, b"1" * 5_000),
        b'{"version":2,"resource":"x","engine":"1"}',
        b'{"version":1,"resource":["x"],"engine":"1"}',
        b'{"version":1,"resource":"x","engine":"\\ud800"}',
        b'{"version":1,"resource":"x","engine":"1","process":{"a":[]}}',
        b'{"version":1,"resource":"x","engine":"1","process":[1e400]}',
    ],
)
@pytest.mark.parametrize("key", ["use:a", "definition:a", "lock:a", "what:a", ""])
def test_strange_records_claim_nothing(key: str, data: bytes) -> None:
    """What cannot be read, or is of a later version or an unknown kind, is refused, and takes its key away."""
    claims = folded([(1, key, {"resource": "x", "engine": "1"})] if key[:3] in {"use", "def", "loc"} else [])
    with pytest.raises(MalformedError):
        claims.apply(3, key, data)
    assert [claims.all(kind, "x") for kind in CLAIMS] == [[], [], []]
    assert claims.left_by("1") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"starts": None},
        {"starts": [-1]},
        {"starts": [10**400]},
        {"starts": {"0": 1}},
        {"topic": "a\0b"},
        {"topic": ""},
        {"topic": 7},
        {"destination": None},
        {"selector": [[]]},
        {"shared": "yes"},
        {"delayed": ["x"]},
        {"owner": []},
    ],
)
def test_a_malformed_definition_does_not_take_the_place_of_the_next(changes: dict[str, Any]) -> None:
    """The first definition that can be read counts."""
    claims = Claims()
    with pytest.raises(MalformedError, match=f"{next(iter(changes))}|a number of 401 digits"):
        apply(claims, 1, "definition:a", {"resource": "x", "engine": "1", **changes})
    apply(claims, 2, "definition:b", {"resource": "x", "engine": "2"})
    assert [claim.engine for claim in claims.definitions()] == ["2"]


@pytest.mark.parametrize("key", ["ask:1", "alive:1"])
def test_a_strange_question_asks_nothing(key: str) -> None:
    """Nor does a strange answer say that an engine lives."""
    claims = Claims()
    with pytest.raises(MalformedError):
        claims.apply(3, key, b"[" * 2_000)
    assert claims.left_by("1") == []
    assert claims.last_answer("1") == -1


def test_values_are_read_as_they_were_written() -> None:
    """Writing and reading are inverse; no value means that the key is taken away."""
    value = {"resource": resource("durable", "größe", "a:b"), "engine": "1", "starts": [0, 7]}
    assert read_value(DEFINITION, written_value({**TERMS, **value})) == {**TERMS, **value}
    assert read_value(DEFINITION, None) is None


def test_resources_of_different_names_differ() -> None:
    """No client id and an empty one, or names with separators in them, are never mixed up."""
    names = [("a", None, "b"), ("a", "", "b"), ("a", "b", ""), ("a", 'b","c', "d"), ("a", "b", 'c","d'), ("a", "b")]
    assert len({resource(*parts) for parts in names}) == len(names)


keys = st.one_of(
    st.tuples(st.sampled_from(CLAIMS), st.sampled_from("abcde")),
    st.tuples(st.sampled_from([ASK, ALIVE]), st.sampled_from("12")),
).map(":".join)
values = st.none() | st.fixed_dictionaries({"resource": st.sampled_from("xy"), "engine": st.sampled_from("12")})
logs = st.lists(st.tuples(keys, values), max_size=30).map(
    lambda records: [(offset, key, value) for offset, (key, value) in enumerate(records)]
)


def view(claims: Claims) -> object:
    return (
        {(kind, of): [(c.key, c.offset, c.engine) for c in claims.all(kind, of)] for kind in CLAIMS for of in "xy"},
        {engine: (claims.last_answer(engine), sorted(claims.left_by(engine))) for engine in "12"},
        sorted(claim.key for claim in claims.definitions()),
    )


@given(logs)
def test_the_state_is_what_a_plain_reading_gives(log: list[Record]) -> None:
    """The claims are, in the order of their last records, those keys whose last record has a value."""
    last: dict[str, Record] = {}
    for record in log:
        last.pop(record[1], None)
        last[record[1]] = record
    claims = folded(log)
    for kind in CLAIMS:
        for of in "xy":
            wanted = [
                (offset, key, value["engine"])
                for offset, key, value in last.values()
                if value is not None and key.startswith(kind) and value["resource"] == of
            ]
            assert [(claim.offset, claim.key, claim.engine) for claim in claims.all(kind, of)] == wanted


@given(logs, st.data())
def test_compaction_changes_nothing(log: list[Record], data: st.DataObject) -> None:
    """Whichever superseded records and old tombstones compaction has removed, the state is the same."""
    last = {key: offset for offset, key, _ in log}
    kept = [
        (offset, key, value)
        for offset, key, value in log
        if (last[key] == offset and value is not None) or data.draw(st.booleans(), label=f"keep {offset}")
    ]
    # A tombstone goes only after what it takes away.
    gone = {key for offset, key, value in log if last[key] == offset and (offset, key, value) not in kept}
    kept = [record for record in kept if record[1] not in gone]
    assert view(folded(kept)) == view(folded(log))
