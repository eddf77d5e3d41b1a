"""What the listener thread of a session with many consumers looks at for each message."""

from __future__ import annotations

import threading

import pytest

from kjms import ConnectionFactory, Message, Queue
from kjms.engine import ConsumerSlot
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_SECONDS, send, text, wait_for

CONSUMERS, MESSAGES = 40, 1_000


@pytest.mark.requirement("JMS-4.4.14-1")
def test_a_message_costs_nothing_for_consumers_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of a session's listeners has messages, the thread does not look at all the others for each of them."""
    looks = []

    def counted(name: str) -> property:
        real = getattr(ConsumerSlot, name).fget

        def look(slot: ConsumerSlot) -> bool:
            looks.append(name)
            return bool(real(slot))

        return property(look)

    queues = [Queue(f"listening-{number}") for number in range(CONSUMERS)]
    heard: list[tuple[int, str]] = []
    may_go_on = threading.Event()
    with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_connection() as connection:
        session = connection.create_session()
        for number, queue in enumerate(queues):

            def hear(message: Message, number: int = number) -> None:
                heard.append((number, text(message)))
                if len(heard) > CONSUMERS:  # until all messages are there, so that none of them wakes the thread
                    may_go_on.wait(WAIT_SECONDS)

            session.create_consumer(queue).message_listener = hear
        connection.start()
        for queue in queues:
            send(connection, queue, "first")
        wait_for(lambda: len(heard) == CONSUMERS)
        for name in ("is_waiting", "has_rivals"):
            monkeypatch.setattr(ConsumerSlot, name, counted(name))
        send(connection, queues[7], *range(MESSAGES))
        may_go_on.set()
        wait_for(lambda: len(heard) == CONSUMERS + MESSAGES)
        assert len(looks) < 5 * MESSAGES, "the thread looks at all of them when it is woken, and then only"
        monkeypatch.undo()
        send(connection, queues[8], "last")
        wait_for(lambda: heard[-1] == (8, "last"))
    assert heard[CONSUMERS:-1] == [(7, str(number)) for number in range(MESSAGES)]
