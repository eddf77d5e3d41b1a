"""Metadata that names no broker, as Kafka may send it while a cluster restarts: clients find their brokers again."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kjms import MessageConsumer, Queue, Session, TransactionRolledBackException
from tests.helpers import WAIT_MS, apart, consume, send, take, text, wait_for
from tests.kafka_proxy import ADD_OFFSETS_TO_TXN, END_TXN, KafkaProxy

ASK_SOON = {"topic.metadata.refresh.interval.ms": "200"}


@pytest.fixture(scope="module")
def proxy() -> Iterator[KafkaProxy]:
    """A proxy before a Kafka of its own."""
    with KafkaProxy() as proxy:
        yield proxy


def name_none(proxy: KafkaProxy) -> None:
    """Have clients learn once that the cluster has no broker: those that ask soon, consumers and producers."""
    before = proxy.changed
    proxy.name_none_once()
    wait_for(lambda: proxy.changed >= before + 6)


def pass_on(consumer: MessageConsumer, session: Session, queue: Queue) -> None:
    """Receive a message and send another one in a transaction, again where that one is rolled back."""
    while True:
        assert text(consumer.receive(3 * WAIT_MS)) == "to 3"
        session.create_producer(queue).send(session.create_text_message("passed on"))
        try:
            session.commit()
        except TransactionRolledBackException:
            continue
        return


@pytest.mark.slow
@pytest.mark.requirement("JMS-4.3.8-4", "NEV-187", "NET-421")
def test_clients_find_their_brokers_again(proxy: KafkaProxy, queue: Queue) -> None:
    """Messages flow again, in a process that reads the queue and in one to which its messages are handed over."""
    servers = proxy.bootstrap_servers
    with apart(servers, kafka=ASK_SOON, hand_over=True) as home, apart(servers, kafka=ASK_SOON, hand_over=True) as away:
        here, there = consume(home, queue, "n = 1"), consume(away, queue, "n = 2")
        transacted = away.create_session(Session.SESSION_TRANSACTED)
        third = transacted.create_consumer(queue, "n = 3")
        for _ in range(2):
            send(away, queue, "to 1", properties={"n": 1})
            assert text(here.receive(3 * WAIT_MS)) == "to 1"
            send(away, queue, "to 2", properties={"n": 2})
            assert text(there.receive(3 * WAIT_MS)) == "to 2"
            send(away, queue, "to 3", properties={"n": 3})
            pass_on(third, transacted, queue)
            name_none(proxy)
        left = take(consume(home, queue), 2)
        assert [text(message) for message in left] == ["passed on"] * 2


@pytest.mark.slow
@pytest.mark.requirement("JMS-4.4.7-3", "JAK-commit-1")
@pytest.mark.parametrize("request_kind", [ADD_OFFSETS_TO_TXN, END_TXN], ids=["offsets", "commit"])
def test_a_commit_comes_through_whose_producer_forgets_the_brokers(
    proxy: KafkaProxy, queue: Queue, request_kind: int
) -> None:
    """It finds none any more: another one finds out whether the transaction was committed, or makes it again."""
    target = Queue(f"{queue.queue_name}.target")
    with apart(proxy.bootstrap_servers, kafka=ASK_SOON) as connection, ThreadPoolExecutor(1) as pool:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(queue)
        send(connection, queue, "first")
        assert text(consumer.receive(WAIT_MS)) == "first"
        session.create_producer(target).send(session.create_text_message("passed on"))
        proxy.hold(request_kind)
        committed = pool.submit(session.commit)
        wait_for(lambda: proxy.held)
        proxy.name_none_once()
        wait_for(lambda: proxy.lost)
        proxy.release()
        committed.result()
        send(connection, queue, "second")
        assert text(consumer.receive(3 * WAIT_MS)) == "second"
        assert [text(message) for message in take(consume(connection, target), 1)] == ["passed on"]
