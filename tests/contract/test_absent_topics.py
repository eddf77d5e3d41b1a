"""A topic that does not exist costs one question, and nothing from then on."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kjms import JMSException, Queue
from tests.helpers import WAIT_MS, Intercepted, apart, intercepted, send, texts_of, topics


class Asked(Intercepted):
    """An admin client that notes which topics its metadata was asked for: it keeps their names from then on.

    Attributes:
        names: The topics; empty: none in particular.
    """

    names: ClassVar[set[str]] = set()

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        self.names.add(topic or "")
        return self.inner.list_topics(topic, timeout=timeout)


def test_names_of_topics_that_are_not_there_are_not_kept(kafka: Any, queue: Queue) -> None:
    """Sending, browsing and consuming look for topics beside the queue's own, most of which no queue ever needs."""
    servers = kafka.bootstrap_servers
    Asked.names.clear()
    with intercepted(servers, admin=Asked), apart(servers) as connection:
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        send(connection, queue, "a", "b")
        with session.create_browser(queue) as browser:
            assert texts_of(browser) == ["a", "b"]
        assert texts_of([consumer.receive(WAIT_MS), consumer.receive(WAIT_MS)]) == ["a", "b"]
    assert f"{queue.queue_name}.kjms.overflow" not in topics(servers)
    assert Asked.names <= topics(servers) | {""}


@pytest.mark.parametrize("create", [True, False])
def test_a_queue_that_is_missing_is_looked_for_without_keeping_its_name(kafka: Any, queue: Queue, create: bool) -> None:
    """Whether it is made then, or not."""
    servers = kafka.bootstrap_servers
    Asked.names.clear()
    with intercepted(servers, admin=Asked), apart(servers, create_destinations=create) as connection:
        session = connection.create_session()
        if create:
            session.create_producer(queue)
        else:
            with pytest.raises(JMSException, match="there is no Kafka topic"):
                session.create_producer(queue)
    assert queue.queue_name not in Asked.names
