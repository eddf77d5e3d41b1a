"""The programs of docs/broker.md start brokers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kjms import ConnectionFactory, JMSSecurityException, Queue
from kjms.broker import LocalBroker
from tests.helpers import WAIT_MS

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[3] / "docs" / "broker.md").read_text("utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_a_program_has_a_broker() -> None:
    """The first program on the page has a factory for a broker that works."""
    rest = (
        "    with factory.create_context() as context:\n"
        "        context.create_producer().send(queue, 'hello')\n"
        "        body = context.create_consumer(queue).receive_body(str, WAIT_MS)\n"
    )
    scope: dict[str, Any] = {"queue": Queue("a"), "WAIT_MS": WAIT_MS}
    exec(PROGRAMS[0] + rest, scope)
    assert scope["body"] == "hello"


def test_a_broker_asks_for_passwords() -> None:
    """With the settings on the page, users give their password."""
    with eval(PROGRAMS[2].partition(";'\n")[2].strip(), {"LocalBroker": LocalBroker, "jaas": jaas()}) as broker:
        sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        factory = ConnectionFactory(broker.bootstrap_servers, kafka=sasl)
        with factory.create_context(user="ann", password="...") as context:
            context.create_producer().send(Queue("a"), "hello")
        with pytest.raises(JMSSecurityException):
            factory.create_context(user="ann", password="another").create_producer().send(Queue("a"), "hello")


@pytest.mark.timeout(600)
def test_a_message_outlives_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    """With one of three nodes killed, the program on the page receives its message."""
    exec(PROGRAMS[3], {})
    assert capsys.readouterr().out == "ten pens\n"


def jaas() -> str:
    scope: dict[str, str] = {}
    exec(PROGRAMS[2].partition("LocalBroker(")[0], scope)
    return scope["jaas"]
