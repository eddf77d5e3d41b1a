"""How long a send waits for its delivery report."""

from __future__ import annotations

import threading

import pytest

from kjms import ConnectionFactory, JMSException, Queue
from kjms.broker import LocalBroker
from kjms.engine.publisher import Publisher
from kjms.testing.engine import engine_of, tuned
from tests.helpers import Completions


def test_a_send_waits_no_longer_than_the_send_timeout(kjms_broker: LocalBroker, queue: Queue) -> None:
    """A send whose delivery report never comes fails when its time is over, and so does what waits behind it."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=1_000, kafka={"client.id": "silent"})
    with tuned(report_seconds=0.2), factory.create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(session.create_text_message("reported"))
        going_on = threading.Event()
        for publisher in (engine_of(connection).prompt, engine_of(connection).bulk):
            Stuck(going_on).keep(publisher)
        try:
            with pytest.raises(JMSException, match=r"not confirmed by .* within 1000 ms"):
                producer.send(session.create_text_message("not reported"))
            producer.send(session.create_text_message("not waited for"), completion_listener=Completions())
            with pytest.raises(JMSException, match="1 messages sent before"):
                producer.send(session.create_text_message("behind it"))
        finally:
            going_on.set()


class Stuck:
    """Keeps a publisher's thread busy, so that it reports nothing."""

    def __init__(self, going_on: threading.Event) -> None:
        self._going_on = going_on
        self._has_begun = threading.Event()

    def keep(self, publisher: Publisher) -> None:
        """Return when the thread of *publisher* is busy."""
        publisher.inform(self)
        while not self._has_begun.wait(0.5):
            publisher.inform(self)

    def catch_up(self) -> None:
        self._has_begun.set()
        self._going_on.wait(60)
