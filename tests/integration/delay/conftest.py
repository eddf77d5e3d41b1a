"""What the tests of delayed messages share: which delayed messages this process serves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjms import Connection, Queue, Topic
from kjms.engine.statistics import DelayedStatistics
from kjms.testing.engine import statistics
from tests.helpers import Desk, name_of

Served = Callable[..., "DelayedStatistics | None"]


@pytest.fixture
def served(desk: Desk) -> Served:
    """A function that returns what is served of the delayed messages of a destination, if it is of any partition."""

    def find(where: Queue | Topic, connection: Connection | None = None) -> DelayedStatistics | None:
        found = statistics(connection or desk.connection).delayed_of(name_of(where))
        return found if found is not None and found.partitions else None

    return find
