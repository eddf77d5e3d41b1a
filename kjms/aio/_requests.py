"""Requests for asyncio: one temporary queue takes the replies to all requests of a context."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from kjms.client.creating import message_of
from kjms.client.replies import PendingReplies, failure_in
from kjms.errors import IllegalStateException, JMSException

if TYPE_CHECKING:
    from kjms.aio._simple import JMSConsumer, JMSProducer
    from kjms.destinations import Destination, TemporaryQueue
    from kjms.message import Message

__all__ = ["Requests"]

_log = logging.getLogger("kjms.requests")

FAILURE_SECONDS: Final = 1.0  # after a receive that failed


class Asking(Protocol):
    """What requests use of a context."""

    async def create_temporary_queue(self) -> TemporaryQueue:
        """Return a new queue."""

    def create_consumer(self, destination: Destination) -> JMSConsumer:
        """Return a consumer, to be opened."""

    def create_producer(self) -> JMSProducer:
        """Return a producer."""


class Requests:
    """Sends requests, and gives each the reply that names it.

    Args:
        context: What sends and receives: a context for nothing else, whose owner closes it after `end`.

    Attributes:
        pending: What waits for replies.
    """

    def __init__(self, context: Asking) -> None:
        self._context = context
        self.pending: PendingReplies[asyncio.Future[Message]] = PendingReplies()
        self._opening = asyncio.Lock()
        self._replies: TemporaryQueue | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_ended = False

    async def request(self, destination: Destination, value: Any) -> Message:
        """Send *value* to *destination* and return its reply; see `JMSContext.request`."""
        replies = await self._open()
        message = message_of(value)
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        number = self.pending.add(message, replies, reply)
        if self._is_ended:
            self._fail()
        try:
            await self._context.create_producer().send(destination, message)
            return await reply
        finally:
            self.pending.discard(number)
            if not reply.cancel() and not reply.cancelled():
                reply.exception()  # asyncio reports one that no task has taken: here the send failed, too

    async def _open(self) -> TemporaryQueue:
        """Return the queue for replies, which a task receives from."""
        async with self._opening:
            if self._replies is None:
                replies = await self._context.create_temporary_queue()
                consumer = await self._context.create_consumer(replies)
                self._replies = replies
                self._task = asyncio.create_task(self._receive(consumer), name="kjms-requests")
        return self._replies

    async def _receive(self, consumer: JMSConsumer) -> None:
        while not self._is_ended:
            try:
                reply = await consumer.receive()
            except JMSException as failure:
                if self._is_ended:
                    return
                _log.error("receiving replies failed: %s", failure)
                await asyncio.sleep(FAILURE_SECONDS)
                continue
            if reply is None:
                break
            waiting = self.pending.take(reply)
            if waiting is None or waiting.done():
                continue
            failed = failure_in(reply)
            if failed is None:
                waiting.set_result(reply)
            else:
                waiting.set_exception(failed)
        self.end()

    def end(self) -> None:
        """End the requests that wait: the context is closed."""
        self._is_ended = True
        self._fail()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def _fail(self) -> None:
        for each in self.pending.take_all():
            if not each.done():
                each.set_exception(IllegalStateException("request: the context was closed before the reply came"))
