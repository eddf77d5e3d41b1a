"""``kjms browse`` against a real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Queue
from tests.helpers import Kjms, Run, partitions


def test_a_queue_is_browsed_and_keeps_its_messages(kjms: Kjms, queue: Queue) -> None:
    """Each message is a line, as often as one looks; a selector and a number choose."""
    name = queue.queue_name
    kjms("send", name, "ten pens", "two globes", "--property", "n:int=1")
    kjms("send", f"queue://{name}", "an atlas", "--property", "n:int=2")
    for _ in range(2):
        assert kjms("browse", name).stdout == b"ten pens\ntwo globes\nan atlas\n"
    assert kjms("browse", f"queue://{name}", "--selector", "n = 2").stdout == b"an atlas\n"
    run = kjms("browse", name, "--count", "2", "-v")
    assert (run.stdout, run.stderr) == (b"ten pens\ntwo globes\n", b"kjms browse: 2 shown\n")
    assert b"JMSXDeliveryCount  1 (int)" in kjms("browse", name, "--count", "1", "--headers").stdout
    received = kjms("receive", name, "--count", "3", "--json").stdout
    assert [json.loads(line)["headers"]["JMSRedelivered"] for line in received.splitlines()] == [False] * 3
    assert kjms("browse", name).stdout == b""


def test_what_is_browsed_as_json_can_be_sent(kjms: Kjms, pipeline: Callable[[str], bytes], queue: Queue) -> None:
    """The lines are those of ``kjms receive --json``, so a queue can be copied."""
    name = queue.queue_name
    kjms("send", name, "ten pens", "--property", "amount:short=10", "--type", "order")
    assert pipeline(f"kjms browse {name} --json | kjms send {name}-copy --json") == b""
    copy, original = (json.loads(kjms("browse", which, "--json").stdout) for which in (f"{name}-copy", name))
    assert copy["properties"] == original["properties"]
    assert copy["headers"]["JMSType"] == "order"


def test_a_long_queue_is_browsed_as_far_as_somebody_reads(
    kjms: Kjms, shell: Callable[[str], Run], queue: Queue
) -> None:
    """A pipe that ends ends the command."""
    kjms("send", queue.queue_name, stdin=b"".join(b"%d\n" % number for number in range(5_000)))
    run = shell(f"kjms browse {queue.queue_name} | head -3")
    assert (run.stdout, run.stderr) == (b"0\n1\n2\n", b"")
    assert len(kjms("browse", queue.queue_name).stdout.splitlines()) == 5_000


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["{missing}"], 1, b"there is no Kafka topic"),
        (["topic://prices"], 2, b"not a queue"),
        ([], 2, b"give a queue, or --subscription"),
        (["{missing}", "--client-id", "x"], 2, b"an option of --subscription only"),
        (["{missing}", "--selector", "n = = 2"], 2, b"column"),
        (["{missing}", "--count", "0"], 2, b"whole number"),
    ],
)
def test_browse_refuses(
    kjms: Kjms, kjms_broker: Any, queue: Queue, arguments: list[str], code: int, says: bytes
) -> None:
    """What cannot be browsed is refused in a line, and no queue is made by looking for it."""
    run = kjms("browse", *(text.format(missing=queue.queue_name) for text in arguments), expected=code)
    assert says in run.stderr
    assert partitions(kjms_broker.bootstrap_servers, queue.queue_name) == 0
