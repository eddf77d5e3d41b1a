"""``kjms schedule`` and ``kjms send --delay``: what waits is listed, cancelled, and delivered."""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

from kjms.cli import main
from tests.helpers import Kjms


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("list --all", "options of cancel and deliver only"),
        ("deliver orders ID:1 --yes", "an option of cancel only"),
        ("deliver", "give the destination"),
        ("list orders more", "one destination"),
        ("run --json", "an option of list only"),
        ("cancel", "give the destination"),
        ("cancel orders", "give the destination"),
        ("cancel orders ID:1 --all", "give the destination"),
        ("cancel orders --all", "--yes"),
        ("run orders topic://", "run:"),
        ("list topic://", "list:"),
        ("list --cron *", "list: --cron is an option of periodic messages"),
        ("add", "give the name"),
        ("add tea --cron *", "give --cron, and --queue or --topic"),
        ("add tea --queue q", "give --cron, and --queue or --topic"),
        ("add tea one two --queue q --cron *", "give one TEXT"),
        ("add tea one --bytes --queue q --cron *", "give one TEXT"),
        ("add tea --queue q --topic t --cron *", "not allowed with"),
        ("remove", "give the name"),
        ("pause tea --cron *", "give the name"),
        ("resume tea more", "give the name"),
    ],
)
def test_wrong_use_is_said(arguments: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Arguments that make no sense together end with exit code 2, before anything is connected."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["schedule", *arguments.split()]) == 2
    assert why in capsys.readouterr().err


def test_messages_are_listed_and_cancelled(kjms: Kjms, kjms_destination_name: str) -> None:
    """What waits is listed, those due first first; cancel takes ids, says which do not wait, and they never come."""
    name = kjms_destination_name
    before = time.time_ns() // 1_000_000
    late = kjms("send", name, "late", "--delay", "7200000", "-v").stdout.decode().strip()
    early = kjms("send", name, "early", "--delay", "3600000", "--type", "order", "-v").stdout.decode().strip()
    first, second = json.loads(kjms("schedule", "list", name, "--json").stdout)
    assert (first["message_id"], first["type"], first["destination"]) == (early, "order", name)
    assert second["message_id"] == late
    assert before + 3_600_000 <= first["due"] <= time.time_ns() // 1_000_000 + 3_600_000
    assert 3_000_000 < first["waits"] <= 3_600_000
    done = kjms("schedule", "cancel", name, early, "ID:nobody", expected=1)
    assert f"1 delayed message of queue://{name} was cancelled" in done.stderr.decode()
    assert f"queue://{name} has no delayed message with this id: ID:nobody" in done.stderr.decode()
    lines = kjms("schedule", "list", name).stdout.decode().splitlines()
    assert lines[0].split() == ["DUE", "(UTC)", "IN", "DESTINATION", "MESSAGE", "ID", "TYPE"]
    (line,) = lines[1:]
    assert line.split()[2:] == [line.split()[2], name, late, "-"]
    assert line.split()[2].startswith("1:59:")
    kjms("schedule", "cancel", name, "--all", "--yes")
    assert kjms("schedule", "list", name).stdout == b"There are no delayed messages.\n"


def test_run_delivers_where_nobody_else_does(
    kjms: Kjms, start: Callable[..., subprocess.Popen[bytes]], kjms_destination_name: str, kjms_broker: Any
) -> None:
    """``kjms schedule run`` moves to the destination what becomes due while no program uses it."""
    runner = start("schedule", "run", stderr=subprocess.PIPE)
    kjms("send", kjms_destination_name, "hello", "--delay", "1500")
    assert runner.stderr is not None
    while kjms_destination_name.encode() not in runner.stderr.readline():
        assert runner.poll() is None
    settings = {"bootstrap.servers": kjms_broker.bootstrap_servers, "group.id": kjms_destination_name}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([kjms_destination_name])
        record = consumer.poll(20)
        assert record is not None
        assert record.value() == b"hello"
    finally:
        consumer.close()
    runner.terminate()
    assert runner.wait(20) == 143


def test_periodic_messages_are_defined(kjms: Kjms, kjms_destination_name: str) -> None:
    """A periodic message is listed with its next time, as JSON too, and its messages have what the options say."""
    name = kjms_destination_name
    kjms("send", name, "the queue is created")
    kjms("receive", name, "--count", "1")
    where = ["--queue", name]
    done = kjms(
        *("schedule", "add", "tick", "tea", "--cron", "* * * * * *", "--type", "drink", "--property", "cups:int=2"),
        *("--ttl", "60000", "--priority", "7", *where),
    )
    assert f"kjms schedule: tick is sent to queue://{name}, next at 20" in done.stderr.decode()
    again = kjms("schedule", "add", "tick", "tea", "--cron", "0 6 * * *", *where, expected=1)
    assert "A name is unique at its destination" in again.stderr.decode()
    (entry,) = json.loads(kjms("schedule", "list", name, "--json").stdout)
    assert (entry["schedule"], entry["cron"], entry["timezone"], entry["paused"]) == (
        "tick",
        "* * * * * *",
        "UTC",
        False,
    )
    assert (entry["destination"], entry["type"], entry["message_id"]) == (name, "drink", None)
    message = json.loads(kjms("receive", name, "--json", "--count", "1").stdout)
    assert (message["body"], message["properties"]["cups"]) == ("tea", 2)
    assert (message["headers"]["JMSType"], message["headers"]["JMSPriority"]) == ("drink", 7)
    kjms("schedule", "pause", "tick", *where)
    assert "paused" in kjms("schedule", "list", name).stdout.decode()
    kjms("schedule", "add", "tick", "--bytes", "--cron", "0 6 * * *", "--replace", *where, stdin=b"\x00")
    (entry,) = json.loads(kjms("schedule", "list", name, "--json").stdout)
    assert (entry["cron"], entry["paused"]) == ("0 6 * * *", False)
    kjms("schedule", "remove", "tick", *where)
    assert (
        "there is no periodic message 'tick'" in kjms("schedule", "remove", "tick", *where, expected=1).stderr.decode()
    )
    assert kjms("schedule", "list", name).stdout == b"There are no delayed messages.\n"
