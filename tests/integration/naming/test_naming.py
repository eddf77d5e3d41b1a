"""Naming contexts on a real Kafka: what is looked up works, on the context's one connection."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, IllegalStateException, JMSException, Queue, Topic
from kjms.naming import Context, ContextFactory, ContextKey, NameNotFoundException
from kjms.testing.engine import statistics
from tests.helpers import WAIT_MS


@pytest.fixture
def config(tmp_path: Path, kjms_destination_name: str) -> Path:
    path = tmp_path / "kjms.toml"
    path.write_text(
        f"""
[connection_factories."jms/ConnectionFactory"]

[connection_factories."jms/careful"]
prefetch = 1
ordering = "none"

[names]
"jms/orders" = "queue://{kjms_destination_name}"
"jms/eu/prices" = "topic://{kjms_destination_name}"
plain = "queue://{kjms_destination_name}-plain"
"""
    )
    return path


@pytest.fixture
def names(kjms_broker: Any, config: Path) -> Iterator[Context]:
    parameters = {ContextKey.CONFIG: str(config), ContextKey.BOOTSTRAP_SERVERS: kjms_broker.bootstrap_servers}
    with ContextFactory().create_context(parameters) as context:
        yield context


@pytest.mark.requirement("NET-1", "NET-14", "NET-83", "NET-84", "NET-89", "NET-90", "NET-91", "NET-107")
def test_a_program_finds_what_it_needs_by_name(names: Context, kjms_destination_name: str) -> None:
    """A context factory gives a context, which gives the connection factory and the queue that the file names."""
    factory = names.lookup_connection_factory("jms/ConnectionFactory")
    queue = names.lookup_destination("jms/orders")
    assert queue == Queue(kjms_destination_name)
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        session.create_producer(queue).send(session.create_text_message("found"))
        received = session.create_consumer(queue).receive(WAIT_MS)
        assert received is not None
        assert received.get_body(str) == "found"


@pytest.mark.requirement("NET-93")
def test_a_context_needs_no_credential(
    kjms_broker: Any, config: Path, kjms_destination_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without user and password, in parameters and environment, a context finds, and its connections work."""
    for name in ("KJMS_USER", "KJMS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    parameters = {ContextKey.CONFIG: str(config), ContextKey.BOOTSTRAP_SERVERS: kjms_broker.bootstrap_servers}
    assert not {ContextKey.USER, ContextKey.PASSWORD} & set(parameters)
    with ContextFactory().create_context(parameters) as names:
        factory = names.lookup_connection_factory("jms/ConnectionFactory")
        with factory.create_connection() as connection, connection.create_session() as session:
            queue = names.lookup_destination("jms/orders")
            session.create_producer(queue).send(session.create_text_message("found"))
            assert [message.get_body(str) for message in session.create_browser(queue)] == ["found"]


@pytest.mark.requirement("NET-15", "NET-101")
def test_what_a_context_makes_shares_its_network_connection(names: Context, kjms_broker: Any) -> None:
    """Connections of all factories of a context are on one set of Kafka clients; another context has the same."""
    careful = names.lookup_connection_factory("jms/careful")
    plain = names.lookup_connection_factory("jms/ConnectionFactory")
    with plain.create_connection() as first, careful.create_connection() as second, plain.create_context() as third:
        home = names._home.connection
        assert home is not None
        assert {statistics(each).name for each in (first, second, third)} == {statistics(home).name}


@pytest.mark.requirement("NET-15", "NEV-148", "NET-67", "NET-99")
def test_a_context_stands_for_a_network_connection(tmp_path: Path) -> None:
    """A context whose Kafka does not answer is not made: the error is a JMSException that says so."""
    (tmp_path / "kjms.toml").write_text("send_timeout = 300")
    with pytest.raises(JMSException, match=r"127\.0\.0\.1:9"):
        ContextFactory().create_context(
            {"bootstrap_servers": "127.0.0.1:9", "config": os.fspath(tmp_path / "kjms.toml")}
        )


@pytest.mark.requirement("NET-96", "NET-97")
def test_names_are_relative_and_the_empty_name_is_the_context(names: Context, kjms_destination_name: str) -> None:
    """The first part of a name leads to a context in which the rest is found; "" is the context itself."""
    inner = names.lookup("jms")
    assert isinstance(inner, Context)
    assert inner.names() == ["ConnectionFactory", "careful", "eu/prices", "orders"]
    assert inner.lookup("orders") == names.lookup("jms/orders")
    innermost = inner.lookup("eu")
    assert isinstance(innermost, Context)
    assert innermost.lookup_destination("prices") == Topic(kjms_destination_name)
    assert "'jms/eu'" in repr(innermost)
    for context in (names, inner, innermost):
        assert context.lookup("") is context
    inner.close()  # a view
    assert names.lookup_destination("plain") == Queue(f"{kjms_destination_name}-plain")


@pytest.mark.requirement("NET-98")
@pytest.mark.parametrize("name", [None, 5])
def test_a_name_is_never_none(names: Context, name: Any) -> None:
    """None, or anything but a text, is a ValueError in each method that takes a name."""
    for look_up in (names.lookup, names.lookup_destination, names.lookup_connection_factory):
        with pytest.raises(ValueError, match="name is text"):
            look_up(name)


@pytest.mark.requirement("NET-99")
def test_what_is_not_there_is_told_with_what_is(names: Context) -> None:
    """A name that is not there, or names something else, is an error that says what is there."""
    with pytest.raises(NameNotFoundException, match=r"'jms/no'.*jms/orders"):
        names.lookup_destination("jms/no")
    with pytest.raises(NameNotFoundException, match=r"'jms/orders' names Queue.*no connection factory"):
        names.lookup_connection_factory("jms/orders")
    with pytest.raises(NameNotFoundException, match=r"'jms/careful' names <NamedConnectionFactory.*no destination"):
        names.lookup_destination("jms/careful")
    with pytest.raises(NameNotFoundException, match="names <Context 'jms'"):
        names.lookup_destination("jms")


@pytest.mark.requirement("NET-112", "NET-113", "NET-114", "JMS-4.2-1")
def test_looking_up_asks_nobody(names: Context) -> None:
    """Looking up, and making a factory, starts no thread and gives the same object again: nothing is held by it."""
    threads = threading.active_count()
    first = [names.lookup(name) for name in names.names()]
    second = [names.lookup(name) for name in names.names()]
    assert all(one is other for one, other in zip(first, second, strict=True))
    ConnectionFactory("127.0.0.1:9")
    assert threading.active_count() <= threads


@pytest.mark.requirement("NET-100", "NET-105", "NET-86", "NEV-10", "NEV-11")
def test_a_context_can_be_used_by_many_threads(names: Context, kjms_destination_name: str) -> None:
    """Threads that look up and connect at the same time all get what they asked for."""
    got: list[object] = []
    start = threading.Barrier(8)

    def use() -> None:
        start.wait()
        with names.lookup_connection_factory("jms/ConnectionFactory").create_context() as context:
            queue = names.lookup_destination("jms/orders")
            context.create_producer().send(queue, "x")
            got.append(queue)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == 8 * [Queue(kjms_destination_name)]


def test_closing_a_context_closes_what_was_made_with_it(kjms_broker: Any, config: Path) -> None:
    """The connections end with their context, a waiting receive included; what was looked up connects no more."""
    context = ContextFactory().create_context(
        {"config": str(config), "bootstrap_servers": kjms_broker.bootstrap_servers}
    )
    factory = context.lookup_connection_factory("jms/ConnectionFactory")
    connection = factory.create_connection()
    connection.start()
    consumer = connection.create_session().create_consumer(context.lookup_destination("plain"))
    received: list[object] = []
    waiting = threading.Thread(target=lambda: received.append(consumer.receive()))
    waiting.start()
    context.close()
    context.close()
    waiting.join(WAIT_MS / 1000)
    assert received == [None]
    assert "closed" in repr(connection)
    assert "closed" in repr(context)
    for use in (factory.create_connection, factory.create_context, context.names, lambda: context.lookup("plain")):
        with pytest.raises(IllegalStateException, match="context is closed"):
            use()


def test_a_listener_cannot_close_its_context(names: Context) -> None:
    """As with connections: a message listener that closes the context it is in gets IllegalStateException."""
    heard: list[BaseException] = []
    done = threading.Event()

    def listen(_: object) -> None:
        try:
            names.close()
        except IllegalStateException as error:
            heard.append(error)
        done.set()

    queue = names.lookup_destination("jms/orders")
    with names.lookup_connection_factory("jms/ConnectionFactory").create_context() as context:
        context.create_consumer(queue).message_listener = listen
        with context.create_context() as other:
            other.create_producer().send(queue, "x")
        assert done.wait(WAIT_MS / 1000)
    assert len(heard) == 1
    assert names.names()


def test_the_page_on_names_is_true(kjms_broker: Any, tmp_path: Path) -> None:
    """The file and the program in docs/naming.md work together, and print what stands below."""
    page = (Path(__file__).parents[3] / "docs" / "naming.md").read_text(encoding="utf-8")
    (file,) = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    (program,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (output,) = re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL)
    (tmp_path / "kjms.toml").write_text(file, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr, run.stdout) == (0, "", output)


def test_an_exception_that_leaves_the_context_brings_a_loops_message_again(
    kjms_broker: Any, config: Path, connection: Connection
) -> None:
    """A message that a loop works on comes again when an exception leaves the context's `with` statement."""
    parameters = {ContextKey.CONFIG: str(config), ContextKey.BOOTSTRAP_SERVERS: kjms_broker.bootstrap_servers}

    def work() -> None:
        with ContextFactory().create_context(parameters) as names:
            session = names.lookup_connection_factory("jms/careful").create_connection().create_session()
            session._connection.start()
            orders = names.lookup_destination("jms/orders")
            session.create_producer().send(orders, session.create_text_message("tea"))
            for _ in session.create_consumer(orders):
                raise RuntimeError("no tea")

    with pytest.raises(RuntimeError, match="no tea"):
        work()
    queue = Queue(config.read_text().split("queue://")[1].split('"')[0])
    message = connection.create_session().create_consumer(queue).receive(WAIT_MS)
    assert message is not None
    assert (message.get_body(str), message.get_int_property("JMSXDeliveryCount")) == ("tea", 2)
