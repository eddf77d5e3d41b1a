"""Damaged messages and hostile text: what the commands print of them, and that nothing stops."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from kjms import Queue
from kjms.broker import Broker
from tests.helpers import Kjms

DAMAGED = b"\x02\xff\xff\xff"
FAR = 2**62


@pytest.fixture
def produce(kjms_broker: Broker) -> Callable[..., None]:
    """Write a record as a program without kjms does."""
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})

    def write(queue: Queue, value: bytes, *headers: tuple[str, bytes]) -> None:
        producer.produce(queue.queue_name, value, headers=list(headers))
        producer.flush()

    return write


@pytest.fixture
def mixed(kjms: Kjms, produce: Callable[..., None], queue: Queue) -> Queue:
    """A queue with two good messages, and a map that is none between them."""
    kjms("send", queue.queue_name, "before")
    produce(queue, DAMAGED, ("kjms", b"1;map;amount=int"), ("amount", b"1.5"), ("region", b"EU"))
    kjms("send", queue.queue_name, "after")
    return queue


def test_a_damaged_message_is_written_and_settled_with_the_others(kjms: Kjms, mixed: Queue) -> None:
    """`receive` writes a damaged message with its damage and its bytes, continues, and none of them comes again."""
    run = kjms("receive", mixed.queue_name, "--no-wait")
    before, damaged, after = run.stdout.decode().splitlines()
    assert (before, after) == ("before", "after")
    assert "is not a body of type 'map'" in damaged
    assert damaged.endswith(": Av///w==")
    assert b"is damaged: property 'amount' reads as a string" in run.stderr
    assert kjms("receive", mixed.queue_name, "--no-wait").stdout == b""


def test_a_damaged_message_is_browsed(kjms: Kjms, mixed: Queue) -> None:
    """`browse` shows it in each form, and continues."""
    lines = kjms("browse", mixed.queue_name).stdout.decode().splitlines()
    assert (lines[0], lines[2]) == ("before", "after")
    assert "is not a body of type 'map'" in lines[1]
    headers = kjms("browse", mixed.queue_name, "--headers").stdout.decode()
    assert re.search(r"^! +property 'amount' reads as a string", headers, re.MULTILINE)
    forms = [json.loads(line) for line in kjms("browse", mixed.queue_name, "--json").stdout.splitlines()]
    assert ["damage" in form for form in forms] == [False, True, False]
    assert forms[1]["body"] == {"damaged": "map", "bytes": "Av///w=="}
    assert any("is not a body of type 'map'" in text for text in forms[1]["damage"])
    assert forms[1]["properties"]["region"] == "EU"


def test_a_damaged_message_is_copied_as_it_is(kjms: Kjms, pipeline: Callable[[str], bytes], mixed: Queue) -> None:
    """What `receive --json` writes of it `send --json` sends with the same value and type."""
    name = mixed.queue_name
    assert pipeline(f"kjms receive {name} --no-wait --json | kjms send {name}-copy --json") == b""
    forms = [json.loads(line) for line in kjms("browse", f"{name}-copy", "--json").stdout.splitlines()]
    assert [form["body"] for form in forms] == ["before", {"damaged": "map", "bytes": "Av///w=="}, "after"]


def test_absurd_times_do_not_end_headers(kjms: Kjms, produce: Callable[..., None], queue: Queue) -> None:
    """A time beyond every calendar is shown as the number that it is."""
    kjms("send", queue.queue_name, "before")
    far = str(FAR).encode()
    produce(queue, b"far", ("kjms", b"1;text"), ("JMSTimestamp", far), ("JMSExpiration", far))
    produce(queue, b"early", ("kjms", b"1;text"), ("JMSTimestamp", str(-FAR).encode()))
    kjms("send", queue.queue_name, "after")
    for command in (["browse"], ["receive", "--no-wait"]):
        output = kjms(command[0], queue.queue_name, "--headers", *command[1:]).stdout.decode()
        assert re.search(rf"^JMSTimestamp +{FAR} \({FAR} ms\)$", output, re.MULTILINE)
        assert re.search(rf"^JMSExpiration +{FAR} \({FAR} ms\)$", output, re.MULTILINE)
        assert output.endswith("\nafter\n\n")


def test_a_dead_letter_that_is_damaged_is_shown(kjms: Kjms, produce: Callable[..., None], queue: Queue) -> None:
    """So does `dlq show`, in both forms."""
    kjms("send", queue.queue_name, "good")
    produce(
        queue,
        DAMAGED,
        ("kjms", b"1;map"),
        ("JMS_kjms_Cause", b"\x1b[2Jgone"),
        ("JMSTimestamp", str(FAR).encode()),
    )
    shown = kjms("dlq", "show", queue.queue_name).stdout.decode()
    assert r"\x1b[2Jgone" in shown
    assert "is not a body of type 'map'" in shown
    assert f"{FAR} ms" in shown
    (form,) = map(json.loads, kjms("dlq", "show", queue.queue_name, "--json").stdout.splitlines())
    assert form["message"]["body"] == {"damaged": "map", "bytes": "Av///w=="}


# Control characters.


def test_names_and_headers_cannot_forge_lines(kjms: Kjms, queue: Queue) -> None:
    """A name or property with line ends and escape sequences stays in its cell, as escapes."""
    forged = f"{queue.queue_name}\n\x1b[31mpayroll  queue  1  0"
    kjms("send", forged, "x", "--property", "p=1\nJMSPriority  9\x1b[2J")
    listed = kjms("destinations").stdout.decode()
    assert "\x1b" not in listed
    assert not any(line.startswith("payroll") or "payroll" in line[:8] for line in listed.splitlines())
    assert r"\n\x1b[31mpayroll" in listed
    headers = kjms("browse", forged, "--headers").stdout.decode()
    assert "\x1b" not in headers
    assert r"1\nJMSPriority  9\x1b[2J" in headers
    assert "\x1b" not in kjms("receive", forged, "--count", "1", "-v").stderr.decode()


def on_terminal(environment: dict[str, str], *arguments: str) -> bytes:
    """Return what ``kjms`` writes to a terminal."""
    main, other = pty.openpty()
    process = subprocess.Popen(["kjms", *arguments], stdout=other, env=environment)
    os.close(other)
    written = b""
    try:
        while data := os.read(main, 4096):
            written += data
    except OSError:  # the other side is closed
        pass
    os.close(main)
    assert process.wait(60) == 0
    return written.replace(b"\r\n", b"\n")


def test_a_body_cannot_control_a_terminal(
    kjms: Kjms, environment: dict[str, str], queue: Queue, produce: Callable[..., None]
) -> None:
    """A terminal gets escapes for control characters of a body; a pipe gets the body."""
    body = "red \x1b[31m, back\r, \x9b2J, \u202eesrever\nsecond\tline, Größe".encode()
    kjms("send", queue.queue_name, "x")
    kjms("receive", queue.queue_name, "--count", "1")
    produce(queue, body, ("kjms", b"1;text"))
    assert kjms("browse", queue.queue_name).stdout == body + b"\n"
    shown = on_terminal(environment, "browse", queue.queue_name).decode()
    assert shown == "red \\x1b[31m, back\\r, \\x9b2J, \\u202eesrever\nsecond\tline, Größe\n"
    as_json = on_terminal(environment, "browse", queue.queue_name, "--json").decode()
    assert json.loads(as_json)["body"] == body.decode()
    assert not re.search("[\x1b\x9b\u202e]", as_json)
    latin = on_terminal({**environment, "PYTHONIOENCODING": "ascii"}, "browse", queue.queue_name).decode("ascii")
    assert "Gr\\xf6\\xdfe" in latin


def test_a_stdout_without_the_character_shows_an_escape(kjms: Kjms, environment: dict[str, str], queue: Queue) -> None:
    """A name that the encoding of the standard output does not have is written with escapes."""
    kjms("send", f"{queue.queue_name}-Größe", "x")
    run = subprocess.run(
        ["kjms", "destinations"], env={**environment, "PYTHONIOENCODING": "ascii"}, capture_output=True, check=False
    )
    assert (run.returncode, run.stderr) == (0, b"")
    assert f"{queue.queue_name}-Gr\\xf6\\xdfe".encode() in run.stdout


# What looks creates nothing.


@pytest.mark.parametrize(
    "arguments",
    [
        ["receive", "{missing}", "--no-wait"],
        ["receive", "topic://{missing}", "--no-wait"],
        ["browse", "{missing}"],
        ["dlq", "show", "{missing}"],
        ["dlq", "list", "{missing}"],
        ["schedule", "list", "{missing}"],
        ["schedule", "run", "{missing}"],
        ["schedule", "add", "tea", "--cron", "0 6 * * *", "--queue", "{missing}"],
        ["schedule", "remove", "tea", "--queue", "{missing}"],
    ],
)
def test_what_looks_or_receives_creates_nothing(
    kjms: Kjms, kjms_broker: Broker, queue: Queue, arguments: list[str]
) -> None:
    """A name with a mistake is an error, and no topic comes of it."""
    missing = f"{queue.queue_name}-typo"
    run = kjms(*(argument.format(missing=missing) for argument in arguments), expected=1)
    said = run.stderr.decode()
    assert f"there is no Kafka topic {missing!r}" in said
    assert "create_destinations" not in said
    assert "(str)" not in said
    topics = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers}).list_topics(timeout=20).topics
    assert missing not in topics


def test_receive_creates_what_it_is_told_to_create(kjms: Kjms, kjms_broker: Broker, queue: Queue) -> None:
    """`--create` makes the destination."""
    assert kjms("receive", queue.queue_name, "--create", "--wait", "0.1").stdout == b""
    topics = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers}).list_topics(timeout=20).topics
    assert queue.queue_name in topics


def test_kjms_is_a_module(environment: dict[str, str], tmp_path: Path) -> None:
    """``python -m kjms`` is the command ``kjms``."""
    run = subprocess.run([sys.executable, "-m", "kjms", "--version"], env=environment, capture_output=True, check=False)
    assert (run.returncode, run.stdout[:5]) == (0, b"kjms ")
