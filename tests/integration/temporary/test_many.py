"""Many temporary destinations, and many consumers for single replies: none leaves anything behind."""

from __future__ import annotations

import gc
from collections import Counter
from typing import Any

from kjms import Queue, Session
from kjms.mapping.temporary import place_of
from kjms.testing.engine import statistics
from tests.helpers import WAIT_MS, Desk, Eventually, threads_of, topics


def living() -> Counter[str]:
    """Count the objects of kjms by their classes.

    Left out: selectors, which are kept for the next time, and claims, as the registry mirrors those of all programs.
    """
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__name__}"
        for kind in kinds
        if str(kind.__module__).startswith("kjms.") and "selector" not in kind.__module__ and kind.__name__ != "Claim"
    )


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


def test_a_consumer_for_each_reply(kjms_broker: Any, desk: Desk, queue: Queue) -> None:
    """Consumers with selectors, one after the other on one queue, leave no object, thread, topic or claim."""
    session = desk.session(Session.DUPS_OK_ACKNOWLEDGE, desk.connect(is_apart=True))
    ask(session, queue, 0, 20)
    threads, objects = threads_of(session, queue.queue_name), living()
    ask(session, queue, 20, 170)
    assert [topic for topic in topics(kjms_broker.bootstrap_servers) if queue.queue_name in topic] == [queue.queue_name]
    assert threads_of(session, queue.queue_name) == threads
    assert {name: count for name, count in living().items() if count > objects[name] + 10} == {}
    assert (statistics(session).client_ids, statistics(session).subscriptions) == ((), ())


def test_a_thousand_temporary_queues(kjms_broker: Any, desk: Desk, eventually: Eventually) -> None:
    """They cost no topic and no thread each, and go when the program has lost them."""
    session = desk.session(connection=desk.connect(is_apart=True))
    first = session.create_temporary_queue()
    inbox = place_of(first)[0]
    first.delete()
    threads = threads_of(session, inbox)

    def names() -> set[str]:
        inbox = statistics(session).inbox
        return set() if inbox is None else set(inbox.destinations)

    queues = [session.create_temporary_queue() for _ in range(1_000)]
    assert len(names()) == 1_000
    assert [topic for topic in topics(kjms_broker.bootstrap_servers) if inbox in topic] == [inbox]
    assert threads_of(session, inbox) == threads
    queues.clear()
    eventually(lambda: not names())
