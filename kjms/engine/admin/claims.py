"""What the registry's log says: the subscriptions, the engines that use them, and the locks. Pure: a fold.

The log is a compacted Kafka topic with one partition. Of each key its last record counts, and a record without a value
takes its key away; so whatever compaction leaves folds to the same state. Each claim therefore has a key of its own,
and where several claims are for one thing, *the first in the log has it*:

    lock:TOKEN       an engine is changing something, and others wait      at most one counts for each resource
    use:TOKEN        an engine has consumers on a subscription, a connection with a client identifier, or an inbox
    definition:TOKEN a subscription: its topic, its selector, and so on    the first counts for each resource
    ask:ENGINE       another engine asks whether that engine lives
    alive:ENGINE     it does

A claim is removed by removing its key; that cannot remove another claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ALIVE", "ASK", "DEFINITION", "LOCK", "USE", "Claim", "Claims", "read_value", "resource", "written_value"]

LOCK: Final = "lock"
USE: Final = "use"
DEFINITION: Final = "definition"
ASK: Final = "ask"
ALIVE: Final = "alive"

VERSION: Final = 1
"""Of the records' layout. Records of later versions are left alone."""


def resource(kind: str, *names: str | None) -> str:
    """Return what locks, uses and definitions of one thing have in common.

    >>> resource("durable", None, "daily")
    '["durable",null,"daily"]'
    """
    return json.dumps([kind, *names], separators=(",", ":"))


def written_value(value: Mapping[str, Any]) -> bytes:
    """Return *value* as the registry's records carry it."""
    return json.dumps({"version": VERSION, **value}, separators=(",", ":")).encode()


def read_value(data: bytes | None) -> dict[str, Any] | None:
    """Return what a record carries; an empty dict where it cannot be read, None where the key is taken away."""
    if data is None:
        return None
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) and value.get("version") == VERSION else {}


@dataclass(frozen=True)
class Claim:
    """A record that counts.

    Attributes:
        offset: Its offset in the log; of two claims the one with the lower offset came first.
        resource: What it is about.
        engine: Whose it is.
        value: All that it says.
    """

    key: str
    offset: int
    resource: str
    engine: str
    value: Mapping[str, Any]


class Claims:
    """The state that follows from the registry's log. One thread applies records; any may look meanwhile.

    >>> claims = Claims()
    >>> claims.apply(7, "lock:a", {"resource": "door", "engine": "first"})
    >>> claims.apply(8, "lock:b", {"resource": "door", "engine": "second"})
    >>> claims.first(LOCK, "door").engine
    'first'
    >>> claims.apply(9, "lock:a", None)
    >>> claims.first(LOCK, "door").engine
    'second'
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._by_resource: dict[tuple[str, str], dict[str, Claim]] = {}
        self._last_answers: dict[str, int] = {}  # where each engine said last that it lives
        self._asked: set[str] = set()

    def apply(self, offset: int, key: str, value: Mapping[str, Any] | None) -> None:
        """Take in a record.

        Args:
            offset: Its offset; offsets rise.
            key: Its key.
            value: What it says (see `read_value`); None takes the key away.
        """
        kind, _, name = key.partition(":")
        if kind == ALIVE:
            if value is None:
                self._last_answers.pop(name, None)
            else:
                self._last_answers[name] = offset
        elif kind == ASK:
            (self._asked.discard if value is None else self._asked.add)(name)
        elif kind in {LOCK, USE, DEFINITION}:
            self._take_away(kind, key)
            if value is not None and isinstance(value.get("resource"), str) and isinstance(value.get("engine"), str):
                claim = Claim(key, offset, value["resource"], value["engine"], value)
                self._claims[key] = claim
                self._by_resource.setdefault((kind, claim.resource), {})[key] = claim

    def _take_away(self, kind: str, key: str) -> None:
        claim = self._claims.pop(key, None)
        if claim is None:
            return
        of_resource = self._by_resource[kind, claim.resource]
        del of_resource[key]
        if not of_resource:
            del self._by_resource[kind, claim.resource]

    def __contains__(self, key: str) -> bool:
        return key in self._claims

    def __getitem__(self, key: str) -> Claim:
        return self._claims[key]

    def all(self, kind: str, of: str) -> list[Claim]:
        """Return the claims of *kind* on the resource *of*, the first in the log first."""
        # In the order of arrival, which is that of offsets.
        return list(self._by_resource.get((kind, of), {}).values())

    def first(self, kind: str, of: str) -> Claim | None:
        """Return the claim of *kind* on the resource *of* that counts, or None."""
        return next(iter(self.all(kind, of)), None)

    def definitions(self) -> Iterator[Claim]:
        """Return the definition that counts of each resource that has one."""
        for kind, of in list(self._by_resource):
            if kind == DEFINITION:
                yield from self.all(kind, of)[:1]

    def last_answer(self, engine: str) -> int:
        """Return where *engine* said last that it lives; -1: it never did."""
        return self._last_answers.get(engine, -1)

    def processes(self, engine: str) -> list[object]:
        """Return what the claims of *engine* say of its process; None: nothing."""
        return [claim.value.get("process") for claim in list(self._claims.values()) if claim.engine == engine] or [None]

    def left_by(self, engine: str) -> list[str]:
        """Return the keys to take away when *engine* is gone: all but definitions, which outlive it."""
        claims = list(self._claims.values())
        keys = [claim.key for claim in claims if claim.engine == engine and not claim.key.startswith(DEFINITION)]
        keys += [f"{ALIVE}:{engine}"] * (engine in self._last_answers) + [f"{ASK}:{engine}"] * (engine in self._asked)
        return keys
