"""What a Kafka transaction of the engine is to write and to settle, and what it needs of the group consumers.

``Message`` stands for the engine's record of a message, a `Delivery`: only `copier` looks into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from kjms.mapping import ANY_PARTITION
from kjms.mapping.dead_letters import dead_letter
from kjms.mapping.relocated import relocated_record
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.admin.topics import WantedTopic
    from kjms.engine.handover.peers import Peer
    from kjms.engine.kafka import TopicPartition
    from kjms.mapping import KafkaRecord, SourceRecord
    from kjms.mapping.dead_letters import Cause
    from kjms.txn.metadata import History

__all__ = [
    "NOWHERE",
    "Client",
    "Committer",
    "Copy",
    "DeadLetterMove",
    "Move",
    "PlannedCommit",
    "Settler",
    "TransactionPart",
    "copier",
]

Message = TypeVar("Message")

NOWHERE: Final = (-1, -1)


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
        copy: Makes its copy; it is pure, and may be called inside a Kafka transaction.
        to: The topic and partition of which this process delivers the copy, as if nothing had happened; None: the
            message is settled.
        peer: The process that gets it, when it is handed over.
        transfer_partition: Where the peer gets it.
        overflow_partition: The partition of the overflow topic, which another process reads, that has to be there; -1:
            none.

    Attributes:
        has_failed: Whether its last attempt failed for a reason that may last.
        told: The history in the copy that was written last.
        place: The partition and offset of that copy, if its target was a certain partition.
    """

    __slots__ = (
        "copy",
        "delivery",
        "has_failed",
        "overflow_partition",
        "peer",
        "place",
        "to",
        "told",
        "transfer_partition",
    )

    def __init__(
        self,
        delivery: Message,
        copy: Callable[[Message], Copy],
        *,
        to: tuple[str, int] | None = None,
        peer: Peer | None = None,
        transfer_partition: int = -1,
        overflow_partition: int = -1,
    ) -> None:
        self.delivery = delivery
        self.copy = copy
        self.to = to
        self.peer = peer
        self.transfer_partition = transfer_partition
        self.overflow_partition = overflow_partition
        self.has_failed = False
        self.told = NEVER
        self.place = NOWHERE


class DeadLetterMove(Move[Message]):
    """A message that becomes a dead letter, or has expired. It is planned before its Kafka transaction begins.

    Args:
        delivery: The message.
        cause: Why.
        target: Where it goes.

    Attributes:
        has_details: Whether the dead letter has the details of its cause: it is written without them where it is
            too large.
    """

    __slots__ = ("_cause", "has_details", "target")

    def __init__(self, delivery: Message, cause: Cause, target: WantedTopic) -> None:
        super().__init__(delivery, _unplanned)
        self.target = target
        self._cause = cause
        self.has_details = True

    def plan(self, topic: str) -> Copy:
        """Return the dead letter, for the Kafka topic *topic*: it is what is written."""
        record = cast("Copied", self.delivery).record
        place = ANY_PARTITION if record.key() is not None else 0
        planned = Copy(topic, place, dead_letter(record, self._cause, has_details=self.has_details))
        self.copy = lambda _: planned
        return planned

    def shorten(self) -> bool:
        """Leave out the details from now on; return whether there were any."""
        if not self.has_details or not self._cause.details:
            return False
        self.has_details = False
        return True


def _unplanned(_message: object) -> Copy:
    raise NotImplementedError  # `DeadLetterMove.plan` comes first


class Copied(Protocol):
    """A message, as far as its copy tells of it."""

    @property
    def record(self) -> SourceRecord:
        """Its record."""

    @property
    def history(self) -> History:
        """What happened to it so far."""


def copier(topic: str, partition: int) -> Callable[[Copied], Copy]:
    """Return what makes the copy of a message for *partition* of *topic*, with what happened to the message by then.

    It takes no lock. Where more may happen before the transaction, its plan compares the history with that of the copy.
    """

    def copy(message: Copied) -> Copy:
        history = message.history
        return Copy(topic, partition, relocated_record(message.record, history), history)

    return copy


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

    def plan(self, made: Sequence[Move[Message]], deliveries: Sequence[Message]) -> tuple[Sequence[PlannedCommit], Any]:
        """Return the commits that settle the originals of *made*, and *deliveries*, and the group's metadata."""

    def unplan(self, made: Sequence[Move[Message]]) -> None:
        """Record that the transaction of *made* was not committed, be it planned or not, or in part."""

    def done(self, commits: Sequence[Any], made: Sequence[Move[Message]], deliveries: Sequence[Message]) -> None:
        """Record that *commits*, from `plan`, were committed."""

    def still_held(self, moves: Iterable[Move[Message]]) -> list[Move[Message]]:
        """Return those of *moves* whose messages are held and not settled; this process reads where copies overflow to.

        Raises:
            JMSException: Another process does.
        """

    def forget(self, moves: Sequence[Move[Message]]) -> None:
        """Record that *moves* will not be made."""

    def finish(self, seconds: float) -> None:
        """Return when nothing is left to relocate, or after *seconds*."""


class TransactionPart(NamedTuple):
    """A part of a transaction.

    Attributes:
        copies: What is written.
        settler: Of the messages that are settled.
        moves: Messages that are relocated: their copies are made as they are written.
        deliveries: Messages that are settled.
    """

    copies: Sequence[Copy] = ()
    settler: Settler[Any] | None = None
    moves: Sequence[Move[Any]] = ()
    deliveries: Sequence[Any] = ()
