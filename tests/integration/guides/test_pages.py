"""Run the code on the pages about settlement, handover and their neighbours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kjms import Connection, Message, Queue, RedeliveryPolicy, Session
from tests.helpers import WAIT_MS, WAIT_SECONDS

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / f"{page}.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    ("page", "program", "output"),
    [
        ("settlement", 0, 0),
        ("subscriptions", 0, 0),
        ("settlement", 3, 1),
        ("request-reply", 1, 0),
        ("typed-bodies", 0, 0),
    ],
)
def test_a_program_prints_the_text_below_it(
    kjms_broker: Any, page: str, program: int, output: int, tmp_path: Path
) -> None:
    """A program on the page prints the text that follows it."""
    file = tmp_path / "program.py"  # a function's annotations are looked up in its module
    file.write_text(blocks(page)[program], "utf-8")
    run = subprocess.run(
        [sys.executable, file],
        capture_output=True,
        env={**os.environ, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers},
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, blocks(page, "text")[output]), run.stderr


def test_a_loop_redelivers_a_message_whose_processing_raises(
    connection: Connection, session: Session, queue: Queue
) -> None:
    """The loop of docs/settlement.md redelivers the message after an exception."""
    session.create_producer(queue).send(session.create_text_message("order"))

    def work(message: Message) -> None:
        raise ValueError(message.text)  # type: ignore[attr-defined]

    with pytest.raises(ValueError, match="order"):
        exec(blocks("settlement")[1], {"connection": connection, "queue": queue, "work": work})
    again = session.create_consumer(queue).receive(WAIT_MS)
    assert again is not None
    assert again.get_int_property("JMSXDeliveryCount") == 2


def test_the_redelivery_policy_has_the_defaults_on_the_page() -> None:
    """The policy in docs/settlement.md is the default one."""
    assert eval(blocks("settlement")[2]) == RedeliveryPolicy()


def test_a_selector_finds_the_reply(session: Session, queue: Queue) -> None:
    """The consumer of docs/request-reply.md gets the reply to its request, and no other."""
    request = session.create_text_message("1 2 3")
    producer = session.create_producer(queue)
    producer.send(request)
    for correlation_id, text in (("ID:another", "9"), (request.jms_message_id, "6")):
        reply = session.create_text_message(text)
        reply.jms_correlation_id = correlation_id
        producer.send(reply)
    scope: dict[str, Any] = {"session": session, "replies": queue, "request": request}
    exec(blocks("request-reply")[2], scope)
    assert scope["consumer"].receive(WAIT_MS).text == "6"


def test_a_consumer_gets_what_its_selector_matches(session: Session, queue: Queue) -> None:
    """The consumer of docs/selectors.md gets the order above 100 from the EU alone."""
    producer = session.create_producer(queue)
    for region, amount in (("US", 250), ("EU", 50), ("EU", 101)):
        order = session.create_text_message(f"{region} {amount}")
        order.properties.update({"region": region, "amount": amount})
        producer.send(order)
    scope: dict[str, Any] = {"session": session, "queue": queue}
    exec(blocks("selectors")[0], scope)
    assert scope["consumer"].receive(WAIT_MS).text == "EU 101"


@pytest.fixture
def workers(kjms_broker: Any, queue: Queue) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """The program of docs/hand-over.md, started twice."""
    (program,) = blocks("hand-over")
    program = program.replace("localhost:9092", kjms_broker.bootstrap_servers)
    program = program.replace('Queue("orders")', f'Queue("{queue.queue_name}")')
    commands = [line.split()[1:] for line in blocks("hand-over", "bash")[0].splitlines()]
    assert [name for name, _ in commands] == ["worker.py", "worker.py"]
    started = {
        region: subprocess.Popen([sys.executable, "-c", program, region], stdout=subprocess.PIPE, text=True)
        for _, region in commands
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate(timeout=WAIT_SECONDS)


def test_each_process_gets_the_orders_of_its_region(
    session: Session, queue: Queue, workers: dict[str, subprocess.Popen[str]]
) -> None:
    """Handover delivers the orders of both regions, each to the process with the matching selector."""
    producer = session.create_producer(queue)
    for region, worker in workers.items():
        message = session.create_text_message(f"order {uuid.uuid4().hex}")
        message.properties["region"] = region
        producer.send(message)
        assert worker.stdout is not None
        assert worker.stdout.readline() == f"{region} packs {message.text}\n"
