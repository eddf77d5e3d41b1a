"""Names, addresses and deletions of temporary destinations."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms import InvalidDestinationException, TemporaryQueue, TemporaryTopic
from kjms.mapping import KafkaRecord
from kjms.mapping.internal import MalformedError
from kjms.mapping.names import inbox
from kjms.mapping.temporary import (
    Numbers,
    address,
    addressed_to,
    deletion,
    letters_name,
    place_of,
    read_deletion,
    temporary_name,
)

RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)).map(lambda run: (run[0], run[0] + run[1])))


class Source:
    """A record as it is read."""

    def __init__(self, headers: list[tuple[str, bytes | None]] | None, value: bytes | None = None) -> None:
        self._headers, self._value = headers, value

    def __getattr__(self, name: str) -> Any:
        return lambda: {"headers": self._headers, "value": self._value}.get(name)


@given(RUNS)
def test_numbers_are_a_set(runs: list[tuple[int, int]]) -> None:
    """They hold what was added, in as few runs as there can be."""
    numbers = Numbers()
    expected: set[int] = set()
    for run in runs:
        numbers.add_all([run])
        expected.update(range(*run))
    assert {number for number in range(-1, 80) if number in numbers} == expected
    kept = list(numbers)
    assert all(past < first for (_, past), (first, _) in itertools.pairwise(kept))


@given(RUNS)
def test_a_deletion_is_read_as_it_was_written(runs: list[tuple[int, int]]) -> None:
    """The record carries exactly the numbers."""
    numbers = Numbers()
    numbers.add_all(runs)
    record = deletion(numbers)
    assert read_deletion(Source(record.headers, record.value)) == list(numbers)


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        (None, b"1"),
        ([], b"1"),
        ([("kjms-deleted", b"2")], b"1"),
    ],
)
def test_what_is_no_deletion_deletes_nothing(headers: Any, value: bytes | None) -> None:
    """Any program may write to an inbox, and records of its own."""
    assert read_deletion(Source(headers, value)) == []


@pytest.mark.parametrize(
    "value", [None, b"one", b"5-3", b"5-4 7-8", b"-3", b"1 -2", b"\xff", b"1" * 5_000, "٣".encode(), b"1_0", b"+1"]
)
def test_a_damaged_deletion_is_refused(value: bytes | None) -> None:
    """It deletes nothing, not even what of it could be read."""
    with pytest.raises(MalformedError):
        read_deletion(Source([("kjms-deleted", b"1")], value))  # type: ignore[arg-type]


@pytest.mark.parametrize("principal", ["anonymous", "Jürgen Groß", "a.b@c/d"])
def test_names_and_places(principal: str) -> None:
    """A temporary destination is called by its inbox and number, whatever the principal is."""
    topic = inbox(principal, "x8s-_Q")
    for kind in (TemporaryQueue, TemporaryTopic):
        destination = kind(temporary_name(topic, 17))
        assert place_of(destination) == (topic, 17)
        assert letters_name(destination) == "kjms.temporary" + topic.removeprefix("kjms.inbox").rpartition(".")[0]


@pytest.mark.parametrize(
    "name", ["orders", "orders/1", "kjms.inbox.a.b", "kjms.inbox.a.b/", "kjms.inbox.a.b/x", "kjms.inbox.a.b/-1", "/1"]
)
def test_other_names_are_refused(name: str) -> None:
    """A name that no session gave is not a temporary destination."""
    with pytest.raises(InvalidDestinationException, match="not a temporary destination"):
        place_of(TemporaryQueue(name))


def test_addresses() -> None:
    """The last header counts; what is no number addresses nothing."""
    record = address(address(KafkaRecord(None, b"", [], 0), 3), 4)
    assert addressed_to(Source(record.headers)) == 4
    for value in (None, b"", b"x", b"-1", b"1" * 30):
        assert addressed_to(Source([("kjms-to", value)])) is None
    assert addressed_to(Source(None)) is None


def test_numbers_are_added_one_by_one() -> None:
    """Those side by side are one run."""
    numbers = Numbers()
    for number in (5, 3, 9, 4, 4):
        numbers.add(number)
    assert list(numbers) == [(3, 6), (9, 10)]
    assert [number for number in range(12) if number in numbers] == [3, 4, 5, 9]


@pytest.mark.parametrize(("digits", "is_known"), [(18, True), (19, False)])
def test_a_number_has_as_many_digits_as_a_long_holds(digits: int, is_known: bool) -> None:
    """In a name, and in the header of a record."""
    number = "9" * digits
    name = f"{inbox('ada', 'e1')}/{number}"
    assert addressed_to(Source([("kjms-to", number.encode())])) == (int(number) if is_known else None)  # type: ignore[arg-type]
    if is_known:
        assert place_of(TemporaryQueue(name)) == (inbox("ada", "e1"), int(number))
    else:
        with pytest.raises(InvalidDestinationException) as raised:
            place_of(TemporaryQueue(name))
        said = f"'temp-queue://{name}' (str) is not a temporary destination: a session creates these (JMS 2.0 §4.4.3)"
        assert str(raised.value) == said
