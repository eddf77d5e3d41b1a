"""The crash test of delayed messages, in short: the long one is a chore."""

from __future__ import annotations

from typing import Any

import pytest
from figures import Figures, children
from figures_delay import measure

pytestmark = pytest.mark.slow


@pytest.mark.requirement("JMS-3.4.13-5")
@pytest.mark.timeout(240)
def test_who_schedules_is_killed(kjms_broker: Any, kjms_destination_name: str) -> None:
    """After kill -9 of the process that schedules them, no delayed message is early, lost, or there twice."""
    figures = Figures()
    with children() as start:
        measure(figures, start, kjms_broker, 400, kjms_destination_name)
    assert figures.is_good
