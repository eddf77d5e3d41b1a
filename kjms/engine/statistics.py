"""What an engine holds and does at one moment, as frozen numbers and names: for tests, metrics and the console.

`Engine.statistics` takes them. Each part of the engine is read under its own lock, one after the other, so the numbers
of one part agree with each other, and parts may differ by what happened between. Nothing here asks Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DelayedStatistics",
    "EngineStatistics",
    "GroupConsumerStatistics",
    "HandoverStatistics",
    "InboxStatistics",
    "PartitionStatistics",
    "RegistryStatistics",
    "TransactionStatistics",
]


@dataclass(frozen=True)
class PartitionStatistics:
    """A partition that a group consumer, or an inbox, holds, and what is settled of it.

    Attributes:
        topic: Its Kafka topic: the destination's, its overflow topic, or its topic for handover.
        number: Its number.
        settled_before: All before this offset is settled; it is what the next commit says.
        position: The offset that is read next.
        dispatch_limit: No message at or beyond this offset was dispatched; None: without a group, nothing is committed.
        unsettled: Messages that were read and are not settled, the evicted ones included.
        evicted: Messages that are kept in Kafka, and dropped from memory.
        is_committed: Whether all that is settled is committed, and the dispatch limit that is needed next.
    """

    topic: str
    number: int
    settled_before: int
    position: int
    dispatch_limit: int | None
    unsettled: int
    evicted: int
    is_committed: bool


@dataclass(frozen=True)
class HandoverStatistics:
    """A group consumer's part in handing messages over to other processes.

    Attributes:
        topic: The topic for handover.
        peers: How many other processes take part.
        transfer_partition: The one that this process gets messages by; None: it has none.
        adopted: Transfer partitions of processes that are gone, which this one empties.
        reading: Transfer partitions that are read.
        releasing: Transfer partitions that are read no longer, and not offered to others before the last commit ended.
        is_ready: Whether all was read that others published before this process took part.
    """

    topic: str
    peers: int
    transfer_partition: int | None
    adopted: tuple[int, ...]
    reading: tuple[int, ...]
    releasing: tuple[int, ...]
    is_ready: bool


@dataclass(frozen=True)
class GroupConsumerStatistics:
    """The messages of one queue, subscription or temporary destination in this process, and the consumers that wait.

    Attributes:
        destination: The destination, as ``queue:NAME`` or ``topic:NAME``.
        name: The destination's name.
        topic: The Kafka topic that is read.
        group: Kafka's name of the group; empty: it is read without one.
        is_reading: Whether the consumer thread runs.
        consumers: Started JMS consumers.
        waiting: Those of them that asked for a message and have not got one.
        selectors: Different selectors of started consumers, in their text form; None is no selector.
        ready: Messages that the next `receive` may get.
        unmatched: Messages that match no consumer here.
        delayed: Messages that were returned, and are not due again.
        group_blocked: Messages that wait because another session has messages of their group.
        in_flight: Messages that sessions have, or that are being moved elsewhere, and that are not settled.
        moving: Messages that wait to be moved elsewhere, or are being moved.
        dispatched: Messages that sessions were given, ever.
        commits: Commits that Kafka has taken, ever; those in Kafka transactions are the transactions'.
        is_paused: Whether nothing is fetched, since consumers have had enough for a second.
        is_certain: Whether the partitions are surely still this process's; False after it slept, until a commit shows.
        partitions: The partitions that are held, by topic and number.
        handover: The part in handover; None: there is none.
    """

    destination: str
    name: str
    topic: str
    group: str
    is_reading: bool
    consumers: int
    waiting: int
    selectors: tuple[str | None, ...]
    ready: int
    unmatched: int
    delayed: int
    group_blocked: int
    in_flight: int
    moving: int
    dispatched: int
    commits: int
    is_paused: bool
    is_certain: bool
    partitions: tuple[PartitionStatistics, ...]
    handover: HandoverStatistics | None

    @property
    def numbers(self) -> tuple[int, ...]:
        """The partitions of the topic itself that are held."""
        return tuple(each.number for each in self.partitions if each.topic == self.topic)

    @property
    def evicted(self) -> int:
        """Messages of all partitions that are kept in Kafka, and dropped from memory."""
        return sum(each.evicted for each in self.partitions)

    @property
    def is_committed(self) -> bool:
        """Whether all that is settled is committed, and the dispatch limits that are needed next."""
        return all(each.is_committed for each in self.partitions)


@dataclass(frozen=True)
class TransactionStatistics:
    """A transactional producer of the engine.

    Attributes:
        transactional_id: Its name in Kafka.
        is_started: Whether it has had something to do.
        is_busy: Whether a transaction is under way.
        waiting: What waits for the next one: commits of sessions, or batches of messages to be moved.
        committed: Transactions that Kafka has committed, ever.
        failed: Transactions that were aborted, or whose outcome was not known at first, ever.
    """

    transactional_id: str
    is_started: bool
    is_busy: bool
    waiting: int
    committed: int
    failed: int


@dataclass(frozen=True)
class DelayedStatistics:
    """The delayed messages of one destination that this process serves.

    Attributes:
        topic: The destination's Kafka topic.
        partitions: The partitions with delayed messages that this process serves; empty while it is resting.
        waiting: How many messages wait in them, as far as they are in memory.
        is_committed: Whether the group has committed from where another process would have to read.
        is_resting: Whether nothing is due for a while, and its clients are closed meanwhile.
    """

    topic: str
    partitions: tuple[int, ...]
    waiting: int
    is_committed: bool
    is_resting: bool


@dataclass(frozen=True)
class InboxStatistics:
    """The temporary destinations of the engine.

    Attributes:
        topic: The Kafka topic for their messages.
        destinations: The names of those that are not deleted.
        behind: The names of those whose messages are in memory in part; the others are read again when there is room.
        position: The offset of the inbox's messages that is read next.
        freed: The offset before which records were deleted from the log.
        deletions: Deletions of temporary destinations since they were summed up in the log.
        group_consumers: The messages of a temporary queue, or of one consumer of a temporary topic, each.
    """

    topic: str
    destinations: tuple[str, ...]
    behind: tuple[str, ...]
    position: int
    freed: int
    deletions: int
    group_consumers: tuple[GroupConsumerStatistics, ...]


@dataclass(frozen=True)
class RegistryStatistics:
    """The engine's view on the registry.

    Attributes:
        is_reading: Whether the registry is read: while the engine has a claim in it, or changes something.
        claims: Claims of this engine that count.
        withdrawing: Claims that are to be taken away, of this engine or of those that are gone.
    """

    is_reading: bool
    claims: int
    withdrawing: int


@dataclass(frozen=True)
class EngineStatistics:
    """What one engine holds and does: what all connections with the same cluster, credentials and settings share.

    Attributes:
        number: The engine's number in this process.
        name: Its name in Kafka.
        bootstrap_servers: Its cluster.
        connections: How many connections use it.
        is_cluster_lost: Whether no broker answers, as far as is known.
        disconnections: How often a client was connected to no broker, ever.
        group_consumers: Queues, subscriptions and topics that are read, by name.
        commits: The transactional producer for sessions.
        moves: The transactional producer that moves messages: to dead-letter queues, other processes, the overflow.
        in_flight_moves: The one that relocates messages in flight when a partition moves to another process.
        cleanings: How often settled messages were looked for that can be deleted from Kafka, ever.
        delayed: The delayed messages that are served, by topic.
        inbox: The temporary destinations; None before the first one.
        registry: The registry.
        client_ids: Client identifiers that are claimed.
        subscriptions: Named subscriptions that are open, as ``NAME`` or ``CLIENT-ID/NAME``.
        skipped: How many records of kjms's own topics could not be read, by topic.
        threads: The names of the engine's threads that run.
    """

    number: int
    name: str
    bootstrap_servers: str
    connections: int
    is_cluster_lost: bool
    disconnections: int
    group_consumers: tuple[GroupConsumerStatistics, ...]
    commits: TransactionStatistics
    moves: TransactionStatistics
    in_flight_moves: TransactionStatistics
    cleanings: int
    delayed: tuple[DelayedStatistics, ...]
    inbox: InboxStatistics | None
    registry: RegistryStatistics
    client_ids: tuple[str, ...]
    subscriptions: tuple[str, ...]
    skipped: tuple[tuple[str, int], ...]
    threads: tuple[str, ...]

    def of(self, name: str) -> GroupConsumerStatistics:
        """Return the only group consumer of the destination *name*.

        Raises:
            LookupError: There is none, or several: consumers of a topic without a subscription have one each.
        """
        found = [each for each in self.group_consumers if each.name == name]
        if len(found) != 1:
            raise LookupError(f"{len(found)} group consumers of {name!r}; there are {[*self._names()]}")
        return found[0]

    def delayed_of(self, topic: str) -> DelayedStatistics | None:
        """Return what is served of the delayed messages of *topic*; None: this process serves none of them."""
        return next((each for each in self.delayed if each.topic == topic), None)

    def _names(self) -> list[str]:
        return [each.name for each in self.group_consumers]
