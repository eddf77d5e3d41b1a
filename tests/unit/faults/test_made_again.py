"""A topic is deleted while no process uses it, and made again: it is another one, of which nothing is settled."""

from __future__ import annotations

from kjms import Queue
from kjms.engine.kafka import open_admin
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, Desk


def test_a_queue_that_was_made_again_is_read_from_its_start(kafka: MemoryKafka, desk: Desk, queue: Queue) -> None:
    """A copy of the former topic's settlement, which outlives it, settles nothing of the new one."""
    with desk.connect(is_apart=True) as connection:
        desk.send(queue, *"abc", by=connection.create_session())
        assert desk.texts(connection.create_session().create_consumer(queue), 3) == [*"abc"]
    admin = open_admin({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_topics([queue.queue_name], request_timeout=WAIT_SECONDS)[queue.queue_name].result()
    with desk.connect(is_apart=True) as connection:
        desk.send(queue, *"defgh", by=connection.create_session())
    assert [body for body, _, _ in desk.left(queue)] == [*"defgh"]
