"""Topics that others may create, or delete and create again, are asked for together, and no thread waits for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kjms.engine.admin import topic_watch
from kjms.engine.admin.topic_watch import ExpectedTopics, TopicWatch
from kjms.engine.kafka import AdminPort, NewTopic, open_admin
from kjms.errors import JMSException
from kjms.testing import MemoryKafka
from tests.helpers import Intercepted, wait_for


class Asked(Intercepted):
    """An admin client that notes which topics are described."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner, {})
        self.requests: list[list[str]] = []

    def describe_topics(self, topics: Any, **how: Any) -> Any:
        """Describe *topics*, as the client does."""
        self.requests.append(sorted(topics.topic_names))
        return self.inner.describe_topics(topics, **how)


@pytest.fixture
def admin() -> Iterator[Asked]:
    """The client of a Kafka in memory that has the topic ``here``, with three partitions."""
    with MemoryKafka() as kafka:
        asked = Asked(open_admin({"bootstrap.servers": kafka.bootstrap_servers}))
        create(asked, "here", 3)
        yield asked


def create(admin: Any, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()


def test_topics_are_asked_for_together(admin: Asked) -> None:
    """One request asks for all that were asked for since the last one, each once."""
    pause = 0.0
    watch = TopicWatch(lambda: admin, 1, lambda _count: pause, lambda _topic, _answer: None)
    watch.ask("first")
    pause = 3_600.0
    for topic in ("a", "b", "c", "b"):
        watch.ask(topic)
    assert admin.requests == [["first"]]
    pause = 0.0
    watch.ask("d")
    watch.ask("e")
    assert admin.requests == [["first"], ["a", "b", "c", "d"], ["e"]]


def test_very_many_topics_are_asked_for_less_often(admin: Asked) -> None:
    """The pause is that for the number of topics; a caller in a hurry has its own."""
    watch = TopicWatch(lambda: admin, 1, lambda count: 0.0 if count < 3 else 3_600.0, lambda _topic, _answer: None)
    watch.ask("a")
    watch.ask("b", 3_600.0)
    watch.ask("c", 3_600.0)
    watch.ask("d")
    assert admin.requests == [["a"]]
    watch.ask("e", 0.0)
    assert admin.requests == [["a"], ["b", "c", "d", "e"]]


def test_a_topic_is_expected_until_it_is_there(admin: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen last is returned at once: no partitions, those of the topic, and none after it was deleted."""
    monkeypatch.setattr(topic_watch, "LOOK_SECONDS", 0.0)
    expected = ExpectedTopics(lambda: admin, 1)
    wait_for(lambda: expected.partitions("here") == 3)
    assert expected.partitions("there") == 0
    create(admin, "there", 2)
    wait_for(lambda: expected.partitions("there") == 2)
    admin.delete_topics(["there"])["there"].result()
    wait_for(lambda: expected.partitions("there") == 0)


def test_a_client_that_is_closed_meanwhile_is_no_error() -> None:
    """A thread that looks once more while the connection closes goes its way."""

    def closed() -> AdminPort:
        raise JMSException("the connections were closed", "_DESTROY")

    assert ExpectedTopics(closed, 1).partitions("here") == 0
