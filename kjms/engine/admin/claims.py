"""What the registry's log says: the subscriptions, the engines that use them, and the locks. Pure: a fold.

The log is a compacted Kafka topic with one partition. Of each key its last record counts, and a record without a value
takes its key away; so whatever compaction leaves folds to the same state. Each claim therefore has a key of its own,
and where several claims are for one thing, *the first in the log has it*:

    lock:TOKEN       an engine is changing something, and others wait      at most one counts for each resource
    use:TOKEN        an engine has consumers on a subscription, a connection with a client identifier, or an inbox
    definition:TOKEN a subscription: its topic, its selector, and so on    the first counts for each resource
    ask:ENGINE       another engine asks whether that engine lives
    alive:ENGINE     it does

A claim is removed by removing its key; that cannot remove another claim. A record that cannot be read claims nothing,
and removes the claim of its key: compaction leaves that record, not the one before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from kjms.mapping.internal import (
    FLAG,
    LONG,
    TEXT,
    TOPIC,
    Kind,
    MalformedError,
    array,
    integer,
    one_of,
    optional,
    read_object,
)

__all__ = ["ALIVE", "ASK", "DEFINITION", "LOCK", "USE", "Claim", "Claims", "read_value", "resource", "written_value"]

LOCK: Final = "lock"
USE: Final = "use"
DEFINITION: Final = "definition"
ASK: Final = "ask"
ALIVE: Final = "alive"

VERSION: Final = 1
"""Of the records' layout. Records of later versions are left alone."""


_CLAIM: Final[Mapping[str, Kind]] = {"resource": TEXT, "engine": TEXT}
_PROCESS: Final[Mapping[str, Kind]] = {"process": array(one_of(TEXT, integer()))}
_MEMBERS: Final[Mapping[str, tuple[Mapping[str, Kind], Mapping[str, Kind]]]] = {
    LOCK: (_CLAIM, _PROCESS),
    USE: (_CLAIM, {**_PROCESS, "definition": TEXT}),
    DEFINITION: (
        {**_CLAIM, "destination": TEXT, "topic": TOPIC, "starts": array(LONG)},
        {
            **_PROCESS,
            "selector": optional(TEXT),
            "no_local": FLAG,
            "shared": FLAG,
            "delayed": array(LONG),
            "owner": TEXT,
        },
    ),
    ASK: ({}, {"question": TEXT}),
    ALIVE: ({}, {}),
}
"""What records of each kind must have, and what they may have."""


def resource(kind: str, *names: str | None) -> str:
    """Return what locks, uses and definitions of one thing have in common.

    >>> resource("durable", None, "daily")
    '["durable",null,"daily"]'
    """
    return json.dumps([kind, *names], separators=(",", ":"))


def written_value(value: Mapping[str, Any]) -> bytes:
    """Return *value* as the registry's records carry it."""
    return json.dumps({"version": VERSION, **value}, separators=(",", ":")).encode()


def read_value(kind: str, data: bytes | None) -> dict[str, Any] | None:
    """Return what a record of *kind* carries; None where its key is taken away.

    Raises:
        MalformedError: It cannot be read, or there is no such kind.
    """
    if data is None:
        return None
    required, others = _MEMBERS.get(kind, ({}, {}))
    value = read_object(data, VERSION, required, others)
    if kind not in _MEMBERS:
        raise MalformedError("its key has no kind that the registry knows")
    return value


Row = tuple[str, int, str, str, bytes]
"""A record that counts: its key, its offset, what it is about, whose it is, and the record's value.

There may be very many, for years. The garbage collector does not look into tuples of strings, numbers and bytes.
"""


@dataclass(frozen=True)
class Claim:
    """A record that counts.

    Attributes:
        offset: Its offset in the log; of two claims the one with the lower offset came first.
        resource: What it is about.
        engine: Whose it is.
        data: The record's value.
    """

    key: str
    offset: int
    resource: str
    engine: str
    data: bytes

    @cached_property
    def value(self) -> Mapping[str, Any]:
        """All that it says; read when it is asked for."""
        return read_value(self.key.partition(":")[0], self.data) or {}


class Claims:
    """The state that follows from the registry's log. One thread applies records; any may look meanwhile.

    >>> claims = Claims()
    >>> _ = claims.apply(7, "lock:a", written_value({"resource": "door", "engine": "first"}))
    >>> _ = claims.apply(8, "lock:b", written_value({"resource": "door", "engine": "second"}))
    >>> claims.first(LOCK, "door").engine
    'first'
    >>> _ = claims.apply(9, "lock:a", None)
    >>> claims.first(LOCK, "door").engine
    'second'
    """

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}
        self._by_resource: dict[tuple[str, str], tuple[Row, ...]] = {}  # the first in the log first
        self._last_answers: dict[str, int] = {}  # where each engine said last that it lives
        self._asked: set[str] = set()

    def apply(self, offset: int, key: str, data: bytes | None) -> dict[str, Any] | None:
        """Take in a record, and return what it says (see `read_value`).

        Args:
            offset: Its offset; offsets rise.
            key: Its key.
            data: Its value; None takes the key away.

        Raises:
            MalformedError: It cannot be read. It claims nothing, and its key is taken away.
        """
        kind, _, name = key.partition(":")
        if kind in {LOCK, USE, DEFINITION}:
            self._take_away(kind, key)
        value = read_value(kind, data)
        if kind == ALIVE:
            if value is None:
                self._last_answers.pop(name, None)
            else:
                self._last_answers[name] = offset
        elif kind == ASK:
            (self._asked.discard if value is None else self._asked.add)(name)
        elif data is not None and value is not None:
            of, engine = value["resource"], value["engine"]
            row = self._rows[key] = key, offset, of, engine, data
            self._by_resource[kind, of] = *self._by_resource.get((kind, of), ()), row
        return value

    def _take_away(self, kind: str, key: str) -> None:
        row = self._rows.pop(key, None)
        if row is None:
            return
        place = kind, row[2]
        left = tuple(other for other in self._by_resource[place] if other is not row)
        if left:
            self._by_resource[place] = left
        else:
            del self._by_resource[place]

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> Claim:
        return Claim(*self._rows[key])

    def all(self, kind: str, of: str) -> list[Claim]:
        """Return the claims of *kind* on the resource *of*, the first in the log first."""
        return [Claim(*row) for row in self._by_resource.get((kind, of), ())]

    def first(self, kind: str, of: str) -> Claim | None:
        """Return the claim of *kind* on the resource *of* that counts, or None."""
        rows = self._by_resource.get((kind, of))
        return None if rows is None else Claim(*rows[0])

    def definitions(self) -> Iterator[Claim]:
        """Return the definition that counts of each resource that has one."""
        for (kind, _), rows in list(self._by_resource.items()):
            if kind == DEFINITION:
                yield Claim(*rows[0])

    def last_answer(self, engine: str) -> int:
        """Return where *engine* said last that it lives; -1: it never did."""
        return self._last_answers.get(engine, -1)

    def processes(self, engine: str) -> list[object]:
        """Return what the claims of *engine* say of its process; None: nothing."""
        rows = [row for row in list(self._rows.values()) if row[3] == engine]
        return [Claim(*row).value.get("process") for row in rows] or [None]

    def engines(self) -> set[str]:
        """Return the engines that have locks or uses."""
        return {row[3] for row in list(self._rows.values()) if row[0].startswith((LOCK, USE))}

    def resources(self, engine: str) -> list[str]:
        """Return what the locks and uses of *engine* are on."""
        return [row[2] for row in list(self._rows.values()) if row[3] == engine and row[0].startswith((LOCK, USE))]

    def left_by(self, engine: str) -> list[str]:
        """Return the keys to take away when *engine* is gone: all but definitions, which outlive it."""
        rows = list(self._rows.values())
        keys = [key for key, _, _, whose, _ in rows if whose == engine and not key.startswith(DEFINITION)]
        keys += [f"{ALIVE}:{engine}"] * (engine in self._last_answers) + [f"{ASK}:{engine}"] * (engine in self._asked)
        return keys
