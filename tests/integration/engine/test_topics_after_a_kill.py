"""What an engine knows of topics, after their only broker was killed and started again."""

from __future__ import annotations

from kjms import ConnectionFactory, Queue
from kjms.broker import LocalBroker
from kjms.engine.admin.topics import Topics
from kjms.engine.settings import admin_settings, common_settings
from tests.helpers import send


def test_offsets_are_found_when_the_leader_has_a_new_epoch(breakable_broker: LocalBroker, queue: Queue) -> None:
    """The leader is the same broker; what librdkafka remembers of it is refused, and asked for anew."""
    servers = breakable_broker.bootstrap_servers
    with ConnectionFactory(servers).create_connection() as connection:
        send(connection, queue, "a")
    topics = Topics(admin_settings(common_settings(servers, {}, None, None, lambda _: None)), 10_000)
    try:
        topics.connect(10, [])
        assert (topics.beginning(queue.queue_name, 0), topics.ends(queue.queue_name)) == (0, {0: 1})
        breakable_broker.kill()
        breakable_broker.start()
        topics.connect(10, [])
        assert (topics.beginning(queue.queue_name, 0), topics.ends(queue.queue_name, 1)) == (0, {0: 1})
    finally:
        topics.close()
