"""Count what the queues, subscriptions and other destinations of a cluster hold."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping
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
from kjms.admin._messages import Progress, moment
from kjms.admin._retention import CLEANUP, RETENTION, RETENTION_BYTES, retention, retention_warnings
from kjms.admin._scopes import QUEUE, Scopes
from kjms.client.closing import AutoCloseable
from kjms.client.engine_access import engine_of
from kjms.destinations import Queue, Topic
from kjms.engine import DURABLE, Backlog, ProgramName, Scope
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException
from kjms.mapping import decode
from kjms.mapping.names import delayed, is_internal, overflow, queue_group

if TYPE_CHECKING:
    from kjms.admin._messages import OnProgress
    from kjms.client.connection import Connection
    from kjms.engine import Member

__all__ = ["ClusterFigures"]

_log = logging.getLogger("kjms.admin")

HOUR_MS: Final = 3_600_000  # of the redelivery log, before the first question
SETTINGS_SECONDS: Final = 60.0  # until the settings of topics are asked for again


class ClusterFigures(AutoCloseable):
    """Counts what the queues and subscriptions of a cluster hold.

    Args:
        connection: The connection whose clients are used.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._options = connection._options
        self._engine = engine_of(connection)
        self._cluster = self._engine.admin
        self._scopes = Scopes(self._options, self._cluster)
        self._survey = self._engine.survey()
        self._since = self._engine.tuning.now_ms() - HOUR_MS
        self._settings: dict[str, dict[str, str]] = {}
        self._settings_at = 0.0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._options.bootstrap_servers}: {self._survey!r}>"

    def close(self) -> None:
        """Close what reads; a second call does nothing."""
        self._survey.close()

    # Queues.

    def queues(self, *, estimate: bool = False, progress: OnProgress | None = None) -> list[QueueFigures]:
        """Return all queues, sorted by name, with what they hold.

        A queue is a Kafka topic that was consumed as a queue, that kjms created for one, or that is the dead-letter
        queue of one. A topic of another program is a queue once a consumer has received from it as one.

        Args:
            estimate: Whether to give upper bounds, and read no messages.
            progress: Called once for every thousand messages that are read; its total is an upper bound.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self._cluster.topics()
        groups = self._cluster.groups()
        topics, letters = self._find_queues(there, groups)
        return self._queue_figures(topics | letters, letters, there, groups, estimate=estimate, progress=progress)

    def queue(self, name: str | Queue, *, estimate: bool = False, progress: OnProgress | None = None) -> QueueFigures:
        """Return what one queue holds.

        Args:
            name: The queue, or its name.
            estimate: Whether to give upper bounds, and read no messages.
            progress: Called once for every thousand messages that are read; its total is an upper bound.

        Raises:
            InvalidDestinationException: Its Kafka topic does not exist.
            JMSException: The broker does not answer.
        """
        queue = name if isinstance(name, Queue) else Queue(name)
        topic, there = self._scopes.existing(queue)
        groups = self._cluster.groups()
        _, letters = self._find_queues(there, groups)
        own = {self._scopes.letters(queue)} & there.keys()
        found = self._queue_figures({topic} | own, letters, there, groups, estimate=estimate, progress=progress)
        for each in found:
            if each.topic == topic:
                return each
        raise InvalidDestinationException(f"{queue}: its Kafka topic {topic!r} is being created or deleted; try again")

    def _find_queues(self, there: Mapping[str, int], groups: Collection[str]) -> tuple[set[str], set[str]]:
        """Return the Kafka topics of queues, and those of dead-letter queues."""
        topics = {group.removeprefix(QUEUE) for group in groups if group.startswith(QUEUE)} & there.keys()
        topics |= self._survey.queues_made(there)
        topics = {topic for topic in topics if not is_internal(topic)}
        return topics, {self._scopes.letters(self._scopes.queue(topic)) for topic in topics} & there.keys()

    def _queue_figures(
        self,
        topics: Collection[str],
        letters: Collection[str],
        there: Mapping[str, int],
        groups: Collection[str],
        *,
        estimate: bool,
        progress: OnProgress | None,
    ) -> list[QueueFigures]:
        queues = {topic: self._scopes.queue(topic) for topic in topics}
        scopes = [self._scopes.scope(queue, topic) for topic, queue in queues.items()]
        backlogs = self._look(scopes, there, estimate=estimate, progress=progress)
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
        topic = self._scopes.letters(queue)
        if topic not in there:
            return 0
        backlog = backlogs.get(queue_group(topic))
        if not isinstance(backlog, Backlog) or not backlog.is_exact:
            return None
        if "{queue}" in self._scopes.policy(queue).dead_letter:  # this queue's alone
            return backlog.depth
        return backlog.dead_letters.get(str(queue), 0)

    # Subscriptions.

    def subscriptions(self, *, estimate: bool = False, progress: OnProgress | None = None) -> list[SubscriptionFigures]:
        """Return all named subscriptions, sorted by name: the durable ones, and shared ones with a consumer.

        Args:
            estimate: Whether to give upper bounds, and read no messages.
            progress: Called once for every thousand messages that are read; its total is an upper bound.

        Raises:
            JMSException: The broker does not answer.
        """
        found = self._cluster.subscriptions()
        if not found:
            return []
        there = self._cluster.topics()
        scopes = [self._scopes.subscribed(each) for each in found if each.terms.topic in there]
        backlogs = self._look(scopes, there, estimate=estimate, progress=progress)
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

    # Consumers.

    def consumers(self, *, in_flight: bool = False) -> list[ConsumerFigures]:
        """Return the processes that consume queues and named subscriptions, sorted by destination.

        A process is listed once for each queue and subscription that it consumes, however many consumers it has there.
        Consumers of a topic without a name are in no consumer group, and so are not listed.

        Args:
            in_flight: Whether to count what each of them has in flight, which reads the unsettled messages once.

        Raises:
            JMSException: The broker does not answer.
        """
        groups = self._cluster.groups()
        there = self._cluster.topics() if in_flight else {}
        owned: dict[str, tuple[Scope, str | None]] = {}
        for group in groups:
            if group.startswith(QUEUE):
                topic = group.removeprefix(QUEUE)
                owned[group] = self._scopes.scope(self._scopes.queue(topic), topic), None
        for each in self._cluster.subscriptions():
            if each.group in groups:
                owned[each.group] = self._scopes.subscribed(each), each.identity.name
        members = self._cluster.members(owned.keys())
        counted = [owned[group][0] for group, those in members.items() if those and owned[group][0].topic in there]
        backlogs = self._look(counted, there, estimate=False) if counted else {}
        found = [
            _consumer(*owned[group], member, backlogs.get(group))
            for group, those in members.items()
            for member in those
        ]
        return sorted(found, key=lambda each: (str(each.destination), each.subscription or "", each.member_id))

    def connections(self, *, in_flight: bool = False) -> list[ConnectionFigures]:
        """Return the programs that consume, by ``client.id`` and host.

        Kafka does not list connections that only send. The ``client.id`` names program, host and process, unless
        programs have one of their own, as with ``kafka={"client.id": "billing"}``.

        Args:
            in_flight: Whether to count what each consumer has in flight: see `consumers`.

        Raises:
            JMSException: The broker does not answer.
        """
        programs: dict[tuple[str, str], list[ConsumerFigures]] = {}
        for consumer in self.consumers(in_flight=in_flight):
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
        topic, there = self._scopes.existing(wanted)
        if delayed(topic) not in there:
            return []
        with self._cluster.delayed(topic) as waiting:
            return [
                DelayedMessage(
                    decode(each.record, wanted).jms_message_id,
                    moment(each.due),
                    each.place[0],
                    each.place[1],
                )
                for each in waiting.read()
            ]

    # Destinations.

    def destinations(
        self, *, internal: bool = False, estimate: bool = False, progress: OnProgress | None = None
    ) -> list[DestinationFigures]:
        """Return the cluster's Kafka topics as destinations, sorted by name, with what is unsettled in queues.

        Args:
            internal: Whether to include the internal topics of kjms and Kafka.
            estimate: Whether to give upper bounds, and read no messages.
            progress: Called once for every thousand messages that are read; its total is an upper bound.

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
        made, letters = self._find_queues(there, groups)
        queues = topics.keys() & (made | letters)
        noted = self._survey.kinds(there)
        backlogs = self._look(
            [self._scopes.scope(self._scopes.queue(topic), topic) for topic in queues],
            there,
            estimate=estimate,
            progress=progress,
        )
        found = []
        for topic in topics.keys() & spans.keys() & settings.keys():
            is_queue = topic in queues
            backlog = backlogs.get(queue_group(topic)) if is_queue else None
            name = self._scopes.name(topic, is_queue=is_queue)
            warnings = retention_warnings(name, settings[topic]) if is_queue else ()
            if isinstance(backlog, JMSException):
                warnings += (f"Cannot count the messages that wait in queue {name}: {backlog}",)
            if is_queue and noted.get(topic) == Topic.scheme:
                warnings += (
                    f"{Queue(name)} has consumers, and the Kafka topic {topic!r} was made or consumed first as a topic:"
                    " use one kind for a name",
                )
            counted = backlog if isinstance(backlog, Backlog) else None
            found.append(
                DestinationFigures(
                    name=name,
                    kind=Queue.scheme if is_queue else Topic.scheme if noted.get(topic) == Topic.scheme else None,
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

    # Looking.

    def _look(
        self, scopes: list[Scope], there: Mapping[str, int], *, estimate: bool, progress: OnProgress | None = None
    ) -> dict[str, Backlog | JMSException]:
        compacted = set() if estimate else self._compacted({scope.topic for scope in scopes})
        on_look = None if progress is None else lambda *looked: progress(Progress(*looked))
        return self._survey.look(scopes, there, is_exact=not estimate, changing=compacted, on_look=on_look)

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


def _consumer(
    scope: Scope, subscription: str | None, member: Member, backlog: Backlog | JMSException | None
) -> ConsumerFigures:
    partitions = tuple(sorted(number for name, number in member.partitions if name == scope.topic))
    in_flight = None
    if isinstance(backlog, Backlog) and backlog.is_exact:
        topics = (scope.topic, overflow(scope.topic, scope.group))
        in_flight = sum(backlog.dispatched_at.get((topic, number), 0) for topic in topics for number in partitions)
    assert isinstance(scope.destination, Queue | Topic)
    program = ProgramName.read(member.client_id)
    return ConsumerFigures(
        destination=scope.destination,
        subscription=subscription,
        group=scope.group,
        member_id=member.member_id,
        client_id=member.client_id,
        host=member.host,
        application=program and program.application,
        process_id=program and program.process_id,
        host_name=program and program.host,
        partitions=partitions,
        in_flight=in_flight,
    )


def _messages(
    backlog: Backlog | JMSException | None, members: Collection[Member], events: Counter[str] | None
) -> dict[str, Any]:
    """Return the figures that queues and subscriptions share."""
    counted = backlog if isinstance(backlog, Backlog) else None
    events = events or Counter()
    return {
        "depth": None if counted is None else counted.depth,
        "depth_up_to": None if counted is None else counted.unsettled_offsets,
        "oldest": None if counted is None or counted.oldest is None else moment(counted.oldest),
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
