"""Ctrl-C in the middle of sends: each that left is reported, and nothing waits for one that never did."""

from __future__ import annotations

import pytest

from kjms import ConnectionFactory, Queue
from kjms.admin import Admin
from kjms.broker import LocalBroker
from tests.helpers import Completions, interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_send_is_reported_if_it_left_and_else_forgotten(
    kjms_broker: LocalBroker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever Ctrl-C comes, closing needs no time-out, and as many messages are in Kafka as were reported."""
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=2_000)
    sent = Completions()
    with factory.create_connection() as connection:
        for round_ in range(40):
            with connection.create_session() as session:
                producer, message = session.create_producer(queue), session.create_text_message("7 pens")
                producer.send(message)
                with interrupted(0.004 + round_ / 10_000):
                    while True:
                        producer.send(message, completion_listener=sent)
        assert "neither confirmed nor given up" not in caplog.text
    with Admin(factory) as admin:
        assert admin.count(queue) == 40 + len(sent.sent)
    assert sent.failed == []
