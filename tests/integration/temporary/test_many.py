"""Many temporary destinations, and many consumers for single replies: none leaves anything behind."""

from __future__ import annotations

import gc
import threading
from collections import Counter

from kjms import Connection, Message, MessageConsumer, Queue, Session
from kjms.engine._buffer import Feed
from kjms.engine._mailbox import Mailbox
from tests.helpers import WAIT_MS, Eventually

KINDS = (MessageConsumer, Feed, Mailbox, Message)


def living() -> Counter[str]:
    gc.collect()
    return Counter(kind.__name__ for each in gc.get_objects() for kind in KINDS if isinstance(each, kind))


def ask(session: Session, replies: Queue, first: int, past: int) -> None:
    """Wait for single replies, each with a consumer of its own."""
    with session.create_producer(replies) as producer:
        for number in range(first, past):
            reply = session.create_text_message(f"{number}")
            reply.jms_correlation_id = f"id-{number}"
            with session.create_consumer(replies, f"JMSCorrelationID = 'id-{number}'") as consumer:
                producer.send(reply)
                received = consumer.receive(WAIT_MS)
                assert received is not None
                assert received.jms_correlation_id == f"id-{number}"


def test_a_consumer_for_each_reply(connection: Connection, queue: Queue) -> None:
    """Consumers with selectors, one after the other on one queue, leave no object, thread or topic."""
    session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    ask(session, queue, 0, 20)
    threads, objects = set(threading.enumerate()), living()
    ask(session, queue, 20, 170)
    assert [topic for topic in session._engine.topics.all() if queue.queue_name in topic] == [queue.queue_name]
    assert set(threading.enumerate()) - threads == set()
    assert {name: count for name, count in living().items() if count > objects[name] + 10} == {}


def test_a_thousand_temporary_queues(session: Session, eventually: Eventually) -> None:
    """They cost no topic and no thread each, and go when the program has lost them."""
    session.create_temporary_queue().delete()
    threads = set(threading.enumerate())
    inbox = session._engine.temporaries._inbox
    assert inbox is not None
    before = set(inbox.entries)  # those of other tests go meanwhile
    queues = [session.create_temporary_queue() for _ in range(1_000)]
    new = set(inbox.entries) - before
    assert len(new) == 1_000
    assert [topic for topic in session._engine.topics.all() if inbox.topic in topic] == [inbox.topic]
    assert set(threading.enumerate()) - threads == set()
    queues.clear()
    eventually(lambda: not new & set(inbox.entries))
