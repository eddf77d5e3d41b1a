"""Records that Kafka's retention, or an administrator, deletes before a queue has delivered them."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Queue, Session
from kjms.engine.kafka import AdminPort, TopicPartition
from tests.helpers import WAIT_SECONDS, take


def delete_before(admin: AdminPort, queue: Queue, offset: int) -> None:
    """Delete the records of a queue before *offset*, as retention does."""
    place = TopicPartition(queue.queue_name, 0, offset)
    admin.delete_records([place], request_timeout=WAIT_SECONDS)[place].result()


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_a_consumer_that_comes_later_gets_the_rest(desk: Any, admin: AdminPort, queue: Queue, mode: int) -> None:
    """It begins where the log does, and its settlement holds."""
    desk.send(queue, *"abcd")
    delete_before(admin, queue, 2)
    with desk.session(mode) as session, session.create_consumer(queue) as consumer:
        assert desk.seen(consumer, 1) == [("c", False, 1)]
        if session.transacted:
            session.commit()
        else:
            session._acknowledge()
    assert desk.left(queue) == [("d", False, 1)]


def test_what_a_session_holds_can_be_acknowledged_in_vain(desk: Any, admin: AdminPort, queue: Queue) -> None:
    """What it has received is deleted meanwhile: the acknowledgement returns, and what is left comes."""
    desk.send(queue, *"abc")
    with desk.session(Session.CLIENT_ACKNOWLEDGE) as session, session.create_consumer(queue) as consumer:
        assert desk.seen(consumer, 1) == [("a", False, 1)]
        delete_before(admin, queue, 3)
        session._acknowledge()
        desk.send(queue, "d")
        while (found := desk.seen(consumer, 1)) != [("d", False, 1)]:
            assert found[0][0] in "bc"  # in memory already
        session._acknowledge()
    assert desk.left(queue) == []


def test_what_was_settled_is_not_repeated_after_a_deletion(desk: Any, admin: AdminPort, queue: Queue) -> None:
    """A message that was settled out of order stays settled, although the log begins after the committed offset."""
    desk.send(queue, *"abcd")
    connection = desk.connect(is_apart=True)
    consumer = desk.session(Session.INDIVIDUAL_ACKNOWLEDGE, connection).create_consumer(queue)
    take(consumer, 4)[2].acknowledge()
    connection.close()
    delete_before(admin, queue, 1)
    assert [(text, is_marked) for text, is_marked, _ in desk.left(queue)] == [("b", True), ("d", True)]
