"""What closing a session or connection ends, whom it waits for, and what is refused afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    Message,
    Queue,
)
from kjms.client.session_core import SessionCore
from tests.helpers import NOTHING_SECONDS, WAIT_SECONDS, send, text


@pytest.mark.requirement("JAK-close-4", "JMS-4.3.5-2", "NEV-170", "NEV-174", "NEV-198")
@pytest.mark.parametrize("owner", ["session", "connection"])
def test_a_close_waits_for_a_receive_in_progress(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receive that has got a message returns with it before the close does; one that waits returns None."""
    taken, may_go = threading.Event(), threading.Event()
    checked = SessionCore.checked

    def slow(self: SessionCore, *arguments: Any) -> Message | None:
        taken.set()
        may_go.wait(WAIT_SECONDS)
        return checked(self, *arguments)

    monkeypatch.setattr(SessionCore, "checked", slow)
    closed = kjms_factory.create_connection()
    closed.start()
    session, other = closed.create_session(), closed.create_session()
    consumer, waits = session.create_consumer(queue), other.create_consumer(Queue(f"{queue.queue_name}-empty"))
    send(connection.create_session(), queue, "a", time_to_live=600_000)  # what may expire is looked at first
    with ThreadPoolExecutor(3) as pool:
        receiving, waiting = pool.submit(consumer.receive), pool.submit(waits.receive)
        assert taken.wait(WAIT_SECONDS)
        closing = pool.submit({"session": session, "connection": closed}[owner].close)
        with pytest.raises(FutureTimeoutError):
            closing.result(NOTHING_SECONDS)
        assert not receiving.done()
        may_go.set()
        closing.result(WAIT_SECONDS)
        assert text(receiving.result(WAIT_SECONDS)) == "a"
        closed.close()
        assert waiting.result(WAIT_SECONDS) is None
