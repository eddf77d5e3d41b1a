"""What ``kjms destinations`` says of what it found."""

from __future__ import annotations

import pytest

from kjms.admin._retention import duration, retention_warnings
from kjms.cli._destinations import Entry, table

KEEPS = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
WEEK = str(7 * 86_400_000)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (KEEPS, []),
        ({**KEEPS, "retention.ms": WEEK}, ["after 7 days, received or not: retention.ms=604800000"]),
        ({**KEEPS, "retention.bytes": "1000000"}, ["beyond 1,000,000 bytes"]),
        ({**KEEPS, "cleanup.policy": "compact"}, ["cleanup.policy=compact"]),
        ({**KEEPS, "cleanup.policy": "compact", "retention.ms": WEEK}, ["cleanup.policy=compact"]),
        ({**KEEPS, "cleanup.policy": "compact,delete", "retention.ms": WEEK}, ["7 days", "compact,delete"]),
    ],
)
def test_a_queue_that_may_lose_messages_is_warned_of(settings: dict[str, str], said: list[str]) -> None:
    """Each setting that lets Kafka delete messages before they are received is named; no other is."""
    warnings = retention_warnings("orders", settings)
    assert len(warnings) == len(said)
    for warning, part in zip(warnings, said, strict=True):
        assert part in warning
        assert "queue orders" in warning


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(86_400_000, "1 day"), (5_400_000, "90 minutes"), (7_200_000, "2 hours"), (1_500, "1500 ms"), (0, "0 ms")],
)
def test_durations_are_read_easily(milliseconds: int, text: str) -> None:
    """A duration is given in the largest unit that fits."""
    assert duration(milliseconds) == text


def test_the_table_is_aligned() -> None:
    """Names stand on the left, numbers on the right, and warnings below."""
    entries = [
        Entry("orders", "queue", "orders", 1, 11, 12, 12_345, 5, ("Kafka deletes messages of queue orders",)),
        Entry("a-longer-name", None, "a-longer-name", 16, None, None, 0, None, ()),
    ]
    assert table(entries).splitlines()[:3] == [
        "DESTINATION    KIND   PARTITIONS  WAITING  KEPT UP TO",
        "orders         queue           1       11      12,345",
        "a-longer-name  -              16        -           0",
    ]
    assert table(entries, is_exact=False).splitlines() == [
        "DESTINATION    KIND   PARTITIONS  WAITING UP TO  KEPT UP TO",
        "orders         queue           1             12      12,345",
        "a-longer-name  -              16              -           0",
        "",
        "! Kafka deletes messages of queue orders",
    ]


def test_nothing_is_said_in_words() -> None:
    """A cluster without destinations is no empty table."""
    assert table([]) == "There are no destinations yet."
