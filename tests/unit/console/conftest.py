"""A console on an in-memory Kafka, and browsers of it that run no scripts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, RedeliveryPolicy
from kjms.testing import MemoryKafka

pytest.importorskip("fastapi")
testclient = pytest.importorskip("starlette.testclient")

from kjms.console import Console, ConsoleOptions  # noqa: E402

URL = "http://127.0.0.1:8161"
Browse = Callable[..., Any]


@pytest.fixture
def kafka() -> Iterator[MemoryKafka]:
    with MemoryKafka() as kafka:
        yield kafka


@pytest.fixture
def factory(kafka: MemoryKafka) -> ConnectionFactory:
    redelivery = RedeliveryPolicy(max_deliveries=1)
    return ConnectionFactory(kafka.bootstrap_servers, redelivery=redelivery, send_timeout=1_000)


@pytest.fixture
def connection(factory: ConnectionFactory) -> Iterator[Connection]:
    with factory.create_connection() as connection:
        connection.start()
        yield connection


@pytest.fixture
def open_console(factory: ConnectionFactory) -> Iterator[Browse]:
    """A function that starts a console with the options given, and returns a client of it."""
    with contextlib.ExitStack() as stack:

        def opened(*, url: str = URL, address: str = "127.0.0.1", **options: Any) -> Any:
            options = {"interval": 100, **options}
            console = Console(factory, ConsoleOptions(**options), in_child=False)
            client = testclient.TestClient(
                console.app, base_url=url, raise_server_exceptions=False, client=(address, 50_000)
            )
            client.console = console
            running = stack.enter_context(contextlib.ExitStack())
            client.stop = running.close
            return running.enter_context(client)

        yield opened


@pytest.fixture
def browser(open_console: Browse) -> Any:
    """A browser of a console that admits everyone, and lets them do everything."""
    browser = open_console(anonymous=True, role="administer")
    assert browser.get("/login").status_code == 200
    return browser
