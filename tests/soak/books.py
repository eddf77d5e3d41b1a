"""What was sent and received, counted in a byte for each message: pure."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass
from typing import Any, Final

from kjms import Message

SHOWN: Final = 5  # numbers of messages that a problem names


class Book:
    """The messages of one stream, which are numbered from 0 on.

    Args:
        name: The stream's.
        is_once: Whether each message has to arrive once; otherwise it may come again, with its mark.
        copies: How many times each is to arrive: the number of its subscriptions.
    """

    def __init__(self, name: str, *, is_once: bool, copies: int = 1) -> None:
        self.name, self.is_once, self.copies = name, is_once, copies
        self.lock = threading.Lock()
        self.sent = 0  # begun
        self._got = [bytearray() for _ in range(copies)]
        self._unknown: set[int] = set()  # a send that failed: the message may be there or not
        self._elsewhere: set[int] = set()  # they are to arrive in another stream
        self._perhaps: set[int] = set()  # its commit failed with an unknown outcome: it may have been received or not
        self._unmarked: list[int] = []

    def next(self) -> int:
        """Return the number of the next message to send."""
        with self.lock:
            self.sent += 1
            for each in self._got:
                each.append(0)
            return self.sent - 1

    def failed(self, number: int) -> None:
        """Note that the send of that message failed."""
        with self.lock:
            self._unknown.add(number)

    def goes_elsewhere(self, number: int) -> None:
        """Note that the message does not arrive in this stream."""
        with self.lock:
            self._elsewhere.add(number)

    def got(self, number: int, copy: int = 0, *, is_marked: bool = False) -> None:
        """Note that a message was received, and whether it had the mark of a redelivered one."""
        with self.lock:
            if self._got[copy][number] and not is_marked:
                self._unmarked.append(number)
            self._got[copy][number] = min(self._got[copy][number] + 1, 255)

    def perhaps(self, number: int) -> None:
        """Note that the outcome of the commit that settles a message is unknown."""
        with self.lock:
            self._perhaps.add(number)

    def missing(self) -> list[int]:
        """Return the messages that were confirmed, and have not arrived."""
        with self.lock:
            excused = self._unknown | self._perhaps | self._elsewhere
            found: set[int] = set()
            for got in self._got:
                at = got.find(0)
                while at >= 0:
                    if at not in excused:
                        found.add(at)
                    at = got.find(0, at + 1)
            return sorted(found)

    def arrived(self) -> int:
        """Return how many messages have arrived, of all copies."""
        with self.lock:
            return sum(len(got) - got.count(0) for got in self._got)

    def repeated(self) -> list[int]:
        """Return the messages that arrived more than once."""
        with self.lock:
            return sorted({number for got in self._got for number, count in enumerate(got) if count > 1})

    def problems(self) -> list[str]:
        """Return which promises were not kept."""
        missing, repeated = self.missing(), self.repeated()
        unknown = f"; sends that failed: {sorted({*repeated, *self._unmarked} & self._unknown)[:SHOWN]}"
        found = []
        if missing:
            found.append(f"{self.name}: {len(missing)} confirmed messages did not arrive, such as {missing[:SHOWN]}")
        if self.is_once and repeated:
            found.append(
                f"{self.name}: {len(repeated)} messages arrived more than once, such as {repeated[:SHOWN]}{unknown}"
            )
        if not self.is_once and self._unmarked:
            found.append(
                f"{self.name}: messages were repeated without a mark, such as {self._unmarked[:SHOWN]}{unknown}"
            )
        return found

    def figures(self) -> Figures:
        """Return the sums."""
        missing, repeated = self.missing(), self.repeated()
        sent = self.sent - len(self._elsewhere)
        return Figures(self.name, sent, self.arrived(), len(missing), len(repeated), len(self._unknown))


@dataclass(frozen=True)
class Figures:
    """The sums of a stream: messages sent, arrived, missing, repeated, and those whose send failed."""

    name: str
    sent: int
    arrived: int
    missing: int
    repeated: int
    unknown: int

    def as_dict(self) -> dict[str, Any]:
        """Return them for JSON."""
        return asdict(self)


def number_of(message: Message) -> int:
    """Return the number of a message."""
    return int(message.get_body(str) or "")
