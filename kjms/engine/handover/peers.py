"""Which processes serve a queue, what they want of it, and which transfer partition is whose. Pure.

A process that owns no partition of a queue, or whose consumers want what lies in partitions of others, publishes its
interest in the queue's interest topic, and gets its messages in a partition of the handover topic, its *transfer
partition*. Transfer partitions are claimed in that log, too: of several claims to one, the first that still counts has
it. A claim counts as long as its holder repeats it in time.

    {"version":1, "engine":"<engine>", "lease":15, "idle":false, "partition":3, "partitions":[3], "position":117,
     "undispatched":2, "credit":8, "fast":true, "selectors":[null,"region = 'EU'"], "added":["..."], "removed":["..."],
     "request":true, "leaving":true, "published_at":123456}

A record has only what has changed, but for those up to ``fast``, which come with each. ``partition`` is the transfer
partition for its messages, ``partitions`` are all that it claims. ``fast`` says that its consumers settle a message
soon, so that it may get some in advance; else ``credit`` is for those that wait. ``selectors`` is complete; ``added``
and ``removed`` change it. ``request`` asks for the ``selectors`` of all. ``published_at`` is for the process itself.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kjms.errors import InvalidSelectorException
from kjms.mapping.internal import FLAG, LONG, TEXT, Kind, array, integer, optional, read_object
from kjms.selector import Selector, parse_selector

if TYPE_CHECKING:
    from kjms.message import Message

__all__ = [
    "NEXT",
    "NONE",
    "Peer",
    "PeerEvent",
    "PeerState",
    "Peers",
    "TransferCredit",
    "read_interest",
    "write_interest",
]

_log = logging.getLogger("kjms.handover")

VERSION: Final = 1
TARGETED: Final = 500  # messages that only a peer wants and that may be on their way to it at any time, at the least
WINDOWS: Final = 4  # the same of its windows: one is written, one read, one consumed, and one requested
CROWDED_WINDOWS: Final = 10  # the same of what would overflow otherwise: two seconds of work for its consumers
NONE: Final = -1  # no transfer partition
LARGEST: Final = (1 << 31) - 1  # number of a partition
LONGEST_LEASE: Final = 3_600  # seconds; brokers allow sessions of half an hour, and a lease is little longer
_PARTITION: Final = integer(0, LARGEST)
_WANTS: Final = array(optional(TEXT))
_MEMBERS: Final[Mapping[str, Kind]] = {
    "lease": integer(0, LONGEST_LEASE),
    "idle": FLAG,
    "partition": integer(NONE, LARGEST),
    "partitions": array(_PARTITION),
    "position": LONG,
    "undispatched": integer(0, LARGEST),
    "credit": integer(0, LARGEST),
    "fast": FLAG,
    "selectors": _WANTS,
    "added": _WANTS,
    "removed": _WANTS,
    "request": FLAG,
    "leaving": FLAG,
    "published_at": LONG,
}


def write_interest(engine: str, interest: Mapping[str, Any]) -> bytes:
    """Return the record of the *interest* of *engine*, as the log carries it."""
    return json.dumps({"version": VERSION, "engine": engine, **interest}, separators=(",", ":")).encode()


def read_interest(data: bytes | None) -> dict[str, Any]:
    """Return the interest in a record.

    Raises:
        MalformedError: It has none, or one of a later version.
    """
    return read_object(data, VERSION, {"engine": TEXT}, _MEMBERS)


class PeerState(Enum):
    """Whether messages may go to a peer."""

    ACTIVE = "active"
    SUSPECT = "suspect"  # silent, or idle: if it is gone, messages for it would be missing for long
    REQUIRED = "required"  # suspect, and there are messages for it: it is asked whether it is there
    GONE = "gone"


class PeerEvent(Enum):
    """What happens to a peer."""

    INTEREST = "interest"
    IDLE_INTEREST = "idle interest"
    STALE = "stale"  # it published nothing for some seconds
    MESSAGE = "message"  # there is a message for it
    ASKED = "asked"
    LEFT = "left"  # it said so, or its lease is over


NEXT: Final[Mapping[tuple[PeerState, PeerEvent], PeerState]] = {
    (PeerState.ACTIVE, PeerEvent.INTEREST): PeerState.ACTIVE,
    (PeerState.ACTIVE, PeerEvent.IDLE_INTEREST): PeerState.SUSPECT,
    (PeerState.ACTIVE, PeerEvent.STALE): PeerState.SUSPECT,
    (PeerState.ACTIVE, PeerEvent.MESSAGE): PeerState.ACTIVE,
    (PeerState.ACTIVE, PeerEvent.ASKED): PeerState.ACTIVE,
    (PeerState.ACTIVE, PeerEvent.LEFT): PeerState.GONE,
    (PeerState.SUSPECT, PeerEvent.INTEREST): PeerState.ACTIVE,
    (PeerState.SUSPECT, PeerEvent.IDLE_INTEREST): PeerState.SUSPECT,
    (PeerState.SUSPECT, PeerEvent.STALE): PeerState.SUSPECT,
    (PeerState.SUSPECT, PeerEvent.MESSAGE): PeerState.REQUIRED,
    (PeerState.SUSPECT, PeerEvent.ASKED): PeerState.SUSPECT,
    (PeerState.SUSPECT, PeerEvent.LEFT): PeerState.GONE,
    (PeerState.REQUIRED, PeerEvent.INTEREST): PeerState.ACTIVE,
    (PeerState.REQUIRED, PeerEvent.IDLE_INTEREST): PeerState.REQUIRED,
    (PeerState.REQUIRED, PeerEvent.STALE): PeerState.REQUIRED,
    (PeerState.REQUIRED, PeerEvent.MESSAGE): PeerState.REQUIRED,
    (PeerState.REQUIRED, PeerEvent.ASKED): PeerState.SUSPECT,
    (PeerState.REQUIRED, PeerEvent.LEFT): PeerState.GONE,
}
"""What a peer's state becomes. A peer that is gone is forgotten: nothing happens to it any more, and its next interest
makes another `Peer`."""


class TransferCredit:
    """How many messages a peer may be sent: what it has room for, less what is on its way."""

    def __init__(self) -> None:
        self.is_quick = True  # whether it may get messages in advance
        self._room = 0
        self._read = 0  # the offset after the last one that it has read in its transfer partition
        self._held = 0  # messages that it has read there and not dispatched
        self._unwritten = 0  # messages on their way to it, whose offset is not known yet
        self._unread: deque[int] = deque()  # offsets of those that it has not read yet

    @property
    def outstanding(self) -> int:
        """How many messages of this process are on their way, or wait there, as far as is known."""
        return self._held + self._unwritten + len(self._unread)

    @property
    def free(self) -> int:
        """How many messages the peer has requested that are not on their way to it."""
        return max(self._room - self.outstanding, 0)

    def ahead(self, windows: int) -> int:
        """Return how many more messages a quick peer may get, if *windows* of it may be on their way, or `TARGETED`."""
        return max(max(TARGETED, windows * self._room) - self.outstanding, 0)

    def sent(self) -> None:
        """Record that a message is on its way."""
        self._unwritten += 1

    def written(self, offset: int | None) -> None:
        """Record that a message has *offset* in the transfer partition; None: it is not there."""
        self._unwritten -= 1
        if offset is not None and offset >= self._read:
            self._unread.append(offset)

    def moved(self) -> None:
        """Record that the peer has another transfer partition."""
        self._unread.clear()

    def apply(self, interest: Mapping[str, Any]) -> None:
        """Record what *interest* says of the peer's room and of what it has read."""
        self._held = _number(interest.get("undispatched"))
        self._room = _number(interest.get("credit"))
        self.is_quick = interest.get("fast") is not False
        self._read = _number(interest.get("position"))
        while self._unread and self._unread[0] < self._read:
            self._unread.popleft()


class Peer:
    """Another process that serves the same queue or subscription.

    Attributes:
        engine: Its name.
        state: Whether messages may go to it.
        transfer_partition: Where messages for it go; -1: it has none.
        claimed: The transfer partitions that it claims: its own, and those that it empties for processes that are gone.
        wants: The selectors of its consumers; under None, a consumer without one.
        received_at: When its last interest was received, in seconds of this process's monotonic clock.
        lease: For how many seconds from then on it counts as alive.
        waits_from: The order of the first message that waits for it to have room; None: none does.
        is_known: Whether it has published all that it wants.
        credit: How many messages it may be sent.
    """

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.state = PeerState.ACTIVE
        self.transfer_partition = NONE
        self.claimed: frozenset[int] = frozenset()
        self.wants: dict[str | None, Selector | None] = {}
        self.received_at = 0.0
        self.lease = 0.0
        self.waits_from: int | None = None
        self.is_known = False
        self.credit = TransferCredit()

    def __repr__(self) -> str:
        wants, outstanding = len(self.wants), self.credit.outstanding
        return f"<Peer {self.engine}, partition {self.transfer_partition}: {wants} wants, {outstanding} outstanding>"

    def on(self, event: PeerEvent) -> None:
        """Change the state after *event*."""
        self.state = NEXT[self.state, event]

    @property
    def free(self) -> int:
        """How many messages it has requested that are not on their way to it."""
        if self.transfer_partition < 0 or self.state is not PeerState.ACTIVE:
            return 0
        return self.credit.free

    def room(self, *, is_targeted: bool) -> int:
        """Return how many more messages it may get: *is_targeted*, such as match no consumer here."""
        if self.transfer_partition < 0:
            return 0
        if self.state is not PeerState.ACTIVE:
            self.on(PeerEvent.MESSAGE)
            return 0
        return self.credit.ahead(WINDOWS) if is_targeted and self.credit.is_quick else self.credit.free

    @property
    def room_in_a_crowd(self) -> int:
        """How many more messages it may get of those that would be relocated if it did not get them."""
        if self.transfer_partition < 0 or self.state is not PeerState.ACTIVE or not self.credit.is_quick:
            return 0
        return self.credit.ahead(CROWDED_WINDOWS)

    def does_want(self, message: Message, among: Iterable[str | None] | None = None) -> bool:
        """Return whether one of its consumers, or of those with the selectors *among*, wants *message*."""
        wants = self.wants
        selectors = wants.values() if among is None else [wants[text] for text in among if text in wants]
        return any(selector is None or selector.matches(message) for selector in selectors)

    def wait_from(self, order: int) -> None:
        """Record that the message of *order* waits for it to have room."""
        self.waits_from = order if self.waits_from is None else min(self.waits_from, order)

    def sent(self) -> None:
        """Record that a message is on its way to it."""
        self.credit.sent()

    def written(self, place: tuple[int, int] | None) -> None:
        """Record that a message is in a transfer partition at *place*, partition and offset; None: it is not moved."""
        self.credit.written(place[1] if place is not None and place[0] == self.transfer_partition else None)

    def move_to(self, transfer_partition: int) -> None:
        """Record that its messages go to *transfer_partition* from now on."""
        if transfer_partition != self.transfer_partition:
            self.transfer_partition = transfer_partition
            self.credit.moved()

    def apply(self, interest: Mapping[str, Any]) -> list[str | None]:
        """Record what *interest* says of its room and its consumers; return the selectors that are new."""
        self.credit.apply(interest)
        new: list[str | None] = []
        wants = interest.get("selectors")
        if isinstance(wants, list):
            self.is_known = True
            self.wants = {text: self.wants[text] for text in wants if text in self.wants}
            new = [text for text in wants if self._add(text)]
        for text in _texts(interest.get("removed")):
            self.wants.pop(text, None)
        return new + [text for text in _texts(interest.get("added")) if self._add(text)]

    def _add(self, text: object) -> bool:
        if text in self.wants or not (text is None or isinstance(text, str)):
            return False
        try:
            self.wants[text] = parse_selector(text)
        except InvalidSelectorException as error:  # of a later version of the language
            _log.warning("ignored the selector of a consumer in another process: %s", error)
            return False
        return True


class Peers:
    """All processes that have published interest, as far as the log was read; the caller holds the consumer's lock.

    Args:
        engine: This process's own name: its claims count, too.

    >>> peers = Peers("we")
    >>> _ = peers.apply({"engine": "they", "lease": 10, "partition": 1, "partitions": [1]}, 100.0)
    >>> peers.free(3), peers.holder(1), [peer.transfer_partition for peer in peers]
    ([0, 2], 'they', [1])
    >>> peers.expire(111.0); peers.free(3)
    True
    [0, 1, 2]
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._all: dict[str, Peer] = {}
        self._others: list[Peer] = []
        self._claims: dict[int, dict[str, None]] = {}  # of each transfer partition: the engines, in the log's order

    def __bool__(self) -> bool:
        """Whether there are others."""
        return bool(self._others)

    def __iter__(self) -> Iterator[Peer]:
        """Return the others."""
        return iter(self._others)

    @property
    def members(self) -> list[Peer]:
        """All of them, this process included."""
        return list(self._all.values())

    @property
    def own(self) -> frozenset[int]:
        """This process's own transfer partitions, as the log has it."""
        own = self._all.get(self._engine)
        return frozenset() if own is None else self.held_by(own)

    def held_by(self, peer: Peer) -> frozenset[int]:
        """Return which of the partitions that *peer* claims it has: those that no living process claimed before."""
        return frozenset(number for number in peer.claimed if self.holder(number) == peer.engine)

    def holder(self, number: int) -> str | None:
        """Return the engine that has transfer partition *number*."""
        return next(iter(self._claims.get(number, ())), None)

    def free(self, count: int) -> list[int]:
        """Return the transfer partitions without a claim, of a topic with *count* partitions."""
        return [number for number in range(count) if number not in self._claims]

    def apply(self, interest: Mapping[str, Any], now: float) -> tuple[Peer, list[str | None]]:
        """Record *interest*, received at *now*; return its peer, and for which selectors that may get messages now.

        These are the ones that are new; all of them if it had no transfer partition before.
        """
        engine = interest["engine"]
        peer = self._all.get(engine)
        if peer is None:
            peer = self._all[engine] = Peer(engine)
            self._changed()
        if interest.get("leaving"):
            self._forget(engine)
            return peer, []
        peer.received_at = now
        peer.lease = float(_number(interest.get("lease")))
        peer.on(PeerEvent.IDLE_INTEREST if interest.get("idle") else PeerEvent.INTEREST)
        claimed = interest.get("partitions")
        wanted = {number for number in claimed if isinstance(number, int)} if isinstance(claimed, list) else set()
        # A claim behind another one is kept: processes notice at different moments that the first is gone, and then
        # all of them must have the same one for the next.
        self._withdraw(peer, peer.claimed - wanted)
        for number in sorted(wanted):
            self._claims.setdefault(number, {})[engine] = None
        peer.claimed = frozenset(wanted)
        own = interest.get("partition")
        had_partition = peer.transfer_partition >= 0
        peer.move_to(own if isinstance(own, int) and own in self.held_by(peer) else NONE)
        new = peer.apply(interest)
        return peer, new if had_partition else list(peer.wants)

    def expire(self, now: float, stale: float = 0.0) -> bool:
        """Forget the peers whose lease is over; return whether there were any.

        Peers that published nothing for *stale* seconds become suspect.
        """
        has_forgotten = False
        for peer in list(self._all.values()):
            silent = now - peer.received_at
            if silent > peer.lease:
                self._forget(peer.engine)
                has_forgotten = True
            elif stale and silent > stale:
                peer.on(PeerEvent.STALE)
        return has_forgotten

    def give_up(self) -> None:
        """Forget this process's own claims: for others its lease may be over."""
        if self._engine in self._all:
            self._forget(self._engine)

    def _forget(self, engine: str) -> None:
        peer = self._all.pop(engine)
        self._changed()
        peer.on(PeerEvent.LEFT)
        peer.wants = {}
        peer.transfer_partition = NONE
        self._withdraw(peer, peer.claimed)
        peer.claimed = frozenset()

    def _changed(self) -> None:
        self._others = [peer for engine, peer in self._all.items() if engine != self._engine]

    def _withdraw(self, peer: Peer, numbers: Iterable[int]) -> None:
        for number in numbers:
            claims = self._claims[number]
            del claims[peer.engine]
            if not claims:
                del self._claims[number]


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _texts(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
