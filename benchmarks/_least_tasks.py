"""Sends in tasks, in Python, that do what JMS asks of them, and nothing else."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Event, RLock, Thread
from typing import Any

from confluent_kafka import KafkaError, Producer

from benchmarks._least_send import LeastMapping, LeastMessage

__all__ = ["LeastTaskSender"]


class TaskSend:
    """A send that a task awaits."""

    __slots__ = ("error", "future", "is_done", "sender")

    def __init__(self, sender: LeastTaskSender, future: asyncio.Future[None]) -> None:
        self.sender = sender
        self.future = future
        self.is_done = False
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _record: object) -> None:
        self.error = error
        self.is_done = True
        self.sender.wake()


class LeastTaskSender:
    """Sends to one topic for the tasks of one event loop, as little as JMS asks for: they get their answers in order.

    Args:
        producer: The Kafka producer; a thread serves its reports.
        topic: The topic.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._mapping = LeastMapping()
        self._guard = RLock()
        self._order: deque[TaskSend] = deque()
        self._is_awake = False
        self._is_over = Event()
        self._thread = Thread(target=self._poll, daemon=True)

    def __enter__(self) -> LeastTaskSender:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        self._thread.join()

    async def send(self, message: LeastMessage) -> None:
        """Send *message*, and return when it is confirmed."""
        if not self._guard.acquire(False):
            raise RuntimeError("another thread sends")
        try:
            headers = self._mapping.headers(message, self._topic)
            future = self._loop.create_future()
            send = TaskSend(self, future)
            self._order.append(send)
            self._producer.produce(self._topic, message.text.encode(), headers=headers, on_delivery=send)
        finally:
            self._guard.release()
        await future

    def wake(self) -> None:
        """Have the loop look at what is reported: once for many reports."""
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon_threadsafe(self._serve)

    def _serve(self) -> None:
        self._is_awake = False  # before the look: what is reported after it wakes again
        order = self._order
        while order and order[0].is_done:
            send = order.popleft()
            if send.error is not None:
                send.future.set_exception(RuntimeError(f"a record was not delivered: {send.error}"))
            elif not send.future.done():
                send.future.set_result(None)

    def _poll(self) -> None:
        while not self._is_over.is_set():
            self._producer.poll(0.05)
