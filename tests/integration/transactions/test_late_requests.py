"""A request of a transaction is cut off, repeated by librdkafka, and arrives late, in the next transaction, on a Kafka.

`tests/unit/faults/test_late_requests.py` shows what it would do there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from kjms import Queue, Session
from kjms.engine.kafka import KafkaError, KafkaException
from tests.helpers import Desk, Intercepted, intercepted
from tests.kafka_proxy import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    KafkaProxy,
)

pytestmark = pytest.mark.slow

SESSIONS = b"-sessions"  # in the transactional id of the producer that commits sessions
KINDS = {
    "Produce": PRODUCE,
    "AddPartitionsToTxn": ADD_PARTITIONS_TO_TXN,
    "AddOffsetsToTxn": ADD_OFFSETS_TO_TXN,
    "TxnOffsetCommit": TXN_OFFSET_COMMIT,
    "EndTxn": END_TXN,
}


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    with KafkaProxy() as proxy:
        yield proxy


@pytest.fixture
def proxied_desk(proxy: KafkaProxy) -> Iterator[Desk]:
    """A desk behind the proxy."""
    with contextlib.ExitStack() as stack:
        yield Desk(proxy.bootstrap_servers, stack)


@pytest.mark.requirement("JMS-4.4.7-2")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_late_request_of_a_commit_is_refused(
    proxy: KafkaProxy, proxied_desk: Any, queue: Queue, other_queue: Queue, kind: int
) -> None:
    """Its epoch is over; each message is moved once, and what is settled stays settled."""
    desk = proxied_desk
    desk.send(queue, *"abcd")
    codes: list[int] = []

    class Late(Intercepted):
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            self.inner.send_offsets_to_transaction(*arguments)
            if len(committed) == 2:
                codes.append(proxy.deliver())

    committed: list[str] = []
    connection = desk.connect(is_apart=True)
    with intercepted(desk.servers, producer=Late), connection.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue)
        for name in "abc":
            assert desk.texts(consumer, 1) == [name]
            desk.send(other_queue, name, by=session)
            if name == "b":  # the partition of the first transaction is known to the producer by now
                proxy.take(kind, SESSIONS)
            session.commit()
            committed.append(name)
    connection.close()
    assert desk.stored(other_queue) == ["a", "b", "c"]
    assert desk.left(queue) == [("d", False, 1)]
    assert codes == [KafkaError.INVALID_PRODUCER_EPOCH]


@pytest.mark.requirement("JMS-4.4.7-2", "JAK-commit-8")
def test_a_late_abort_is_refused(proxy: KafkaProxy, proxied_desk: Any, queue: Queue, other_queue: Queue) -> None:
    """A transaction that the broker refused to settle is made again: what it sends is there when its commit returns."""
    desk = proxied_desk
    desk.send(queue, *"ab")
    codes: list[int] = []
    refusals = [KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "refused", txn_requires_abort=True))]

    class Late(Intercepted):
        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            self.inner.send_offsets_to_transaction(*arguments)
            if refusals:
                proxy.take(END_TXN, SESSIONS)
                raise refusals.pop()
            codes.append(proxy.deliver())

    connection = desk.connect(is_apart=True)
    with intercepted(desk.servers, producer=Late), connection.create_session(Session.SESSION_TRANSACTED) as session:
        assert desk.texts(session.create_consumer(queue), 1) == ["a"]
        desk.send(other_queue, "a", by=session)
        session.commit()
    connection.close()
    assert desk.stored(other_queue) == ["a"]
    assert desk.left(queue) == [("b", False, 1)]
    assert codes == [KafkaError.INVALID_PRODUCER_EPOCH]
