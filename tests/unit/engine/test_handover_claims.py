"""Until when a process may use the partitions in which others hand messages over to it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kjms.engine.handover import interest
from kjms.engine.handover.handover import IDLE_BEAT_SECONDS
from kjms.engine.handover.interest import IDLE_VALID_SECONDS, VALID_SECONDS, Interest

STORED: Any = SimpleNamespace(offset=lambda: 7)  # what a delivery report says of a record


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_claim_of_an_idle_process_holds_while_it_says_that_it_is_busy(
    monkeypatch: pytest.MonkeyPatch, is_confirmed: bool
) -> None:
    """Each interest counts for as long as it says; one that is not confirmed shortens the claim, and ends none."""
    now = 1_000.0
    reports: list[Any] = []
    publisher: Any = SimpleNamespace(send=lambda topic, number, record, report: reports.append(report))
    monkeypatch.setattr(interest.time, "monotonic", lambda: now)
    ours = Interest("q.kjms.interest", "we", publisher, margin=8.0)
    ours.is_idle = True
    ours.publish({"idle": True})
    assert ours.valid_until <= now  # Kafka may not have it
    reports.pop()(None, STORED)
    assert ours.valid_until == now + IDLE_VALID_SECONDS
    now += IDLE_BEAT_SECONDS
    ours.is_idle = False
    ours.publish({"idle": False})
    if is_confirmed:
        reports.pop()(None, STORED)
    assert ours.valid_until == now + VALID_SECONDS
    now += 1
    ours.publish({"idle": False})
    assert ours.valid_until == now - 1 + VALID_SECONDS
