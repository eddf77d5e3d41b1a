"""Make queues and topics, and delete them with all that kjms keeps beside them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kjms.destinations import Queue, Topic
from kjms.engine import destination_name
from kjms.errors import IllegalStateException, InvalidDestinationException
from kjms.mapping.names import beside, delayed_group, is_internal, queue_group, topic_for

if TYPE_CHECKING:
    from kjms.engine import Engine
    from kjms.options import FactoryOptions

__all__ = ["Destinations"]


class Destinations:
    """Makes and deletes destinations; any thread may call it.

    Args:
        engine: Has the Kafka clients.
        options: The options of the factory.
    """

    def __init__(self, engine: Engine, options: FactoryOptions) -> None:
        self._engine = engine
        self._cluster = engine.admin
        self._options = options

    def create(self, destination: Queue | Topic, partitions: int | None, config: Mapping[str, object] | None) -> None:
        """Make the Kafka topic of *destination*."""
        topic = self._topic(destination)
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise ValueError(f"partitions is a whole number greater than 0, not {partitions!r}")
        chosen = self._options.destination(destination_name(destination))
        is_new = self._cluster.create(
            topic,
            partitions or chosen.partitions or 1,
            chosen.replication_factor,
            {name: str(value) for name, value in (config or {}).items()},
            is_queue=isinstance(destination, Queue),
        )
        if not is_new:
            text = f"{destination} exists already: there is a Kafka topic {topic!r}"
            raise InvalidDestinationException(text, "TOPIC_ALREADY_EXISTS")

    def delete_queue(self, queue: Queue) -> None:
        """Delete *queue* with its consumer groups, and what is in it."""
        topic = self._topic(queue)
        self._delete(queue, topic, {queue_group(topic)})

    def delete_topic(self, destination: Topic) -> None:
        """Delete *destination*."""
        self._delete(destination, self._topic(destination), set())

    def _delete(self, destination: Queue | Topic, topic: str, groups: set[str]) -> None:
        own = [found.identity.name for found in self._cluster.subscriptions() if found.terms.topic == topic]
        if own:
            names = ", ".join(map(repr, sorted(own)))
            raise IllegalStateException(f"{destination} has subscriptions: {names}; unsubscribe them first")
        there = self._cluster.topics()
        family = {topic, *beside(topic, there)} & there.keys()
        if not family:
            raise InvalidDestinationException(
                f"{destination}: there is no Kafka topic {topic!r} at {self._options.bootstrap_servers}"
            )
        # First, since the broker refuses it while consumers are there: nothing is lost then.
        for group in groups:  # whether it is listed or not: a user who may not see it must not delete it, either
            self._delete_group(destination, topic, group)
        self._cluster.delete_group(delayed_group(topic))  # unless a process serves it
        self._cluster.delete_topics(sorted(family, key=lambda each: each != topic))  # its own first: then all is gone
        self._cluster.forget(topic, {each: there[each] for each in family}, groups)

    def _delete_group(self, destination: Queue | Topic, topic: str, group: str) -> None:
        """Delete *group*; if this process is leaving it, as soon as it has left."""
        deadline = time.monotonic() + self._engine.tuning.grace_seconds + self._options.send_timeout / 1000
        while True:
            is_leaving = self._is_leaving(topic)  # first: the attempt waits for a member that leaves meanwhile
            if self._cluster.delete_group(group, is_left=True):
                return
            if not is_leaving or time.monotonic() > deadline:
                break
        count = len(self._cluster.members([group]).get(group, ()))
        raise IllegalStateException(
            f"{destination} has consumers in {count} process{'' if count == 1 else 'es'}; close them first:"
            " kjms.admin.Admin.consumers() lists them"
            if count
            else f"consumers of {destination} were closed just now, or are being created; try again"
        )

    def _is_leaving(self, topic: str) -> bool:
        """Return whether the members of the queue's group may be this process, which has no consumer any more."""
        own = [each for each in self._engine.statistics().group_consumers if each.topic == topic]
        return any(each.is_reading for each in own) and not any(each.consumers for each in own)

    def _topic(self, destination: Queue | Topic) -> str:
        topic = topic_for(destination, self._options.queue_prefix, self._options.topic_prefix)
        if is_internal(topic) or topic.startswith("__"):
            raise InvalidDestinationException(f"{destination} is reserved for internal use")
        return topic
