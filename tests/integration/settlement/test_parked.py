"""Unmatched messages, in numbers that do not fit into memory."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, Session
from kjms.testing.engine import tuned

MESSAGES = 3_000


@pytest.mark.requirement("JMS-3.8.1-3", "JMS-5.8-2", "JMS-5.8-4", "JMS-5.9-3")
@pytest.mark.parametrize("every", [1, 2])
def test_what_nobody_wants_stays_and_stops_nothing(kjms_broker: Any, queue: Queue, eventually: Any, every: int) -> None:
    """However many messages a selector leaves out: those behind come, and a matching consumer gets them, in order.

    With every second one wanted, the others are moved together before they are evicted.
    """
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, prefetch=50)
    with tuned(most_unmatched=400, most_runs=100), factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
        with session.create_producer(queue) as producer:
            for number in range(MESSAGES):
                message = session.create_text_message(str(number))
                message.set_int_property("n", number)
                message.set_boolean_property("wanted", number % every == 1)
                producer.send(message, completion_listener=Silent())
        left = [number for number in range(MESSAGES) if number % every != 1]
        with session.create_consumer(queue, f"wanted OR n = {left[-1]}") as consumer:
            for number in range(MESSAGES):
                if number not in left[:-1]:
                    assert consumer.receive(60_000).text == str(number)
        del left[-1]
        with connection.create_session() as at_once, at_once.create_consumer(queue, f"n = {left[3]}") as late:
            assert late.receive(60_000).text == str(left.pop(3))

        def seen() -> list[str]:
            with session.create_browser(queue) as browser:
                return [message.text for message in browser]

        eventually(lambda: seen() == [str(number) for number in left])  # what is being moved may be seen meanwhile
        with session.create_consumer(queue) as everything:
            for number in left:
                message = everything.receive(60_000)
                assert (message.text, message.jms_redelivered) == (str(number), False)
            assert everything.receive_no_wait() is None


class Silent:
    def on_completion(self, message: Any) -> None:
        pass

    def on_exception(self, message: Any, exception: Exception) -> None:
        raise exception
