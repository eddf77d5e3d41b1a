"""The programs of the page on administration do what the page says, on an in-memory Kafka."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory, Queue, RedeliveryPolicy, Session
from kjms.admin import Admin
from kjms.testing import MemoryKafka
from tests.helpers import WAIT_MS, browse, wait_for

PAGE = (Path(__file__).parents[2] / "docs" / "administration.md").read_text("utf-8")


def test_the_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    """They list a queue, show its messages, follow one, move some, and retry dead letters."""
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with MemoryKafka() as kafka:
        factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=2))
        orders = Queue("orders")
        with factory.create_connection() as connection:
            session = connection.create_session(Session.SESSION_TRANSACTED)
            producer = session.create_producer(orders)
            for amount in (-1, 5, -2):
                message = session.create_text_message(f"amount {amount}")
                message.set_int_property("amount", amount)
                message.set_string_property("region", "EU")
                producer.send(message)
            session.commit()
            consumer = session.create_consumer(orders, "amount = 5")
            connection.start()
            for _ in range(2):
                assert consumer.receive(WAIT_MS) is not None
                session.rollback()
            consumer.close()
            wait_for(lambda: len(browse(connection, Queue("orders.dlq"))) == 1)
        names: dict[str, Any] = {}
        first, *others = programs
        exec(first.replace("localhost:9092", kafka.bootstrap_servers), names)
        assert "orders 2 " in capsys.readouterr().out
        for program in others:
            exec(program, names)
        said = capsys.readouterr().out
        assert "amount -1" in said
        assert "2 of 2 moved; {}" in said
        assert names["deleted"] == 2
        assert "delivered 2 times; its transaction was rolled back" in said
        assert names["retried"] == 0
        with Admin(factory) as admin:
            assert admin.retry_dead_letters("orders") == 1
            (again,) = admin.browse("orders").messages
        names["history"](str(again.message_id))
        said = capsys.readouterr().out
        assert "queue://orders queue waiting 0" in said
        assert "dead letter 2 its transaction was rolled back" in said
