"""Sessions of `kjms.aio`, which a program calls as it calls those of kjms: the event loop runs during the calls."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from kjms import aio
from tests.simulation.loops import Loop

Result = TypeVar("Result")


class AsyncConnection:
    """A context of `kjms.aio` in the place of a connection with one session."""

    def __init__(self, factory: aio.ConnectionFactory) -> None:
        self._factory = factory
        self.loop = Loop()
        self.context: Any = None
        self.closing: asyncio.Task[None] | None = None  # kept, so that it is carried out

    def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Return what *call* returns."""
        return self.loop.run_until_complete(call)

    def create_session(self, mode: int) -> AsyncSession:
        self.context = self._factory.create_context(mode)
        self.run(self.context._open())
        return AsyncSession(self)

    def start(self) -> None:
        """Do nothing: a context starts with its first consumer."""

    def sleep(self, seconds: float) -> None:
        """Let the loop run for a while."""
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        if self.context is not None:
            self.run(self.context.close())
        self.loop.close()

    def close_from_elsewhere(self) -> None:
        """Have the loop close the context, beside what its task is waiting for; from another thread."""

        def begin() -> None:
            self.closing = self.loop.create_task(self.context.close())

        if self.context is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(begin)


class AsyncSession:
    """The session of an `AsyncConnection`."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._run = connection.run
        self._context = connection.context
        self.create_text_message = self._context.create_text_message

    def create_consumer(self, destination: Any, selector: str | None = None) -> AsyncConsumer:
        return self._opened(self._context.create_consumer(destination, selector))

    def create_shared_consumer(self, topic: Any, name: str) -> AsyncConsumer:
        return self._opened(self._context.create_shared_consumer(topic, name))

    def create_durable_consumer(self, topic: Any, name: str) -> AsyncConsumer:
        return self._opened(self._context.create_durable_consumer(topic, name))

    def create_shared_durable_consumer(self, topic: Any, name: str) -> AsyncConsumer:
        return self._opened(self._context.create_shared_durable_consumer(topic, name))

    def _opened(self, consumer: Any) -> AsyncConsumer:
        self._run(consumer._opened())
        return AsyncConsumer(consumer, self._run)

    def create_producer(self, destination: Any) -> AsyncProducer:
        return AsyncProducer(self._context.create_producer(), destination, self._run)

    def acknowledge(self, message: Any) -> None:
        self._run(self._context.acknowledge(message))

    def commit(self) -> None:
        self._run(self._context.commit())

    def rollback(self) -> None:
        self._run(self._context.rollback())

    def recover(self) -> None:
        self._run(self._context.recover())


class AsyncConsumer:
    """A consumer of an `AsyncSession`."""

    def __init__(self, consumer: Any, run: Any) -> None:
        self._consumer, self._run = consumer, run

    def receive(self, timeout: int) -> Any:
        return self._run(self._consumer.receive(timeout))

    def receive_no_wait(self) -> Any:
        return self._run(self._consumer.receive_no_wait())

    def receive_cancelled(self, timeout: int) -> Any:
        """Receive in a task that is cancelled when the time is over; return the message if it came before that."""

        async def receive() -> Any:
            task = asyncio.ensure_future(self._consumer.receive())
            asyncio.get_running_loop().call_later(timeout / 1_000, task.cancel)
            try:
                return await task
            except asyncio.CancelledError:
                return None

        return self._run(receive())

    def close(self) -> None:
        self._run(self._consumer.close())


class AsyncProducer:
    """A producer of an `AsyncSession`."""

    def __init__(self, producer: Any, destination: Any, run: Any) -> None:
        self._send = partial(producer.send, destination)
        self._run = run

    def send(self, message: Any) -> None:
        self._run(self._send(message))
