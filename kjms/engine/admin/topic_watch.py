"""Watch topics: whether they are there, and which they are; all that are watched are asked for in one request."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from kjms.engine.kafka import AdminPort, KafkaException, TopicCollection, TopicDescription
from kjms.errors import JMSException

__all__ = ["ExpectedTopics", "TopicWatch"]

_log = logging.getLogger("kjms.topics")

LOOK_SECONDS: Final = 1.0  # between looks whether others have created what is expected
LOOK_SECONDS_EACH: Final = 0.001  # the same, for each topic, where there are very many


class TopicWatch:
    """Describes topics now and then, without waiting for the answers.

    Args:
        admin: Returns the client; raises JMSException when it is closed.
        timeout: Seconds that Kafka may take to answer.
        pause: Returns the seconds between two requests for so many topics.
        seen: Called with each topic and the answer, in a thread of the client library.
    """

    def __init__(
        self,
        admin: Callable[[], AdminPort],
        timeout: float,
        pause: Callable[[int], float],
        seen: Callable[[str, Future[TopicDescription]], None],
    ) -> None:
        self._admin = admin
        self._timeout = timeout
        self._pause = pause
        self._seen = seen
        self._wanted: set[str] = set()
        self._asked_at = 0.0
        self._lock = threading.Lock()

    def ask(self, topic: str, pause: float | None = None) -> None:
        """Describe *topic*, with what else was asked for, as soon as the *pause* in seconds since the last is over."""
        with self._lock:
            self._wanted.add(topic)
            now = time.monotonic()
            if now - self._asked_at < (self._pause(len(self._wanted)) if pause is None else pause):
                return
            self._asked_at = now
            wanted, self._wanted = list(self._wanted), set()
        try:
            answers = self._admin().describe_topics(TopicCollection(wanted), request_timeout=self._timeout)
        except (JMSException, KafkaException) as error:  # closed meanwhile, for one
            _log.debug("%s", error)
            return
        for name, answer in answers.items():
            answer.add_done_callback(partial(self._seen, name))


class ExpectedTopics:
    """Topics that other processes may create at any time, and how many partitions they were seen to have.

    Args:
        admin: Returns the client; raises JMSException when it is closed.
        timeout: Seconds that Kafka may take to answer.
    """

    def __init__(self, admin: Callable[[], AdminPort], timeout: float) -> None:
        self._partitions: dict[str, int] = {}
        self._watch = TopicWatch(admin, timeout, lambda count: max(LOOK_SECONDS, LOOK_SECONDS_EACH * count), self._seen)

    def partitions(self, topic: str) -> int:
        """Return how many partitions *topic* had when it was seen last; ask again, without waiting for the answer."""
        self._watch.ask(topic)
        return self._partitions.get(topic, 0)

    def _seen(self, topic: str, answer: Future[TopicDescription]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._partitions[topic] = len(answer.result().partitions)
        else:
            self._partitions.pop(topic, None)
