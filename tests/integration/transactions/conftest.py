"""What the tests of transacted sessions share: a Kafka that may be killed, and shared commits."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator

import pytest

from kjms import Connection, JMSException, Queue, Session
from kjms.broker import LocalBroker
from kjms.testing.engine import statistics
from tests.helpers import Desk, Intercepted, intercepted, wait_for

CommitTogether = Callable[..., list[Exception | None]]


@pytest.fixture
def commit_together(desk: Desk) -> Iterator[CommitTogether]:
    """A function that commits sessions in one Kafka transaction, in their order; returns what each commit raised.

    Their connection is one that was opened in the test, apart, and has committed nothing yet.
    """
    left: list[int] = []  # of the commits that waited, when each transaction began
    wanted: list[Callable[[], int]] = []

    class Gathering(Intercepted):
        def begin_transaction(self) -> None:
            if wanted and self.config.get("transactional.id", "").endswith("-sessions"):
                if not left:
                    wait_for(lambda: wanted[0]() == wanted[1](), pause=0.001)
                left.append(wanted[0]())
            self.inner.begin_transaction()

    def commit_all(connection: Connection, *sessions: Session) -> list[Exception | None]:
        outcomes: list[Exception | None] = [None] * len(sessions)

        def commit(number: int) -> None:
            try:
                sessions[number].commit()
            except JMSException as error:
                outcomes[number] = error

        first = desk.transacted(connection)
        desk.send(Queue(f"first-{uuid.uuid4().hex}"), "first", by=first)
        wanted[:] = [lambda: statistics(connection).commits.waiting, lambda: len(sessions)]

        def is_next(number: int) -> bool:
            found = statistics(connection).commits
            return found.is_busy and found.waiting == number

        threads = [threading.Thread(target=first.commit)]
        threads += [threading.Thread(target=commit, args=(number,)) for number in range(len(sessions))]
        for number, thread in enumerate(threads):
            thread.start()
            wait_for(lambda number=number: left or is_next(number), pause=0.001)
        for thread in threads:
            thread.join()
        assert left[:2] == [len(sessions), 0]  # the second transaction took them all
        first.close()
        return outcomes

    with intercepted(desk.servers, producer=Gathering):
        yield commit_all


@pytest.fixture
def own_desk(breakable_broker: LocalBroker) -> Iterator[Desk]:
    """A desk at that Kafka."""
    with contextlib.ExitStack() as stack:
        yield Desk(breakable_broker.bootstrap_servers, stack)
