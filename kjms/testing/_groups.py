"""Consumer groups of an in-memory Kafka: members, generations, cooperative-sticky assignment, committed offsets.

Members join and get their shares as the classic protocol has it, without its waits: a rebalance ends as soon as no
member has a callback left to run. A partition that moves is revoked in one generation and assigned in the next.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol, TypeAlias

from kjms.engine.kafka import KafkaError

__all__ = ["Change", "Group", "GroupMetadata", "Member", "Offset", "Place", "share_out"]

Place: TypeAlias = "tuple[str, int]"
"""A topic, and the number of a partition."""

ASSIGN: Final = "assign"
REVOKE: Final = "revoke"
LOSE: Final = "lose"


class GroupMetadata(NamedTuple):
    """What a producer says of the consumer whose offsets it commits in a transaction."""

    group: str
    generation: int
    member: str


class Offset(NamedTuple):
    """What a group has committed for a partition.

    Attributes:
        offset: The offset.
        metadata: What the consumer wrote beside it.
        order: Grows with each commit: of two for one partition, the later counts, whatever ended when.
        time: When it was committed, by the cluster's monotonic clock.
    """

    offset: int
    metadata: str
    order: int
    time: float


class Change(NamedTuple):
    """A change of a consumer's assignment, reported in its next poll: partitions come, go, or were lost."""

    kind: str
    places: frozenset[Place]


class Consumer(Protocol):
    """What a member is to its group: told when its assignment changes."""

    client: str
    client_id: str

    def hear(self, error: KafkaError) -> None:
        """Pass *error* to the error callback."""

    def wake(self) -> None:
        """Return from a wait: there is something to do."""

    def lose(self) -> None:
        """Be no member any more: the partitions are lost."""


class Member:
    """A consumer in a group; the cluster's lock is held by all that use it.

    Attributes:
        topics: What it has subscribed to.
        owned: Its partitions, as far as they were reported to it.
        changes: What is still to be reported to it. It takes part in the next rebalance after that.
    """

    def __init__(self, consumer: Consumer, client: str, topics: Iterable[str], session_timeout: float) -> None:
        self.id = f"{client}-{uuid.uuid4()}"
        self.consumer = consumer
        self.topics = frozenset(topics)
        self.session_timeout = session_timeout
        self.generation = -1
        self.owned: set[Place] = set()
        self.changes: deque[Change] = deque()
        self.silent_since: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether it has callbacks to run before it can take part in a rebalance."""
        return bool(self.changes)

    def tell(self, kind: str, places: Iterable[Place]) -> None:
        """Report to the consumer, in a poll, that partitions come or go."""
        self.changes.append(Change(kind, frozenset(places)))
        self.consumer.wake()

    def told(self) -> Change:
        """Note that the oldest change was reported to the consumer, and return it."""
        change = self.changes.popleft()
        self.owned = self.owned | change.places if change.kind == ASSIGN else self.owned - change.places
        return change


class Group:
    """A consumer group; the cluster's lock is held by all that use it.

    Args:
        name: Its id.
        partitions: Returns how many partitions a topic has; 0 where there is none.

    Attributes:
        offsets: What is committed.
        pending: What open transactions would commit, by producer id.
        empty_since: Since when it has had no member, by the cluster's monotonic clock; None: it never had one.
    """

    def __init__(self, name: str, partitions: Callable[[str], int]) -> None:
        self.name = name
        self.generation = 0
        self.members: dict[str, Member] = {}
        self.offsets: dict[Place, Offset] = {}
        self.pending: dict[int, dict[Place, Offset]] = {}
        self.empty_since: float | None = None
        self._partitions = partitions
        self._is_rebalancing = False

    # Members.

    def join(self, member: Member) -> None:
        """Take *member* in."""
        self.members[member.id] = member
        self.rebalance()

    def leave(self, member: Member, now: float) -> None:
        """Let *member* go; others get its partitions."""
        if self.members.pop(member.id, None) is None:
            return
        if not self.members:
            self.empty_since = now
            self.generation += 1
        self.rebalance()

    def rebalance(self) -> None:
        """Share the partitions out anew, as soon as the last change was reported to each member."""
        self._is_rebalancing = bool(self.members)
        self.go_on()

    def go_on(self) -> None:
        """End a rebalance that waits for members, if it waits no more."""
        if not self._is_rebalancing or any(member.is_busy for member in self.members.values()):
            return
        self._is_rebalancing = False
        self.generation += 1
        wanted = share_out(
            {member.id: member.topics for member in self.members.values()},
            {topic: self._partitions(topic) for member in self.members.values() for topic in member.topics},
            {member.id: member.owned for member in self.members.values()},
        )
        owned = {place for member in self.members.values() for place in member.owned}
        for member in self.members.values():
            member.generation = self.generation
            revoked = member.owned - wanted[member.id]
            added = wanted[member.id] - owned  # what another member still has comes once that has given it up
            if revoked:
                member.tell(REVOKE, revoked)
            member.tell(ASSIGN, added)

    def lose_topic(self, topic: str) -> None:
        """Report to members that the partitions of *topic*, which is deleted, are lost."""
        for member in self.members.values():
            gone = {place for place in member.owned if place[0] == topic}
            if gone:
                member.tell(LOSE, gone)

    def heard(self, member: Member, change: Change) -> None:
        """Note that *member* has run the callbacks of *change*; having given something up, it joins again."""
        if member.is_busy or member.id not in self.members:
            return
        if self._is_rebalancing or any(self._is_free(place) for place in self._all_of(member)):
            self.rebalance()

    def _all_of(self, member: Member) -> list[Place]:
        return [(topic, number) for topic in member.topics for number in range(self._partitions(topic))]

    def _is_free(self, place: Place) -> bool:
        coming = (change.places for member in self.members.values() for change in member.changes)
        return not any(place in member.owned for member in self.members.values()) and not any(
            place in places for places in coming
        )

    # Offsets.

    def refusal(self, generation: int, member: str) -> int | None:
        """Return the error code with which a commit of *member*, in *generation*, is refused; None: it is not.

        Kafka does not ask whose the partitions are. A consumer that is no member can commit while there is none.
        """
        known = self.members.get(member)
        if known is None:
            is_taken = generation < 0 and not self.members
            return None if is_taken else int(KafkaError.UNKNOWN_MEMBER_ID)
        return None if generation == self.generation else int(KafkaError.ILLEGAL_GENERATION)

    def commit(self, place: Place, offset: Offset) -> None:
        """Note what was committed."""
        known = self.offsets.get(place)
        if known is None or known.order < offset.order:
            self.offsets[place] = offset

    def is_unstable(self, places: Iterable[Place]) -> bool:
        """Return whether an open transaction may change what is committed for one of *places*."""
        return any(place in pending for place in places for pending in self.pending.values())

    def finish(self, transaction: int, *, commit: bool) -> None:
        """End the open *transaction* of that producer id."""
        for place, offset in self.pending.pop(transaction, {}).items():
            if commit:
                self.commit(place, offset)


def share_out(
    members: Mapping[str, frozenset[str]], partitions: Mapping[str, int], owned: Mapping[str, set[Place]]
) -> dict[str, set[Place]]:
    """Return the partitions that each member gets: as evenly as may be, and what it has had as far as may be.

    >>> shares = share_out({"a": frozenset("t"), "b": frozenset("t")}, {"t": 3}, {"a": {("t", 0), ("t", 1), ("t", 2)}})
    >>> {member: sorted(share) for member, share in shares.items()}
    {'a': [('t', 0), ('t', 1)], 'b': [('t', 2)]}
    """
    left = {(topic, number) for topic, count in partitions.items() for number in range(count)}
    shares: dict[str, set[Place]] = {}
    for member, topics in members.items():
        shares[member] = {place for place in owned.get(member, ()) if place in left and place[0] in topics}
        left -= shares[member]

    def load(member: str) -> int:
        return len(shares[member])

    for place in sorted(left):
        wanting = [member for member, topics in members.items() if place[0] in topics]
        if wanting:
            shares[min(wanting, key=load)].add(place)
    while True:
        moves = [
            (load(giver) - load(taker), giver, taker, place)
            for taker, topics in members.items()
            for giver in members
            if load(giver) - load(taker) > 1
            for place in sorted(shares[giver], reverse=True)[:1]
            if place[0] in topics
        ]
        if not moves:
            return shares
        _, giver, taker, place = max(moves, key=lambda move: move[0])
        shares[giver].remove(place)
        shares[taker].add(place)
