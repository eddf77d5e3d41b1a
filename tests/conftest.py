"""For all tests: Java without its second compiler, connections, destinations, coroutines, waiting for a condition.

A broker of the tests lives for seconds, and that compiler takes a third of the processors' time to make it faster in
minutes. Benchmarks run without this.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import functools
import inspect
import os
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from kjms import Connection, ConnectionFactory, Queue, Session, Topic
from kjms.broker import LocalBroker
from tests.flaky import current, read

os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

# Examples of a busy machine take longer than those of an idle one: no test fails because of that.
settings.register_profile("kjms", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kjms")

pytest.register_assert_rewrite("tests.helpers")

from tests.helpers import Desk, Eventually, dead_letter_queue, wait_for  # noqa: E402  # its assertions are explained, too

JAVA = {"java", "artemis", "guarded"}  # fixtures that start a Java client or another broker
ONE_WORKER = {"breakable_broker", "secured", "users_broker"}  # fixtures that start once for all


def pytest_configure() -> None:
    """Let programs that the tests start get Ctrl-C: a run in the background may ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine, in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Let an interrupt that leaves its block fail its test alone: else it ends pytest, or one of its workers.

    Only in modules with such blocks; elsewhere Ctrl-C is that of a person.
    """
    try:
        return (yield)
    except KeyboardInterrupt as interrupt:
        module = getattr(item, "module", None)
        if hasattr(module, "interrupted") or hasattr(module, "interrupted_at"):
            raise AssertionError("an interrupt left the block that it was meant for") from interrupt
        raise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need: with Java programs they are slow, with a server of their own in one process.

    These run first: each such group is one process's work. Failures of tests in ``flaky.tsv`` are expected for now.
    """
    entries = current(read(), datetime.date.today())
    for item in items:
        needs = set(getattr(item, "fixturenames", ()))
        if needs & JAVA:
            item.add_marker(pytest.mark.slow)
        for name in sorted(needs & ONE_WORKER)[:1]:
            item.add_marker(pytest.mark.xdist_group(name))
        for entry in entries:
            if entry.covers(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=f"flaky until {entry.until}: {entry.reason}", strict=False))
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture(scope="session")
def _breakable_broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"group.min.session.timeout.ms": "500"}) as broker:
        yield broker


@pytest.fixture
def breakable_broker(_breakable_broker: LocalBroker) -> LocalBroker:
    """A Kafka that the test may halt, stop and kill; it lets a group miss a member within half a second."""
    return _breakable_broker.start()


@pytest.fixture
def kafka(kjms_broker: Any) -> Any:
    """The Kafka that the test runs on, with its ``bootstrap_servers``: a real one, unless a folder has its own."""
    return kjms_broker


@pytest.fixture
def desk(kafka: Any) -> Iterator[Desk]:
    """Connections to the test's Kafka that are closed when it ends."""
    with contextlib.ExitStack() as stack:
        yield Desk(kafka.bootstrap_servers, stack)


@pytest.fixture
def connection(kjms_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection."""
    with kjms_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def session(connection: Connection) -> Session:
    """A session that acknowledges by itself."""
    return connection.create_session()


@pytest.fixture
def queue(kjms_destination_name: str) -> Queue:
    """A queue of this test's own."""
    return Queue(kjms_destination_name)


@pytest.fixture
def other_queue(queue: Queue) -> Queue:
    """Another queue of this test's own."""
    return Queue(f"{queue.queue_name}-other")


@pytest.fixture
def topic(kjms_destination_name: str) -> Topic:
    """A topic of this test's own."""
    return Topic(f"{kjms_destination_name}-topic")


@pytest.fixture
def eventually() -> Eventually:
    """A function that waits until its argument returns something true."""
    return wait_for


@pytest.fixture
def dead(queue: Queue) -> Queue:
    """The queue's dead-letter queue."""
    return dead_letter_queue(queue)


@pytest.fixture
def process(desk: Desk) -> Callable[..., Connection]:
    """A function that returns a started connection with an engine of its own, as another process would have."""
    return functools.partial(desk.connect, is_apart=True)
