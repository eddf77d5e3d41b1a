"""kjms.aio on a real Kafka: the same rules, awaited; and what only asyncio has, cancellation above all."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kjms import (
    JMSException,
    MessageConsumer,
    Queue,
    aio,
)
from kjms.testing.engine import consumer_statistics
from tests.helpers import WAIT_MS, text, threads_since, until

# Cancelling.


async def test_a_receive_that_is_cancelled_while_it_takes_a_message_gives_it_back(
    factory: aio.ConnectionFactory, queue: Queue
) -> None:
    """A message that a thread finds when the receive is cancelled, and its context closed, goes to another one."""
    async with factory.create_context() as context, factory.create_context() as other:
        consumer = await context.create_consumer(queue)
        await context.create_producer().send(queue, "x")
        session = consumer._session
        with session._core.delivering:  # the thread cannot go on
            session._core.guard._holder = 0
            task = asyncio.create_task(consumer.receive())
            await until(lambda: session._core.guard._holder)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            closing = asyncio.create_task(context.close())
        await closing
        message = await other.create_consumer(queue).receive(WAIT_MS)
        assert text(message) == "x"
        assert message is not None
        assert not message.jms_redelivered


async def test_a_message_found_while_its_context_closes_goes_back(
    factory: aio.ConnectionFactory, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receive that had found a message when the context was closed returns None, and another context gets it."""
    async with factory.create_context() as context, factory.create_context() as other:
        consumer = await context.create_consumer(queue)
        await context.create_producer().send(queue, "x")
        session = consumer._session
        take = session._take

        def take_some_time(consumer: MessageConsumer) -> object:
            """Look until a commit permits the message: the loop, which the test holds up, cannot look again."""
            while (found := take(consumer)) is None:
                time.sleep(0.001)
            return found

        monkeypatch.setattr(session, "_take", take_some_time)
        await until(lambda: consumer_statistics(consumer).ready)
        task = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)  # the look has begun; from now on the loop hears of nothing
        deadline = time.monotonic() + WAIT_MS / 1000
        while session._look is None or session._look._found is None:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert context._context is not None
        context._context.close()  # in this very thread
        assert await task is None
        assert text(await other.create_consumer(queue).receive(WAIT_MS)) == "x"


# Closing.


async def test_waiting_takes_no_threads_and_closing_leaves_none(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A hundred consumers wait in fewer threads than that, and are served; afterwards there is none left."""
    before = set(threading.enumerate())
    async with factory.create_context() as context:
        contexts = [context.create_context() for _ in range(100)]
        waiting = [asyncio.create_task(each.create_consumer(queue).receive(3 * WAIT_MS)) for each in contexts]
        await until(
            lambda: all(each._session("x")._wakeup is not None and not each._opening.locked() for each in contexts)
        )
        assert len(set(threading.enumerate()) - before) < 60
        producer = context.create_producer()
        await asyncio.gather(*(producer.send(queue, str(number)) for number in range(100)))
        assert sorted(int(text(message)) for message in await asyncio.gather(*waiting)) == list(range(100))
        await asyncio.gather(*(each.close() for each in contexts))
    await until(lambda: not threads_since(before, "kjms-aio"))


# Errors.


async def test_an_exception_listener_is_called_in_the_loop(factory: aio.ConnectionFactory) -> None:
    """Trouble that threads of the engine report reaches a function which the loop calls."""
    heard: asyncio.Future[tuple[JMSException, threading.Thread]] = asyncio.get_running_loop().create_future()
    async with factory.create_context() as context:

        def listen(failure: JMSException) -> None:
            heard.set_result((failure, threading.current_thread()))

        context.exception_listener = listen
        assert context.exception_listener is listen
        assert context._context is not None
        context._context._connection._tell(JMSException("trouble"))
        failure, thread = await heard
        assert str(failure) == "trouble"
        assert thread is threading.current_thread()
        context.exception_listener = None
        assert context.exception_listener is None
