"""Kafka, as the engine uses it: three ports, the clients behind them, and the one seam where errors become JMS's.

Only this module imports confluent_kafka. The ports hold what the engine calls and nothing else, with the names,
arguments and exceptions of confluent-kafka, so that its classes fit them as they are, and an in-memory Kafka can, too.

librdkafka's clients do not outlive a fork: their threads do not exist in the child, so a call would wait for them
without end, and so would the destructor. In the child each client becomes an object that refuses every call and is
never destroyed. Its sockets close with the process.
"""

from __future__ import annotations

import ctypes
import os
import re
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeAlias

import confluent_kafka.admin
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    OFFSET_STORED,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Node,
    TopicCollection,
    TopicPartition,
    TopicPartitionInfo,
    Uuid,
)
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import (
    AlterConfigOpType,
    BrokerMetadata,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConsumerGroupListing,
    DeletedRecords,
    ListConsumerGroupsResult,
    ListOffsetsResultInfo,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    PartitionMetadata,
    ResourceType,
    TopicDescription,
    TopicMetadata,
)

from kjms.errors import (
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
)

__all__ = [
    "IN_USE",
    "OFFSET_BEGINNING",
    "OFFSET_END",
    "OFFSET_INVALID",
    "OFFSET_STORED",
    "AdminPort",
    "AlterConfigOpType",
    "BrokerMetadata",
    "ClusterMetadata",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConsumerGroupListing",
    "ConsumerGroupState",
    "ConsumerGroupTopicPartitions",
    "ConsumerGroupType",
    "ConsumerPort",
    "DeletedRecords",
    "IsolationLevel",
    "KafkaClients",
    "KafkaError",
    "KafkaException",
    "KafkaMessage",
    "ListConsumerGroupsResult",
    "ListOffsetsResultInfo",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetSpec",
    "OnDelivery",
    "OnRebalance",
    "PartitionMetadata",
    "ProducerPort",
    "ResourceType",
    "TopicCollection",
    "TopicDescription",
    "TopicMetadata",
    "TopicPartition",
    "TopicPartitionInfo",
    "Uuid",
    "inherited",
    "is_refusal",
    "is_shortage",
    "jms_error",
    "kafka_error",
    "open_admin",
    "open_consumer",
    "open_producer",
    "serve",
    "serve_no_more",
    "wall_clock_of",
]

# The ports.

OnRebalance: TypeAlias = "Callable[[ConsumerPort, list[TopicPartition]], None]"
"""Called by `ConsumerPort.poll` with the partitions that come or go."""

OnDelivery: TypeAlias = "Callable[[KafkaError | None, KafkaMessage], None]"
"""Called by `ProducerPort.poll` and `flush` with the outcome of a record."""


class ConsumerPort(Protocol):
    """What reads records; used by one thread at a time. Any call may raise `KafkaException`; times are seconds."""

    def subscribe(
        self, topics: list[str], *, on_assign: OnRebalance, on_revoke: OnRebalance, on_lost: OnRebalance
    ) -> None:
        """Join the group, to read *topics*; partitions come and go one by one, while `poll` runs."""

    def unsubscribe(self) -> None:
        """Leave the group: its partitions are revoked by the next polls."""

    def memberid(self) -> str | None:
        """Return the id in the group; empty or None without one."""

    def consumer_group_metadata(self) -> Any:
        """Return what `ProducerPort.send_offsets_to_transaction` needs to know of the group."""

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read *partitions*, from their offsets, without a group."""

    def unassign(self) -> None:
        """Read nothing."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read *partitions*, too, from their offsets, in a group or without one."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read *partitions* no longer."""

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Give no records of *partitions*, and forget those that were fetched."""

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Give records of *partitions* again."""

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the offset behind the last record that was given of each; negative before the first."""

    def poll(self, timeout: float) -> KafkaMessage | None:
        """Return the next record or event, or None after *timeout*; rebalance callbacks run in it."""

    def consume(self, num_messages: int, timeout: float) -> list[KafkaMessage]:
        """Return at most *num_messages* records and events, those that come within *timeout*."""

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        """Commit *offsets* with their metadata; each of a synchronous answer has its own error."""

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return what the group has committed for *partitions*; open transactions are waited for."""

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float, cached: bool = False) -> tuple[int, int]:
        """Return the first offset of *partition* and the one after its last."""

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """Return the first offsets whose records are no older than the timestamps given as offsets; -1 for none."""

    def close(self) -> None:
        """Leave the group and end; a second time does nothing."""


class ProducerPort(Protocol):
    """What writes records; any thread may call it. Any call may raise `KafkaException`; times are seconds."""

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        headers: list[tuple[str, bytes | None]],
        timestamp: int,
        on_delivery: OnDelivery,
    ) -> None:
        """Buffer a record.

        Raises:
            BufferError: The buffer is full.
            KafkaException: The topic or partition does not exist, or the record is too large.
        """

    def poll(self, timeout: float) -> int:
        """Report what was delivered, waiting for *timeout* at the most; return how many reports there were."""

    def flush(self, timeout: float) -> int:
        """Report until nothing is left, or for *timeout*; return how many records are left."""

    def purge(self) -> None:
        """Give up every record that is not confirmed; each is reported as purged."""

    def __len__(self) -> int:
        """Return how many records and reports are left."""

    def list_topics(self, topic: str, timeout: float) -> ClusterMetadata:
        """Return what the cluster says of *topic*, and use it from now on."""

    def init_transactions(self, timeout: float) -> None:
        """End what an earlier producer of the same transactional id began, and fence it off."""

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def send_offsets_to_transaction(self, offsets: list[TopicPartition], group_metadata: Any, timeout: float) -> None:
        """Commit *offsets* of a group with the transaction."""

    def commit_transaction(self, timeout: float) -> None:
        """Carry the transaction out."""

    def abort_transaction(self, timeout: float) -> None:
        """Take the transaction back."""


class AdminPort(Protocol):
    """What asks for and changes topics and groups; any thread may call it. Times are seconds.

    Calls that return futures raise `KafkaException` out of them.
    """

    def poll(self, timeout: float) -> int:
        """Run the client's callbacks, such as the one for errors."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        """Return what the cluster says of *topic*, or of all. An unknown topic has an error, and no partitions."""

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> dict[str, Future[TopicDescription]]:
        """Return descriptions of *topics*, with their ids."""

    def create_topics(
        self,
        new_topics: list[NewTopic],
        *,
        operation_timeout: float,
        request_timeout: float,
        validate_only: bool = False,
    ) -> dict[str, Future[None]]:
        """Make topics, or only find out whether they could be made."""

    def create_partitions(
        self, new_partitions: list[NewPartitions], *, request_timeout: float
    ) -> dict[str, Future[None]]:
        """Give topics more partitions."""

    def delete_topics(
        self, topics: list[str], *, operation_timeout: float, request_timeout: float
    ) -> dict[str, Future[None]]:
        """Delete topics."""

    def delete_records(
        self, partitions: list[TopicPartition], *, request_timeout: float
    ) -> dict[TopicPartition, Future[DeletedRecords]]:
        """Delete the records before the offsets of *partitions*."""

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Return the settings of *resources*."""

    def incremental_alter_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> dict[ConfigResource, Future[None]]:
        """Change the settings that *resources* name, and no others."""

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: IsolationLevel,
        request_timeout: float,
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        """Return the first or last offsets of *partitions*, or those of a time."""

    def list_consumer_groups(self, *, request_timeout: float) -> Future[ListConsumerGroupsResult]:
        """Return all groups."""

    def describe_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[Any]]:
        """Return the members of each of *groups*."""

    def list_consumer_group_offsets(
        self, groups: list[ConsumerGroupTopicPartitions], *, request_timeout: float
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Return what each of *groups* has committed."""

    def alter_consumer_group_offsets(
        self, groups: list[ConsumerGroupTopicPartitions], *, request_timeout: float
    ) -> dict[str, Future[ConsumerGroupTopicPartitions]]:
        """Set what groups without members have committed."""

    def delete_consumer_groups(self, groups: list[str], *, request_timeout: float) -> dict[str, Future[None]]:
        """Delete groups without members."""


class KafkaClients(Protocol):
    """What makes the clients for an address."""

    def consumer(self, config: Mapping[str, Any]) -> ConsumerPort:
        """Return a new consumer with librdkafka's settings *config*."""

    def producer(self, config: Mapping[str, Any]) -> ProducerPort:
        """Return a new producer with librdkafka's settings *config*."""

    def admin(self, config: Mapping[str, Any]) -> AdminPort:
        """Return a new admin client with librdkafka's settings *config*."""

    def wall_clock(self) -> float:
        """Return the time in seconds since 1970, by which messages expire and become due."""


# Clients of librdkafka, and of what is served in this process.

_served: dict[str, KafkaClients] = {}  # by their addresses
_IN_MEMORY: Final = re.compile(r"memory-\d+\.process-(\d+)\.invalid:\d+")  # the number of the process that serves it
_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def serve(address: str, clients: KafkaClients) -> None:
    """Have *clients* made where the bootstrap servers are *address*, in this process."""
    _served[address] = clients


def serve_no_more(address: str) -> None:
    """Have clients of librdkafka made for *address* again."""
    _served.pop(address, None)


def clients_for(config: Mapping[str, Any]) -> KafkaClients:
    """Return what makes the clients with librdkafka's settings *config*.

    Raises:
        KafkaException: The address is that of a Kafka in memory that is not served here.
    """
    address = config["bootstrap.servers"]
    memory = _IN_MEMORY.fullmatch(address)
    if memory is None or address in _served:
        return _served.get(address, _librdkafka)
    text = f"the MemoryKafka at {address} is closed"
    if memory[1] != str(os.getpid()):
        text = f"the MemoryKafka at {address} is in the memory of another process; use a broker for several processes"
    raise KafkaException(KafkaError(KafkaError._RESOLVE, text))


def wall_clock_of(address: str) -> Callable[[], float]:
    """Return the clock of the cluster with the bootstrap servers *address*: real time, unless it is in memory."""
    found = _served.get(address)
    return time.time if found is None else found.wall_clock


def open_consumer(config: Mapping[str, Any]) -> ConsumerPort:
    """Return a new consumer with librdkafka's settings *config*.

    Raises:
        KafkaException: librdkafka refuses a setting.
    """
    return clients_for(config).consumer(config)


def open_producer(config: Mapping[str, Any]) -> ProducerPort:
    """Return a new producer with librdkafka's settings *config*.

    Raises:
        KafkaException: librdkafka refuses a setting.
    """
    return clients_for(config).producer(config)


def open_admin(config: Mapping[str, Any]) -> AdminPort:
    """Return a new admin client with librdkafka's settings *config*.

    Raises:
        KafkaException: librdkafka refuses a setting.
    """
    return clients_for(config).admin(config)


class _Consumer(confluent_kafka.Consumer):  # type: ignore[misc]
    pass


class _Producer(confluent_kafka.Producer):  # type: ignore[misc]
    pass


class _AdminClient(confluent_kafka.admin.AdminClient):  # type: ignore[misc]
    pass


class _Librdkafka:
    """Makes clients of librdkafka, which a forked child does not inherit."""

    def consumer(self, config: Mapping[str, Any]) -> ConsumerPort:
        made: ConsumerPort = _Consumer(dict(config))
        _clients.add(made)
        return made

    def producer(self, config: Mapping[str, Any]) -> ProducerPort:
        made: ProducerPort = _Producer(dict(config))
        _clients.add(made)
        return made

    def admin(self, config: Mapping[str, Any]) -> AdminPort:
        made: AdminPort = _AdminClient(dict(config))
        _clients.add(made)
        return made

    def wall_clock(self) -> float:
        return time.time()


_librdkafka: Final = _Librdkafka()


def inherited(doing: str, process: int | None = None) -> IllegalStateException:
    """Return the error for *doing* something, in a forked child, with what its parent *process* connected.

    >>> str(inherited("send", 17))
    'send: it belongs to process 17, from which this one was forked; create a connection in this process'
    """
    return IllegalStateException(
        f"{doing}: it belongs to process {process or os.getppid()}, from which this one was forked;"
        " create a connection in this process"
    )


class _Inherited:
    def __getattribute__(self, name: str) -> Any:
        if name == "close":
            return lambda: None  # as if it were closed
        raise inherited(name)

    def __len__(self) -> int:
        return 0


class _InheritedConsumer(_Inherited, confluent_kafka.Consumer):  # type: ignore[misc]
    pass


class _InheritedProducer(_Inherited, confluent_kafka.Producer):  # type: ignore[misc]
    pass


class _InheritedAdminClient(_Inherited, confluent_kafka.admin.AdminClient):  # type: ignore[misc]
    pass


_REFUSING: Final = {_Consumer: _InheritedConsumer, _Producer: _InheritedProducer, _AdminClient: _InheritedAdminClient}


def _disown() -> None:
    for client in list(_clients):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))  # no end of the interpreter destroys it, either
        client.__class__ = _REFUSING[type(client)]
    _clients.clear()
    _served.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)


# Errors.

IN_USE: Final = "IN_USE"
"""The error code where a subscription or temporary destination has a consumer, or is of another kind."""

_SECURITY: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# An idempotent producer needs a right to write to some topic; brokers call it a right on the cluster.
_OF_TOPICS: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_DESTINATION: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_RESOURCES: Final = frozenset(
    {
        KafkaError._QUEUE_FULL,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError._CRIT_SYS_RESOURCE,
    }
)


_ALERT: Final = "SSL alert number"  # how the TLS library says that the broker refused, after the handshake in TLS 1.3

_NO_SOCKET: Final = "Failed to create socket"
_NO_THREAD: Final = ("Failed to create thread:", "Failed to create background thread:")
_BROKEN_OFF: Final = "Local: Broker transport failure"  # librdkafka calls it an authentication error after one


def is_refusal(error: KafkaError) -> bool:
    """Tell whether *error* says that one side does not trust the other: another attempt would not change that."""
    if _BROKEN_OFF in error.str():
        return False
    return error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL} or _ALERT in error.str()


def is_shortage(error: KafkaError) -> bool:
    """Tell whether *error* says that this process may open no more sockets, or start no more threads."""
    said: str = error.str()
    return (error.code() == KafkaError._TRANSPORT and _NO_SOCKET in said) or any(each in said for each in _NO_THREAD)


def _explained(error: KafkaError) -> str:
    """Return what *error* says, and what it does not say about certificates."""
    said: str = error.str()
    if _ALERT in said:
        return f"the broker refused the certificate of ssl.certificate.location, or that there is none: {said}"
    if error.code() == KafkaError._SSL and "verify failed" in said:
        return (
            "the broker's certificate is not valid: it has expired, is for another name, or comes from an authority"
            f" that ssl.ca.location does not hold: {said}"
        )
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return f"{said}: larger than the topic's max.message.bytes allows"
    return said


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    """Return the `KafkaError` inside *error*."""
    return error.args[0] if isinstance(error, KafkaException) else error


def jms_error(
    error: KafkaError | KafkaException,
    doing: str,
    *,
    to: str = "",
    topic: str = "",
    group: str = "",
    transactional_id: str = "",
) -> JMSException:
    """Return the JMS exception for *error*, which came while *doing* (a sentence's beginning, with its names).

    The error code is Kafka's name for it and the linked exception is Kafka's own (JMS 2.0 §7.2). If Kafka did not allow
    it, the text says what is missing: an ACL *to* do something with *topic*, or one for the group or transactional id.

    >>> jms_error(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "send to 'orders'").error_code
    'UNKNOWN_TOPIC_OR_PART'
    >>> error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    >>> str(jms_error(error, "send to 'orders'", to="Write", topic="orders")).partition("; ")[2]
    "the ACL Write on the topic 'orders' is missing"
    """
    inner = kafka_error(error)
    code = inner.code()
    kind = JMSException
    if code in _SECURITY or is_refusal(inner):
        kind = JMSSecurityException
    elif code in _DESTINATION:
        kind = InvalidDestinationException
    elif code in _RESOURCES or is_shortage(inner):
        kind = ResourceAllocationException
    linked = error if isinstance(error, KafkaException) else KafkaException(error)
    missing = ""
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED and group:
        missing = f"{'Read' if topic else to or 'Read'} on the group {group!r}"
    elif code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and transactional_id:
        missing = f"Write on the transactional id {transactional_id!r}"
    elif code in _OF_TOPICS and topic:
        missing = f"{to} on the topic {topic!r}"
    words = f"; the ACL {missing} is missing" if missing else ""
    return kind(f"{doing}: {_explained(inner)} ({inner.name()}){words}", inner.name(), linked)
