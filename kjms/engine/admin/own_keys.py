"""The keys that an engine has in the registry: written, valid, and to be removed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kjms.engine.admin.claims import DEFINITION, LOCK, USE

__all__ = ["OwnKeys", "Usage"]

RETRY_SECONDS: Final = 1.0  # between attempts to take away what could not be taken away


class OwnKeys:
    """The keys of one engine; the caller holds the registry's lock.

    Attributes:
        expected: Keys and questions that were written and not read back yet.
        valid: Locks and uses that count.
        removing: Keys to remove, with the time of the last attempt.

    >>> keys = OwnKeys()
    >>> keys.write("use:a", is_kept=False); keys.remove(["use:a"], now=5.0); bool(keys), keys.due(5.5)
    (True, [])
    >>> keys.read("use:a", None, "we"), bool(keys)
    (False, False)
    """

    def __init__(self) -> None:
        self.expected: set[str] = set()
        self.valid: set[str] = set()
        self.removing: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether the log has to be read for them."""
        return bool(self.valid or self.removing)

    def write(self, key: str, *, is_kept: bool) -> None:
        """Record that *key* is about to be written; *is_kept*: it stays when the engine ends."""
        self.expected.add(key)
        if not is_kept:
            self.valid.add(key)

    def remove(self, keys: Iterable[str], now: float) -> None:
        """Record that *keys* are removed, at *now* for the first time."""
        for key in keys:
            self.valid.discard(key)
            self.removing[key] = now

    def due(self, now: float) -> list[str]:
        """Return the keys whose removal is to be tried again at *now*."""
        due = [key for key, last in self.removing.items() if now - last > RETRY_SECONDS]
        self.removing.update((key, now) for key in due)
        return due

    def read(self, key: str, value: Mapping[str, Any] | None, engine: str) -> bool:
        """Record what the log has of *key*; return whether it was removed although *engine*, this one, had it."""
        is_lost = False
        if value is None:
            self.removing.pop(key, None)
            is_lost = key in self.valid or key.startswith(DEFINITION)
            self.valid.discard(key)
        elif value.get("engine") == engine and key.startswith((LOCK, USE)) and key not in self.valid:
            self.removing.setdefault(key, 0.0)  # a claim that was given up, and was written all the same
        self.expected.discard(key)
        self.expected.discard(str((value or {}).get("question")))
        return is_lost


class Usage:
    """Whether calls need the registry, or did a short while ago; the caller holds the registry's lock.

    Args:
        grace_seconds: How long the log is read after the last call.

    >>> usage = Usage(grace_seconds=2.0)
    >>> usage.begin(); usage.is_over(100.0)
    False
    >>> usage.end(100.0); usage.is_over(101.0), usage.is_over(103.0)
    (False, True)
    """

    def __init__(self, grace_seconds: float) -> None:
        self.idle_since = 0.0
        self._grace_seconds = grace_seconds
        self._calls = 0

    def begin(self) -> None:
        """Record that a call begins."""
        self._calls += 1

    def end(self, now: float) -> None:
        """Record that a call ends at *now*."""
        self._calls -= 1
        self.idle_since = now

    def is_over(self, now: float) -> bool:
        """Return whether no call needs the registry any more."""
        return not self._calls and now - self.idle_since > self._grace_seconds
