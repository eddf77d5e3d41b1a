"""Which Kafka topics and consumer groups stand behind what `kjms.admin.Admin` is asked for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.admin._figures import SubscriptionFigures
from kjms.admin._messages import Source, Subscription
from kjms.client.no_local import NotLocal
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from kjms.engine import DURABLE, Scope, destination_name
from kjms.errors import InvalidDestinationException
from kjms.mapping.names import delayed, destination_for, is_internal, queue_group, topic_for
from kjms.options import RedeliveryPolicy

if TYPE_CHECKING:
    from kjms.engine import Admin, Found
    from kjms.options import FactoryOptions

__all__ = ["QUEUE", "Chosen", "Scopes"]

QUEUE: Final = queue_group("")
"""What the consumer groups of queues begin with."""


class Chosen(NamedTuple):
    """A queue or subscription that was asked for.

    Attributes:
        scope: Its Kafka topic and consumer group, and which messages are its own.
        subscription: The subscription; None: it is a queue.
        found: What the registry says of the subscription.
    """

    scope: Scope
    subscription: Subscription | None = None
    found: Found | None = None

    @property
    def destination(self) -> Queue | Topic:
        """The queue, or the topic of the subscription."""
        found = self.scope.destination
        assert isinstance(found, Queue | Topic)
        return found

    @property
    def name(self) -> str:
        """The name of the queue, or of the subscription."""
        found = self.subscription
        return destination_name(self.scope.destination) if found is None else found.name

    def __str__(self) -> str:
        return str(self.scope.destination if self.subscription is None else self.subscription)


class Scopes:
    """Finds Kafka topics and groups by the names of destinations, and the other way round.

    Args:
        options: The options of the factory.
        cluster: Asks the cluster.
    """

    def __init__(self, options: FactoryOptions, cluster: Admin) -> None:
        self._options = options
        self._cluster = cluster

    def chosen(self, source: Source) -> Chosen:
        """Return the queue or subscription that *source* names.

        Raises:
            InvalidDestinationException: It does not exist, or is a topic: a topic holds messages for its subscriptions.
            JMSException: The broker does not answer.
        """
        if isinstance(source, SubscriptionFigures):
            source = Subscription(source.name, source.client_id)
        if isinstance(source, Subscription):
            return self._subscription(source)
        queue = Queue(source) if isinstance(source, str) else source
        if isinstance(queue, TemporaryQueue | TemporaryTopic):
            raise InvalidDestinationException(f"{queue} belongs to the connection that made it; it cannot be managed")
        if not isinstance(queue, Queue):
            raise InvalidDestinationException(
                f"{queue} is a topic: it holds messages for its subscriptions; name one with kjms.admin.Subscription"
            )
        topic, _ = self.existing(queue)
        return Chosen(self.scope(queue, topic))

    def _subscription(self, wanted: Subscription) -> Chosen:
        for found in self._cluster.subscriptions():
            identity = found.identity
            if (identity.space, identity.name, identity.client_id) == (DURABLE, wanted.name, wanted.client_id):
                return Chosen(self.subscribed(found), wanted, found)
        raise InvalidDestinationException(f"there is no durable {wanted} at {self._options.bootstrap_servers}")

    def every(self, queues: Collection[str]) -> list[Chosen]:
        """Return all queues and durable subscriptions, by name.

        Args:
            queues: The Kafka topics of the queues.

        Raises:
            JMSException: The broker does not answer.
        """
        found = [Chosen(self.scope(self.queue(topic), topic)) for topic in sorted(queues)]
        there = self._cluster.topics()
        for each in self._cluster.subscriptions():
            if each.identity.space == DURABLE and each.terms.topic in there:
                named = Subscription(each.identity.name, each.identity.client_id)
                found.append(Chosen(self.subscribed(each), named, each))
        return found

    def anywhere(self, destination: Queue | Topic) -> Chosen:
        """Return *destination*, be it a topic: for its delayed messages, which no subscription has yet.

        Raises:
            InvalidDestinationException: It does not exist.
            JMSException: The broker does not answer.
        """
        topic, _ = self.existing(destination)
        convention = self._options.destination(destination_name(destination)).convention or "kjms"
        return Chosen(Scope(destination, topic, queue_group(topic), convention=convention))

    def with_delayed(self) -> list[Chosen]:
        """Return the destinations that have, or had, delayed messages, by name.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self._cluster.topics()
        found = []
        for topic in sorted(there):
            if is_internal(topic) or delayed(topic) not in there:
                continue
            for kind in (Queue, Topic):
                with contextlib.suppress(InvalidDestinationException):  # no prefix of ours
                    named = destination_for(topic, kind, self._options.queue_prefix, self._options.topic_prefix)
                    convention = self._options.destination(destination_name(named)).convention or "kjms"
                    found.append(Chosen(Scope(named, topic, queue_group(topic), convention=convention)))
                    break
        return found

    def holder_of_letters(self, queue: Queue) -> tuple[Chosen, Queue | None]:
        """Return the queue that has the dead letters meant by *queue*, and the only origin that counts; None: any.

        Raises:
            InvalidDestinationException: There is no such queue.
            JMSException: The broker does not answer.
        """
        chosen = self.chosen(queue)
        letters = self.letters(queue)
        if self.is_for_dead_letters(queue) or not letters or not self._cluster.partitions(letters):
            return chosen, None
        return Chosen(self.scope(self.queue(letters), letters)), queue

    def sends_letters_to(self, origin: Queue | Topic, queue: Destination) -> bool:
        """Return whether dead letters, or expired messages, of *origin* go to *queue*, as the options say."""
        options = self._options.destination(destination_name(origin))
        policy = options.redelivery or RedeliveryPolicy()
        letters = policy.dead_letter_queue(destination_name(origin))
        return isinstance(queue, Queue) and queue.queue_name in {letters, options.expiry_queue}

    def dead_letter_queues(self) -> list[Queue]:
        """Return the queues that are named like dead-letter queues or expiry queues, sorted by name.

        Raises:
            JMSException: The broker does not answer.
        """
        found = []
        for topic in self._cluster.topics():
            if not is_internal(topic):
                try:
                    named = destination_for(topic, Queue, self._options.queue_prefix)
                except InvalidDestinationException:  # no prefix of ours: not a destination of kjms
                    continue
                if isinstance(named, Queue) and self.is_for_dead_letters(named):
                    found.append(named)
        return sorted(found, key=str)

    def is_for_dead_letters(self, queue: Queue) -> bool:
        """Return whether *queue* is named like a dead-letter queue or expiry queue, as the options call them."""
        names = []
        for chosen in (self._options.defaults, *self._options.destinations.values()):
            if chosen.redelivery is not None:
                names.append(".+".join(map(re.escape, chosen.redelivery.dead_letter.split("{queue}"))))
            if chosen.expiry_queue is not None:
                names.append(re.escape(chosen.expiry_queue))
        return re.compile("|".join(names), re.DOTALL).fullmatch(queue.queue_name) is not None

    def existing(self, destination: Queue | Topic) -> tuple[str, dict[str, int]]:
        """Return the Kafka topic of *destination*, and the partitions of every topic."""
        topic = topic_for(destination, self._options.queue_prefix, self._options.topic_prefix)
        there = self._cluster.topics()
        if topic not in there:
            raise InvalidDestinationException(
                f"{destination}: there is no Kafka topic {topic!r} at {self._options.bootstrap_servers}"
            )
        return topic, there

    def queue(self, topic: str) -> Queue:
        """Return the queue whose Kafka topic is *topic*."""
        try:
            found = destination_for(topic, Queue, self._options.queue_prefix)
        except InvalidDestinationException:  # without the prefix: not a queue of this factory
            found = destination_for(topic, Queue)
        assert isinstance(found, Queue)
        return found

    def name(self, topic: str, *, is_queue: bool) -> str:
        """Return the name of the destination whose Kafka topic is *topic*."""
        options = self._options
        try:
            kind: type[Queue] | type[Topic] = Queue if is_queue else Topic
            found = destination_for(topic, kind, options.queue_prefix, options.topic_prefix)
        except InvalidDestinationException:  # without the prefix: not a destination of this factory
            return topic
        return found.queue_name if isinstance(found, Queue) else found.topic_name

    def scope(self, queue: Queue, topic: str) -> Scope:
        """Return what is to be counted of *queue*, whose Kafka topic is *topic*."""
        convention = self._options.destination(queue.queue_name).convention or "kjms"
        return Scope(queue, topic, queue_group(topic), convention=convention)

    def subscribed(self, found: Found) -> Scope:
        """Return what is to be counted of a subscription."""
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

    def policy(self, queue: Queue) -> RedeliveryPolicy:
        """Return the redelivery policy of *queue*."""
        return self._options.destination(queue.queue_name).redelivery or RedeliveryPolicy()

    def letters(self, queue: Queue) -> str:
        """Return the Kafka topic of the dead-letter queue of *queue*; empty: its name cannot be one."""
        try:
            letters = Queue(self.policy(queue).dead_letter_queue(queue.queue_name))
            return topic_for(letters, self._options.queue_prefix)
        except InvalidDestinationException:
            return ""
