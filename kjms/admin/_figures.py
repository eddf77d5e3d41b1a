"""What `kjms.admin.Admin` says of queues, subscriptions and consumers: frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from kjms.destinations import Queue, Topic

__all__ = [
    "ConnectionFigures",
    "ConsumerFigures",
    "DelayedMessage",
    "DestinationFigures",
    "QueueFigures",
    "Redeliveries",
    "SubscriptionFigures",
]


@dataclass(frozen=True)
class Redeliveries:
    """Events of the redelivery log, counted from one hour before the first question of the same `Admin`.

    Attributes:
        redelivered: How often a message was delivered again.
        dead_lettered: How many messages became dead letters.
        expired: How many messages went to an expiry queue. Messages that expire without one are in no log.
    """

    redelivered: int = 0
    dead_lettered: int = 0
    expired: int = 0


@dataclass(frozen=True)
class _Messages:
    name: str
    depth: int | None
    depth_up_to: int | None
    oldest: datetime | None
    in_flight: int | None
    delayed: int | None
    overdue: int | None
    overflow: int | None
    transfer: int | None
    expired: int | None
    unreclaimed: int | None
    consumers: int
    hosts: int
    redeliveries: Redeliveries
    error: str | None


@dataclass(frozen=True)
class QueueFigures(_Messages):
    """What a queue holds, and how many processes consume it.

    Figures that were not counted are None: with ``estimate=True``, and where `error` says why.

    Attributes:
        name: The queue's name.
        topic: Its Kafka topic.
        partitions: The partitions of the topic.
        is_dead_letter_queue: Whether it is the dead-letter queue of another queue.
        dead_letters: Messages of this queue that are in its dead-letter queue.
        depth: Messages that are not settled, as a browser shows them: in the topic, the overflow topic and transfer
            partitions, including messages in flight and those that wait for their redelivery. Expired and delayed
            messages do not count.
        depth_up_to: An upper bound of it: offsets that are not settled. Not each offset is a message.
        oldest: When the oldest of these messages was sent (JMSTimestamp); None if there is none.
        in_flight: The messages that consumers have received and not settled, as of the last commit; 0 if no process
            consumes. Of processes with an older kjms it is an upper bound.
        delayed: Messages that wait for their time.
        overdue: Those messages of `delayed` whose time has come: no process serves them, or it is about to.
        overflow: Those messages of `depth` that are in the overflow topic.
        transfer: Those messages of `depth` that are handed over to another process.
        expired: Messages that have expired, and that consumers have not removed yet.
        unreclaimed: Offsets between the start of the logs and the first unsettled message: settled, and still stored.
        consumers: Members of the consumer group. A process is one member, for all its consumers of the queue.
        hosts: Addresses from which they connect.
        redeliveries: What the redelivery log says of the queue.
        error: Why the messages could not be counted; None if they were.
    """

    topic: str
    partitions: int
    is_dead_letter_queue: bool
    dead_letters: int | None


@dataclass(frozen=True)
class SubscriptionFigures(_Messages):
    """What a named subscription has not settled, and how many processes consume it.

    Attributes:
        name: The subscription's name.
        client_id: The client identifier that it belongs to; None for a shared subscription without one.
        topic: The name of the JMS topic.
        durable: Whether it is kept without a consumer.
        shared: Whether it may have several consumers.
        selector: The text of its selector; None: it receives all messages.
        no_local: Whether it leaves out what its own client sends.
        state: ``active``: it has a consumer; ``inactive``: it has none; ``not answering``: it has one, and that
            program does not answer.
        group: Kafka's name of its consumer group.
        depth: Messages that are not settled and match the selector. Expired and delayed messages do not count.
        depth_up_to: An upper bound of it: offsets that are not settled; None if the Kafka topic does not exist.
        oldest: As of a queue, like the attributes below.
        in_flight: See `QueueFigures`.
        delayed: Messages of the topic that wait for their time; not each of them matches the selector.
        overdue: See `QueueFigures`.
        overflow: See `QueueFigures`.
        transfer: See `QueueFigures`.
        expired: See `QueueFigures`.
        unreclaimed: Offsets between the start of the topic's logs and its first unsettled message.
        consumers: Members of the consumer group: processes.
        hosts: Addresses from which they connect.
        redeliveries: What the redelivery log says of it.
        error: Why the messages could not be counted; None if they were.
    """

    client_id: str | None
    topic: str
    durable: bool
    shared: bool
    selector: str | None
    no_local: bool
    state: str
    group: str


@dataclass(frozen=True)
class ConsumerFigures:
    """A process that consumes a queue or subscription: a member of its consumer group.

    Attributes:
        destination: The queue, or the topic of the subscription.
        subscription: The subscription's name; None for a queue.
        group: The consumer group.
        member_id: Kafka's id of the member.
        client_id: The ``client.id`` of its Kafka client: ``kjms-APPLICATION@HOST-PROCESS`` unless
            ``kafka={"client.id": ...}`` says otherwise.
        host: The address from which it connects.
        application: The name of its program: ``ConnectionFactory(application=...)``, or what was started; None:
            `client_id` does not say it.
        process_id: The operating system's number of its process; None likewise.
        host_name: The name of its host; None likewise.
        partitions: The partitions of the Kafka topic that it holds; none: it gets messages by handover.
        in_flight: The messages in these partitions, and in those of the overflow topic that belong to
            them, that it has received and not settled, as of `QueueFigures`; None: it was not asked for, or could not
            be counted. Messages that it got by handover count for no process: Kafka does not say whose they are.
    """

    destination: Queue | Topic
    subscription: str | None
    group: str
    member_id: str
    client_id: str
    host: str
    application: str | None
    process_id: int | None
    host_name: str | None
    partitions: tuple[int, ...]
    in_flight: int | None = None


@dataclass(frozen=True)
class ConnectionFigures:
    """The programs of one ``client.id`` on one host, as far as they consume.

    Attributes:
        client_id: The ``client.id`` of their Kafka clients.
        host: The address from which they connect.
        consumers: What they consume.
    """

    client_id: str
    host: str
    consumers: tuple[ConsumerFigures, ...]


@dataclass(frozen=True)
class DelayedMessage:
    """A message that is not due yet.

    Attributes:
        message_id: Its JMSMessageID.
        due: When it may be delivered.
        partition: The partition of the topic of delayed messages that it is in.
        offset: Its offset there.
    """

    message_id: str | None
    due: datetime
    partition: int
    offset: int


@dataclass(frozen=True)
class DestinationFigures:
    """A Kafka topic as a destination.

    Attributes:
        name: The name of the queue or topic.
        kind: ``queue`` if `Admin.queues` lists it; ``topic`` if kjms made or consumed it first as one; else None.
        topic: The Kafka topic's name.
        partitions: Its partitions.
        depth: The unsettled messages of a queue; None if it is not a queue, or they were not counted.
        depth_up_to: Unsettled offsets of the queue's own topic; None if it is not a queue.
        kept_up_to: Offsets that Kafka keeps: an upper bound of the messages.
        retention_ms: After how many milliseconds Kafka deletes messages; None: never.
        warnings: How Kafka may delete messages of a queue that were not received, why they were not counted, and that
            the queue's Kafka topic was consumed first as a topic.
    """

    name: str
    kind: str | None
    topic: str
    partitions: int
    depth: int | None
    depth_up_to: int | None
    kept_up_to: int
    retention_ms: int | None
    warnings: tuple[str, ...]
