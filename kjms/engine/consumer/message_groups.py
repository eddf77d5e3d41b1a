"""Message groups (JMSXGroupID): while one session has a message of a group, no other session gets the next one."""

from __future__ import annotations

import threading
from bisect import insort
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, Generic, Protocol, TypeVar

__all__ = ["GroupBindings", "MessageGroup", "MessageGroups", "urgency"]

MOST_BOUND: Final = 10_000  # groups that are remembered as those of peers

Session = threading.Event
"""What stands for a session: its wake-up."""


class Scoped(Protocol):
    """A partition, as far as groups need it."""

    @property
    def group_scope(self) -> int:
        """What tells its groups from those of other partitions."""


class Grouped(Protocol):
    """A delivery, as far as its group needs it."""

    group: bytes | None
    busy: MessageGroup[Any] | None
    order: int
    priority: int
    ready_in: int

    @property
    def partition(self) -> Scoped:
        """Return where it comes from."""


D = TypeVar("D", bound=Grouped)


class MessageGroup(Generic[D]):
    """A message group of one partition, while a session has messages of it, or some wait for that to end.

    Attributes:
        session: The session that has messages of it; None: no session.
        count: How many it has.
        ready: Which of those that waited any session may have, since no session has one.
        waiting: The messages that wait, the most urgent first, and of these the oldest.
    """

    __slots__ = ("count", "key", "ready", "session", "waiting")

    def __init__(self, key: tuple[int, bytes]) -> None:
        self.key = key
        self.session: Session | None = None
        self.count = 0
        self.ready: D | None = None
        self.waiting: list[D] = []


class MessageGroups(Generic[D]):
    """The groups that a source's sessions are busy with; callers hold the group consumer's lock.

    Attributes:
        waiting: How many messages wait for another one of their group.
        busy: The groups that sessions have messages of, or that messages wait for, by partition and key.
        followed: Of each session: the groups in which messages wait for it.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.busy: dict[tuple[int, bytes], MessageGroup[D]] = {}
        self.followed: dict[Session, dict[MessageGroup[D], None]] = {}

    def take(self, session: Session, delivery: D) -> D | None:
        """Note that *session* has *delivery* now; return what was ready instead of it, and waits again."""
        if delivery.group is None:
            return None
        key = delivery.partition.group_scope, delivery.group
        group = self.busy.get(key)
        if group is None:
            group = self.busy[key] = MessageGroup(key)
        delivery.busy = group
        group.count += 1
        instead, group.ready = group.ready, None
        if instead is delivery or (instead is not None and not instead.ready_in):
            instead = None
        if instead is not None:
            insort(group.waiting, instead, key=urgency)
            self.waiting += 1
        group.session = session
        if group.waiting:
            self.followed.setdefault(session, {})[group] = None
        return instead

    def hold_up(self, session: Session, delivery: D) -> Session | None:
        """Return the session that must finish with its group before *session* may have *delivery*, which then waits.

        None: it may have it.
        """
        assert delivery.group is not None
        group = self.busy.get((delivery.partition.group_scope, delivery.group))
        if group is None or group.session is session:
            return None
        if group.session is None:
            first = group.ready if group.ready is not None and group.ready.ready_in else None
            first = first or (group.waiting[0] if group.waiting else None)
            if first is None or urgency(delivery) <= urgency(first):
                return None
        insort(group.waiting, delivery, key=urgency)
        self.waiting += 1
        if group.session is None:
            return session  # an older, or more urgent, one is ready; it goes first
        self.followed.setdefault(group.session, {})[group] = None
        return group.session

    def followed_by(self, session: Session) -> Iterable[MessageGroup[D]]:
        """Return the groups in which messages wait for *session* to have them."""
        return self.followed.get(session, ())

    def follow(self, delivery: D) -> None:
        """Note that *delivery*, which waited for the session that has its group, does so no more: that one has it."""
        assert delivery.group is not None
        group = self.busy[delivery.partition.group_scope, delivery.group]
        group.waiting.remove(delivery)
        self._stopped_waiting(group)

    def let_go(self, delivery: D) -> MessageGroup[D] | None:
        """Note that no session has *delivery* any more; return its group if the next of it may be dispatched."""
        group = delivery.busy
        if group is None:
            return None
        delivery.busy = None
        group.count -= 1
        if group.count or self.busy.get(group.key) is not group:
            return None
        self._unfollow(group)
        group.session = None
        if not group.waiting:
            del self.busy[group.key]
        return group

    def next(self, group: MessageGroup[D]) -> D | None:
        """Return the first that waits in *group*, which no session has: it waits no more."""
        group.ready = group.waiting.pop(0) if group.waiting else None
        if group.ready is not None:
            self._stopped_waiting(group)
        return group.ready

    def _stopped_waiting(self, group: MessageGroup[D]) -> None:
        self.waiting -= 1
        if not group.waiting:
            self._unfollow(group)

    def _unfollow(self, group: MessageGroup[D]) -> None:
        followed = self.followed.get(group.session) if group.session is not None else None
        if followed is not None and group.session is not None:
            followed.pop(group, None)
            if not followed:
                del self.followed[group.session]

    def rank(self, read: Callable[[D], object]) -> None:
        """Put what waits into its order again, once *read* has noted the priority of each."""
        for group in self.busy.values():
            for delivery in group.waiting:
                read(delivery)
            group.waiting.sort(key=urgency)

    def free(self) -> list[D]:
        """Return all that wait in groups that no session has."""
        free = [group for group in self.busy.values() if group.session is None]
        for group in free:
            del self.busy[group.key]
            self.waiting -= len(group.waiting)
        return [delivery for group in free for delivery in group.waiting]

    def drop(self, group_scope: int) -> None:
        """Forget the groups of the partitions of *group_scope*."""
        for group in [group for group in self.busy.values() if group.key[0] == group_scope]:
            self._unfollow(group)
            self.waiting -= len(group.waiting)
            del self.busy[group.key]


class Taker(Protocol):
    """A peer, as far as it takes groups."""

    @property
    def wants(self) -> Collection[str | None]:
        """The selectors of its consumers."""


T = TypeVar("T", bound=Taker)


class GroupBindings(Generic[T]):
    """The peer that got the last message of each group: it gets the next ones, too, while it wants any."""

    def __init__(self) -> None:
        self._takers: dict[bytes, T] = {}

    def bind(self, group: bytes, taker: T) -> None:
        """Note that *taker* gets a message of *group*."""
        if len(self._takers) > MOST_BOUND:
            self._takers.clear()
        self._takers[group] = taker

    def exclude(self, delivery: Grouped, taker: T) -> bool:
        """Return whether the group of *delivery* goes to another peer than *taker*."""
        bound = None if delivery.group is None else self._takers.get(delivery.group)
        return bound is not None and bound is not taker and bool(bound.wants)


def urgency(delivery: Grouped) -> tuple[int, int]:
    """Return what sorts messages: the most urgent first, and of these the oldest."""
    return -delivery.priority, delivery.order
