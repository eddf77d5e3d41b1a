"""Which periodic messages a partition defines, and which of them come next: pure, no clock, no I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from kjms.mapping.delayed import Progress
from kjms.txn.cron import NEVER, Cron

if TYPE_CHECKING:
    from kjms.mapping.periodic import Definition

__all__ = ["LATE_MS", "Defined", "PeriodicMessages", "Ticks", "Verdict"]

_log = logging.getLogger("kjms.schedule")

T = TypeVar("T")

LATE_MS: Final = 60_000
"""Milliseconds for which missed times are made up one by one; of those before, only the last one is."""
MOST_TICKS: Final = 200  # messages of one definition at once, and of all


@dataclass
class Defined(Generic[T]):
    """A definition in the log.

    Attributes:
        offset: Where it stands.
        message: Its record.
        definition: What it says.
        next: When the message is sent next; None: it was not accepted yet.
        last: The time for which it was sent last; 0: it was not.
        postponed: The time before which it is not tried again, after it failed.
    """

    offset: int
    message: T
    definition: Definition
    next: int | None
    last: int
    postponed: int = 0

    @property
    def is_accepted(self) -> bool:
        """Whether it is in force."""
        return self.next is not None

    @property
    def due(self) -> int:
        """When there is something to do for it; 0: now."""
        return max(self.next or 0, self.postponed)


class Verdict(NamedTuple):
    """What becomes of definitions that were not accepted yet, and of those that they replace."""

    ended: list[int]
    accepted: list[Progress]


@dataclass(frozen=True)
class Ticks(Generic[T]):
    """The times of one definition for which its message is sent now, and what holds afterwards."""

    defined: Defined[T]
    times: list[int]
    progress: Progress


class PeriodicMessages(Generic[T]):
    """The definitions of a partition that are not settled.

    What the log says and what the owner of the partition decided is recorded in the same way, and may be recorded
    twice: progress never goes back.
    """

    def __init__(self) -> None:
        self._at: dict[int, Defined[T]] = {}  # rising offsets

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, offset: int) -> bool:
        return offset in self._at

    def __iter__(self) -> Iterator[Defined[T]]:
        return iter(list(self._at.values()))

    @property
    def first_offset(self) -> int:
        """The offset of the first definition; NEVER: there is none."""
        return next(iter(self._at), NEVER)

    @property
    def next_due(self) -> int:
        """When there is something to do; 0: now; NEVER: there is nothing."""
        return min((each.due for each in self._at.values()), default=NEVER)

    @property
    def is_settled(self) -> bool:
        """Whether no definition waits to be accepted or refused."""
        return all(each.is_accepted for each in self._at.values())

    def add(self, offset: int, definition: Definition, message: T) -> None:
        """Note that *definition* stands at *offset*; offsets come in rising order."""
        self._at[offset] = Defined(offset, message, definition, definition.next, definition.last)

    def advance(self, progress: Iterable[Progress]) -> None:
        """Note *progress*, of which what was known already changes nothing."""
        for offset, next_tick, last in progress:
            known = self._at.get(offset)
            if known is not None:
                known.next = max(known.next or 0, next_tick)
                known.last = max(known.last, last)

    def settle(self, offset: int) -> None:
        """Note that the definition at *offset* has ended; to settle it again changes nothing."""
        self._at.pop(offset, None)

    def judge(self, now: int) -> Verdict:
        """Return which definitions are accepted, and which end, in the order in which they were written.

        One that does not replace is refused where there is one of its name.
        """
        verdict = Verdict([], [])
        in_force = {each.definition.name: each for each in self._at.values() if each.is_accepted}
        started: dict[str, Progress] = {}
        for each in self._at.values():
            if each.is_accepted:
                continue
            wanted = each.definition
            current = in_force.get(wanted.name)
            last = 0 if current is None else max(current.last, started.get(wanted.name, (0, 0, 0))[2])
            begin = None if not _may_replace(wanted, current) else _first(wanted, max(now, last))
            if begin is None:
                verdict.ended.append(each.offset)
                continue
            if current is not None:
                verdict.ended.append(current.offset)  # after it was accepted, if it is new as well
            in_force[wanted.name] = each
            started[wanted.name] = Progress(each.offset, begin, last)
            verdict.accepted.append(started[wanted.name])
        return verdict

    def due(self, now: int) -> list[Ticks[T]]:
        """Return the times that have come at *now*, by definition."""
        found = []
        room = MOST_TICKS
        for each in self._at.values():
            if each.is_accepted and each.due <= now and room > 0:
                try:
                    ticks = _ticks(each, now, room)
                except Exception as error:  # one of them must not stop the others
                    self.postpone(each.offset, now + LATE_MS)
                    _log.warning("periodic message %r is not sent: %s", each.definition.name, error)
                    continue
                found.append(ticks)
                room -= len(ticks.times)
        return found

    def postpone(self, offset: int, until: int) -> None:
        """Try the definition at *offset* not before *until*."""
        if offset in self._at:
            self._at[offset].postponed = until


def _may_replace(wanted: Definition, current: Defined[T] | None) -> bool:
    if wanted.replaces is None:
        return current is None
    return wanted.replaces == "*" or (current is not None and wanted.replaces == current.definition.message_id)


def _first(wanted: Definition, after: int) -> int | None:
    """Return when a new definition begins; None: it cannot be read."""
    if wanted.is_paused:
        return NEVER
    try:
        return Cron(wanted.cron, wanted.timezone).after(after)
    except Exception as error:
        _log.warning("the definition of the periodic message %r is refused: %s", wanted.name, error)
        return None


def _ticks(each: Defined[T], now: int, most: int) -> Ticks[T]:
    cron = Cron(each.definition.cron, each.definition.timezone)
    time = each.next or 0
    if now - time > LATE_MS:
        time = cron.latest(time, now)
    times: list[int] = []
    while time <= now and len(times) < most:
        times.append(time)
        time = cron.after(time)
    return Ticks(each, times, Progress(each.offset, time, times[-1]))
