"""A send that Kafka has confirmed before the sending thread continues."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import Queue
from kjms.testing import MemoryKafka
from tests.contract.messages.test_made_messages import ForeignTextMessage
from tests.helpers import Desk, Intercepted, intercepted, wait_for

seen: list[str | None] = []


class Waiting(Intercepted):
    """A producer whose caller continues when the completion listener has been called."""

    def produce(self, *arguments: Any, **named: Any) -> None:
        """Send the record, and wait."""
        self.inner.produce(*arguments, **named)
        wait_for(lambda: seen)


class Listener:
    """Notes the message ids that it sees."""

    def on_completion(self, message: Any) -> None:
        """Note that *message* was sent."""
        seen.append(message.jms_message_id)

    def on_exception(self, message: Any, error: Exception) -> None:
        """Note the error."""
        seen.append(f"{error}")


@pytest.mark.requirement("JMS-3.4.11-13")
def test_a_completion_listener_sees_the_header_fields_of_a_foreign_message(
    kafka: MemoryKafka, desk: Desk, queue: Queue
) -> None:
    """However early it is called."""
    seen.clear()
    foreign = ForeignTextMessage("hello", {})
    with intercepted(kafka.bootstrap_servers, producer=Waiting):
        session = desk.session(connection=desk.connect(is_apart=True))
        session.create_producer(queue).send(foreign, completion_listener=Listener())  # type: ignore[arg-type]
    assert seen == [foreign.jms_message_id]
    assert foreign.jms_message_id is not None
