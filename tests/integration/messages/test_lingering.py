"""What librdkafka does while a message lingers in it, and what that does not change."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, TextMessage
from tests.helpers import WAIT_MS, WAIT_SECONDS, Completions, now_ms


@pytest.mark.requirement("JMS-3.4.4-2", "NEV-38")
def test_the_timestamp_is_the_time_of_the_hand_over(kjms_broker: Any, queue: Queue) -> None:
    """That a message waits in the client before it is transmitted does not move its JMSTimestamp."""
    linger = 300
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, kafka={"linger.ms": linger})
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        message, completions = session.create_text_message("x"), Completions()
        producer = session.create_producer(queue)
        before = now_ms()
        producer.send(message, completion_listener=completions)
        handed_over = now_ms()
        assert completions.done.wait(WAIT_SECONDS)
        completed = now_ms()
        received = session.create_consumer(queue).receive(WAIT_MS)
    assert completions.failed == []
    assert isinstance(received, TextMessage)
    assert before <= received.jms_timestamp == message.jms_timestamp <= handed_over
    assert completed - received.jms_timestamp >= linger // 2  # it did wait
