"""The registry on a real Kafka: several engines of one process agree, whatever happens between their steps."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer

from kjms import ConnectionFactory, InvalidSelectorException, JMSException, Topic
from kjms.engine.admin import registry
from kjms.engine.admin.claims import DEFINITION, LOCK, USE
from kjms.engine.admin.registry import Registry
from kjms.engine.subscriptions.definitions import Identity
from kjms.testing.engine import engine_of, tuned
from tests.helpers import NOTHING_MS, NOTHING_SECONDS, WAIT_SECONDS, Eventually, apart


@pytest.fixture
def registries(kjms_broker: Any) -> Iterator[list[Registry]]:
    """The registries of three engines, which differ in a setting."""
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(
                ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=15_000 + number).create_connection()
            )
            for number in range(3)
        ]
        yield [engine_of(connection).registry for connection in connections]


@pytest.fixture
def name() -> str:
    return f"test-{uuid.uuid4().hex}"


def test_one_at_a_time_has_a_lock(registries: list[Registry], name: str) -> None:
    """Threads of several engines that change one thing do it one after the other, and see what was done before."""
    inside: list[int] = []
    seen: list[int] = []

    def work(registry: Registry) -> None:
        for _ in range(5):
            with registry.locked(name) as claims:
                inside.append(1)
                assert len(inside) == 1
                seen.append(len(claims.all(DEFINITION, name)))
                registry.put(DEFINITION, {"resource": name, "destination": "t", "topic": "t", "starts": []})
                inside.pop()

    threads = [threading.Thread(target=work, args=(registry,)) for registry in registries * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == list(range(30))
    with registries[0].locked(name) as claims:
        registries[0].take_away([claim.key for claim in claims.all(DEFINITION, name)])


def test_who_lives_is_heard_and_who_does_not_is_buried(registries: list[Registry], name: str) -> None:
    """An engine that answers keeps what it has; what one leaves that does not answer is taken away."""
    one, other, _ = registries
    with one.reading() as claims, other.reading():
        use = other.put(USE, {"resource": name})
        ghost = one.put(USE, {"resource": name, "engine": "nobody"})
        lock = one.put(LOCK, {"resource": name, "engine": "nobody"})
        assert one.living([use.engine, "nobody", one.name]) == {use.engine, one.name}
        assert one.one_lives([use.engine, "nobody"])
        assert one.counts(use.key, ghost.key, lock.key)
        with one.locked(name):  # behind the ghost's lock
            assert not one.counts(ghost.key)
            assert not one.counts(lock.key)
            assert one.counts(use.key)
        other.take_away([use.key])
        one.catch_up()
        assert claims.all(USE, name) == []


def test_what_is_to_end_does_not_wait_for_an_answer(
    registries: list[Registry], monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    """A connection that closes while its janitor asks an engine that is gone closes at once."""
    monkeypatch.setattr(registry, "ANSWER_SECONDS", 2 * WAIT_SECONDS)
    one, asked, ends = registries[0], list[bool](), threading.Event()

    def is_over() -> bool:
        asked.append(ends.is_set())
        return asked[-1]

    with one.reading(), ThreadPoolExecutor(1) as pool:
        answers = pool.submit(one.living, ["gone"], is_over=is_over)
        eventually(lambda: len(asked) >= 2)  # before the question, and before the wait; others write there, too
        ends.set()
        one.look()
        assert answers.result(WAIT_SECONDS) == set()


def test_a_claim_that_others_took_away_is_lost(registries: list[Registry], name: str, eventually: Eventually) -> None:
    """Its owner gets the loss, and finds out when it checks."""
    one, other, _ = registries
    lost: list[str] = []
    one.on_lost = lost.append
    with one.reading(), other.reading():
        use = one.put(USE, {"resource": name})
        with one.locked(name) as claims:
            lock = claims.first(LOCK, name)
            assert lock is not None
            other.take_away([lock.key, use.key])
            eventually(lambda: use.key in lost)
            with pytest.raises(JMSException, match="lease expired"):
                one.check(lock.key)
        one.take_away([use.key])  # what is gone can be taken away again


def test_a_claim_that_was_given_up_and_arrives_is_taken_away(
    registries: list[Registry], name: str, eventually: Eventually
) -> None:
    """What an engine wrote and did not wait for does not stay in the way."""
    one = registries[0]
    with one.reading() as claims:
        one.catch_up()
        one.send(f"use:{uuid.uuid4().hex}", {"resource": name, "engine": one.name})
        one.catch_up()
        eventually(lambda: not claims.all(USE, name))


def test_strange_records_in_the_log_do_no_harm(
    registries: list[Registry], name: str, kjms_broker: Any, kjms_factory: Any
) -> None:
    """The registry skips records that it does not know."""
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    with registries[0].locked(name):
        pass
    damaged = b'{"version":1,"resource":[],"engine":{}}'
    for key, value in [(b"\xff", b"x"), (b"use:x", b"{"), (b"use:y", b"[]"), (b"definition:z", damaged)]:
        producer.produce("kjms.registry", value, key, 0)
    producer.flush()
    with registries[0].locked(name) as claims:
        assert "definition:z" not in claims
    with kjms_factory.create_connection() as connection:
        engine_of(connection).subscriptions.find()


def test_definitions_that_cannot_be_read_are_left_out(
    registries: list[Registry], name: str, kjms_factory: ConnectionFactory, topic: Topic
) -> None:
    """Subscriptions are found beside definitions of other programs and damaged ones, which unsubscribing ends."""
    terms = {"destination": "t", "topic": "t", "starts": []}
    damaged = Identity("durable", name, "selector").resource
    with registries[0].locked(name):
        for resource in (name, '["durable"]', '["other",null,"x"]', "[1,2,3]", "[" * 2_000, "7", "[[],null,3]"):
            registries[0].put(DEFINITION, {"resource": resource, **terms})
        registries[0].put(DEFINITION, {"resource": damaged, **terms, "selector": "("})
    with kjms_factory.create_connection() as connection:
        connection.client_id = name
        session = connection.create_session()
        session.create_durable_consumer(topic, "whole").close()
        found = engine_of(connection).subscriptions.find()
        assert [entry.identity.name for entry in found if entry.identity.client_id == name] == ["whole"]
        with pytest.raises(InvalidSelectorException):
            session.create_durable_consumer(topic, "selector")
        for subscription in ("selector", "whole"):
            session.unsubscribe(subscription)
        assert session.create_durable_consumer(topic, "selector").receive(NOTHING_MS) is None


def test_the_thread_ends_when_it_is_not_needed(kjms_broker: Any, name: str, eventually: Eventually) -> None:
    """While the engine holds something the log is read; some time after, it is not, until it is needed again."""
    with tuned(registry_grace_seconds=0.0), apart(kjms_broker.bootstrap_servers) as connection:
        one = engine_of(connection).registry
        with one.reading():
            use = one.put(USE, {"resource": name})
        time.sleep(NOTHING_SECONDS)
        assert one.statistics().is_reading
        one.take_away([use.key])
        eventually(lambda: not one.statistics().is_reading)
        with one.locked(name) as claims:
            assert claims.all(USE, name) == []


def test_a_closed_engine_leaves_nothing(kjms_broker: Any, registries: list[Registry], name: str) -> None:
    """Closing takes away what was forgotten."""
    with ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=14_000).create_connection() as connection:
        engine = engine_of(connection)
        with engine.registry.reading():
            engine.registry.put(USE, {"resource": name})
    with registries[0].locked(name) as claims:
        assert claims.all(USE, name) == []
