"""The engine's commits of transacted sessions."""

from __future__ import annotations

import pytest

from kjms import Queue, TransactionRolledBackException
from kjms.testing.engine import engine_of
from tests.helpers import Desk


def test_a_commit_on_a_closed_engine_raises(desk: Desk, queue: Queue) -> None:
    """However the engine was closed, a commit returns or raises, and never waits without limit."""
    connection = desk.connect(is_apart=True)
    session = desk.transacted(connection)
    desk.send(queue, "a", by=session)
    engine_of(connection).committer.close(0)
    with pytest.raises(TransactionRolledBackException, match="closed"):
        session.commit()
    assert desk.stored(queue) == []
