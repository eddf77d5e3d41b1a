"""Connection factories: their settings, and what they make."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kjms.checking import checked
from kjms.client.connection import Connection
from kjms.client.context import JMSContext
from kjms.destinations import Queue
from kjms.engine import check_kafka
from kjms.errors import InvalidDestinationException
from kjms.observe import Observer
from kjms.observe._observers import checked_observers
from kjms.options import (
    DEFAULT_PREFETCH,
    DEFAULT_SEND_TIMEOUT,
    DeadLetterDetails,
    DestinationOptions,
    FactoryOptions,
    Ordering,
    RedeliveryPolicy,
    SessionMode,
    checked_mode,
    milliseconds,
)

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ConnectionFactory", "FactorySettings"]


class FactorySettings:
    """The settings of every kind of connection factory."""

    @checked
    def __init__(
        self,
        bootstrap_servers: str = "localhost:9092",
        *,
        client_id: str | None = None,
        application: str | None = None,
        kafka: Mapping[str, Any] | None = None,
        redelivery: RedeliveryPolicy | Mapping[str, Any] | None = None,
        destinations: Mapping[str, DestinationOptions | Mapping[str, Any]] | None = None,
        create_destinations: bool = True,
        strict_kinds: bool = False,
        partitions: int = 1,
        replication_factor: int | None = None,
        ordering: Ordering = "session",
        queue_prefix: str = "",
        topic_prefix: str = "",
        prefetch: int = DEFAULT_PREFETCH,
        pipelined_acknowledge: bool = False,
        drop_duplicates: bool = False,
        send_timeout: int | timedelta = DEFAULT_SEND_TIMEOUT,
        expiry_queue: str | None = None,
        dead_letter_details: DeadLetterDetails | None = None,
        keep_settled: int | timedelta | None = None,
        hand_over: bool | None = None,
        max_unacknowledged: int | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._options = FactoryOptions(
            bootstrap_servers=bootstrap_servers,
            client_id=client_id,
            application=application,
            kafka={} if kafka is None else kafka,
            defaults=DestinationOptions(
                partitions=partitions,
                replication_factor=replication_factor,
                ordering=ordering,
                redelivery=RedeliveryPolicy() if redelivery is None else redelivery,  # type: ignore[arg-type]  # a mapping became one
                expiry_queue=expiry_queue,
                dead_letter_details=dead_letter_details,
                prefetch=prefetch,
                keep_settled=keep_settled,
                hand_over=hand_over,
            ),
            destinations={} if destinations is None else destinations,  # type: ignore[arg-type]  # mappings become options
            create_destinations=create_destinations,
            strict_kinds=strict_kinds,
            queue_prefix=queue_prefix,
            topic_prefix=topic_prefix,
            pipelined_acknowledge=pipelined_acknowledge,
            drop_duplicates=drop_duplicates,
            send_timeout=milliseconds(send_timeout, "send_timeout"),
            max_unacknowledged=max_unacknowledged,
            observers=checked_observers(observers),
        )
        check_kafka(self._options.kafka)
        _check_queues([self._options.defaults, *self._options.destinations.values()])

    @classmethod
    def from_config(cls, path: str | Path = "kjms.toml") -> Self:
        """Return the factory that the file at *path* describes; ``KJMS_*`` environment variables win.

        The file's named connection factories and destinations are `kjms.naming`'s.

        Raises:
            OSError: The file cannot be read.
            ValueError: It is no TOML, or holds a setting that there is not; the text names file and setting.
        """
        from kjms.client.config import factory_settings

        return cls(**factory_settings(Path(path), inspect.signature(cls).parameters))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._options.bootstrap_servers!r}, client id {self._options.client_id!r}>"


class ConnectionFactory(FactorySettings):
    """Makes connections to a Kafka cluster; can be used by any number of threads.

    Args:
        bootstrap_servers: Kafka's addresses, such as ``"localhost:9092"``.
        client_id: The client identifier of its connections, of which there can be one at a time then (JMS 2.0 §4.3.2).
        application: The name by which the console, ``kjms consumers`` and `kjms.admin.Admin.consumers` show the
            program; None: that of what was started.
        kafka: Settings handed to librdkafka as they are, such as ``security.protocol``.
        redelivery: How often and when unsettled messages come again; a mapping, as in a file, is taken as well.
        destinations: Settings of single destinations, by their names, likewise.
        create_destinations: Whether a destination that does not exist is made when it is first used.
        strict_kinds: Whether a queue is refused whose Kafka topic kjms made or consumed first as a topic, and a topic
            likewise. If not, the log and exception listeners receive a warning.
        partitions: Partitions of what is made. One gives total order, as a JMS broker does.
        replication_factor: Replicas of what is made, kjms's own topics included; None is the cluster's default.
        ordering: ``"session"`` keeps a session's messages to one destination in order; ``"none"`` spreads them.
        queue_prefix: What Kafka topic names of queues begin with.
        topic_prefix: What Kafka topic names of topics begin with.
        prefetch: How many messages of a destination a process holds ahead of its consumers.
        pipelined_acknowledge: AUTO_ACKNOWLEDGE does not wait for its commits: faster, and a crash may repeat what
            was acknowledged in the last tenth of a second.
        drop_duplicates: Consumers do not get messages whose JMSMessageID was there already: of the last 100,000
            messages of a destination in this process, and of the last 10,000 in each partition of a queue, in whatever
            process. The first consumer of a queue in a process decides for all of them.
        send_timeout: Milliseconds until a send that no broker confirms fails, and until connecting does.
        expiry_queue: The queue that expired messages go to; None: they vanish.
        dead_letter_details: What a dead letter says of the exception beside its type: ``"message"`` is its text,
            ``"traceback"`` the text and the traceback; None: neither, because both may hold data.
        hand_over: Whether messages go to other processes that want them, or have time for them (``docs/hand-over.md``).
        keep_settled: Milliseconds for which settled messages of queues stay in Kafka, at the least; None: an hour in
            Kafka topics that kjms made, without limit in those that others made.
        max_unacknowledged: How many messages a session may hold that are not acknowledged, or not committed: `receive`
            raises ResourceAllocationException then, and listeners are called no more, until some are. None: any number.
        observers: What learns of messages, transactions, rebalances and outages (``docs/metrics.md``).

    Raises:
        TypeError: A value is of another type, or there is no such setting.
        ValueError: A value is out of its range, or *kafka* holds a setting that kjms decides.

    Spec: JMS 2.0 §4.2.
    """

    def create_connection(self, user: str | None = None, password: str | None = None) -> Connection:
        """Return a new connection, stopped, after a broker has answered.

        Args:
            user: The name for SASL; None: the one in *kafka*, if any.
            password: The password for it.

        Raises:
            JMSSecurityException: The broker refused the credentials.
            InvalidClientIDException: A connection has the factory's client id already, in whatever process.
            JMSException: No broker answered within the send timeout.

        Spec: JMS 2.0 §4.3.1.
        """
        return Connection(self._options, user, password)

    def create_context(
        self,
        session_mode: int = SessionMode.AUTO_ACKNOWLEDGE,
        user: str | None = None,
        password: str | None = None,
    ) -> JMSContext:
        """Return a new context of the simplified API: a connection and a session in one object.

        Args:
            session_mode: One of the constants of `kjms.Session`, which `kjms.JMSContext` has, too.
            user: The name for SASL; None: the one in *kafka*, if any.
            password: The password for it.

        Raises:
            ValueError: There is no such mode.
            JMSSecurityException: The broker refused the credentials.
            InvalidClientIDException: A connection has the factory's client id already, in whatever process.
            JMSException: No broker answered within the send timeout.

        Spec: JMS 2.0 §11.2.1.
        """
        chosen = checked_mode(session_mode)  # before anything is connected
        return JMSContext(self.create_connection(user, password), chosen, set())


def _check_queues(options: Iterable[DestinationOptions]) -> None:
    for each in options:
        names = {"expiry_queue": each.expiry_queue}
        if each.redelivery is not None:
            names["redelivery: dead_letter"] = each.redelivery.dead_letter_queue("queue")
        for setting, name in names.items():
            if name is not None:
                try:
                    Queue(name)
                except InvalidDestinationException as error:
                    raise ValueError(f"{setting}: {error}") from error
