"""Who else serves a queue, what they want of it, and which box is whose: what the log of demands says. Pure.

A process that owns no partition of a queue, or whose consumers want what lies in partitions of others, says so in the
queue's demand topic, and gets its messages in a partition of the hand-over topic, its *box*. Boxes are claimed in that
log, too: of several claims to one box, the first that still counts has it. A claim counts as long as its holder says
again in time that it is there.

    {"v":1, "e":"<engine>", "lease":15, "idle":false, "box":3, "boxes":[3], "read":117, "held":2, "room":8,
     "quick":true, "wants":[null,"region = 'EU'"], "more":["..."], "less":["..."], "ask":true, "bye":true}

A record says only what has changed, but for the first nine, which come with each. ``quick`` says that its consumers are
done with a message soon, so that it may get some in advance; else ``room`` is for those that wait. ``wants`` is
complete; ``more`` and ``less`` change it. Who asks gets ``wants`` from all.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from kjms.errors import InvalidSelectorException
from kjms.selector import Selector, parse_selector

if TYPE_CHECKING:
    from kjms.message import Message

__all__ = ["Peer", "Peers", "read_interest", "written_interest"]

_log = logging.getLogger("kjms.handover")

VERSION: Final = 1
TARGETED: Final = 500  # messages that only a peer wants and that may be on their way to it at any time


def written_interest(engine: str, notice: Mapping[str, Any]) -> bytes:
    """Return what *engine* has to say as the log carries it."""
    return json.dumps({"v": VERSION, "e": engine, **notice}, separators=(",", ":")).encode()


def read_interest(data: bytes | None) -> dict[str, Any] | None:
    """Return what a record says; None where it is no notice, or one of a later version."""
    try:
        notice = json.loads(data or b"")
    except ValueError:
        return None
    if not isinstance(notice, dict) or notice.get("v") != VERSION or not isinstance(notice.get("e"), str):
        return None
    return notice


class Peer:
    """Another process that serves the same queue or subscription.

    Attributes:
        engine: Its name.
        transfer_partition: Where messages for it go; -1: it has none.
        claimed: The boxes that it says it has: its own, and those that it empties for processes that are gone.
        wants: The selectors of its consumers; under None, a consumer without one.
        heard: When it was heard last, in seconds of this process's monotonic clock.
        lease: For how many seconds from then on it counts as alive.
        waits: Whether it would have got more if it had had room.
        is_known: Whether it has said what it wants.
        is_idle: Whether nothing moves there: it speaks seldom.
        is_drowsy: Whether it gets nothing before it was asked: if it is gone, that would be missing for long.
        is_called: Whether there was something for it meanwhile.
    """

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.transfer_partition = -1
        self.claimed: frozenset[int] = frozenset()
        self.wants: dict[str | None, Selector | None] = {}
        self.heard = 0.0
        self.lease = 0.0
        self.waits = False
        self.is_known = False
        self.is_idle = False
        self.is_drowsy = False
        self.is_called = False
        self._read = 0  # the offset after the last one that it has read in its box
        self._held = 0  # what it has read there and not handed out
        self._room = 0
        self._is_quick = True
        self._unwritten = 0  # messages on their way to it, whose place in its box is not known yet
        self._unread: deque[int] = deque()  # places of those that it has not read yet

    def __repr__(self) -> str:
        number = self.transfer_partition
        return f"<Peer {self.engine}, partition {number}: {len(self.wants)} wants, {self.outstanding} outstanding>"

    @property
    def outstanding(self) -> int:
        """How many messages of ours are on their way, or wait there, as far as is known."""
        return self._held + self._unwritten + len(self._unread)

    @property
    def free(self) -> int:
        """How many messages it has asked for that are not on their way to it."""
        if self.transfer_partition < 0 or self.is_drowsy:
            return 0
        return max(self._room - self.outstanding, 0)

    def room(self, *, is_targeted: bool) -> int:
        """Return how many more messages it may get: *is_targeted*, such as nobody here wants."""
        if self.transfer_partition >= 0 and self.is_drowsy:
            self.is_called = True
        if self.transfer_partition < 0 or self.is_drowsy or not (is_targeted and self._is_quick):
            return self.free
        return max(TARGETED - self.outstanding, 0)

    def does_want(self, message: Message, among: Iterable[str | None] | None = None) -> bool:
        """Tell whether one of its consumers, or of those with the selectors *among*, wants *message*."""
        for text in self.wants if among is None else among:
            selector = self.wants.get(text)
            if (selector is None and text is None) or (selector is not None and selector.matches(message)):
                return True
        return False

    def sent(self) -> None:
        """Note that a message is on its way to it."""
        self._unwritten += 1

    def written(self, place: tuple[int, int] | None) -> None:
        """Note that a message stands in a box at *place*, a partition and an offset; None: it goes nowhere."""
        self._unwritten -= 1
        if place is not None and place[0] == self.transfer_partition and place[1] >= self._read:
            self._unread.append(place[1])

    def move_to(self, box: int) -> None:
        """Note that its messages go to *box* from now on."""
        if box != self.transfer_partition:
            self.transfer_partition = box
            self._unread.clear()

    def apply(self, notice: Mapping[str, Any]) -> list[str | None]:
        """Take in what it says of its room and its consumers; return the selectors that are new."""
        self._held = _number(notice.get("held"))
        self._room = _number(notice.get("room"))
        self._is_quick = notice.get("quick") is not False
        self._read = _number(notice.get("read"))
        while self._unread and self._unread[0] < self._read:
            self._unread.popleft()
        new: list[str | None] = []
        wants = notice.get("wants")
        if isinstance(wants, list):
            self.is_known = True
            self.wants = {text: self.wants[text] for text in wants if text in self.wants}
            new = [text for text in wants if self._add(text)]
        for text in _texts(notice.get("less")):
            self.wants.pop(text, None)
        return new + [text for text in _texts(notice.get("more")) if self._add(text)]

    def _add(self, text: object) -> bool:
        if text in self.wants or not (text is None or isinstance(text, str)):
            return False
        try:
            self.wants[text] = parse_selector(text)
        except InvalidSelectorException as error:  # of a later version of the language
            _log.warning("what a consumer in another process wants is not understood: %s", error)
            return False
        return True


class Peers:
    """All processes that have said something, as far as the log was read; whoever uses it holds the reader's lock.

    Args:
        engine: Our own name: our own claims count, too.

    >>> peers = Peers("we")
    >>> _ = peers.apply({"e": "they", "lease": 10, "box": 1, "boxes": [1]}, 100.0)
    >>> peers.free(3), peers.holder(1), [peer.transfer_partition for peer in peers]
    ([0, 2], 'they', [1])
    >>> peers.expire(111.0); peers.free(3)
    [0, 1, 2]
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._all: dict[str, Peer] = {}
        self._claims: dict[int, dict[str, None]] = {}  # of each box: who claims it, in the order of the log

    def __bool__(self) -> bool:
        """Whether there are others."""
        return len(self._all) > (self._engine in self._all)

    def __iter__(self) -> Iterator[Peer]:
        """Return the others."""
        return (peer for engine, peer in self._all.items() if engine != self._engine)

    @property
    def members(self) -> list[Peer]:
        """All of them, this process included."""
        return list(self._all.values())

    @property
    def own(self) -> frozenset[int]:
        """Our own boxes, as the log has it."""
        us = self._all.get(self._engine)
        return frozenset() if us is None else self.held_by(us)

    def held_by(self, peer: Peer) -> frozenset[int]:
        """Return which of the boxes that *peer* claims it has: those that no living process claimed before."""
        return frozenset(box for box in peer.claimed if self.holder(box) == peer.engine)

    def holder(self, box: int) -> str | None:
        """Return who has *box*."""
        return next(iter(self._claims.get(box, ())), None)

    def free(self, count: int) -> list[int]:
        """Return the boxes that nobody claims, of a topic with *count* partitions."""
        return [box for box in range(count) if box not in self._claims]

    def apply(self, notice: Mapping[str, Any], now: float) -> tuple[Peer, list[str | None]]:
        """Take in a notice that was read at *now*; return whose it is, and for which selectors it may get messages now.

        These are the ones that are new; all of them if it had no box before.
        """
        engine = notice["e"]
        peer = self._all.get(engine)
        if peer is None:
            peer = self._all[engine] = Peer(engine)
        if notice.get("bye"):
            self._forget(engine)
            return peer, []
        peer.heard = now
        peer.lease = float(_number(notice.get("lease")))
        peer.is_idle = peer.is_drowsy = bool(notice.get("idle"))
        claimed = notice.get("boxes")
        wanted = {box for box in claimed if isinstance(box, int)} if isinstance(claimed, list) else set()
        # A claim behind another one is kept: processes notice at different moments that the first is gone, and then
        # all of them must have the same one for the next.
        self._withdraw(peer, peer.claimed - wanted)
        for box in sorted(wanted):
            self._claims.setdefault(box, {})[engine] = None
        peer.claimed = frozenset(wanted)
        own = notice.get("box")
        had_box = peer.transfer_partition >= 0
        peer.move_to(own if isinstance(own, int) and own in self.held_by(peer) else -1)
        new = peer.apply(notice)
        return peer, new if had_box else list(peer.wants)

    def expire(self, now: float, nap: float = 0.0) -> bool:
        """Forget who was not heard in time; tell whether there was somebody.

        Doze off who was not heard for *nap* seconds, or need not be for longer.
        """
        has_forgotten = False
        for peer in list(self._all.values()):
            silent = now - peer.heard
            if silent > peer.lease:
                self._forget(peer.engine)
                has_forgotten = True
            elif nap and (silent > nap or peer.is_idle):
                peer.is_drowsy = True
        return has_forgotten

    def give_up(self) -> None:
        """Forget our own claims: others may have taken us for gone."""
        if self._engine in self._all:
            self._forget(self._engine)

    def _forget(self, engine: str) -> None:
        peer = self._all.pop(engine)
        peer.wants = {}
        peer.transfer_partition = -1
        self._withdraw(peer, peer.claimed)
        peer.claimed = frozenset()

    def _withdraw(self, peer: Peer, boxes: Iterable[int]) -> None:
        for box in boxes:
            claims = self._claims[box]
            del claims[peer.engine]
            if not claims:
                del self._claims[box]


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _texts(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
