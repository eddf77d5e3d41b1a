"""The program of docs/bridge.md moves messages; the other broker is a gateway here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kjms import ConnectionFactory, Queue, Session, TextMessage
from kjms.testing import MemoryKafka

if TYPE_CHECKING:
    from gateway_thread import RunningGateway

    from kjms.bridge import BridgeIn

PAGE = (Path(__file__).parents[2] / "docs" / "bridge.md").read_text("utf-8")


def test_the_program_moves_messages(gateway: RunningGateway, here: Session, kjms_destination_name: str) -> None:
    """The bridge of the page's program moves the queue's messages, and ends when there are no more."""
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    here.create_producer(Queue(kjms_destination_name)).send(here.create_text_message("ten pens"))
    with MemoryKafka() as kafka:
        changes = {
            "localhost:9092": kafka.bootstrap_servers,
            "amqp://localhost:61616": gateway.url,
            'Queue("orders")': f'Queue("{kjms_destination_name}")',
        }
        for shown, used in changes.items():
            assert shown in program
            program = program.replace(shown, used)
        scope: dict[str, Any] = {}
        exec(program, scope)
        bridge: BridgeIn = scope["bridge"]
        assert bridge.progress.moved == 1
        with ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
            message = context.create_consumer(Queue(kjms_destination_name)).receive(10_000)
            assert isinstance(message, TextMessage)
            assert message.text == "ten pens"
