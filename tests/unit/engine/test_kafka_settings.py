"""Which of librdkafka's settings a user may not change, and what becomes of the others."""

from __future__ import annotations

import os
import re

import pytest

from kjms import ConnectionFactory
from kjms.engine.settings import OWNED, admin_settings, common_settings, consumer_settings, producer_settings


@pytest.mark.parametrize("name", sorted(OWNED))
def test_what_kjms_decides_is_refused_with_the_reason(name: str) -> None:
    """A setting that would be overridden is an error, which names it and says why."""
    with pytest.raises(ValueError, match=f"{re.escape(repr(name))}.*{re.escape(OWNED[name])}"):
        ConnectionFactory("127.0.0.1:9", kafka={name: "anything"})


def test_each_client_gets_what_is_meant_for_it() -> None:
    """Settings of consumers do not reach producers, nor the other way; all others reach both."""
    user = {"linger.ms": 20, "session.timeout.ms": 9_000, "socket.timeout.ms": 5_000}
    common = common_settings("127.0.0.1:9", user, None, None, lambda _error: None)
    producer, consumer = producer_settings(common), consumer_settings(common, "group")
    assert [producer.get(name) for name in user] == [20, None, 5_000]
    assert [consumer.get(name) for name in user] == [None, 9_000, 5_000]


@pytest.mark.parametrize(
    ("started", "program"),
    [
        (["/opt/shop/worker.py"], "worker"),
        (["/usr/bin/kjms"], "kjms"),
        (["/lib/orders/__main__.py"], "orders"),
        (["-c"], "python"),
        ([""], "python"),
        ([], "python"),
        (["my shop\n.py"], "my-shop-"),
    ],
)
def test_a_member_of_a_group_tells_its_program(
    started: list[str], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client.id names program, host and process, unless the user chooses one; that of other clients is kjms."""
    monkeypatch.setattr("sys.argv", started)
    common = common_settings("127.0.0.1:9", {}, None, None, lambda _error: None)
    assert producer_settings(common)["client.id"] == admin_settings(common)["client.id"] == "kjms"
    assert consumer_settings(common, None)["client.id"] == "kjms"
    name = consumer_settings(common, "group")["client.id"]
    assert re.fullmatch(rf"kjms-{program}@[\w.-]+-{os.getpid()}", name)
    assert consumer_settings(common, "group", application="my billing")["client.id"].startswith("kjms-my-billing@")
    common = common_settings("127.0.0.1:9", {"client.id": "kjms"}, None, None, lambda _error: None)
    assert consumer_settings(common, "group")["client.id"] == "kjms"


def test_a_full_queue_of_records_is_soon_filled_again() -> None:
    """By default, librdkafka leaves it alone for a second. A consumer reads 16 MiB in a tenth of that."""
    common = common_settings("127.0.0.1:9", {}, None, None, lambda _error: None)
    settings = consumer_settings(common, "group")
    assert settings["queued.max.messages.kbytes"] << 10 > 100_000_000 * settings["fetch.queue.backoff.ms"] / 1_000
    common = common_settings("127.0.0.1:9", {"fetch.queue.backoff.ms": 7}, None, None, lambda _error: None)
    assert consumer_settings(common, "group")["fetch.queue.backoff.ms"] == 7


@pytest.mark.parametrize(
    ("user", "has_one_partition", "expected"),
    [({}, False, 100), ({}, True, 500), ({"fetch.wait.max.ms": 7}, True, 7), ({"fetch.wait.max.ms": 7}, False, 7)],
)
def test_a_fetch_waits_longer_where_no_other_partition_waits_for_it(
    user: dict[str, int], has_one_partition: bool, expected: int
) -> None:
    """A consumer of one partition asks an idle broker twice a second, not ten times, unless the user sets that."""
    common = common_settings("127.0.0.1:9", user, None, None, lambda _error: None)
    settings = consumer_settings(common, "group", has_one_partition=has_one_partition)
    assert settings["fetch.wait.max.ms"] == expected
