"""What an engine knows of topics, after their only broker was killed and started again, or was not named for once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue
from kjms.broker import LocalBroker
from kjms.engine.admin.answers import AnsweringClient, open_answering
from kjms.engine.admin.topics import Topics
from kjms.engine.settings import admin_settings, common_settings
from tests.helpers import send, wait_for
from tests.kafka_proxy import KafkaProxy


@contextmanager
def topics_at(servers: str) -> Iterator[Topics]:
    """Yield what an engine knows of the topics at *servers*."""
    topics = Topics(admin_settings(common_settings(servers, {}, None, None, lambda _: None)), 10_000)
    try:
        topics.connect(10, [])
        yield topics
    finally:
        topics.close()


def test_offsets_are_found_when_the_leader_has_a_new_epoch(breakable_broker: LocalBroker, queue: Queue) -> None:
    """The leader is the same broker; what librdkafka remembers of it is refused, and asked for anew."""
    servers = breakable_broker.bootstrap_servers
    with ConnectionFactory(servers).create_connection() as connection:
        send(connection, queue, "a")
    with topics_at(servers) as topics:
        assert (topics.beginning(queue.queue_name, 0), topics.ends(queue.queue_name)) == (0, {0: 1})
        breakable_broker.kill()
        breakable_broker.start()
        topics.connect(10, [])
        assert (topics.beginning(queue.queue_name, 0), topics.ends(queue.queue_name, 1)) == (0, {0: 1})


def test_topics_are_looked_up_again_after_metadata_without_brokers(queue: Queue) -> None:
    """The admin client alone learned that the cluster had none: no other client of the process notices it."""
    with KafkaProxy() as proxy, topics_at(proxy.bootstrap_servers) as topics:
        topics.make(queue.queue_name, 2, None, {})
        for hidden in range(3):

            def learned(before: int = hidden) -> bool:
                proxy.name_none_once()
                return bool(topics.all()) and proxy.changed > before

            wait_for(learned)
            topics.grow(queue.queue_name, 3 + hidden)
            assert topics.look_up(queue.queue_name) == 3 + hidden


def test_a_client_that_finds_no_broker_any_more_is_replaced(
    queue: Queue, kjms_broker: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client may miss the moment to find brokers again (decision 038); here it has the address of none."""
    with topics_at(kjms_broker.bootstrap_servers) as topics:
        topics.make(queue.queue_name, 2, None, {})
    addresses = iter(["127.0.0.1:1", kjms_broker.bootstrap_servers])

    def open_next(config: Mapping[str, Any]) -> AnsweringClient:
        return open_answering({**config, "bootstrap.servers": next(addresses)})

    monkeypatch.setattr("kjms.engine.admin.topics.open_answering", open_next)
    topics = Topics(admin_settings(common_settings(kjms_broker.bootstrap_servers, {}, None, None, print)), 1_000)
    try:
        assert topics.look_up(queue.queue_name) == 2
    finally:
        topics.close()
