"""Until when a process may use the partitions in which others hand messages over to it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kjms.engine.handover import transfer
from kjms.engine.handover.transfer import GOES_ON_SECONDS, IDLE_BEAT_SECONDS, IDLE_GOES_ON_SECONDS, Handover


@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_claim_of_an_idle_process_holds_while_it_says_that_it_is_busy(
    monkeypatch: pytest.MonkeyPatch, is_confirmed: bool
) -> None:
    """Each notice counts for as long as it says; one that is not confirmed shortens the claim, and ends none."""
    now = 1_000.0
    reports: list[Any] = []
    publisher = SimpleNamespace(send=lambda topic, number, record, report: reports.append(report))
    exchange: Any = SimpleNamespace(engine="we", publisher=publisher)
    aside = SimpleNamespace(demand="q.kjms.demand", handover="q.kjms.handover")
    reader: Any = SimpleNamespace(aside=aside, session_timeout=6.0, lock=threading.RLock())
    monkeypatch.setattr(transfer.time, "monotonic", lambda: now)
    ours = Handover(reader, exchange)
    ours.is_idle = True
    ours.publish({"idle": True})
    assert ours.sure_until <= now  # Kafka may not have it
    reports.pop()(None, None)
    assert ours.sure_until == now + IDLE_GOES_ON_SECONDS
    now += IDLE_BEAT_SECONDS
    ours.is_idle = False
    ours.publish({"idle": False})
    if is_confirmed:
        reports.pop()(None, None)
    assert ours.sure_until == now + GOES_ON_SECONDS
    now += 1
    ours.publish({"idle": False})
    assert ours.sure_until == now - 1 + GOES_ON_SECONDS
