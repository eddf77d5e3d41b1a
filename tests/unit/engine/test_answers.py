"""An admin client that is let go while Kafka owes answers."""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from typing import Any, cast

import pytest

from kjms.engine.admin.answers import AnsweringClient
from kjms.engine.admin.topics import Topics
from kjms.engine.kafka import AdminPort, KafkaError, KafkaException, TopicCollection, kafka_error

TIMES = 20
LONG_SECONDS = 60.0


class Client:
    """An admin client that owes each answer."""

    def __init__(self) -> None:
        self.groups = Future[Any]()
        self.topic = Future[Any]()

    def list_consumer_groups(self, **_: Any) -> Future[Any]:
        return self.groups

    def describe_topics(self, topics: list[str], **_: Any) -> dict[str, Future[Any]]:
        return dict.fromkeys(topics, self.topic)

    def poll(self, timeout: float) -> int:
        return int(timeout)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def answering(client: Client) -> AnsweringClient:
    return AnsweringClient(cast(AdminPort, client))


def is_destroyed(answer: Future[Any]) -> bool:
    error = answer.exception(timeout=LONG_SECONDS / 2)
    assert isinstance(error, KafkaException)
    return bool(kafka_error(error).code() == KafkaError._DESTROY)


def test_answers_pass(client: Client, answering: AnsweringClient) -> None:
    """Results, errors and what is no future are the client's own."""
    groups, topics = answering.list_consumer_groups(), answering.describe_topics(["orders"])
    assert not groups.done()
    client.groups.set_result("all")
    client.topic.set_exception(ValueError("no"))
    assert groups.result(0) == "all"
    assert str(topics["orders"].exception(0)) == "no"
    assert answering.poll(3) == 3


def test_each_answer_that_is_owed_fails_when_the_client_is_let_go(client: Client, answering: AnsweringClient) -> None:
    """So do those to later questions of a thread that was about to ask; late answers of librdkafka change nothing."""
    groups, topics = answering.list_consumer_groups(), answering.describe_topics(["orders"])
    answering.give_up()
    later = answering.list_consumer_groups()
    client.groups.set_result("late")
    client.topic.set_exception(ValueError("late"))
    assert is_destroyed(groups)
    assert is_destroyed(topics["orders"])
    assert is_destroyed(later)


def test_what_is_owed_does_not_hold_the_client() -> None:
    """The future of librdkafka does not lead to the client, whose last reference must not go in librdkafka's thread."""
    client = Client()
    answering = AnsweringClient(cast(AdminPort, client))
    groups, owed, left = answering.list_consumer_groups(), client.groups, weakref.ref(client)
    answering.give_up()
    del client, answering
    assert left() is None
    owed.set_result("late")
    assert is_destroyed(groups)


def test_no_thread_waits_for_a_client_that_was_closed(silent: str) -> None:
    """Closing ends each question to a broker that does not answer, long before its timeout."""
    for _ in range(TIMES):
        topics = Topics({"bootstrap.servers": silent, "log_level": 0}, 1_000)
        groups = topics.admin.list_consumer_groups(request_timeout=LONG_SECONDS)
        described = topics.admin.describe_topics(TopicCollection(["orders"]), request_timeout=LONG_SECONDS)
        topics.close()
        assert is_destroyed(groups)
        assert is_destroyed(described["orders"])
