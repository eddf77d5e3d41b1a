"""What the tests of transacted sessions share: a second queue, a Kafka that may be killed, and shared commits."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, JMSException, Queue, Session
from kjms.broker import LocalBroker
from tests.helpers import WAIT_SECONDS, Desk

CommitTogether = Callable[..., list[Exception | None]]


@pytest.fixture
def commit_together(desk: Desk) -> CommitTogether:
    """A function that commits sessions in one Kafka transaction, in their order; returns what each commit raised."""

    def commit_all(connection: Connection, *sessions: Session) -> list[Exception | None]:
        committer = connection._engine.committer
        carry_out, batches = committer._carry_out, []
        outcomes: list[Exception | None] = [None] * len(sessions)

        def wait_for_all(batch: list[Any]) -> None:
            batches.append(len(batch))
            deadline = time.monotonic() + WAIT_SECONDS
            while len(batches) == 1 and len(committer._units) < len(sessions):
                assert time.monotonic() < deadline
                time.sleep(0.001)
            carry_out(batch)

        def commit(number: int) -> None:
            try:
                sessions[number].commit()
            except JMSException as error:
                outcomes[number] = error

        first = desk.transacted(connection)
        desk.send(Queue(f"first-{uuid.uuid4().hex}"), "first", by=first)
        committer._carry_out = wait_for_all  # type: ignore[method-assign]
        try:
            threads = [threading.Thread(target=first.commit)]
            threads += [threading.Thread(target=commit, args=(number,)) for number in range(len(sessions))]
            for number, thread in enumerate(threads):
                thread.start()
                while len(committer._units) < number or not batches:
                    time.sleep(0.001)
            for thread in threads:
                thread.join()
        finally:
            del committer._carry_out  # type: ignore[method-assign]
        assert batches[:2] == [1, len(sessions)]
        first.close()
        return outcomes

    return commit_all


@pytest.fixture
def other_queue(queue: Queue) -> Queue:
    """Another queue of this test's own."""
    return Queue(f"{queue.queue_name}-other")


@pytest.fixture
def own_desk(breakable_broker: LocalBroker) -> Iterator[Desk]:
    """A desk at that Kafka."""
    with contextlib.ExitStack() as stack:
        yield Desk(breakable_broker.bootstrap_servers, stack)
