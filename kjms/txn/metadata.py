"""The text that Kafka keeps beside a committed offset: the settlement of a partition, written and read; pure, no I/O.

    kjms/1 <topic id> <engine> <form><payload>

The first word says whose it is and in which version. The topic's id tells a topic from one of the same name that was
made later. The engine is its writer. The payload is a sequence of variable-length numbers in base64, its form
``z`` when it is deflated and ``p`` when it is plain; offsets in it count from the committed offset:

    dispatch limit
    number of runs, then for each run of unsettled offsets: distance from the end of the last one, length
    distance from the end of the last run to the end of what is known
    number of histories, then for each: distance from the offset of the last one, four times its
        deliveries, plus two if some are uncounted, plus one if it waits; how many are uncounted; until when it waits
    if a delivery of one of them failed: the earliest time of that, then for each: zero, or one plus how much later
        than that its own first delivery failed, in milliseconds; if none failed: zero
    three lists of runs, of what was dispatched: held, possible, lent; for each the number of its runs, to which the
        first list adds one, then for each run: distance from the end of the last one in its list, length

Offsets below the end of what is known and in no run are settled. At and beyond that end nothing is settled; at and
beyond the dispatch limit nothing was dispatched. Of the unsettled offsets below the dispatch limit, those were
dispatched that the three lists name; where the lists are missing, each of them possibly was. Readers ignore what
follows the numbers that they know, so a reader without the lists takes more messages for possibly dispatched.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from operator import sub
from types import MappingProxyType
from typing import Final, NamedTuple, overload

__all__ = ["LIMIT", "DamagedStateError", "History", "NewerStateError", "Runs", "State", "read_state", "write_state"]

LIMIT: Final = 4_000  # characters; brokers refuse metadata of over 4,096 bytes by default
VERSION: Final = 1
PREFIX: Final = "kjms/"
WORTH_DEFLATING: Final = 64  # bytes; shorter ones only get longer
DEFLATING: Final = 6, zlib.DEFLATED, 12, 5  # level, method, window, memory: small is quick, and serves as well here
LARGEST: Final = 1 << 24  # bytes that a payload may inflate to: what cannot have been written is not read


class DamagedStateError(ValueError):
    """The metadata begins like kjms's and cannot be read."""


class NewerStateError(ValueError):
    """The metadata was written by a later version of kjms; to ignore it is to deliver again what is settled."""


class History(NamedTuple):
    """What happened to a message that is not settled.

    Attributes:
        deliveries: How often it was delivered.
        uncounted: How many of them do not count towards the maximum: possible ones, since the previous owner terminated
            unexpectedly, and those after which its session continued with another message before it failed.
        due: When it may be delivered again, in milliseconds since the epoch; 0 is at once.
        failed: When a delivery of it failed first, in milliseconds since the epoch; 0: not known, or none did.
    """

    deliveries: int
    uncounted: int = 0
    due: int = 0
    failed: int = 0


class Runs(Sequence["tuple[int, int]"]):
    """Rising, disjoint runs of offsets, each as a pair: the first, and one past the last.

    They are kept in two lists: there may be thousands for every commit, and the garbage collector looks at each tuple.

    Args:
        firsts: Where each run begins.
        pasts: And the offset after its last.

    >>> Runs([7, 9], [8, 12])
    [(7, 8), (9, 12)]
    """

    __slots__ = ("firsts", "pasts")

    def __init__(self, firsts: list[int], pasts: list[int]) -> None:
        self.firsts = firsts
        self.pasts = pasts

    def __len__(self) -> int:
        return len(self.firsts)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self.firsts, self.pasts, strict=True)

    @overload
    def __getitem__(self, at: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, at: slice) -> Runs: ...
    def __getitem__(self, at: int | slice) -> tuple[int, int] | Runs:
        if isinstance(at, slice):
            return Runs(self.firsts[at], self.pasts[at])
        return self.firsts[at], self.pasts[at]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment] # it changes

    def __repr__(self) -> str:
        return repr(list(self))


class State(NamedTuple):
    """The settlement of a partition, as it is kept.

    Attributes:
        committed_offset: Everything before this offset is settled.
        dispatch_limit: Nothing at or beyond this offset was dispatched.
        runs: The unsettled offsets below `known`: rising, disjoint pairs of first and one past the last.
        known: From this offset on nothing is settled.
        histories: By offset.
        held: Runs of what sessions have; settled offsets in them mean nothing. None: not told, so that each unsettled
            message below the dispatch limit was possibly dispatched.
        possible: Runs of what may have been dispatched since, or was possibly delivered by an owner before.
        lent: Runs of what was passed on to remote clients, whose programs have seen it or not.
    """

    committed_offset: int
    dispatch_limit: int = 0
    runs: Sequence[tuple[int, int]] = ()
    known: int = 0
    histories: Mapping[int, History] = MappingProxyType({})
    held: Sequence[tuple[int, int]] | None = None
    possible: Sequence[tuple[int, int]] = ()
    lent: Sequence[tuple[int, int]] = ()

    @property
    def in_flight(self) -> Sequence[tuple[int, int]]:
        """The runs of what sessions and remote clients have; settled offsets in them mean nothing."""
        if self.held is None:
            return ((self.committed_offset, self.dispatch_limit),)
        return sorted((*self.held, *self.lent))

    def is_in_flight(self, offset: int) -> bool:
        """Return whether a session, or a remote client, has the unsettled message at *offset*."""
        return any(first <= offset < past for first, past in self.in_flight)

    def within(self, end: int) -> State:
        """Return what is left of it where the log ends at *end*: of what is beyond, nothing can be known."""
        if self.known <= end and self.dispatch_limit <= end:
            return self
        return State(
            self.committed_offset,
            min(self.dispatch_limit, end),
            _before(self.runs, end),
            min(self.known, end),
            {offset: history for offset, history in self.histories.items() if offset < end},
            None if self.held is None else _before(self.held, end),
            _before(self.possible, end),
            _before(self.lent, end),
        )


def _before(runs: Sequence[tuple[int, int]], end: int) -> tuple[tuple[int, int], ...]:
    return tuple((first, min(past, end)) for first, past in runs if first < end)


def write_state(state: State, topic_id: str = "-", engine: str = "-") -> str:
    """Return the metadata that says *state*; it may be longer than `LIMIT`.

    Args:
        state: What to say.
        topic_id: The Kafka topic's id, without spaces.
        engine: The writing engine's name, without spaces.

    >>> read_state(write_state(State(7, 20, [(7, 8), (9, 12)], 15)), 7).runs
    ((7, 8), (9, 12))
    """
    if state.runs or state.histories:
        payload = b"".join(map(_bytes, _numbers(state)))
    else:  # most commits, where each message is committed
        limit, known = state.dispatch_limit - state.committed_offset, state.known - state.committed_offset
        numbers = [max(limit, 0), 0, max(known, 0), 0]
        if state.held is not None and not state.held and not state.lent and len(state.possible) == 1:
            ((first, past),) = state.possible
            numbers += 0, 1, 1, first - state.committed_offset, past - first, 0
        elif state.held is not None:
            numbers += 0, *_told(state)
        payload = _bytes(numbers)
    form = "p"
    if len(payload) > WORTH_DEFLATING:
        deflating = zlib.compressobj(*DEFLATING)
        form, payload = "z", deflating.compress(payload) + deflating.flush()
    return f"{PREFIX}{VERSION} {topic_id} {engine} {form}{binascii.b2a_base64(payload, newline=False).decode()}"


def _numbers(state: State) -> tuple[list[int], list[int], list[int]]:
    """Return what is written: what comes before the runs, the runs, and what follows them."""
    runs = state.runs
    if not isinstance(runs, Runs):
        runs = Runs([first for first, _ in runs], [past for _, past in runs])
    ends = [state.committed_offset] * (2 * len(runs) + 1)
    ends[1::2], ends[2::2] = runs.firsts, runs.pasts
    distances = [*map(sub, ends[1:], ends)]  # how far each run begins behind the one before, and how long it is
    rest = [max(state.known - ends[-1], 0), len(state.histories)]
    last = state.committed_offset
    for offset in sorted(state.histories):
        deliveries, uncounted, due, _ = state.histories[offset]
        rest += offset - last, deliveries << 2 | (uncounted > 0) << 1 | (due > 0)
        if uncounted > 0:
            rest.append(uncounted)
        if due > 0:
            rest.append(due)
        last = offset
    earliest = min((history.failed for history in state.histories.values() if history.failed > 0), default=0)
    if earliest:
        rest.append(earliest)
        rest += (max(state.histories[offset].failed - earliest + 1, 0) for offset in sorted(state.histories))
    if state.held is not None:
        if not earliest:
            rest.append(0)
        rest += _told(state)
    return [max(state.dispatch_limit - state.committed_offset, 0), len(runs)], distances, rest


def _told(state: State) -> list[int]:
    """Return what is written of what was dispatched."""
    assert state.held is not None
    numbers: list[int] = []
    for extra, runs in ((1, state.held), (0, state.possible), (0, state.lent)):
        numbers.append(extra + len(runs))
        end = state.committed_offset
        for first, past in runs:
            numbers += first - end, past - first
            end = past
    return numbers


def _bytes(numbers: list[int]) -> bytes:
    if not numbers or max(numbers) <= 0x7F:
        return bytes(numbers)
    written = bytearray()
    add = written.append
    for number in numbers:
        rest = number
        while rest > 0x7F:
            add(rest & 0x7F | 0x80)
            rest >>= 7
        add(rest)
    return bytes(written)


def owner(metadata: str | None) -> tuple[str, str]:
    """Return the topic id and the engine that *metadata* names; both empty where it is not kjms's."""
    words = (metadata or "").split(" ")
    return (words[1], words[2]) if len(words) == 4 and words[0].startswith(PREFIX) else ("", "")


def is_foreign(metadata: str | None) -> bool:
    """Return whether another library wrote *metadata*; not so if it is None or empty."""
    return bool(metadata) and not str(metadata).startswith(PREFIX)


def read_state(metadata: str | None, committed_offset: int) -> State:
    """Return what *metadata*, beside *committed_offset*, says; nothing but that if it is not kjms's.

    Raises:
        NewerStateError: A later version wrote it.
        DamagedStateError: It cannot be read.
    """
    if not metadata or is_foreign(metadata):
        return State(committed_offset, committed_offset, (), committed_offset)
    words = metadata.split(" ")
    version = words[0][len(PREFIX) :]
    if version.isdecimal() and int(version) > VERSION:
        raise NewerStateError(f"settlement of version {version}; this kjms reads versions up to {VERSION}")
    if version != str(VERSION) or len(words) != 4 or words[3][:1] not in {"p", "z"}:
        raise DamagedStateError("settlement that cannot be read: its frame is damaged")
    try:
        payload = base64.b64decode(words[3][1:], validate=True)
        if words[3][0] == "z":
            inflater = zlib.decompressobj()
            payload = inflater.decompress(payload, LARGEST)
            if not inflater.eof:
                raise DamagedStateError("settlement that cannot be read: it is cut off, or too large")
        return _state(_read_numbers(payload), committed_offset)
    except (binascii.Error, zlib.error, StopIteration) as error:
        raise DamagedStateError(f"settlement that cannot be read: {error or 'it is cut off'}") from error


def _state(numbers: Iterator[int], committed_offset: int) -> State:
    dispatch_limit = committed_offset + next(numbers)
    runs = []
    end = committed_offset
    for _ in range(next(numbers)):
        first = end + next(numbers)
        end = first + next(numbers)
        runs.append((first, end))
    known = end + next(numbers)
    histories = {}
    offset = committed_offset
    for _ in range(next(numbers)):
        offset += next(numbers)
        what = next(numbers)
        uncounted = next(numbers) if what & 2 else 0
        histories[offset] = History(what >> 2, uncounted, next(numbers) if what & 1 else 0)
    earliest = next(numbers, 0)
    if earliest:
        for offset, history in histories.items():  # rising, as they were written
            later = next(numbers)
            histories[offset] = history._replace(failed=later and earliest + later - 1)
    state = State(committed_offset, dispatch_limit, tuple(runs), known, histories)
    count = next(numbers, 0)
    if not count:
        return state
    held = _read_runs(numbers, count - 1, committed_offset)
    possible = _read_runs(numbers, next(numbers), committed_offset)
    return state._replace(held=held, possible=possible, lent=_read_runs(numbers, next(numbers), committed_offset))


def _read_runs(numbers: Iterator[int], count: int, end: int) -> tuple[tuple[int, int], ...]:
    runs = []
    for _ in range(count):
        first = end + next(numbers)
        end = first + next(numbers)
        runs.append((first, end))
    return tuple(runs)


def _read_numbers(payload: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in payload:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
        elif shift > 63:
            raise DamagedStateError("settlement that cannot be read: a number is too large")
