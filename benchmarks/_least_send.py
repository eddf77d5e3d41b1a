"""A send in Python that does what JMS asks of one, and nothing else."""

from __future__ import annotations

import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import RLock, Thread
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaError, Producer

from kjms.bench import _payload

__all__ = ["LeastMapping", "LeastMessage", "LeastPublisher", "LeastSender", "least_message"]


POLL_EVERY: Final = 128  # sends


class LeastMessage:
    """The least that JMS asks of a message: a body, and properties whose names and types are checked."""

    __slots__ = ("fields", "properties", "text", "types")

    KINDS: ClassVar = {"string": str, "int": int, "double": float, "boolean": bool}

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(text)
        self.text = text
        self.properties: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        self.fields: tuple[str, int, str] | None = None  # what a send sets

    def set(self, name: str, value: Any, kind: str) -> None:
        """Set a property."""
        if value.__class__ is not self.KINDS[kind] or not name.isidentifier():
            raise TypeError(name)
        self.properties[name] = value
        if kind != "string":
            self.types[name] = kind


def least_message() -> LeastMessage:
    """Return a new message with the text and the properties that all workloads send."""
    message = LeastMessage(_payload.TEXT)
    message.set("region", _payload.REGION, "string")
    message.set("amount", _payload.AMOUNT, "int")
    message.set("price", _payload.PRICE, "double")
    message.set("urgent", _payload.URGENT, "boolean")
    return message


class LeastMapping:
    """Makes the headers of messages that are sent, as little as JMS asks for."""

    def __init__(self) -> None:
        self._prefix = f"ID:{uuid.uuid4().hex}-1-"
        self._numbers = itertools.count(1)
        self._layouts: dict[tuple[str, ...], bytes] = {}

    def headers(self, message: LeastMessage, topic: str) -> list[tuple[str, bytes]]:
        """Set what a send to *topic* sets in *message*, and return its headers."""
        now = time.time_ns() // 1_000_000
        message_id = f"{self._prefix}{next(self._numbers)}"
        message.fields = message_id, now, topic
        key = (*message.types, *message.types.values())
        layout = self._layouts.get(key)
        if layout is None:
            types = ",".join(f"{name}={kind}" for name, kind in message.types.items())
            layout = self._layouts[key] = f"1;text;{types}".encode()
        headers = [("kjms", layout), ("JMSMessageID", message_id.encode()), ("JMSTimestamp", b"%d" % now)]
        for name, value in message.properties.items():
            text = value if value.__class__ is str else repr(value).lower()
            headers.append((name, text.encode()))
        return headers


class LeastSend:
    """The least that JMS asks of an asynchronous send: its listener is called in order, and by another thread."""

    __slots__ = ("error", "is_done", "message", "sender")

    def __init__(self, sender: LeastSender, message: LeastMessage) -> None:
        self.sender = sender
        self.message = message
        self.is_done = False
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _record: object) -> None:
        self.error = error
        self.is_done = True
        sender = self.sender
        if not sender.is_awake:
            sender.is_awake = True
            sender.publisher.reported.put(sender)


class LeastPublisher:
    """Has the Kafka producer of some senders, and the thread that calls their listeners."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.reported: SimpleQueue[LeastSender | None] = SimpleQueue()
        self._unpolled = 0
        self._thread = Thread(target=self._listen, daemon=True)
        self._thread.start()

    def poll_at_times(self) -> None:
        """Serve reports after some sends; each send calls it."""
        self._unpolled += 1
        if self._unpolled == POLL_EVERY:
            self._unpolled = 0
            self.producer.poll(0)

    def close(self) -> None:
        """Return when everything is reported, and the listeners were called for it."""
        self.producer.flush()
        self.reported.put(None)
        self._thread.join()

    def _listen(self) -> None:
        while (sender := self.reported.get()) is not None:
            sender.report()


class LeastSender:
    """Sends to one topic, for one thread at a time, as little as JMS asks for."""

    def __init__(self, publisher: LeastPublisher, topic: str, listener: Callable[[Any], None]) -> None:
        self.publisher = publisher
        self.is_awake = False
        self._topic = topic
        self._listener = listener
        self._mapping = LeastMapping()
        self._order: deque[LeastSend] = deque()
        self._guard = RLock()

    def send(self, message: LeastMessage) -> None:
        """Send *message*."""
        if not self._guard.acquire(False):
            raise RuntimeError("another thread sends")
        try:
            headers = self._mapping.headers(message, self._topic)
            send = LeastSend(self, message)
            self._order.append(send)
            publisher = self.publisher
            publisher.producer.produce(self._topic, message.text.encode(), headers=headers, on_delivery=send)
            publisher.poll_at_times()
        finally:
            self._guard.release()

    def report(self) -> None:
        """Call the listener for what is reported, in the order of sending."""
        self.is_awake = False  # before the look: what is reported after it wakes again
        order = self._order
        while order and order[0].is_done:
            sent = order.popleft()
            if sent.error is not None:
                raise RuntimeError(f"a record was not delivered: {sent.error}")
            self._listener(sent.message)
