"""Requests of many threads, and of many tasks, on one inbox: each gets its own reply."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from kjms import (
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    JMSContext,
    Message,
    Queue,
    Requestor,
    Session,
    TextMessage,
    aio,
)
from kjms.client.replies import error_reply
from kjms.errors import ReplyException
from tests.helpers import WAIT_MS, WAIT_SECONDS, text, until, wait_for

COUNT = 20


class Service:
    """Answers requests in capitals, once it has several of them, the last one first.

    Attributes:
        kept: Requests that ask for it, and are not answered.
        held: Requests that wait until there are `together`.
    """

    def __init__(self, context: JMSContext, queue: Queue, together: int = 1, by: str = "jms_correlation_id") -> None:
        self.kept: list[Message] = []
        self.held: list[Message] = []
        self.together = together
        self._by = by
        self._producer = context.create_producer()
        context.create_consumer(queue).message_listener = self._serve

    def _serve(self, request: Message) -> None:
        if text(request).startswith("keep"):
            self.kept.append(request)
            return
        self.held.append(request)
        if len(self.held) >= self.together:
            for each in reversed(self.held):
                self.reply(each)
            self.held.clear()

    def reply(self, request: Message, times: int = 1) -> None:
        """Answer *request*."""
        answer = error_reply("shop.Gone", "sold out") if text(request) == "fail" else TextMessage(text(request).upper())
        for _ in range(times):
            answer.jms_correlation_id = getattr(request, self._by)
            assert request.jms_reply_to is not None
            self._producer.send(request.jms_reply_to, answer)


@pytest.fixture
def served(kafka: Any) -> Iterator[JMSContext]:
    """The context of the service."""
    with ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
        yield context


@pytest.fixture
def requestor(kafka: Any) -> Iterator[Requestor]:
    """What sends the requests."""
    with Requestor(ConnectionFactory(kafka.bootstrap_servers)) as made:
        yield made


@pytest.mark.parametrize("by", ["jms_correlation_id", "jms_message_id"])
def test_many_threads_share_a_requestor(served: JMSContext, requestor: Requestor, queue: Queue, by: str) -> None:
    """Their requests are under way at once, and each gets its own reply, in whatever order replies come."""
    Service(served, queue, COUNT, by)
    with ThreadPoolExecutor(COUNT) as threads:
        asked = [threads.submit(requestor.request, queue, f"number {n}", WAIT_MS) for n in range(COUNT)]
        assert [text(each.result()) for each in asked] == [f"NUMBER {n}" for n in range(COUNT)]
    assert requestor.late_replies == 0
    assert repr(requestor) == "<Requestor: 0 requests wait>"


def test_a_late_reply_is_dropped_and_counted(served: JMSContext, requestor: Requestor, queue: Queue) -> None:
    """So is a second one, and the next request gets its own."""
    service = Service(served, queue)
    with pytest.raises(TimeoutError, match=f"request: no reply of {queue} within 0.1 s"):
        requestor.request(queue, "keep it", timedelta(seconds=0.1))
    wait_for(lambda: service.kept)
    with served.create_context() as other:
        late = TextMessage("LATE")
        late.jms_correlation_id = service.kept[0].jms_correlation_id
        assert service.kept[0].jms_reply_to is not None
        other.create_producer().send(service.kept[0].jms_reply_to, late).send(service.kept[0].jms_reply_to, late)
    wait_for(lambda: requestor.late_replies == 2)
    assert text(requestor.request(queue, TextMessage("next"), WAIT_MS)) == "NEXT"


def test_an_error_reply_is_raised(served: JMSContext, requestor: Requestor, queue: Queue) -> None:
    """With the class and the text of what the service raised."""
    Service(served, queue)
    with pytest.raises(ReplyException, match=r"the service raised shop\.Gone: sold out") as raised:
        requestor.request(queue, "fail", WAIT_MS)
    assert raised.value.error_code == "shop.Gone"
    assert isinstance(raised.value.reply, TextMessage)


def test_requests_end_with_their_requestor(kafka: Any, queue: Queue) -> None:
    """Those that wait raise, and so do later ones."""
    requestor = Requestor(ConnectionFactory(kafka.bootstrap_servers))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requestor.request, queue, "x")
        wait_for(lambda: repr(requestor) == "<Requestor: 1 requests wait>")
        requestor.close()
        requestor.close()
        with pytest.raises(IllegalStateException, match="closed before the reply came"):
            asked.result(WAIT_SECONDS)
    with pytest.raises(IllegalStateException, match="this Requestor is closed"):
        requestor.request(queue, "x")


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda requestor, queue: requestor.request("orders", "x"), InvalidDestinationException),
        (lambda requestor, queue: requestor.request(queue, "x", -1), ValueError),
        (lambda requestor, queue: requestor.request(queue, "x", 1.5), ValueError),
    ],
)
def test_wrong_requests(
    requestor: Requestor, queue: Queue, make: Callable[[Requestor, Queue], object], error: type[Exception]
) -> None:
    """They raise, and leave nothing behind."""
    with pytest.raises(error):
        make(requestor, queue)
    assert repr(requestor) == "<Requestor: 0 requests wait>"


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
async def test_many_tasks_ask_by_one_context(kafka: Any, served: JMSContext, queue: Queue, mode: int) -> None:
    """At once, by one inbox, beside a receive of the same context, and in no transaction."""
    service = Service(served, queue, COUNT)
    async with aio.ConnectionFactory(kafka.bootstrap_servers).create_context(mode) as context:
        receiving = asyncio.create_task(context.create_consumer(Queue(f"{queue.queue_name}.other")).receive())
        asked = [context.request(queue, f"number {n}", timeout=WAIT_MS) for n in range(COUNT)]
        assert [text(each) for each in await asyncio.gather(*asked)] == [f"NUMBER {n}" for n in range(COUNT)]
        service.together = 1
        with pytest.raises(ReplyException, match="sold out"):
            await context.request(queue, "fail", timeout=WAIT_MS)
        with pytest.raises(InvalidDestinationException):
            await context.request("orders", "x")  # type: ignore[arg-type]
        assert context.late_replies == 0
        assert not receiving.done()
        receiving.cancel()


async def test_late_replies_and_cancelled_requests_of_tasks(kafka: Any, served: JMSContext, queue: Queue) -> None:
    """A request that is given up, by its time or by its task, leaves a reply that is dropped and counted."""
    service = Service(served, queue)
    async with aio.ConnectionFactory(kafka.bootstrap_servers).create_context() as context:
        with pytest.raises(TimeoutError, match=f"request: no reply of {queue} within 0.1 s"):
            await context.request(queue, "keep one", timeout=timedelta(seconds=0.1))
        cancelled = asyncio.create_task(context.request(queue, "keep two"))
        await until(lambda: {text(each) for each in service.kept} == {"keep one", "keep two"})
        cancelled.cancel()
        await asyncio.wait({cancelled})
        async with aio.ConnectionFactory(kafka.bootstrap_servers).create_context() as other:
            for each in service.kept:
                assert each.jms_reply_to is not None
                producer = other.create_producer().set_jms_correlation_id(each.jms_correlation_id)
                await producer.send(each.jms_reply_to, "LATE")
        await until(lambda: context.late_replies == 2)
        assert text(await context.request(queue, "next", timeout=WAIT_MS)) == "NEXT"


async def test_requests_of_tasks_end_with_their_context(kafka: Any, queue: Queue) -> None:
    """Those that wait raise; the connection ends with its last context as ever."""
    before = threading.active_count()
    context = aio.ConnectionFactory(kafka.bootstrap_servers).create_context()
    async with context:
        waiting = asyncio.create_task(context.request(queue, "x"))
        await until(lambda: context._requests is not None and len(context._requests.pending) == 1)
        connection = context._opened("test")._connection
    with pytest.raises(IllegalStateException, match="closed"):
        await waiting
    assert connection._is_closed
    with pytest.raises(IllegalStateException, match=r"request: session \d+ is closed"):
        await context.request(queue, "x")
    assert threading.active_count() <= before + 3  # what the engine of all tests runs for this factory
