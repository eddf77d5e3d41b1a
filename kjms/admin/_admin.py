"""`Admin`: one place for what commands, console, exporter and scripts ask of a cluster, and change in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from kjms.admin._changes import Changes, Choice
from kjms.admin._cluster import ClusterFigures
from kjms.admin._compatibility import Fitness, Ping, fitness, ping_of
from kjms.admin._destinations import Destinations
from kjms.admin._examination import Examination, Finding
from kjms.admin._letters import causes_of, count_every_queue, count_letters, queue_of
from kjms.admin._reader import MessageReader, selector_of
from kjms.checking import checked
from kjms.client.connection import Connection
from kjms.client.engine_access import options_of
from kjms.destinations import Queue, Topic

if TYPE_CHECKING:
    from typing_extensions import Self

    from kjms.admin._messages import (
        Changed,
        DeadLetterCause,
        DeadLetterQueue,
        MessageFigures,
        OnProgress,
        Page,
        RedeliveryEvent,
        Source,
    )
    from kjms.admin._scopes import Chosen
    from kjms.client.connection_factory import ConnectionFactory

__all__ = ["Admin"]


class Admin(ClusterFigures):
    """Ask what a cluster's queues and subscriptions hold, and change it.

    Questions consume nothing, and join no consumer group. Messages are counted one by one, since Kafka's offsets have
    holes. An `Admin` remembers what it has counted: the first question reads the unsettled messages, and later ones
    what came since. That takes 16 bytes of memory for each unsettled message, and more for one that expires. With
    ``estimate=True`` it reads no messages, and gives an upper bound.

    One `Admin` may be used by several threads; its counts are then made one after the other. During an outage of
    the cluster a call raises JMSException, and it succeeds afterwards.

    Args:
        factory: The factory of the programs: its address, credentials, prefixes and redelivery policies are used, its
            client id is not.
        user: The name for SASL; None: the one in the factory's settings, if any.
        password: The password for it.

    Raises:
        JMSSecurityException: The broker refused the credentials.
        JMSException: No broker answered within the send timeout.
        ValueError: *factory* is no ConnectionFactory.

    >>> from kjms import ConnectionFactory, Queue
    >>> from kjms.testing import MemoryKafka
    >>> with MemoryKafka() as kafka:
    ...     factory = ConnectionFactory(kafka.bootstrap_servers)
    ...     with factory.create_context() as context, Admin(factory) as admin:
    ...         _ = context.create_producer().send(Queue("orders"), "ten pens")
    ...         admin.queue("orders").depth, [each.message.text for each in admin.browse("orders").messages]
    (1, ['ten pens'])
    """

    @checked
    def __init__(self, factory: ConnectionFactory, user: str | None = None, password: str | None = None) -> None:
        options = replace(options_of(factory), client_id=None, create_destinations=False)
        self._begin(Connection(options, user, password), is_own=True)

    def _begin(self, connection: Connection, *, is_own: bool) -> None:
        super().__init__(connection)
        self._is_own = is_own
        self._reader = MessageReader(self._engine, self._scopes)
        self._changes = Changes(self._engine, self._options, self._reader, self._scopes)
        self._destinations = Destinations(self._engine, self._options)

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """Return an `Admin` that uses the clients of *connection*, and does not close it."""
        admin = cls.__new__(cls)
        admin._begin(connection, is_own=False)
        return admin

    def close(self) -> None:
        """Close the connection to the cluster; a second call does nothing."""
        super().close()
        if self._is_own:
            self._connection.close()

    # The cluster.

    def ping(self) -> Ping:
        """Return how fast the cluster answers, and which Kafka it is like; nothing changes.

        Raises:
            JMSException: The broker does not answer.
        """
        return ping_of(self._engine.trial().ask())

    def compatibility(self) -> list[Fitness]:
        """Return what kjms needs of a Kafka, and whether this one has it: some seconds, on topics of its own.

        It creates two topics whose names begin with ``kjms-ping-``, a consumer group and a transactional producer, and
        deletes them at the end.

        Raises:
            JMSException: The broker does not answer.
        """
        trial = self._engine.trial()
        return fitness(trial.ask().apis, trial.run())

    def examine(self) -> list[Finding]:
        """Return what faults have left in the cluster, and what may lose messages; nothing changes.

        It looks at transactions that stay open, at what ended programs, deleted destinations and ended subscriptions
        have left, at records of kjms's own that cannot be read, at delayed messages that are overdue, and at settings
        of topics. It takes some seconds: programs that do not answer are asked again for six seconds, and a
        transaction that is open is observed for 45.

        Raises:
            JMSSecurityException: The broker does not let this user look.
            JMSException: The broker does not answer.
        """
        return self._examination().findings()

    def repair(self, finding: Finding) -> None:
        """Repair what was found, after another look whether that is still right.

        Programs may run meanwhile: what they use is not touched. To repair what is repaired already does nothing, or
        raises an error that says so.

        Args:
            finding: One that `examine` of this `Admin` returned.

        Raises:
            ValueError: It is not repairable: its ``remedy`` says what to do.
            JMSSecurityException: The broker does not let this user change that.
            JMSException: It is used again, or the broker does not answer.
        """
        if not finding.repairable:
            raise ValueError(f"kjms does not repair {finding.kind} {finding.subject}: {finding.remedy}")
        finding.repair()

    def _examination(self) -> Examination:
        engine = self._engine
        return Examination(
            self._cluster, engine.leftovers(), self._survey, self._scopes, self._find_queues, engine.tuning
        )

    # Messages.

    def browse(
        self,
        source: Source,
        selector: str | None = None,
        *,
        limit: int = 100,
        after: str | None = None,
        scan_limit: int | None = None,
        progress: OnProgress | None = None,
    ) -> Page:
        """Return a page of the messages that a queue or a durable subscription holds, and consume nothing.

        It shows what a browser shows: what is not settled, messages in flight included; not what has expired or is not
        due yet. A page begins where the last one ended, so it costs the same wherever it is. It has the messages of one
        partition after the other, each in its order. A message that kjms relocates between two pages may be on both.

        Args:
            source: The queue, its name, or the subscription.
            selector: Which of its messages; None is all.
            limit: How many messages the page has at the most, from 1 to 10,000. It has fewer where they are larger than
                32 MB together.
            after: The attribute ``next`` of the page before; None: the first page.
            scan_limit: How many messages are looked at, at the most. The page may have fewer messages than *limit*, or
                none, and a next page. None: any number; if few messages match, that may take long.
            progress: Called once for every thousand messages that were looked at.

        Raises:
            InvalidDestinationException: There is no such queue or subscription.
            InvalidSelectorException: The selector's syntax is wrong.
            ValueError: *limit* or *scan_limit* is out of range, or *after* is of another destination.
            JMSSecurityException: The broker does not let this user read there.
            JMSException: The broker does not answer.
        """
        wanted = selector_of(selector)
        return self._reader.page(self._scopes.chosen(source), wanted, limit, after, scan_limit, progress)

    def messages(
        self, source: Source, selector: str | None = None, *, progress: OnProgress | None = None
    ) -> Generator[MessageFigures, None, None]:
        """Return all messages that a queue or a durable subscription holds, one by one, as `browse` shows them.

        They are read while they are asked for, so any number of them needs little memory. It ends with what is there
        when it begins.

        Args:
            source: The queue, its name, or the subscription.
            selector: Which of its messages; None is all.
            progress: Called once for every thousand messages that were looked at.

        Raises:
            InvalidDestinationException: There is no such queue or subscription.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: The broker does not answer.
        """
        wanted = selector_of(selector)
        return self._reader.messages(self._scopes.chosen(source), wanted, progress)

    def count(
        self,
        source: Source,
        selector: str | None = None,
        *,
        limit: int | None = None,
        progress: OnProgress | None = None,
    ) -> int:
        """Return how many messages of a queue or durable subscription match *selector*: the preview of a change.

        Args:
            source: The queue, its name, or the subscription.
            selector: Which of its messages; None is all.
            limit: Where counting ends; None: at the last message.
            progress: Called once for every thousand messages that were looked at.

        Raises:
            InvalidDestinationException: There is no such queue or subscription.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: The broker does not answer.
        """
        wanted = selector_of(selector)
        return self._reader.count(self._scopes.chosen(source), wanted, limit, progress)

    def message(self, source: Source, message_id: str, *, progress: OnProgress | None = None) -> MessageFigures | None:
        """Return a message, where it is, and what happened to it; None: it is settled, or was never there.

        Messages that are not due yet are looked for, too.

        Args:
            source: The queue, its name, or the subscription.
            message_id: The message's JMSMessageID.
            progress: Called once for every thousand messages that were looked at.

        Raises:
            InvalidDestinationException: There is no such queue or subscription.
            JMSException: The broker does not answer.
        """
        return self._reader.find(self._scopes.chosen(source), message_id, progress)

    def find(
        self,
        message_id: str,
        *,
        progress: OnProgress | None = None,
        found: Callable[[MessageFigures], object] | None = None,
    ) -> list[MessageFigures]:
        """Return the places of a message in all queues, dead-letter queues and durable subscriptions.

        It reads what is not settled of all of them, the shortest first; *progress* may end that by raising an
        exception. Queues that may not be read, or that a later version of kjms settles, are left out and named in the
        log.

        Args:
            message_id: The message's JMSMessageID.
            progress: Called once for every thousand messages that were looked at, and for each destination.
            found: Called with each place as soon as it is found.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self._cluster.topics()
        queues, letters = self._find_queues(there, self._cluster.groups())
        every = self._scopes.every(queues | letters)
        topics = {each.scope.topic: there[each.scope.topic] for each in every if each.scope.topic in there}
        sizes = {topic: sum(end - start for start, end in each) for topic, each in self._cluster.spans(topics).items()}
        every.sort(key=lambda each: sizes.get(each.scope.topic, 0))
        return self._reader.find_everywhere(every, message_id, progress, found)

    def redeliveries(
        self, message_id: str, *, since: datetime | None = None, progress: OnProgress | None = None
    ) -> list[RedeliveryEvent]:
        """Return what happened to a message after its first delivery, oldest first, as the redelivery log says.

        Args:
            message_id: The message's JMSMessageID.
            since: Which events are of interest; None: all that Kafka keeps.
            progress: Called once for every thousand events that were looked at.

        Raises:
            JMSException: The broker does not answer.
        """
        return self._reader.redeliveries(message_id, since, progress)

    # Dead letters.

    def dead_letters(
        self, queue: str | Queue | None = None, *, limit: int | None = None, progress: OnProgress | None = None
    ) -> list[DeadLetterQueue]:
        """Return the dead-letter queues, sorted by name, with the number and the causes of their dead letters.

        They are found by their names, as the factory's redelivery policies and expiry queues call them.

        Args:
            queue: Return only this one, whatever its name; None: all.
            limit: How many dead letters of each queue are counted at the most; None: all.
            progress: Called once for every thousand messages that were looked at.

        Raises:
            InvalidDestinationException: There is no such queue.
            JMSException: The broker does not answer.
        """
        if queue is None:
            every = count_every_queue(self._reader, self._scopes, progress, limit)
        else:
            chosen = self._scopes.chosen(queue)
            every = {chosen.name: count_letters(self._reader, chosen, progress, limit)}
        return [queue_of(name, tallies) for name, tallies in every.items()]

    def dead_letter_causes(self, *, progress: OnProgress | None = None) -> list[DeadLetterCause]:
        """Return the causes of dead letters across all dead-letter queues, the most frequent first.

        Args:
            progress: Called once for every thousand messages that were looked at.

        Raises:
            JMSException: The broker does not answer.
        """
        return causes_of(count_every_queue(self._reader, self._scopes, progress))

    # Changes of messages.

    def purge(
        self,
        source: Source,
        selector: str | None = None,
        *,
        limit: int | None = None,
        message_ids: Collection[str] | None = None,
        progress: OnProgress | None = None,
    ) -> Changed:
        """Delete messages of a queue or durable subscription: those that are there when the call begins.

        It receives them as a consumer does, so consumers may run meanwhile: what they have in flight stays, and is
        theirs. It goes in batches of 500 messages; if the call is interrupted, the batches before stay done, and the
        same call continues.

        Args:
            source: The queue, its name, or the subscription. An unshared subscription must not have a consumer.
            selector: Which messages; None is all.
            limit: How many at the most; None: any number.
            message_ids: Only those with these JMSMessageIDs; None: whatever their ids.
            progress: Called after each batch, and once for every thousand messages that are looked at before.

        Returns:
            How many were deleted, why others stayed, and how many there were: see `Changed`.

        Raises:
            InvalidDestinationException: There is no such queue or subscription.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSSecurityException: The broker does not let this user receive there.
            JMSException: The broker does not answer, or the subscription has a consumer. The text says how many
                messages were deleted before.
        """
        choice = chosen_messages(selector, limit, message_ids)
        return self._changes.purge(self._scopes.chosen(source), choice, progress)

    def move(
        self,
        source: Source,
        target: str | Queue | Topic,
        selector: str | None = None,
        *,
        limit: int | None = None,
        message_ids: Collection[str] | None = None,
        progress: OnProgress | None = None,
    ) -> Changed:
        """Move messages of a queue or durable subscription to another destination, unchanged, each exactly once.

        One Kafka transaction writes a batch of 500 messages to the target and settles it in the source. The messages
        keep ids, properties, expiration and group; their delivery count begins anew. Otherwise as `purge`.

        Args:
            source: The queue, its name, or the subscription.
            target: The queue, its name, or the topic that gets them. It must exist.
            selector: Which messages; None is all.
            limit: How many at the most; None: any number.
            message_ids: Only those with these JMSMessageIDs; None: whatever their ids.
            progress: Called after each batch, and once for every thousand messages that are looked at before.

        Raises:
            InvalidDestinationException: Source or target does not exist, or both are the same.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSSecurityException: The broker does not let this user receive, or send.
            JMSException: The broker does not answer, or the subscription has a consumer. The text says how many
                messages were moved before.
        """
        choice = chosen_messages(selector, limit, message_ids)
        return self._changes.move(self._scopes.chosen(source), destination_of(target), choice, progress)

    def copy(
        self,
        source: Source,
        target: str | Queue | Topic,
        selector: str | None = None,
        *,
        limit: int | None = None,
        message_ids: Collection[str] | None = None,
        progress: OnProgress | None = None,
    ) -> Changed:
        """Copy messages of a queue or durable subscription to another destination, those in flight included.

        It takes nothing. Each batch of 500 messages is one Kafka transaction. The copies have the JMSMessageIDs of the
        originals. A call that failed says how many messages were copied before; a second call copies these again.

        Args:
            source: The queue, its name, or the subscription.
            target: The queue, its name, or the topic that gets them. It must exist.
            selector: Which messages; None is all.
            limit: How many at the most; None: any number.
            message_ids: Only those with these JMSMessageIDs; None: whatever their ids.
            progress: Called after each batch.

        Raises:
            InvalidDestinationException: Source or target does not exist, or both are the same.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSSecurityException: The broker does not let this user read, or send.
            JMSException: The broker does not answer.
        """
        choice = chosen_messages(selector, limit, message_ids)
        return self._changes.copy(self._scopes.chosen(source), destination_of(target), choice, progress)

    def retry_dead_letters(
        self,
        queue: str | Queue,
        *,
        message_ids: Collection[str] | None = None,
        selector: str | None = None,
        limit: int | None = None,
        origin: str | Queue | Topic | Collection[str | Queue | Topic] = (),
        topics: bool = False,
        progress: OnProgress | None = None,
    ) -> Changed:
        """Move dead letters back to where they came from, as they were sent; their delivery count begins anew.

        Each moves exactly once, as with `move`. They expire when they would have, or never if that time is over. What
        a dead letter says of its origin is believed if the dead letters, or expired messages, of that destination go to
        the queue by the factory's options. Others stay, unless *origin* names where they came from.

        Args:
            queue: A dead-letter queue; or the queue that the dead letters came from, if its dead-letter queue exists:
                only its own dead letters are moved then.
            message_ids: Only those with these JMSMessageIDs; None: whatever their ids.
            selector: Which of them; None is all. Dead letters have properties such as JMS_kjms_Cause.
            limit: How many at the most; None: any number.
            origin: Only those that came from this destination, or from one of these, wherever its dead letters go; a
                name is that of a queue.
            topics: Whether to move those that came from topics, too: every subscription receives them again.
            progress: Called after each batch, and once for every thousand messages that are looked at before.

        Raises:
            InvalidDestinationException: There is no such queue.
            InvalidSelectorException: The selector's syntax is wrong.
            JMSException: The broker does not answer. The text says how many messages were moved before.
        """
        choice = chosen_messages(selector, limit, message_ids)
        named = Queue(queue) if isinstance(queue, str) else queue
        holder, only = self._scopes.holder_of_letters(named)
        given = [origin] if isinstance(origin, str | Queue | Topic) else origin
        origins = [destination_of(each) for each in given] or ([] if only is None else [only])
        return self._changes.retry(holder, choice, progress, origins=origins, topics=topics)

    # Delayed messages.

    def cancel(self, message_id: str, destination: str | Queue | Topic | None = None) -> bool:
        """Cancel a message that is not due yet, and return when it is certain that it will not be delivered.

        Args:
            message_id: Its JMSMessageID.
            destination: Its queue or topic; a name is that of a queue. None: it is searched for everywhere.

        Returns:
            Whether it was cancelled; if not, there is no such message, or it was delivered meanwhile.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSException: The broker does not answer, or no process serves the delayed messages; the request stays.
        """
        return self._changes.cancel(self._delayed_at(destination), message_id)

    def deliver(self, message_id: str, destination: str | Queue | Topic | None = None) -> bool:
        """Deliver a message that is not due yet, and return when it is on its destination.

        Args:
            message_id: Its JMSMessageID.
            destination: Its queue or topic; a name is that of a queue. None: it is searched for everywhere.

        Returns:
            Whether it was delivered; if not, there is no such message, or it was cancelled meanwhile.

        Raises:
            InvalidDestinationException: There is no such destination.
            JMSException: The broker does not answer, or no process serves the delayed messages; the request stays.
        """
        return self._changes.deliver(self._delayed_at(destination), message_id)

    def _delayed_at(self, destination: str | Queue | Topic | None) -> list[Chosen]:
        if destination is None:
            return self._scopes.with_delayed()
        return [self._scopes.anywhere(destination_of(destination))]

    # Destinations and subscriptions.

    def create_queue(
        self, name: str | Queue, *, partitions: int | None = None, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a queue. It keeps its messages until they are consumed, unless *config* says otherwise.

        Args:
            name: The queue, or its name.
            partitions: The partitions of its Kafka topic; None: as the factory's options say, or 1.
            config: Kafka's settings of the topic, such as ``{"max.message.bytes": 5_000_000}``; None: the broker's.

        Raises:
            InvalidDestinationException: It exists already, or the name cannot be one.
            JMSSecurityException: The broker does not let this user create topics.
            JMSException: The broker refuses a setting, or does not answer.
        """
        self._destinations.create(name if isinstance(name, Queue) else Queue(name), partitions, config)

    def create_topic(
        self, name: str | Topic, *, partitions: int | None = None, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic; as `create_queue`, but Kafka deletes its messages after the broker's retention time.

        Args:
            name: The topic, or its name.
            partitions: The partitions of its Kafka topic; None: as the factory's options say, or 1.
            config: Kafka's settings of the topic, such as ``{"retention.ms": 86_400_000}``; None: the broker's.

        Raises:
            InvalidDestinationException: It exists already, or the name cannot be one.
            JMSSecurityException: The broker does not let this user create topics.
            JMSException: The broker refuses a setting, or does not answer.
        """
        self._destinations.create(name if isinstance(name, Topic) else Topic(name), partitions, config)

    def delete_queue(self, name: str | Queue) -> None:
        """Delete a queue with its messages, its delayed messages, and all that kjms keeps of it.

        Its dead-letter queue is a queue of its own, and stays. A second call finishes what an interrupted one began.

        Args:
            name: The queue, or its name.

        Raises:
            InvalidDestinationException: There is no such queue.
            IllegalStateException: It has consumers, also two seconds later; nothing was deleted.
            JMSSecurityException: The broker does not let this user delete topics or groups.
            JMSException: The broker does not answer.
        """
        self._destinations.delete_queue(name if isinstance(name, Queue) else Queue(name))

    def delete_topic(self, name: str | Topic) -> None:
        """Delete a topic with its messages, and all that kjms keeps of it.

        Args:
            name: The topic, or its name.

        Raises:
            InvalidDestinationException: There is no such topic.
            IllegalStateException: It has named subscriptions; nothing was deleted. Consumers without a subscription
                are in no group, so they are not noticed.
            JMSSecurityException: The broker does not let this user delete topics.
            JMSException: The broker does not answer.
        """
        self._destinations.delete_topic(name if isinstance(name, Topic) else Topic(name))

    def unsubscribe(self, name: str, client_id: str | None = None) -> None:
        """Delete a durable subscription, with the messages that wait for it.

        Args:
            name: Its name.
            client_id: The client identifier that it belongs to; None for a shared subscription without one.

        Raises:
            InvalidDestinationException: There is no durable subscription of that name.
            IllegalStateException: It has an open consumer.
            JMSException: The broker does not answer.
        """
        self._cluster.remove_subscription(name, client_id)


def destination_of(destination: str | Queue | Topic) -> Queue | Topic:
    """Return *destination*; a name is that of a queue."""
    return destination if isinstance(destination, Queue | Topic) else Queue(destination)


def chosen_messages(selector: str | None, limit: int | None, message_ids: Collection[str] | None) -> Choice:
    """Return the choice of messages, whose selector was checked.

    Raises:
        InvalidSelectorException: Its syntax is wrong.
        ValueError: *limit* is negative, or *message_ids* is a text.
    """
    selector_of(selector)
    if limit is not None and limit < 0:
        raise ValueError(f"limit is 0 or more, not {limit!r}")
    if isinstance(message_ids, str):
        raise ValueError(f"message_ids is a collection of ids, not the text {message_ids!r}")
    return Choice(selector, limit, message_ids)
