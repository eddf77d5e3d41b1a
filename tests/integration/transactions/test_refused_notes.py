"""In which order messages of transactions appear: as their session sent them, whatever others do at the same time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kjms import JMSException, Message, Queue
from kjms.engine.kafka import KafkaError, KafkaException
from tests.helpers import WAIT_MS, Intercepted, intercepted


@pytest.mark.requirement("JMS-4.4.7-4")
@pytest.mark.parametrize("by", ["receive", "listener"])
def test_a_redelivery_that_fails_is_not_overtaken(desk: Any, queue: Queue, by: str) -> None:
    """Kafka does not take the note of a redelivery: the message comes again before those rolled back with it."""
    desk.send(queue, "a", "b", "c")
    failures = [KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "Kafka is away")]

    class Refusing(Intercepted):
        def commit(self, **what: Any) -> Any:
            if is_over.is_set() and failures and not threading.current_thread().name.startswith("kjms-consumer"):
                raise KafkaException(failures.pop())
            return self.inner.commit(**what)

    is_over = threading.Event()
    with intercepted(desk.servers, consumer=Refusing):
        connection = desk.connect(is_apart=True)
        session = desk.transacted(connection)
        consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 3) == ["a", "b", "c"]
    session.rollback()
    is_over.set()
    if by == "receive":
        with pytest.raises(JMSException, match="Kafka is away"):
            consumer.receive(WAIT_MS)
        assert desk.seen(consumer, 3) == [("a", True, 2), ("b", True, 2), ("c", True, 2)]
    else:
        heard: list[str] = []
        is_done = threading.Event()

        def listener(message: Message) -> None:
            heard.append(message.get_body(str))
            if len(heard) == 3:
                is_done.set()

        consumer.message_listener = listener
        assert is_done.wait(WAIT_MS / 1000)
        assert heard == ["a", "b", "c"]
    assert not failures
