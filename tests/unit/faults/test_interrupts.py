"""Ctrl-C while a message is sent."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Queue, TextMessage
from kjms.testing import MemoryKafka
from tests.helpers import Desk, Intercepted, intercepted, wait_for


class Interrupted(Intercepted):
    """A producer whose caller gets Ctrl-C when the record with the value ``stop`` is on its way."""

    def produce(self, topic: str, value: bytes, *arguments: Any, **named: Any) -> None:
        """Accept the record, and raise for that one."""
        self.inner.produce(topic, value, *arguments, **named)
        if value == b"stop":
            raise KeyboardInterrupt


class Sent:
    """A completion listener that keeps the texts of the messages that were sent."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []

    def on_completion(self, message: Any) -> None:
        """Note that *message* was sent."""
        self.texts.append(message.text)

    def on_exception(self, message: Any, error: Exception) -> None:
        """Note that *message* was not sent, because of *error*."""
        self.texts.append(f"{message.text}: {error}")


def test_a_record_that_left_before_an_interrupt_completes(kafka: MemoryKafka, desk: Desk, queue: Queue) -> None:
    """The send raises KeyboardInterrupt, the message is sent all the same, and the sends after it complete in order."""
    with intercepted(kafka.bootstrap_servers, producer=Interrupted):
        session = desk.session(connection=desk.connect(is_apart=True))
        producer = session.create_producer(queue)
        sent = Sent()
        with pytest.raises(KeyboardInterrupt):
            producer.send(TextMessage("stop"), completion_listener=sent)
        producer.send(TextMessage("after"), completion_listener=sent)
        wait_for(lambda: len(sent.texts) == 2)
        producer.send(TextMessage("and waited for"))
    assert sent.texts == ["stop", "after"]
    assert [record.value() for record in desk.records(queue.queue_name)] == [b"stop", b"after", b"and waited for"]
