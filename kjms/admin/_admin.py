"""`Admin`: one place for what commands, exporter and scripts ask of a cluster."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from kjms.admin._figures import (
    ConnectionFigures,
    ConsumerFigures,
    DelayedMessage,
    DestinationFigures,
    QueueFigures,
    Redeliveries,
    SubscriptionFigures,
)
from kjms.admin._retention import CLEANUP, RETENTION, RETENTION_BYTES, retention, retention_warnings
from kjms.client.connection import Connection
from kjms.client.engine_access import engine_of
from kjms.client.no_local import NotLocal
from kjms.destinations import Queue, Topic
from kjms.engine import DURABLE, Backlog, Found, Scope
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException
from kjms.mapping import decode
from kjms.mapping.names import delayed, destination_for, is_internal, queue_group, topic_for
from kjms.options import RedeliveryPolicy

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from kjms.client.connection_factory import ConnectionFactory
    from kjms.engine import Member

__all__ = ["Admin"]

_log = logging.getLogger("kjms.admin")

QUEUE: Final = queue_group("")
HOUR_MS: Final = 3_600_000  # of the redelivery log, before the first question
SETTINGS_SECONDS: Final = 60.0  # until the settings of topics are asked for again


class Admin:
    """Ask what a cluster's queues and subscriptions hold. It consumes nothing, and joins no consumer group.

    Messages are counted one by one, since Kafka's offsets have holes. An `Admin` remembers what it has read: the first
    question reads the unsettled messages, and later ones what came since. That takes 16 bytes of memory for each
    unsettled message, and more for one that expires. With ``estimate=True`` it reads no messages, and gives an upper
    bound.

    One `Admin` may be used by several threads; its questions are then asked one after the other. During an outage of
    the cluster a question raises JMSException, and it succeeds afterwards. However, librdkafka may abort the process if
    a broker goes while it is asked for the offsets of a group: long-running programs ask in a child process, as
    `kjms.exporter` does with ``in_child=True``.

    Args:
        factory: The factory of the programs: its address, credentials, prefixes and redelivery policies are used, its
            client id is not.
        user: The name for SASL; None: the one in the factory's settings, if any.
        password: The password for it.

    Raises:
        JMSSecurityException: The broker refused the credentials.
        JMSException: No broker answered within the send timeout.

    >>> from kjms import ConnectionFactory, Queue
    >>> from kjms.testing import MemoryKafka
    >>> with MemoryKafka() as kafka:
    ...     factory = ConnectionFactory(kafka.bootstrap_servers)
    ...     with factory.create_context() as context, Admin(factory) as admin:
    ...         _ = context.create_producer().send(Queue("orders"), "ten pens")
    ...         admin.queue("orders").depth
    1
    """

    def __init__(self, factory: ConnectionFactory, user: str | None = None, password: str | None = None) -> None:
        options = replace(factory._options, client_id=None, create_destinations=False)
        self._begin(Connection(options, user, password), is_own=True)

    def _begin(self, connection: Connection, *, is_own: bool) -> None:
        self._connection = connection
        self._is_own = is_own
        self._options = connection._options
        engine = engine_of(connection)
        self._cluster = engine.admin
        self._survey = engine.survey()
        self._since = engine.tuning.now_ms() - HOUR_MS
        self._settings: dict[str, dict[str, str]] = {}
        self._settings_at = 0.0

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """Return an `Admin` that uses the clients of *connection*, and does not close it."""
        admin = cls.__new__(cls)
        admin._begin(connection, is_own=False)
        return admin

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Admin of {self._options.bootstrap_servers}: {self._survey!r}>"

    def close(self) -> None:
        """Close the connection to the cluster; a second call does nothing."""
        self._survey.close()
        if self._is_own:
            self._connection.close()

    # Queues.

    def queues(self, *, estimate: bool = False) -> list[QueueFigures]:
        """Return all queues, sorted by name, with what they hold.

        A queue is a Kafka topic that was consumed as a queue, that kjms created for one, or that is the dead-letter
        queue of one. A topic of another program is a queue once a consumer has received from it as one.

        Args:
            estimate: Whether to give upper bounds, and read no messages.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self._cluster.topics()
        groups = self._cluster.groups()
        topics, letters = self._find_queues(there, groups)
        return self._queue_figures(topics | letters, letters, there, groups, estimate=estimate)

    def queue(self, name: str | Queue, *, estimate: bool = False) -> QueueFigures:
        """Return what one queue holds.

        Args:
            name: The queue, or its name.
            estimate: Whether to give upper bounds, and read no messages.

        Raises:
            InvalidDestinationException: Its Kafka topic does not exist.
            JMSException: The broker does not answer.
        """
        queue = Queue(name) if isinstance(name, str) else name
        topic, there = self._existing(queue)
        groups = self._cluster.groups()
        _, letters = self._find_queues(there, groups)
        own = {self._letters(queue)} & there.keys()
        found = self._queue_figures({topic} | own, letters, there, groups, estimate=estimate)
        for each in found:
            if each.topic == topic:
                return each
        raise InvalidDestinationException(f"{queue}: its Kafka topic {topic!r} is being created or deleted; try again")

    def _find_queues(self, there: Mapping[str, int], groups: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the Kafka topics of queues, and those of dead-letter queues."""
        topics = {group.removeprefix(QUEUE) for group in groups if group.startswith(QUEUE)} & there.keys()
        topics |= self._survey.queues_made(there)
        topics = {topic for topic in topics if not is_internal(topic)}
        return topics, {self._letters(self._queue(topic)) for topic in topics} & there.keys()

    def _queue_figures(
        self,
        topics: Collection[str],
        letters: Collection[str],
        there: Mapping[str, int],
        groups: Collection[str],
        *,
        estimate: bool,
    ) -> list[QueueFigures]:
        queues = {topic: self._queue(topic) for topic in topics}
        scopes = [self._scope(queue, topic) for topic, queue in queues.items()]
        backlogs = self._look(scopes, there, estimate=estimate)
        wanted = {queue_group(topic) for topic in topics}
        members = self._cluster.members(wanted & set(groups))
        events = self._survey.redeliveries(there, self._since)
        found = []
        for topic, queue in queues.items():
            group = queue_group(topic)
            backlog = backlogs.get(group)
            if backlog is None:
                continue
            found.append(
                QueueFigures(
                    name=queue.queue_name,
                    topic=topic,
                    partitions=there[topic],
                    is_dead_letter_queue=topic in letters,
                    dead_letters=self._dead_letters(queue, backlogs, there),
                    **_messages(backlog, members.get(group, ()), events.get(group)),
                )
            )
        return sorted(found, key=lambda each: each.name)

    def _dead_letters(
        self, queue: Queue, backlogs: Mapping[str, Backlog | JMSException], there: Mapping[str, int]
    ) -> int | None:
        topic = self._letters(queue)
        if topic not in there:
            return 0
        backlog = backlogs.get(queue_group(topic))
        if not isinstance(backlog, Backlog) or not backlog.is_exact:
            return None
        if "{queue}" in self._policy(queue).dead_letter:  # this queue's alone
            return backlog.depth
        return backlog.dead_letters.get(str(queue), 0)

    def _policy(self, queue: Queue) -> RedeliveryPolicy:
        return self._options.destination(queue.queue_name).redelivery or RedeliveryPolicy()

    def _letters(self, queue: Queue) -> str:
        """Return the Kafka topic of the dead-letter queue of *queue*; empty: its name cannot be one."""
        try:
            letters = Queue(self._policy(queue).dead_letter_queue(queue.queue_name))
            return topic_for(letters, self._options.queue_prefix)
        except InvalidDestinationException:
            return ""

    def _queue(self, topic: str) -> Queue:
        """Return the queue whose Kafka topic is *topic*."""
        try:
            found = destination_for(topic, Queue, self._options.queue_prefix)
        except InvalidDestinationException:  # without the prefix: not a queue of this factory
            found = destination_for(topic, Queue)
        assert isinstance(found, Queue)
        return found

    def _scope(self, queue: Queue, topic: str) -> Scope:
        convention = self._options.destination(queue.queue_name).convention or "kjms"
        return Scope(queue, topic, queue_group(topic), convention=convention)

    def _existing(self, destination: Queue | Topic) -> tuple[str, dict[str, int]]:
        """Return the Kafka topic of *destination*, and the partitions of every topic."""
        topic = topic_for(destination, self._options.queue_prefix, self._options.topic_prefix)
        there = self._cluster.topics()
        if topic not in there:
            raise InvalidDestinationException(
                f"{destination}: there is no Kafka topic {topic!r} at {self._options.bootstrap_servers}"
            )
        return topic, there

    # Subscriptions.

    def subscriptions(self, *, estimate: bool = False) -> list[SubscriptionFigures]:
        """Return all named subscriptions, sorted by name: the durable ones, and shared ones with a consumer.

        Args:
            estimate: Whether to give upper bounds, and read no messages.

        Raises:
            JMSException: The broker does not answer.
        """
        found = self._cluster.subscriptions()
        if not found:
            return []
        there = self._cluster.topics()
        scopes = [self._subscribed(each) for each in found if each.terms.topic in there]
        backlogs = self._look(scopes, there, estimate=estimate)
        members = self._cluster.members({scope.group for scope in scopes})
        events = self._survey.redeliveries(there, self._since)
        return [
            SubscriptionFigures(
                name=each.identity.name,
                client_id=each.identity.client_id,
                topic=each.terms.destination.topic_name,
                durable=each.identity.space == DURABLE,
                shared=each.terms.is_shared,
                selector=None if each.terms.selector is None else each.terms.selector.text,
                no_local=each.terms.no_local,
                state=each.state,
                group=each.group,
                **_messages(backlogs.get(each.group), members.get(each.group, ()), events.get(each.group)),
            )
            for each in found
        ]

    def _subscribed(self, found: Found) -> Scope:
        terms, client_id = found.terms, found.identity.client_id
        wanted = terms.selector
        if terms.no_local and client_id is not None:
            wanted = NotLocal(terms.selector, client_id, "")
        return Scope(
            terms.destination,
            terms.topic,
            found.group,
            wanted,
            (None if terms.selector is None else terms.selector.text, client_id if terms.no_local else None),
            found.delayed_before,
            found.starts,
            self._options.destination(terms.destination.topic_name).convention or "kjms",
        )

    # Consumers.

    def consumers(self) -> list[ConsumerFigures]:
        """Return the processes that consume queues and named subscriptions, sorted by destination.

        A process is listed once for each queue and subscription that it consumes, however many consumers it has there.
        Consumers of a topic without a name are in no consumer group, and so are not listed.

        Raises:
            JMSException: The broker does not answer.
        """
        groups = self._cluster.groups()
        owned: dict[str, tuple[Queue | Topic, str | None, str]] = {}
        for group in groups:
            if group.startswith(QUEUE):
                topic = group.removeprefix(QUEUE)
                owned[group] = self._queue(topic), None, topic
        for each in self._cluster.subscriptions():
            if each.group in groups:
                owned[each.group] = each.terms.destination, each.identity.name, each.terms.topic
        found = []
        for group, members in self._cluster.members(owned.keys()).items():
            destination, subscription, topic = owned[group]
            found += [
                ConsumerFigures(
                    destination,
                    subscription,
                    group,
                    member.member_id,
                    member.client_id,
                    member.host,
                    tuple(sorted(number for name, number in member.partitions if name == topic)),
                )
                for member in members
            ]
        return sorted(found, key=lambda each: (str(each.destination), each.subscription or "", each.member_id))

    def connections(self) -> list[ConnectionFigures]:
        """Return the programs that consume, by ``client.id`` and host.

        Kafka does not list connections that only send. Give programs a ``client.id`` of their own with
        ``kafka={"client.id": "billing"}`` to tell them apart.

        Raises:
            JMSException: The broker does not answer.
        """
        programs: dict[tuple[str, str], list[ConsumerFigures]] = {}
        for consumer in self.consumers():
            programs.setdefault((consumer.client_id, consumer.host), []).append(consumer)
        return [ConnectionFigures(*program, tuple(consumers)) for program, consumers in sorted(programs.items())]

    # Delayed messages.

    def delayed(self, destination: str | Queue | Topic) -> list[DelayedMessage]:
        """Return the messages of a destination that are not due yet, the first due first.

        Args:
            destination: The queue or topic; a name is that of a queue.

        Raises:
            InvalidDestinationException: Its Kafka topic does not exist.
            JMSException: The broker does not answer.
        """
        wanted = Queue(destination) if isinstance(destination, str) else destination
        topic, there = self._existing(wanted)
        if delayed(topic) not in there:
            return []
        with self._cluster.delayed(topic) as waiting:
            return [
                DelayedMessage(
                    decode(each.record, wanted).jms_message_id,
                    _moment(each.due),
                    each.place[0],
                    each.place[1],
                )
                for each in waiting.read()
            ]

    # Destinations.

    def destinations(self, *, internal: bool = False, estimate: bool = False) -> list[DestinationFigures]:
        """Return the cluster's Kafka topics as destinations, sorted by name, with what is unsettled in queues.

        Args:
            internal: Whether to include the internal topics of kjms and Kafka.
            estimate: Whether to give upper bounds, and read no messages.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self._cluster.topics()
        topics = {
            topic: partitions
            for topic, partitions in there.items()
            if internal or not (is_internal(topic) or topic.startswith("__"))
        }
        groups = self._cluster.groups()
        spans = self._cluster.spans(topics)
        settings = self._cluster.settings(topics, (RETENTION, RETENTION_BYTES, CLEANUP))
        queues = [topic for topic in topics if queue_group(topic) in groups]
        backlogs = self._look([self._scope(self._queue(topic), topic) for topic in queues], there, estimate=estimate)
        found = []
        for topic in topics.keys() & spans.keys() & settings.keys():
            is_queue = queue_group(topic) in groups
            backlog = backlogs.get(queue_group(topic)) if is_queue else None
            name = self._name(topic, is_queue=is_queue)
            warnings = retention_warnings(name, settings[topic]) if is_queue else ()
            if isinstance(backlog, JMSException):
                warnings += (f"Cannot count the messages that wait in queue {name}: {backlog}",)
            counted = backlog if isinstance(backlog, Backlog) else None
            found.append(
                DestinationFigures(
                    name=name,
                    kind="queue" if is_queue else None,
                    topic=topic,
                    partitions=len(spans[topic]),
                    depth=None if counted is None else counted.depth,
                    depth_up_to=None if counted is None else counted.unsettled_offsets,
                    kept_up_to=sum(end - begin for begin, end in spans[topic]),
                    retention_ms=retention(settings[topic]),
                    warnings=warnings,
                )
            )
        return sorted(found, key=lambda each: each.name)

    def _name(self, topic: str, *, is_queue: bool) -> str:
        options = self._options
        try:
            kind: type[Queue] | type[Topic] = Queue if is_queue else Topic
            found = destination_for(topic, kind, options.queue_prefix, options.topic_prefix)
        except InvalidDestinationException:  # without the prefix: not a destination of this factory
            return topic
        return found.queue_name if isinstance(found, Queue) else found.topic_name

    # Looking.

    def _look(
        self, scopes: list[Scope], there: Mapping[str, int], *, estimate: bool
    ) -> dict[str, Backlog | JMSException]:
        compacted = set() if estimate else self._compacted({scope.topic for scope in scopes})
        return self._survey.look(scopes, there, is_exact=not estimate, changing=compacted)

    def _compacted(self, topics: Collection[str]) -> set[str]:
        """Return those of *topics* of which Kafka deletes messages that are neither settled nor the oldest."""
        now = time.monotonic()
        if now - self._settings_at > SETTINGS_SECONDS:
            self._settings_at, self._settings = now, {}
        unknown = set(topics) - self._settings.keys()
        try:
            self._settings.update(self._cluster.settings(sorted(unknown), (CLEANUP,)))
        except JMSSecurityException:  # without the right, a count may include what compaction has removed
            _log.info("the settings of topics cannot be read, so compacted topics are not known", exc_info=True)
            self._settings.update({topic: {} for topic in unknown})
        return {topic for topic in topics if "compact" in self._settings.get(topic, {}).get(CLEANUP, "")}


def _messages(
    backlog: Backlog | JMSException | None, members: Collection[Member], events: Counter[str] | None
) -> dict[str, Any]:
    """Return the figures that queues and subscriptions share."""
    counted = backlog if isinstance(backlog, Backlog) else None
    events = events or Counter()
    return {
        "depth": None if counted is None else counted.depth,
        "depth_up_to": None if counted is None else counted.unsettled_offsets,
        "oldest": None if counted is None or counted.oldest is None else _moment(counted.oldest),
        "in_flight": (None if counted is None else counted.dispatched) if members else 0,
        "delayed": None if counted is None else counted.delayed,
        "overdue": None if counted is None else counted.overdue,
        "overflow": None if counted is None else counted.overflow,
        "transfer": None if counted is None else counted.transfer,
        "expired": None if counted is None else counted.expired,
        "unreclaimed": None if counted is None else counted.unreclaimed,
        "consumers": len(members),
        "hosts": len({member.host for member in members}),
        "redeliveries": Redeliveries(events["redelivery"], events["dead letter"], events["expired"]),
        "error": str(backlog) if isinstance(backlog, JMSException) else None,
    }


def _moment(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    except (OverflowError, OSError, ValueError):  # later than Python's last year
        return datetime.max.replace(tzinfo=timezone.utc)
