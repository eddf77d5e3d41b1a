"""Tell when a consumer opens that dead letters could not be written, and not when the first message fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.kafka import AdminPort, ConfigResource, KafkaError, KafkaException, NewTopic, ResourceType, kafka_error
from kjms.errors import InvalidDestinationException, JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.topics import WantedTopic

__all__ = ["DeadLetterCheck"]

_log = logging.getLogger("kjms.redelivery")

LIMIT: Final = "max.message.bytes"


class DeadLetterCheck:
    """Checks topics for dead letters, each once, without waiting for Kafka.

    Args:
        admin: Returns the client; raises JMSException when it is closed.
        timeout: Seconds that Kafka may take to answer.
        report: Reports what is wrong.
    """

    def __init__(self, admin: Callable[[], AdminPort], timeout: float, report: Callable[[JMSException], None]) -> None:
        self._admin = admin
        self._timeout = timeout
        self._report = report
        self._checked: set[WantedTopic] = set()

    def check(self, wanted: WantedTopic, *, asks: bool) -> None:
        """Find out, unless that was done, whether *wanted* can take the dead letters of the topic that it is like.

        It takes none if no topic can have its name, or if it is there and permits smaller messages. Kafka itself is
        asked whether it would make the topic: a name must not equal another one but for ``.`` and ``_``.

        Args:
            wanted: The topic for dead letters.
            asks: Whether to ask Kafka; else only the name is looked at. Subscribers have no rights on such topics, as a
                rule, and a question that is refused is a line in the broker's log.
        """
        if wanted in self._checked:
            return
        self._checked.add(wanted)
        try:
            topic = wanted.topic
            if not asks:
                return
            admin = self._admin()
            if wanted.create:
                new = NewTopic(topic, wanted.partitions, wanted.replication_factor or -1)
                made = admin.create_topics(
                    [new], operation_timeout=self._timeout, request_timeout=self._timeout, validate_only=True
                )[topic]
                made.add_done_callback(lambda answer: self._name_answered(wanted, answer))
            sizes = [ConfigResource(ResourceType.TOPIC, name) for name in (wanted.like, topic)]
            answers = admin.describe_configs(sizes, request_timeout=self._timeout)
        except InvalidDestinationException as error:
            self._tell(wanted, str(error))
        except (JMSException, KafkaException) as error:  # closed meanwhile, for one
            _log.debug("%s", error)
        else:
            limits: list[int] = []
            for resource in sizes:  # the answer to one request: both come, or none
                answers[resource].add_done_callback(lambda answer: self._limit_answered(wanted, limits, answer))

    def _name_answered(self, wanted: WantedTopic, answer: Future[None]) -> None:
        error = answer.exception()
        if isinstance(error, KafkaException) and kafka_error(error).code() == KafkaError.TOPIC_EXCEPTION:
            self._tell(wanted, f"the broker refuses the topic name {wanted.topic!r}: {kafka_error(error).str()}")

    def _limit_answered(self, wanted: WantedTopic, limits: list[int], answer: Future[dict[str, Any]]) -> None:
        """Compare the limits of source and target, which come in this order."""
        if answer.exception() is not None:  # there is no such topic yet, or its settings may not be read
            return
        limits.append(int(answer.result()[LIMIT].value or 0))
        if len(limits) == 2 and limits[1] < limits[0]:
            source, target = limits
            self._tell(
                wanted,
                f"{LIMIT} of the Kafka topic {wanted.topic!r} is {target}, and that of {wanted.like!r} is {source}:"
                " larger messages stay in their queue; raise the limit",
            )

    def _tell(self, wanted: WantedTopic, why: str) -> None:
        text = (
            f"{wanted.destination} cannot take the dead letters, or expired messages, of {wanted.like!r}: {why};"
            " RedeliveryPolicy(dead_letter=...) or expiry_queue names another queue"
        )
        _log.warning("%s", text)
        self._report(InvalidDestinationException(text))
