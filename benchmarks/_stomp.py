"""The rival stomp.py: a STOMP client in pure Python."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import stomp

from kjms.bench._payload import AMOUNT, PRICE, REGION, TEXT, URGENT
from kjms.bench._workload import Clock

__all__ = ["latency", "receive", "send"]

AHEAD_BYTES = 1 << 20  # that the broker may send ahead
WAIT_SECONDS = 60
HEADERS = {
    "region": REGION,
    "amount": AMOUNT,
    "price": PRICE,
    "urgent": str(URGENT).lower(),
    "persistent": "true",
    "destination-type": "ANYCAST",  # what Artemis calls a queue
}


class _Receipts(stomp.ConnectionListener):
    """Counts the broker's words of messages that arrived."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.came = threading.Event()

    def on_receipt(self, frame: Any) -> None:
        self.left -= 1
        if self.left <= 0:
            self.came.set()

    def on_error(self, frame: Any) -> None:
        raise RuntimeError(frame.body)

    def wait(self, expected: int) -> None:
        if not self.came.wait(WAIT_SECONDS):
            raise TimeoutError(f"{self.left} receipts of {expected} did not come")


def _connected(port: int, listener: stomp.ConnectionListener) -> stomp.Connection12:
    # With a length Artemis would take a text for bytes.
    connection = stomp.Connection12([("127.0.0.1", port)], auto_content_length=False)
    connection.set_listener("benchmark", listener)
    connection.connect(wait=True)
    return connection


def latency(port: int, queue: str, count: int, warm: int) -> float:
    """Return the median milliseconds of a send whose receipt is waited for, after some that do not count."""
    receipts = _Receipts(1)
    connection = _connected(port, receipts)
    times = []
    for number in range(warm + count):
        receipts.came.clear()
        begin = time.perf_counter()
        connection.send(queue, TEXT, headers=HEADERS, receipt=str(number))
        receipts.wait(1)
        times.append(time.perf_counter() - begin)
    connection.disconnect()
    return statistics.median(times[warm:]) * 1000


def send(port: int, queue: str, count: int) -> float:
    """Return the messages per second of a loop that sends, with a receipt for each that comes later."""
    receipts = _Receipts(count)
    connection = _connected(port, receipts)
    with Clock() as clock:
        for number in range(count):
            connection.send(queue, TEXT, headers=HEADERS, receipt=str(number))
        receipts.wait(count)
    connection.disconnect()
    return count / clock.seconds


class _Reader(stomp.ConnectionListener):
    """Reads messages, and acknowledges each if it is to."""

    def __init__(self, expected: int, *, acknowledges: bool) -> None:
        self.clock = Clock()
        self.done = threading.Event()
        self.connection: Any = None
        self._expected = self._left = expected
        self._acknowledges = acknowledges

    def on_message(self, frame: Any) -> None:
        headers = frame.headers
        if (frame.body, headers["region"], int(headers["amount"])) != (TEXT, REGION, AMOUNT):
            raise RuntimeError("a message is not what was sent")
        if self._acknowledges:
            self.connection.ack(headers["ack"])
        if self._left == self._expected:
            self.clock.__enter__()
        self._left -= 1
        if self._left == 0:
            self.clock.__exit__()
            self.done.set()


def receive(port: int, queue: str, count: int, *, is_lazy: bool) -> float:
    """Return the messages per second of a listener that acknowledges each message, or leaves it to the broker."""
    reader = _Reader(count + 1, acknowledges=not is_lazy)
    connection = reader.connection = _connected(port, reader)
    headers = {"subscription-type": "ANYCAST"}
    if not is_lazy:  # what the broker acknowledges itself it sends without a limit, unless it is given one
        headers["consumer-window-size"] = str(AHEAD_BYTES)
    connection.subscribe(queue, id="1", ack="auto" if is_lazy else "client-individual", headers=headers)
    if not reader.done.wait(WAIT_SECONDS):
        raise TimeoutError(f"not all of {count} messages came")
    connection.disconnect()
    return count / reader.clock.seconds
