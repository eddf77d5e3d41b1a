"""Requests to the coordinators of consumer groups."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any, Final, TypeVar, cast

from kjms.engine.admin.answers import AnsweringClient, closed, open_answering
from kjms.engine.kafka import AdminPort, ConsumerGroupTopicPartitions, KafkaError, KafkaException, kafka_error
from kjms.engine.settings import KEEP_BROKERS
from kjms.engine.tuning import DEFAULTS, Tuning

__all__ = ["Coordinators"]

Answer = TypeVar("Answer")

LATER_SECONDS: Final = 60.0  # librdkafka's timeout comes so much later
AGAIN_SECONDS: Final = 0.05  # between attempts
LONGEST_SECONDS: Final = 3_600.0  # the longest that librdkafka takes


class Coordinators:
    """Asks the coordinators of groups, each time by an admin client of its own.

    When a request to a coordinator has timed out in librdkafka, and the coordinator comes back or answers late,
    librdkafka aborts the process (its issues 3663 and 4605). So the client is let go before librdkafka's timeout comes.

    Args:
        config: librdkafka's settings of an admin client.
        timeout: Seconds that Kafka may take to answer.
        tuning: The engine's times and limits.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float, tuning: Tuning = DEFAULTS) -> None:
        self._config = {**KEEP_BROKERS, **config}
        self._timeout = min(timeout, LONGEST_SECONDS - LATER_SECONDS)
        self._tuning = tuning
        self._lock = threading.Lock()
        self._asked: set[AnsweringClient] = set()
        self._is_closed = False

    def ask(self, request: Callable[[AdminPort, float], Mapping[str, Future[Answer]]]) -> Mapping[str, Future[Answer]]:
        """Return the answers of coordinators, by groups; each has come, or is an error.

        Args:
            request: Makes the request, with a client and with the timeout that librdkafka is to have.

        Raises:
            JMSException: There can be no more clients, or this was closed.
        """
        client = open_answering(self._config)
        with self._lock:
            if self._is_closed:
                raise closed(self._config)
            self._asked.add(client)
        try:
            answers = request(cast(AdminPort, client), self._timeout + LATER_SECONDS)
            wait(answers.values(), self._timeout)
        finally:
            with self._lock:
                self._asked.remove(client)
            client.give_up(KafkaError(KafkaError._TIMED_OUT, f"no answer for {self._timeout:g} s"))
        return answers

    def committed(self, groups: Collection[str]) -> Mapping[str, Future[ConsumerGroupTopicPartitions]]:
        """Return what each of *groups* has committed, whatever transactions are open; raises as `ask` does."""
        if not groups:
            return {}
        return self.ask(
            lambda admin, timeout: {  # all at once: librdkafka takes one group per request
                group: admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group)], request_timeout=timeout
                )[group]
                for group in groups
            }
        )

    def delete(self, group: str, *, is_left: bool = False) -> None:
        """Delete *group* with what it has committed, if there is one.

        Args:
            group: The group.
            is_left: Whether its last member may have left just now: the broker may count it for a moment longer.

        Raises:
            KafkaException: It has members, or the broker refuses or does not answer.
            JMSException: There can be no more clients, or this was closed.
        """
        deadline = time.monotonic() + (self._tuning.leaving_seconds if is_left else 0.0)
        while True:
            answers = self.ask(lambda admin, timeout: admin.delete_consumer_groups([group], request_timeout=timeout))
            try:
                answers[group].result()
            except KafkaException as error:
                code = kafka_error(error).code()
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    return
                if code != KafkaError.NON_EMPTY_GROUP or time.monotonic() >= deadline:
                    raise
                time.sleep(AGAIN_SECONDS)
            else:
                return

    def close(self) -> None:
        """Fail what is asked now, with the error code ``_DESTROY``."""
        with self._lock:
            self._is_closed = True
            asked = set(self._asked)
        for client in asked:
            client.give_up()
