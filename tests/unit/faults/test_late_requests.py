"""A request of a transaction is cut off, repeated by librdkafka, and arrives late: in the producer's next transaction.

A transaction is what its session commits, whatever arrives meanwhile: the next one has a producer of its own epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kjms import Queue, Session, TransactionRolledBackException
from kjms.engine.kafka import KafkaError
from kjms.testing import MemoryKafka
from tests.helpers import Intercepted, intercepted

REFUSED = KafkaError(KafkaError.ILLEGAL_GENERATION, "refused", txn_requires_abort=True)


@contextmanager
def after_settling(desk: Any, action: Callable[[], object]) -> Iterator[None]:
    """Do *action* in each transaction that settles, when it has written and settled everything."""

    class Watched(Intercepted):
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            self.inner.send_offsets_to_transaction(*arguments)
            action()

    with intercepted(desk.servers, producer=Watched):
        yield


@pytest.mark.requirement("JMS-4.4.7-2")
@pytest.mark.parametrize("operation", ["send_offsets", "commit_transaction"])
def test_a_late_request_of_a_commit_changes_no_later_one(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue, operation: Any
) -> None:
    """Each message is moved once, and the late request is refused: its epoch is over."""
    desk.send(queue, *"abc")
    late = kafka.faults.delay(operation)
    committed: list[str] = []
    codes: list[int] = []
    connection = desk.connect(is_apart=True)

    def arrive() -> None:
        if committed:
            codes.append(late.arrive())

    with after_settling(desk, arrive), connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue)
        for name in "ab":
            assert desk.texts(consumer, 1) == [name]
            desk.send(other_queue, name, by=session)
            session.commit()
            committed.append(name)
    connection.close()
    assert desk.stored(other_queue) == ["a", "b"]
    assert desk.left(queue) == [("c", False, 1)]
    assert codes == [KafkaError.INVALID_PRODUCER_EPOCH]


@pytest.mark.requirement("JMS-4.4.7-2", "JMS-4.4.13-2")
def test_a_late_commit_commits_nothing_that_is_rolled_back(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue
) -> None:
    """Nothing of a transaction that failed is visible, though the commit of the one before arrives in it."""
    desk.send(queue, *"ab")
    late = kafka.faults.delay("commit_transaction")
    codes: list[int] = []

    class Arriving(Intercepted):
        def abort_transaction(self, *arguments: Any) -> None:
            codes.append(late.arrive())
            self.inner.abort_transaction(*arguments)

    connection = desk.connect(is_apart=True)
    with intercepted(desk.servers, producer=Arriving):
        session = desk.transacted(connection)
        consumer = session.create_consumer(queue)
        assert desk.texts(consumer, 1) == ["a"]
        desk.send(other_queue, "a", by=session)
        session.commit()
        assert desk.texts(consumer, 1) == ["b"]
        desk.send(other_queue, "b", by=session)
        kafka.faults.fail("send_offsets", KafkaError(KafkaError.INVALID_TXN_STATE, "refused", txn_requires_abort=True))
        with pytest.raises(TransactionRolledBackException):
            session.commit()
        assert desk.stored(other_queue) == ["a"]
        assert desk.seen(consumer, 1) == [("b", True, 2)]
        assert codes == [KafkaError.INVALID_PRODUCER_EPOCH]


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8")
def test_a_late_abort_takes_nothing_from_a_commit(
    kafka: MemoryKafka, desk: Any, queue: Queue, other_queue: Queue
) -> None:
    """The transaction is made again after a refusal: what it sends is there when `commit` returns."""
    desk.send(queue, *"ab")
    late = kafka.faults.delay("abort_transaction")
    kafka.faults.fail("send_offsets", REFUSED)
    codes: list[int] = []
    connection = desk.connect(is_apart=True)

    arriving = after_settling(desk, lambda: codes.append(late.arrive()))
    with arriving, connection.create_session(Session.SESSION_TRANSACTED) as session:
        assert desk.texts(session.create_consumer(queue), 1) == ["a"]
        desk.send(other_queue, "a", by=session)
        session.commit()
    connection.close()
    assert desk.stored(other_queue) == ["a"]
    assert desk.left(queue) == [("b", False, 1)]
    assert codes == [KafkaError.INVALID_PRODUCER_EPOCH]
