"""What the tests of delayed messages share: which delayed messages this process serves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjms import Connection, Queue, Topic
from kjms.engine._later import Later
from tests.helpers import Desk

Served = Callable[..., "Later | None"]


@pytest.fixture
def served(desk: Desk) -> Served:
    """A function that returns what serves the delayed messages of a destination, if it has got a partition."""

    def find(where: Queue | Topic, connection: Connection | None = None) -> Later | None:
        schedule = (connection or desk.connection)._engine.schedule
        name = where.queue_name if isinstance(where, Queue) else where.topic_name
        found = schedule._laters.get(name)
        return found if found is not None and found.partitions else None

    return find
