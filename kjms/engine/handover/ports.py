"""What the handover uses of the group consumer that it serves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery
    from kjms.engine.handover.peers import Peer, Peers
    from kjms.engine.transactions.plan import Move

__all__ = ["Client", "Consumer", "Dispatcher", "PeerSharing", "Topics"]


class Topics(Protocol):
    """The topics of a queue: its own, its overflow topic, and those of the handover."""

    topic: str
    handover: str
    interest: str

    def topic_partitions(self, topic: str) -> int:
        """Return how many partitions *topic* has now; 0 where there is no such topic."""

    def expected_partitions(self, topic: str) -> int:
        """Return how many partitions *topic* had when it was seen last, about a second ago."""

    def source_partitions(self) -> int:
        """Return how many partitions the queue's own topic has now."""

    def members(self) -> int:
        """Return how many members the group has now."""

    def ensure_handover(self) -> None:
        """Create the topics of the handover where they are missing."""

    def ensure(self, number: int) -> None:
        """Create partition *number* of the overflow topic where it is missing."""

    def grow(self, topic: str, partitions: int) -> None:
        """Give *topic* so many partitions."""


class PeerSharing(Protocol):
    """Takes messages from the dispatcher for peers; the caller holds the consumer's lock."""

    peers: Peers | tuple[()]
    has_reopened: bool

    def wants(self, *, without_withdrawn: bool = False) -> set[str | None]:
        """Return the selectors of the consumers that are started here."""

    def undispatched(self, partition: AssignedPartition) -> int:
        """Return how many messages of *partition* are here and not dispatched."""

    def offer_waiting(self) -> None:
        """Let peers have what waits for their room."""

    def offer(self, peer: Peer, among: Collection[str | None], *, is_new: bool) -> None:
        """Let *peer* have messages that match no consumer here, and one of the selectors *among*."""

    def share(self, now: float) -> bool:
        """Let peers have messages of busy consumers; return whether to look again soon."""

    def may_get_stuck(self, now: float) -> bool:
        """Return whether messages may soon wait behind busy consumers."""

    def send_back(self, now: float) -> list[Delivery]:
        """Remove and return messages that were handed over and wait behind busy consumers."""

    def give_up(self, is_to_go: Callable[[Delivery], bool]) -> list[Delivery]:
        """Remove and return messages that match no consumer here, where *is_to_go* is true."""


class SelectorQueues(Protocol):
    """The consumers that are started here."""

    @property
    def is_waiting(self) -> bool:
        """Whether a consumer waits."""

    @property
    def waiting(self) -> int:
        """How many consumers wait."""

    @property
    def slots(self) -> int:
        """How many consumers are started."""


class Dispatcher(Protocol):
    """Holds the messages that wait for consumers; the caller holds the consumer's lock."""

    @property
    def held(self) -> int:
        """How many messages are ready."""

    @property
    def selector_queues(self) -> SelectorQueues:
        """The consumers that are started here."""


class Client(Protocol):
    """The Kafka consumer, which one thread at a time may use."""

    def held(self, seconds: float) -> AbstractContextManager[None]:
        """Hold it, so that no commit is under way."""


class Consumer(Protocol):
    """The group consumer of a queue or subscription."""

    keeps_unmatched: bool
    prefetch: int

    @property
    def lock(self) -> AbstractContextManager[object]:
        """Its lock."""

    @property
    def client(self) -> Client:
        """Its Kafka consumer."""

    @property
    def overflow(self) -> Topics:
        """Its topics."""

    @property
    def dispatcher(self) -> Dispatcher:
        """Its dispatcher."""

    @property
    def sharing(self) -> PeerSharing:
        """Takes messages from its dispatcher for peers."""

    @property
    def relocations(self) -> Relocations:
        """Moves its messages."""

    @property
    def fetch(self) -> FetchPositions:
        """What it reads."""

    @property
    def transfers(self) -> TransferReading:
        """What it reads of the handover topic."""

    @property
    def session_timeout(self) -> float:
        """After how many seconds Kafka removes it from its group."""

    @property
    def is_wanting(self) -> bool:
        """Whether it has consumers that messages can go to."""

    @property
    def is_stuck(self) -> bool:
        """Whether its thread has not run for long, as in a call to Kafka that does not return."""

    def numbers(self) -> Collection[int]:
        """Return the partitions of the queue's own topic that it is assigned."""

    def send_over(self) -> None:
        """Relocate what the dispatcher let peers have; the caller holds the lock."""


class Relocations(Protocol):
    """Moves messages elsewhere, in Kafka transactions."""

    def submit(self, moves: Sequence[Move[Delivery]]) -> None:
        """Have *moves* made; the caller holds the lock."""


class FetchPositions(Protocol):
    """What the Kafka consumer fetches."""

    def open_overflow(self, number: int) -> None:
        """Read partition *number* of the overflow topic, if there is one."""


class TransferReading(Protocol):
    """Reads transfer partitions."""

    def open(self, topic: str, number: int, is_ours: Callable[[AssignedPartition], bool]) -> None:
        """Read partition *number* of the handover *topic*, if that is possible now and *is_ours* allows it."""

    def drop(self, partition: AssignedPartition) -> None:
        """Stop reading *partition*; the caller holds the lock."""

    def find_unread(self, topic: str, numbers: Collection[int], known_empty: Mapping[int, int]) -> set[int]:
        """Return which partitions of the handover *topic* hold more than what is settled."""

    def prepare_release(self, topic: str, number: int) -> int | None:
        """Return where partition *number* of the handover *topic* ends if it may be released, else None.

        It may where all in it is settled, and Kafka's dispatch limit is not beyond that.
        """
