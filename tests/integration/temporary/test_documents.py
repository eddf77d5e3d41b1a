"""What docs/request-reply.md says to programs without kjms is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue

PAGE = Path(__file__).parents[3] / "docs" / "request-reply.md"
REQUESTS = 4  # so many that some reply goes to either partition, most likely


@pytest.mark.requirement("JMS-3.4.6-1")
def test_a_plain_kafka_program_answers(kjms_broker: Any, kjms_factory: ConnectionFactory) -> None:
    """The responder on the page, which uses Kafka's client alone, answers on temporary queues and topics."""
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)[-1]
    assert "kjms" not in program.replace("kjms-to", "")
    with kjms_factory.create_context() as context:
        requests = Queue("examples.shout")
        producer = context.create_producer()
        queue, topic = context.create_temporary_queue(), context.create_temporary_topic()
        consumers = [context.create_consumer(queue), context.create_consumer(topic)]
        asked = set()
        for number in range(REQUESTS):
            for replies in (queue, topic):
                request = context.create_text_message(f"hello {number}")
                producer.set_jms_reply_to(replies).send(requests, request)
                asked.add((request.jms_message_id, f"HELLO {number}"))
        responder = subprocess.Popen(
            [sys.executable, "-c", f"bootstrap_servers = {kjms_broker.bootstrap_servers!r}\n{program}"]
        )
        try:
            answers = [consumer.receive(20_000) for consumer in consumers for _ in range(REQUESTS)]
        finally:
            responder.kill()
            responder.wait()
        assert {(reply.jms_correlation_id, reply.get_body(str)) for reply in answers if reply is not None} == asked
