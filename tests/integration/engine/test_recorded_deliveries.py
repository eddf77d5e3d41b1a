"""Repeated deliveries are recorded before they are made; what is recorded and not made does not count."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kjms import Queue, Session
from kjms.engine import ConsumerSlot
from kjms.testing.engine import source_of
from tests.helpers import SOON_MS, WAIT_MS, apart, seen, send, wait_for


@pytest.mark.requirement("JMS-3.5.11-1")
def test_a_delivery_that_is_recorded_and_not_made_does_not_count(
    kjms_broker: Any, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition goes to another process while a repeated delivery is recorded: it comes there for the 2nd time."""
    with apart(kjms_broker.bootstrap_servers) as first:
        send(first, queue, "a")
        with first.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
            assert seen(session.create_consumer(queue).receive(WAIT_MS)) == ("a", False, 1)
        consumer = first.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        source = source_of(consumer)
        committer = source.relocations.committer
        flush = committer.flush

        def flush_and_leave() -> None:
            monkeypatch.undo()
            flush()
            source.close()  # it gives its partitions up in order, as in a rebalance

        monkeypatch.setattr(committer, "flush", flush_and_leave)
        assert consumer.receive(SOON_MS) is None
        with apart(kjms_broker.bootstrap_servers) as second:
            consumer = second.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
            assert seen(consumer.receive(WAIT_MS)) == ("a", True, 2)


def test_a_delivery_that_is_recorded_and_given_back_does_not_count(kjms_broker: Any, queue: Queue) -> None:
    """A repeated delivery that is recorded, and reached no program, is none for the next process, either."""
    with apart(kjms_broker.bootstrap_servers) as first:
        send(first, queue, "a")
        with first.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
            assert seen(session.create_consumer(queue).receive(WAIT_MS)) == ("a", False, 1)
        session = first.create_session()
        consumer = session.create_consumer(queue)
        source = source_of(consumer)
        slot = ConsumerSlot(source, None, threading.Event())
        slot.start()
        consumer.close()
        wait_for(lambda: source.statistics().ready == 1)
        delivery = source.take(slot)
        assert delivery is not None
        assert source.record(delivery)
        source.give_back([delivery], is_counted=False)  # as where the receive that asked for it was given up
        slot.close()
    with apart(kjms_broker.bootstrap_servers) as second:
        consumer = second.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        assert seen(consumer.receive(WAIT_MS)) == ("a", True, 2)
