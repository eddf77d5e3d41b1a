"""Quick consumers of one queue, in threads of one process, which rotate."""

from __future__ import annotations

import threading
from itertools import groupby

import pytest

from kjms import MessageConsumer, Queue, Session
from kjms.engine.consumer.rotation import SHARE
from tests.helpers import WAIT_MS, WAIT_SECONDS, Desk, send, text

CONSUMERS = 8
MESSAGES = 12_000


@pytest.mark.parametrize("mode", [Session.DUPS_OK_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE])
@pytest.mark.requirement("JMS-4.4.10.1-2")
def test_consumers_that_rotate_get_each_message_once_in_order(desk: Desk, queue: Queue, mode: int) -> None:
    """Each has its share, in runs as long as a batch; the others get what is left of a busy one's batch."""
    connection = desk.connect()
    send(connection, queue, *map(str, range(MESSAGES)))
    received: list[tuple[int, int]] = []
    is_busy, all_others = threading.Event(), threading.Event()

    def receive(number: int, consumer: MessageConsumer) -> None:
        while not all_others.is_set() and (message := consumer.receive(WAIT_MS)) is not None:
            received.append((number, int(text(message))))
            if mode == Session.CLIENT_ACKNOWLEDGE and len(received) % 100 == 0:
                message.acknowledge()
            if len(received) > MESSAGES // 2 and not is_busy.is_set():
                is_busy.set()
                assert all_others.wait(WAIT_SECONDS)
            if len(received) == MESSAGES:
                all_others.set()

    connection.stop()
    consumers = [connection.create_session(mode).create_consumer(queue) for _ in range(CONSUMERS)]
    threads = [threading.Thread(target=receive, args=each) for each in enumerate(consumers)]
    for thread in threads:
        thread.start()
    connection.start()
    assert all_others.wait(WAIT_SECONDS)
    for consumer in consumers:
        consumer.close()
    for thread in threads:
        thread.join()
    assert sorted(number for _, number in received) == list(range(MESSAGES))
    for each in range(CONSUMERS):
        mine = [number for consumer, number in received if consumer == each]
        assert mine
        assert mine == sorted(mine)
    assert max(len(list(run)) for _, run in groupby(consumer for consumer, _ in received)) >= SHARE
