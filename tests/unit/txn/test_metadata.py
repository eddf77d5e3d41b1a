"""What is kept beside a committed offset: read as it was written, and safe against whatever else stands there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kjms.txn.metadata import (
    LIMIT,
    DamagedStateError,
    History,
    NewerStateError,
    State,
    _bytes,
    _numbers,
    _read_numbers,
    is_foreign,
    owner,
    read_state,
    write_state,
)

numbers = st.integers(0, 2**40)


@st.composite
def states(draw: st.DrawFn) -> State:
    committed_offset = draw(numbers)
    runs, end = [], committed_offset
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=20)):
        runs.append((end + gap, end + gap + length))
        end += gap + length
    histories = draw(
        st.dictionaries(
            st.integers(committed_offset, committed_offset + 5_000),
            st.builds(History, st.integers(1, 1_000), st.integers(0, 9), st.integers(0, 2**43), st.integers(0, 2**43)),
            max_size=20,
        )
    )
    limit, known = committed_offset + draw(numbers), end + draw(numbers)
    if draw(st.booleans()):
        return State(committed_offset, limit, tuple(runs), known, histories)
    lists = [draw(run_lists(committed_offset)) for _ in range(3)]
    return State(committed_offset, limit, tuple(runs), known, histories, *lists)


@st.composite
def run_lists(draw: st.DrawFn, end: int) -> tuple[tuple[int, int], ...]:
    runs = []
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=5)):
        runs.append((end + gap, end + gap + length))
        end += gap + length
    return tuple(runs)


@given(states())
def test_a_state_is_read_as_it_was_written(state: State) -> None:
    """The law of the format."""
    text = write_state(state, "topic", "engine")
    assert read_state(text, state.committed_offset) == state
    assert owner(text) == ("topic", "engine")
    assert text.isascii()


@pytest.mark.parametrize("metadata", [None, "", "AgAAAYkQ", "streams 1 2", "kjm"])
def test_what_others_wrote_says_nothing(metadata: str | None) -> None:
    """A group that another library used is taken over from its offset (trap: it crashed others)."""
    assert read_state(metadata, 5) == State(5, 5, (), 5)
    assert is_foreign(metadata) == bool(metadata)
    assert owner(metadata) == ("", "")


def test_a_later_version_is_not_guessed_at() -> None:
    """A reader that ignored it would deliver settled messages again (trap: rolling upgrades)."""
    with pytest.raises(NewerStateError, match="version 2"):
        read_state("kjms/2 - - pAAAA", 5)


GOOD = write_state(State(0, 9, tuple((n * 7 + 1, n * 7 + 3) for n in range(60)), 430))


@pytest.mark.parametrize(
    "metadata",
    ["kjms/", "kjms/1", "kjms/x - - pAA==", "kjms/1 - - q", "kjms/1 - - p", "kjms/1 - - p!!!", "kjms/1 - - zAAAA"]
    + [GOOD[:length] for length in range(10, len(GOOD), 7)]
    + ["kjms/1 - - p" + "////" * 20],
)
def test_damage_is_found(metadata: str) -> None:
    """Cut off or altered, it raises what its reader expects, and nothing else."""
    with pytest.raises(DamagedStateError):
        read_state(metadata, 5)


@given(st.text(alphabet="kjms/1 -pzAB=+9", max_size=60))
def test_no_text_does_harm(text: str) -> None:
    """Whatever stands there is read, or refused."""
    try:
        state = read_state(text, 0)
    except (DamagedStateError, NewerStateError):
        return
    assert read_state(write_state(state), 0) == state


def test_a_regular_pattern_takes_little_room() -> None:
    """Every hundredth of a million messages unsettled fits; a random hundredth does not."""
    regular = State(0, 1_000_000, [(n, n + 1) for n in range(0, 1_000_000, 100)], 1_000_000)
    assert len(write_state(regular)) < LIMIT
    chosen = sorted(random.Random(1).sample(range(1_000_000), 10_000))
    assert len(write_state(State(0, 1_000_000, [(n, n + 1) for n in chosen], 1_000_000))) > LIMIT


def test_a_bomb_is_refused() -> None:
    """A payload that inflates without end is not read."""
    import base64
    import zlib

    bomb = base64.b64encode(zlib.compress(b"\x01" * (1 << 25))).decode()
    with pytest.raises(DamagedStateError, match="too large"):
        read_state(f"kjms/1 - - z{bomb}", 0)


WHOLE = State(5, 30, ((6, 8), (10, 20), (25, 28)), 28, {7: History(1), 15: History(2), 26: History(3)})


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (30, WHOLE),
        (29, State(5, 29, WHOLE.runs, 28, WHOLE.histories)),
        (15, State(5, 15, ((6, 8), (10, 15)), 15, {7: History(1)})),
        (10, State(5, 10, ((6, 8),), 10, {7: History(1)})),
        (5, State(5, 5, (), 5)),
    ],
)
def test_nothing_is_known_beyond_the_end_of_the_log(end: int, expected: State) -> None:
    """Of a log that ends earlier than what was committed, the rest is new (trap: offsets outside the log)."""
    assert WHOLE.within(end) == expected


def test_what_is_known_may_end_behind_the_mark() -> None:
    """Each is bounded for itself."""
    assert State(5, 6, (), 20).within(10) == State(5, 6, (), 10)


@pytest.mark.parametrize("metadata", [None, "", "kjms/1 topic engine", "theirs topic engine p", "kjms/1 a b c d"])
def test_other_metadata_names_no_owner(metadata: str | None) -> None:
    """Another library's, and what is cut off, says neither topic nor engine."""
    assert owner(metadata) == ("", "")


def test_metadata_names_its_owner() -> None:
    """The topic's id, and the engine that wrote it."""
    assert owner(write_state(State(5), "topic", "engine")) == ("topic", "engine")


@pytest.mark.parametrize("number", [126, 127, 128, 129, 255, 256, 16_383, 16_384, 1 << 63])
def test_numbers_are_read_as_they_were_written(number: int) -> None:
    """Also where one more byte begins: as a mark, in a run, and as a time."""
    state = State(0, number, ((1, 1 + number),), 2 + number, {1: History(1, 0, number)})
    assert read_state(write_state(state), 0) == state


def test_a_stray_character_is_damage() -> None:
    """It is not passed over: what stands around it may be damaged, too."""
    text = write_state(State(0, 20, ((1, 2),), 9))
    with pytest.raises(DamagedStateError, match="settlement that cannot be read: "):
        read_state(f"{text[:-4]}*{text[-4:]}", 0)


HELD = State(100, 190, ((100, 102), (105, 106)), 110, {100: History(2, 1)}, ((101, 102),), ((126, 190),), ((105, 106),))
GOLDEN = [  # what stands in Kafka: the text, the committed offset, and what it says
    ("kjms/1 topic engine pWgIAAgMBBAEACgE=", 100, HELD._replace(held=None, possible=(), lent=())),
    ("kjms/1 topic engine pQAAAAA==", 10, State(10, 74, (), 10)),
    ("kjms/1 topic engine pQAAAAAABAQBAAA==", 10, State(10, 74, (), 10, {}, (), ((10, 74),), ())),
    ("kjms/1 topic engine pWgIAAgMBBAEACgEAAgEBARpAAQUB", 100, HELD),
]


@pytest.mark.parametrize(("text", "offset", "state"), GOLDEN)
def test_what_stands_in_kafka_keeps_its_meaning(text: str, offset: int, state: State) -> None:
    """With the lists of what was dispatched, and without them, as former versions wrote it."""
    assert write_state(state, "topic", "engine") == text
    assert read_state(text, offset) == state


@given(states())
def test_a_reader_that_does_not_know_the_lists_reads_all_the_rest(state: State) -> None:
    """They follow everything else: it takes each unsettled message below the dispatch limit for possibly delivered."""
    without = state._replace(held=None, possible=(), lent=())
    long, short = (list(_read_numbers(b"".join(map(_bytes, _numbers(each))))) for each in (state, without))
    has_failed = any(history.failed for history in state.histories.values())
    assert long[: len(short)] == short
    assert state.held is None or has_failed or long[len(short)] == 0, "no delivery failed, says an older reader"


def test_nothing_of_the_lists_is_beyond_the_end_of_the_log() -> None:
    """The topic may have been made again."""
    cut = HELD.within(130)
    assert (cut.held, cut.possible, cut.lent) == (((101, 102),), ((126, 130),), ((105, 106),))
    assert HELD.within(103).possible == ()
    assert [offset for offset in range(100, 200) if HELD.is_in_flight(offset)] == [101, 105]
    assert State(5, 9).in_flight == ((5, 9),), "an older writer tells a limit alone"
