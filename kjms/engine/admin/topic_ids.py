"""Kafka's ids of topics: they tell a topic from another one of the same name that was created after it was deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from kjms.engine.admin.topic_watch import TopicWatch
from kjms.engine.kafka import AdminPort, KafkaException, TopicCollection, TopicDescription
from kjms.engine.tuning import Tuning

__all__ = ["TopicIds"]

URGENT_SECONDS: Final = 0.1


class TopicIds:
    """Finds the ids of topics, and watches whether they change.

    Args:
        admin: Returns the client; raises JMSException when it is closed.
        timeout: Seconds that Kafka may take to answer.
        tuning: Its times and limits.
    """

    def __init__(self, admin: Callable[[], AdminPort], timeout: float, tuning: Tuning) -> None:
        self._admin = admin
        self._timeout = timeout
        self._tuning = tuning
        self._known: dict[str, str] = {}
        self._former: set[str] = set()  # ids of topics that are deleted
        self._watch = TopicWatch(admin, timeout, self._pause, self._seen)

    def find(self, topic: str) -> str:
        """Ask for Kafka's id of *topic*, which no other topic of that name has; return ``-`` where it is not known.

        Raises:
            JMSException: The client was closed.
        """
        deadline = time.monotonic() + self._tuning.topic_visible_seconds
        while True:
            try:
                answer = self._admin().describe_topics(TopicCollection([topic]), request_timeout=self._timeout)
                found = str(answer[topic].result().topic_id)
            except (KafkaException, ValueError):  # not allowed to ask, or a broker that gives no ids
                self._admin()  # raises where there is no answer because the client was closed
                return "-"
            if found not in self._former or time.monotonic() > deadline:
                self._former.discard(found)  # it was taken for deleted because of what one broker said
                self._note(topic, found)
                return found
            time.sleep(self._tuning.topic_attempt_seconds)  # this broker does not know of the new topic yet

    def watch(self, topic: str, *, is_urgent: bool = False) -> str:
        """Return Kafka's id of *topic* as it was seen last; ask for it anew, without waiting for the answer.

        All topics that are watched are asked for together, and once a second at the most.

        Args:
            topic: The topic.
            is_urgent: Whether something happened that makes a new topic of the name likely.
        """
        self._watch.ask(topic, URGENT_SECONDS if is_urgent else None)
        return self._known.get(topic, "-")

    def _pause(self, count: int) -> float:
        return max(self._tuning.topic_check_seconds, count * self._tuning.topic_check_seconds_each)

    def _seen(self, topic: str, answer: Future[TopicDescription]) -> None:
        """Record the answer to `watch`; a topic that is deleted keeps its id until there is another one."""
        if not answer.cancelled() and answer.exception() is None:
            found = str(answer.result().topic_id)
            if found not in self._former:
                self._note(topic, found)

    def _note(self, topic: str, identity: str) -> None:
        """Record the id of *topic*: the one that was known is a former topic's, whatever answers still come."""
        known = self._known.get(topic, identity)
        if known != identity:
            self._former.add(known)
        self._known[topic] = identity

    def forget(self, identity: str) -> None:
        """Record that the topic with the id *identity* was deleted, whatever brokers answer that do not know it yet."""
        self._former.add(identity)
