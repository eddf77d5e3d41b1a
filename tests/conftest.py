"""For all tests: Java without its second compiler, a connection, coroutines, and a way to wait for a condition.

A broker of the tests lives for seconds, and that compiler takes a third of the processors' time to make it faster in
minutes. Benchmarks run without this.
"""

from __future__ import annotations

import asyncio
import datetime
import inspect
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from kjms import Connection, ConnectionFactory
from tests.flaky import current, read

os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")

WAIT_SECONDS = 20.0
JAVA = {"java", "artemis", "guarded"}  # fixtures that start a Java client or another broker


def pytest_configure() -> None:
    """Let programs that the tests start hear of Ctrl-C: whoever runs the tests in the background may ignore it."""
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests with Java programs as slow, and failures of those in ``flaky.tsv`` as expected for now."""
    entries = current(read(), datetime.date.today())
    for item in items:
        if not JAVA.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        for entry in entries:
            if entry.covers(item.nodeid):
                item.add_marker(pytest.mark.xfail(reason=f"flaky until {entry.until}: {entry.reason}", strict=False))


@pytest.fixture
def connection(kjms_factory: ConnectionFactory) -> Iterator[Connection]:
    """A started connection."""
    with kjms_factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    """A function that waits until its argument returns something true."""

    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)

    return wait
