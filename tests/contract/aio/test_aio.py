"""kjms.aio: the same rules, awaited; and what only asyncio has, cancellation above all."""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Message,
    MessageFormatException,
    Queue,
    ResourceAllocationException,
    TextMessage,
    Topic,
    aio,
)
from kjms.testing.engine import consumer_statistics
from tests.helpers import WAIT_MS, text, threads_since, until, wait_for


def _timeout() -> Any:
    """Return a context manager that ends what takes too long; Python 3.10 has none."""

    class Timeout:
        async def __aenter__(self) -> None:
            task = asyncio.current_task()
            assert task is not None
            self.handle = asyncio.get_running_loop().call_later(WAIT_MS / 1000, task.cancel)

        async def __aexit__(self, *_: object) -> None:
            self.handle.cancel()

    return Timeout()


# Sending and receiving.


async def test_the_contract_in_three_lines(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """With await, async with and async for: what was sent is received, in order."""
    async with factory.create_context() as context:
        producer = context.create_producer().set_priority(7).set_property("region", "EU")
        await (await producer.send(queue, "one")).send(queue, {"two": 2})
        received = []
        async for message in context.create_consumer(queue, "region = 'EU'"):
            received.append(message.get_body(object))
            assert message.jms_priority == 7
            if len(received) == 2:
                break
        assert received == ["one", {"two": 2}]


async def test_bodies(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """receive_body gives the body; one of another type raises, and with AUTO_ACKNOWLEDGE the message comes next."""
    async with factory.create_context() as context:
        consumer = await context.create_consumer(queue)
        assert await consumer.receive_body_no_wait(str) is None
        await context.create_producer().send(queue, b"bytes")
        with pytest.raises(MessageFormatException):
            await consumer.receive_body(str, WAIT_MS)
        assert await consumer.receive_body(bytes, WAIT_MS) == b"bytes"
        with pytest.raises(ValueError, match="class"):
            await consumer.receive_body("str")  # type: ignore[arg-type]


async def test_a_receive_ends_with_its_time(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """receive_no_wait, and a receive whose time is over, return None; a negative time is refused."""
    async with factory.create_context() as context, context.create_consumer(queue) as consumer:
        assert await consumer.receive_no_wait() is None
        assert await consumer.receive(20) is None
        assert await consumer.receive(timedelta(milliseconds=20)) is None
        with pytest.raises(ValueError, match="timeout"):
            await consumer.receive(-1)


async def test_a_subscription_exists_when_its_consumer_is_open(factory: aio.ConnectionFactory, topic: Topic) -> None:
    """What is sent after a topic's consumer was awaited is received."""
    async with factory.create_context() as context:
        consumer = await context.create_consumer(topic)
        await context.create_producer().send(topic, "news")
        assert text(await consumer.receive(WAIT_MS)) == "news"


@pytest.mark.parametrize("mode", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
async def test_many_sends_at_once_keep_their_order(
    factory: aio.ConnectionFactory, queue: Queue, mode: DeliveryMode
) -> None:
    """Tasks may send at the same time: messages are in the order of the calls, from the first one to a new queue on."""
    count = 1_500  # more than may be under way
    async with factory.create_context(aio.JMSContext.DUPS_OK_ACKNOWLEDGE) as context:
        producer = context.create_producer().set_delivery_mode(mode)
        await asyncio.gather(*(producer.send(queue, str(number)) for number in range(count)))
        consumer = context.create_consumer(queue)
        assert [text(await consumer.receive(WAIT_MS)) for _ in range(count)] == [str(n) for n in range(count)]


async def test_sends_keep_their_order_while_they_become_many_and_few(
    factory: aio.ConnectionFactory, queue: Queue, kjms_destination_name: str
) -> None:
    """Order holds where single sends turn into many at the same time, some of them cancelled, and into single ones."""
    other = Queue(f"{kjms_destination_name}-other")
    sent: list[int] = []
    async with factory.create_context() as context:
        producer, careless = context.create_producer(), context.create_producer()
        careless.set_delivery_mode(DeliveryMode.NON_PERSISTENT)

        def task(to: Queue = queue, by: aio.JMSProducer = producer) -> asyncio.Task[Any]:
            sent.append(len(sent))
            return asyncio.ensure_future(by.send(to, str(sent[-1])))

        for many in (1, 3, 70, 1, 200, 2, 1_500, 1):
            tasks = [task(by=careless if number % 7 == 3 else producer) for number in range(many)]
            await asyncio.sleep(0)
            tasks.append(task(other))  # the queue's route is not known at first: a thread asks for it
            for cancelled in tasks[::50]:
                cancelled.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        last = task()
        await last
        places = []
        for browser in (context.create_browser(queue), context.create_browser(other)):
            places.append([int(text(message)) async for message in browser])
    for numbers in places:
        assert numbers == sorted(numbers)
    arrived = {number for numbers in places for number in numbers}
    assert len(arrived) == sum(map(len, places))
    assert sent[-1] in arrived
    assert len(arrived) > len(sent) - 60  # a cancelled send was perhaps not begun


async def test_a_send_behind_many_that_wait_for_nothing(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A PERSISTENT message is sent when the NON_PERSISTENT ones before it have arrived, however many they are."""
    async with factory.create_context() as context, _timeout():
        careless, producer = context.create_producer(), context.create_producer()
        careless.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        await producer.send(queue, "the route is known now")
        for many in (100, 1_000, 3_000):
            for _ in range(many):
                await careless.send(queue, "x")
            await producer.send(queue, "behind them")


async def test_sends_that_wait_for_nothing_leave_nothing_behind(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A task that sends NON_PERSISTENT messages and never lets the loop run keeps none of those that have arrived."""

    class Watched(TextMessage):
        """A message that can be watched: it takes weak references."""

    async with factory.create_context() as context:
        producer = context.create_producer().set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        await producer.send(queue, "the route is known now")
        messages = [Watched(str(number)) for number in range(100)]
        watched = [weakref.ref(message) for message in messages]
        while messages:
            await producer.send(queue, messages.pop())
        wait_for(lambda: not any(reference() for reference in watched))  # and the loop stands still


async def test_sends_of_one_context_while_it_waits_for_a_message(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A task that waits for a message keeps no other from sending by the same context."""
    async with factory.create_context() as context:
        waiting = asyncio.create_task(context.create_consumer(queue).receive(WAIT_MS))
        await asyncio.sleep(0)
        await context.create_producer().send(queue, "x")
        assert text(await waiting) == "x"


async def test_two_receives_of_one_context_at_a_time_are_refused(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """While a task waits for a message, another one that asks the same context gets IllegalStateException."""
    async with factory.create_context() as context:
        consumer = await context.create_consumer(queue)
        waiting = asyncio.create_task(consumer.receive(WAIT_MS))
        await asyncio.sleep(0)
        with pytest.raises(IllegalStateException, match="another task"):
            await consumer.receive()
        await context.create_producer().send(queue, "x")
        assert text(await waiting) == "x"


async def test_a_browser_shows_and_takes_nothing(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """Going over a browser shows what the queue holds, each time anew."""
    async with factory.create_context() as context:
        producer = context.create_producer()
        for each in ("a", "b"):
            await producer.send(queue, each)
        async with context.create_browser(queue) as browser:
            for _ in range(2):
                assert [text(message) async for message in browser] == ["a", "b"]
        with pytest.raises(IllegalStateException, match="browser"):
            await browser.__aiter__().__anext__()


async def test_request_and_reply(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A temporary queue takes the reply to a request, both in one loop."""
    async with factory.create_context() as asking, factory.create_context() as answering:
        replies = await asking.create_temporary_queue()
        requests = answering.create_consumer(queue)
        await asking.create_producer().set_jms_reply_to(replies).send(queue, "2 + 2")
        request = await requests.receive(WAIT_MS)
        assert request is not None
        assert request.jms_reply_to is not None
        await answering.create_producer().send(request.jms_reply_to, "4")
        assert await asking.create_consumer(replies).receive_body(str, WAIT_MS) == "4"


# Settling.


async def test_transactions(factory: aio.ConnectionFactory, queue: Queue, kjms_destination_name: str) -> None:
    """What was sent and received is committed together, or rolled back: not sent, and redelivered."""
    results = Queue(f"{kjms_destination_name}-results")
    async with factory.create_context(aio.JMSContext.SESSION_TRANSACTED) as context:
        assert context.transacted
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        await producer.send(queue, "order")
        await context.commit()
        assert text(await consumer.receive(WAIT_MS)) == "order"
        await producer.send(results, "wrong")
        await context.rollback()
        again = await consumer.receive(WAIT_MS)
        assert text(again) == "order"
        assert again is not None
        assert again.jms_redelivered
        await producer.send(results, "right")
        await context.commit()
        async with context.create_context() as other:
            assert text(await other.create_consumer(results).receive(WAIT_MS)) == "right"
        assert await consumer.receive_no_wait() is None


async def test_acknowledging(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """With INDIVIDUAL_ACKNOWLEDGE one message can be acknowledged; recover brings the others again."""
    async with factory.create_context(aio.JMSContext.INDIVIDUAL_ACKNOWLEDGE) as context:
        producer, consumer = context.create_producer(), context.create_consumer(queue)
        for each in "abc":
            await producer.send(queue, each)
        received = [await consumer.receive(WAIT_MS) for _ in "abc"]
        await context.acknowledge(received[1])
        await context.recover()
        assert [text(await consumer.receive(WAIT_MS)) for _ in "ac"] == ["a", "c"]
        await context.acknowledge()
        await context.recover()
        assert await consumer.receive(50) is None


async def test_a_context_at_work_asks_again_for_what_waits_for_it(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """No wake-up tells a context of a message of its group that came while it had another one: it asks again."""
    mode = aio.JMSContext.CLIENT_ACKNOWLEDGE
    async with factory.create_context(mode) as context, context.create_context(mode) as other:
        producer = context.create_producer().set_property("JMSXGroupID", "g")
        first = context.create_consumer(queue)
        await producer.send(queue, "1")
        assert text(await first.receive(WAIT_MS)) == "1"
        waiting = asyncio.create_task(other.create_consumer(queue).receive(WAIT_MS))
        await producer.send(queue, "2")
        await until(lambda: consumer_statistics(first._consumer).group_blocked == 1)
        assert text(await first.receive(WAIT_MS)) == "2"
        await context.acknowledge()
        await producer.send(queue, "3")
        assert text(await waiting) == "3"


# Cancelling.


@pytest.mark.parametrize(
    "mode", [aio.JMSContext.AUTO_ACKNOWLEDGE, aio.JMSContext.DUPS_OK_ACKNOWLEDGE, aio.JMSContext.CLIENT_ACKNOWLEDGE]
)
async def test_cancelled_receives_lose_nothing_and_repeat_nothing(
    factory: aio.ConnectionFactory, queue: Queue, mode: int
) -> None:
    """Receives that are cancelled at whatever moment leave each message to exactly one receive, unmarked, in order."""
    count, got, cancelled = 150, list[Message](), 0
    async with factory.create_context(mode) as context, factory.create_context() as sending:
        consumer = await context.create_consumer(queue)
        producer = sending.create_producer()
        sends = asyncio.gather(*(producer.send(queue, str(number)) for number in range(count)))
        async with _timeout():
            while len(got) < count:
                task = asyncio.create_task(consumer.receive(WAIT_MS))
                pause = random.choice([None, 0, 0, 0.0002, 0.0005, 0.001, 0.002])
                if pause is not None:  # else it is cancelled before it begins
                    await asyncio.sleep(pause)
                if random.random() < 0.7:
                    task.cancel()
                try:
                    message = await task
                except asyncio.CancelledError:
                    cancelled += 1
                else:
                    assert message is not None
                    got.append(message)
        await sends
        await context.acknowledge()
        assert [text(message) for message in got] == [str(number) for number in range(count)]
        assert not any(message.jms_redelivered for message in got)
        assert cancelled


async def test_a_cancelled_call_leaves_the_context_usable(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """After a commit was cancelled the next call waits for it, and finds the session free."""
    async with factory.create_context(aio.JMSContext.SESSION_TRANSACTED) as context:
        producer = context.create_producer()
        for number in range(5):
            await producer.send(queue, str(number))
            task = asyncio.create_task(context.commit())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await context.commit()
        consumer = context.create_consumer(queue)
        assert [text(await consumer.receive(WAIT_MS)) for _ in range(5)] == list("01234")
        await context.commit()


async def test_a_cancelled_connect_leaves_nothing(factory: aio.ConnectionFactory) -> None:
    """A context whose opening is cancelled is closed again by the thread that opened it."""
    before = set(threading.enumerate())
    task = asyncio.create_task(_opened(factory))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not threads_since(before))


async def _opened(factory: aio.ConnectionFactory) -> None:
    await factory.create_context()


# Closing.


async def test_closing_ends_a_receive_and_a_loop(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A receive that waits returns None when its consumer, or its context, is closed; an async for ends."""
    async with factory.create_context() as context:
        consumer = await context.create_consumer(queue)
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0.01)
        await consumer.close()
        assert await waiting is None
        assert [message async for message in consumer] == []
        with pytest.raises(IllegalStateException, match="closed"):
            await consumer.receive()

        async def loop() -> list[Message]:
            return [message async for message in context.create_consumer(queue)]

        looping = asyncio.create_task(loop())
        await asyncio.sleep(0.05)
        await context.close()
        assert await looping == []
        await context.close()
    for use in (context.create_producer, context.create_context, lambda: context.create_consumer(queue)):
        with pytest.raises(IllegalStateException, match="closed"):
            use()
    with pytest.raises(IllegalStateException, match="closed"):
        await context.commit()
    with pytest.raises(IllegalStateException, match="closed"):
        await context


async def test_closing_ends_a_loop_whenever_it_comes(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A context that closes while a consumer is just being opened, or asked, ends its loop without an error."""

    async def loop(context: aio.JMSContext) -> list[Message]:
        try:
            consumer = await context.create_consumer(queue)
        except IllegalStateException:  # closed before
            return []
        return [message async for message in consumer]

    async with factory.create_context() as outer:
        for number in range(12):
            context = outer.create_context(aio.JMSContext.AUTO_ACKNOWLEDGE)
            looping = asyncio.create_task(loop(context))
            await asyncio.sleep(number / 1000)
            await context.close()
            assert await looping == []


async def test_stopping_holds_messages_back(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """Between stop and start a receive waits; with auto_start off, a consumer's connection is not started."""
    async with factory.create_context() as context:
        context.auto_start = False
        consumer = await context.create_consumer(queue)
        await context.create_producer().send(queue, "x")
        assert await consumer.receive(100) is None
        waiting = asyncio.create_task(consumer.receive())
        await context.start()
        assert text(await waiting) == "x"
        await context.stop()
        await context.create_producer().send(queue, "y")
        assert await consumer.receive(100) is None
        await context.start()
        assert text(await consumer.receive(WAIT_MS)) == "y"


# Errors.


async def test_errors_come_where_something_is_awaited(kafka: Any, queue: Queue) -> None:
    """What the simplified API raises is raised by the await that opens, sends or settles."""
    factory = aio.ConnectionFactory(kafka.bootstrap_servers, create_destinations=False)
    with pytest.raises(ValueError, match="acknowledge mode"):
        factory.create_context(7)
    context = factory.create_context()
    assert "not open yet" in repr(context)
    with pytest.raises(IllegalStateException, match="await it"):
        context.create_producer()
    async with context:
        with pytest.raises(InvalidDestinationException, match=queue.queue_name):
            await context.create_producer().send(queue, "x")
        with pytest.raises(InvalidDestinationException, match=queue.queue_name):
            await context.create_consumer(queue)
        with pytest.raises(InvalidSelectorException, match="column"):
            await context.create_consumer(queue, "a > > 1").receive()
        with pytest.raises(IllegalStateException, match="not transacted"):
            await context.commit()
    assert "closed" in repr(context)


@pytest.mark.parametrize("destination", [None, 5, "orders", ["orders"], {"queue": "orders"}])
async def test_a_send_to_what_is_no_destination_is_refused(factory: aio.ConnectionFactory, destination: Any) -> None:
    """Also where it has no hash, with which the session would look for what it knows of the destination."""
    async with factory.create_context() as context:
        with pytest.raises(InvalidDestinationException, match="destination"):
            await context.create_producer().send(destination, "x")


async def test_a_send_that_kafka_refuses_raises(factory: aio.ConnectionFactory, queue: Queue) -> None:
    """A message that is too large for Kafka is an error of its send, and of no other."""
    async with factory.create_context() as context:
        producer = context.create_producer()
        await producer.send(queue, "first")
        outcomes = await asyncio.gather(
            producer.send(queue, "a"), producer.send(queue, bytes(2_000_000)), producer.send(queue, "b"),
            return_exceptions=True,
        )  # fmt: skip
        assert outcomes[0] is outcomes[2] is producer
        assert isinstance(outcomes[1], ResourceAllocationException)
        consumer = context.create_consumer(queue)
        assert [text(await consumer.receive(WAIT_MS)) for _ in range(3)] == ["first", "a", "b"]


async def test_nobody_answers() -> None:
    """Opening a context without a Kafka is a JMSException, and leaves no thread."""
    before = set(threading.enumerate())
    context = aio.ConnectionFactory("127.0.0.1:9", send_timeout=300).create_context()
    with pytest.raises(JMSException, match=r"127\.0\.0\.1:9"):
        await context
    await until(lambda: not threads_since(before, "kjms-aio"))


class WorkError(Exception):
    """What the work on a message raises."""


async def _in_queue(context: aio.JMSContext, queue: Queue) -> list[str]:
    async with context.create_browser(queue) as browser:
        return [text(message) async for message in browser]


async def _until_in_queue(context: aio.JMSContext, queue: Queue, *texts: str) -> None:
    async def look() -> None:
        while await _in_queue(context, queue) != list(texts):
            await asyncio.sleep(0.02)

    await asyncio.wait_for(look(), 30)


@pytest.mark.requirement("JMS-4.4.11-3", "JMS-4.4.11-2")
@pytest.mark.parametrize("mode", [aio.JMSContext.AUTO_ACKNOWLEDGE, aio.JMSContext.DUPS_OK_ACKNOWLEDGE])
async def test_a_received_message_is_acknowledged(kafka: Any, queue: Queue, mode: int) -> None:
    """A message that `receive` has returned is acknowledged, though its task never asks for another."""
    own, other = [
        aio.ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": f"returned-{random.random()}"})
        for _ in range(2)
    ]
    async with own.create_context(mode) as context, other.create_context() as looking:
        for word in ("one", "two"):
            await context.create_producer().send(queue, word)
        consumer = context.create_consumer(queue)
        assert text(await consumer.receive(WAIT_MS)) == "one"
        await _until_in_queue(looking, queue, "two")


@pytest.mark.requirement("JMS-4.4.12-2")
@pytest.mark.parametrize("left", ["consumer", "context"])
async def test_an_exception_in_a_loop_brings_the_message_again(kafka: Any, queue: Queue, left: str) -> None:
    """A loop's message is acknowledged when the loop asks for the next; after an exception it comes again, counted."""
    own, other = [
        aio.ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": f"loop-{random.random()}"}) for _ in range(2)
    ]
    async with other.create_context() as looking:
        for word in ("one", "two", "three"):
            await looking.create_producer().send(queue, word)

        async def work(consumer: aio.JMSConsumer) -> None:
            async for message in consumer:
                if text(message) == "two":
                    await _until_in_queue(looking, queue, "two", "three")
                    raise WorkError

        async def leave() -> None:
            async with own.create_context() as context:
                if left == "context":
                    await work(context.create_consumer(queue))
                async with context.create_consumer(queue) as consumer:
                    await work(consumer)

        with pytest.raises(WorkError):
            await leave()
        async with looking.create_consumer(queue) as consumer:
            found = [await consumer.receive(WAIT_MS) for _ in range(2)]
            counts = [message.get_int_property("JMSXDeliveryCount") for message in found if message is not None]
        assert [text(message) for message in found] == ["two", "three"]
        assert counts == [2, 1]


@pytest.mark.parametrize("closed", ["consumer", "context"])
@pytest.mark.parametrize(
    ("ending", "expected"),
    [("raises", ("one", 2)), ("is cancelled", ("one", 2)), ("still works", ("one", 2)), ("returns", ("two", 1))],
)
async def test_a_loops_message_comes_again_unless_its_task_has_ended_well(
    kafka: Any, queue: Queue, closed: str, ending: str, expected: tuple[str, int]
) -> None:
    """Another task closes consumer or context in order, which says nothing of the loop's own task."""
    own, other = [
        aio.ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": f"task-{random.random()}"}) for _ in range(2)
    ]
    has_one, hours = asyncio.Event(), asyncio.Event()
    async with other.create_context() as looking, own.create_context() as context:
        for word in ("one", "two"):
            await looking.create_producer().send(queue, word)
        consumer = await context.create_consumer(queue)

        async def work() -> None:
            async for _ in consumer:
                has_one.set()
                if ending == "raises":
                    raise WorkError
                if ending == "returns":
                    return
                await hours.wait()

        task = asyncio.create_task(work())
        await asyncio.wait_for(has_one.wait(), WAIT_MS / 1000)
        if ending == "is cancelled":
            task.cancel()
        if ending != "still works":
            await asyncio.wait({task})
        await (consumer if closed == "consumer" else context).close()
        hours.set()
        async with (context if closed == "consumer" else looking).create_consumer(queue) as again:
            found = await again.receive(WAIT_MS)
            assert found is not None
            assert (text(found), found.get_int_property("JMSXDeliveryCount")) == expected
        if ending != "still works":
            await asyncio.gather(task, return_exceptions=True)
        else:
            await task
