"""What the consumer thread does after the process slept: consumers that wait since are woken."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kjms.engine.consumer.in_flight import InFlight
from kjms.engine.consumer.stall import STALL_SECONDS, StallDetector
from kjms.engine.consumer.upkeep import Upkeep
from tests.unit.engine.records import Source


@pytest.mark.requirement("JAK-Session-27")
def test_a_consumer_is_woken_for_what_it_was_given_back_before_the_process_slept() -> None:
    """While it is not certain that the partitions are held, it waits; then it gets the message again, at once."""
    source, stall = Source(1), StallDetector(is_member=True)
    answers: list[Any] = ["not a member", None]
    parts: Any = (
        (),
        SimpleNamespace(commit=lambda *, is_proof: (answers.pop(0), is_proof)),
        SimpleNamespace(turn=threading.Lock()),
        source.dispatcher,
        stall,
        None,
    )
    upkeep = Upkeep(*parts, threading.RLock())
    slot = source.slot()
    slot.is_started = True
    delivery = source.take(slot)
    assert delivery is not None
    InFlight(source.dispatcher, lambda: 0).give_back([delivery], to=slot)
    slot.wakeup.clear()
    stall.seen -= 2 * STALL_SECONDS
    assert not stall.check(stall.seen + 2 * STALL_SECONDS)
    assert source.dispatcher.wait(slot) is None  # as its session asks now
    upkeep.prove()
    assert not slot.wakeup.is_set()
    assert not stall.is_certain
    upkeep.prove()
    assert stall.is_certain
    assert slot.wakeup.is_set()
    assert source.take(slot) is delivery
