"""What a Kafka transaction of the engine is to write and to settle, and what it needs of the group consumers.

``Message`` stands for the engine's record of a message, a `Delivery`: plans pass it on, and do not look into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.handover.peers import Peer
    from kjms.engine.kafka import TopicPartition
    from kjms.mapping import KafkaRecord
    from kjms.txn.metadata import History

__all__ = ["Client", "Committer", "Copy", "Made", "Move", "PlannedCommit", "Settler", "TransactionPart"]

Message = TypeVar("Message")


class Copy(NamedTuple):
    """A record, and where it goes."""

    topic: str
    partition: int
    record: KafkaRecord
    history: History = NEVER
    """Of a message's copy: what it tells of what happened to the message before."""


class Move(Generic[Message]):
    """A message that is to be relocated.

    Args:
        delivery: The message.
        copy: Makes its copy; it takes the message, and `too_large`, to leave out more.
        is_overflow: Whether this process delivers the copy, as if nothing had happened; else the message is settled.
        to: The partition that the copy goes to then, if it is not the one that belongs to the message's own.
        peer: The process that gets it, when it is handed over.
        transfer_partition: Where the peer gets it.

    Attributes:
        too_large: How often the copy was too large for its target.
    """

    __slots__ = ("copy", "delivery", "is_overflow", "peer", "to", "too_large", "transfer_partition")

    def __init__(
        self,
        delivery: Message,
        copy: Callable[[Message, int], Copy],
        *,
        is_overflow: bool,
        to: tuple[str, int] | None = None,
        peer: Peer | None = None,
        transfer_partition: int = -1,
    ) -> None:
        self.delivery = delivery
        self.copy = copy
        self.is_overflow = is_overflow
        self.to = to
        self.peer = peer
        self.transfer_partition = transfer_partition
        self.too_large = 0


Made: TypeAlias = "tuple[Move[Message], History, tuple[int, int]]"
"""A move, the history in its copy, and the copy's partition and offset."""


class PlannedCommit(Protocol):
    """The commit of one partition's settlement."""

    @property
    def offset(self) -> TopicPartition:
        """The offset, with the settlement as metadata."""


class Client(Protocol):
    """The Kafka consumer, which one thread at a time may use."""

    def held(self, seconds: float) -> AbstractContextManager[None]:
        """Hold it, so that no other commit is under way."""


class Committer(Protocol):
    """Commits settlement without a transaction."""

    def stop(self) -> None:
        """Commit nothing any more: the broker may still complete a transaction."""

    def has_committed(self, commits: Sequence[Any]) -> bool | None:
        """Return whether the broker has *commits*; None: another process has the partitions now."""


class Settler(Protocol[Message]):
    """Plans and records the settlement of the messages of one group consumer."""

    @property
    def client(self) -> Client:
        """The Kafka consumer."""

    @property
    def committer(self) -> Committer:
        """Commits the same settlement."""

    @property
    def is_kept(self) -> bool:
        """Whether Kafka keeps the settlement."""

    def plan(self, made: Sequence[Made[Message]], deliveries: Sequence[Message]) -> tuple[Sequence[PlannedCommit], Any]:
        """Return the commits that settle the originals of *made*, and *deliveries*, and the group's metadata."""

    def unplan(self, made: Sequence[Made[Message]]) -> None:
        """Record that the transaction of *made* was not committed."""

    def done(self, commits: Sequence[Any], made: Sequence[Made[Message]], deliveries: Sequence[Message]) -> None:
        """Record that *commits*, from `plan`, were committed."""

    def still_held(self, moves: Iterable[Move[Message]]) -> list[Move[Message]]:
        """Return those of *moves* whose messages are held and not settled."""

    def forget(self, moves: Sequence[Move[Message]]) -> None:
        """Record that *moves* will not be made."""


class TransactionPart(NamedTuple):
    """A part of a transaction.

    Attributes:
        copies: What is written.
        settler: Of the messages that are settled.
        moves: The messages that the copies are of, one by one; they are settled.
        deliveries: More messages that are settled.
    """

    copies: Sequence[Copy] = ()
    settler: Settler[Any] | None = None
    moves: Sequence[Move[Any]] = ()
    deliveries: Sequence[Any] = ()
