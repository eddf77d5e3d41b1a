"""What a process has no threads for, or no memory, is reported when it connects, and nothing is left behind."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from kjms import ConnectionFactory, IllegalStateException, Queue, ResourceAllocationException
from kjms.engine.kafka import jms_error
from tests.helpers import WAIT_MS


@pytest.mark.parametrize("most", range(2))
@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_connecting_without_threads_is_refused_and_leaves_none(
    kjms_factory: ConnectionFactory, monkeypatch: pytest.MonkeyPatch, most: int, error: Exception
) -> None:
    """However many threads can still be started before the first that cannot."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_some(thread: threading.Thread) -> None:
        if not thread.name.startswith("kjms-"):
            return start(thread)
        if len(started) == most:
            raise error
        started.append(thread)
        return start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start_some)
        with pytest.raises(ResourceAllocationException, match=r"no threads, left .*ulimit"):
            kjms_factory.create_connection()
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()
    with kjms_factory.create_connection() as connection:  # the next one finds nothing half made
        connection.start()


@pytest.mark.parametrize("most", range(2))
@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_a_consumer_without_a_thread_is_refused_and_the_next_one_receives(
    kjms_factory: ConnectionFactory, queue: Queue, monkeypatch: pytest.MonkeyPatch, most: int, error: Exception
) -> None:
    """However many threads can still be started before the first that cannot."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_some(thread: threading.Thread) -> None:
        if not thread.name.startswith(("kjms-consumer", "kjms-session")):
            return start(thread)
        if len(started) == most:
            raise error
        started.append(thread)
        return start(thread)

    with kjms_factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        with session.create_producer(queue) as producer:
            producer.send(session.create_text_message("x"))
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start_some)
            with pytest.raises(ResourceAllocationException, match=r"start the thread .*no threads, left .*ulimit"):
                session.create_consumer(queue).message_listener = lambda _message: None
    assert len(started) == most
    with kjms_factory.create_context() as context:
        assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "x"


def test_librdkafkas_lack_of_threads_is_one_of_resources() -> None:
    """It tells of it by the text alone where it makes an admin client."""
    said = "Failed to create admin client: Failed to create background thread: Cannot allocate memory"
    error = KafkaError(KafkaError.NO_ERROR, said)
    assert isinstance(jms_error(error, "connect to kafka:9092"), ResourceAllocationException)


@pytest.mark.parametrize(
    ("module", "attribute", "remedy"),
    [
        ("gevent.monkey", "is_module_patched", r"gevent.monkey.patch_all\(thread=False\)"),
        ("eventlet.patcher", "is_monkey_patched", r"eventlet.monkey_patch\(thread=False\)"),
    ],
)
@pytest.mark.parametrize("is_patched", [True, False])
def test_a_process_whose_threads_are_replaced_is_refused(
    kjms_factory: ConnectionFactory,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    attribute: str,
    remedy: str,
    *,
    is_patched: bool,
) -> None:
    """The libraries are not needed for the look, and not imported by it."""

    def is_replaced(name: str) -> bool:
        return is_patched and "thread" in name

    stand_in: Any = SimpleNamespace(**{attribute: is_replaced})
    monkeypatch.setitem(sys.modules, module, stand_in)
    if is_patched:
        with pytest.raises(IllegalStateException, match=remedy):
            kjms_factory.create_connection()
    else:
        kjms_factory.create_connection().close()
