"""Queue browsers on a real Kafka: what they show, and that they change nothing."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

from kjms import (
    Queue,
    QueueBrowser,
    Session,
)
from kjms.mapping.names import overflow, queue_group
from kjms.testing.engine import tuned
from tests.helpers import WAIT_MS, Desk, partitions, send_with_length, texts_of


def marks(browser: QueueBrowser) -> dict[str, tuple[bool, int]]:
    """Return, by text, whether a message is marked as redelivered, and its count."""
    return {m.text: (m.jms_redelivered, m.get_int_property("JMSXDeliveryCount")) for m in browser}  # type: ignore[attr-defined]


def test_what_was_relocated_is_shown_once(desk: Desk, queue: Queue) -> None:
    """A message that was relocated to keep the settlement small is still on the queue, during the move and after it."""
    with tuned(metadata_limit=300):
        connection = desk.connect()
    session = connection.create_session()
    count = 1_500
    send_with_length(session, queue, *range(count), delivery_mode=1)
    picked = random.Random(7)
    looker = connection.create_session().create_browser(queue)
    with connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE) as holder:
        consumer = holder.create_consumer(queue)
        kept: list[str] = []
        for number in range(count):
            message = consumer.receive(WAIT_MS)
            assert message is not None
            if picked.random() < 0.3:
                kept += texts_of([message])
            else:
                message.acknowledge()
            if number % 300 == 0:
                shown = texts_of(looker)
                assert len(set(shown)) == len(shown)
                assert sorted(map(int, shown)) == [*map(int, kept), *range(number + 1, count)]
        assert partitions(desk.servers, overflow(queue.queue_name, queue_group(queue.queue_name)))
        assert sorted(map(int, texts_of(looker))) == [*map(int, kept)]
        assert set(marks(looker).values()) <= {(False, 1), (True, 2)}  # a copy tells that it was delivered
        holder.recover()
        assert marks(looker) == dict.fromkeys(kept, (True, 2))


LOOKS = """
import sys, time
import psutil
from kjms import ConnectionFactory, Queue
with ConnectionFactory(sys.argv[1]).create_connection() as connection:
    session = connection.create_session()
    queue = Queue(sys.argv[2])
    def show(count):
        shown = [message.text for message, _ in zip(session.create_browser(queue), range(count))]
        assert shown == [str(number) for number in range(count)], shown
    threads = psutil.Process().num_threads
    show(10)
    before = threads()
    while before != (now := threads()):
        before = now
        time.sleep(0.3)
    show(10)
    show(1)
    look = iter(browser := session.create_browser(queue))
    next(look)
    assert threads() > before, (threads(), before)
    browser.close()
    while threads() > before:
        time.sleep(0.01)
print("clean")
"""


def test_a_look_that_is_over_or_abandoned_leaves_nothing_running(
    kjms_broker: Any, session: Session, queue: Queue
) -> None:
    """The Kafka client of a look ends with it, with the loop that is left, and with the browser."""
    send_with_length(session, queue, *range(10))
    arguments = [sys.executable, "-c", LOOKS, kjms_broker.bootstrap_servers, queue.queue_name]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "clean\n", done.stderr
