"""Ask Kafka for several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Together"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Together(Generic[Item, Answer]):
    """Makes one request at a time. What threads ask for meanwhile goes into the next one, all of it.

    Args:
        request: Returns the answers for items, in their order.
    """

    def __init__(self, request: Callable[[Sequence[Item]], Sequence[Answer]]) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._waiting: list[tuple[Item, Future[Answer]]] = []

    @property
    def waiting(self) -> int:
        """How many questions are for the next request."""
        return len(self._waiting)

    def ask(self, item: Item) -> Answer:
        """Return the answer for *item*; raise what the request raises."""
        mine: Future[Answer] = Future()
        with self._lock:
            self._waiting.append((item, mine))
        with self._asking:
            if not mine.done():  # else the thread before asked for it, too
                with self._lock:
                    batch, self._waiting = self._waiting, []
                try:
                    answers = self._request([each for each, _ in batch])
                except BaseException:  # also Ctrl-C: the others ask again
                    with self._lock:
                        self._waiting[:0] = [each for each in batch if each[1] is not mine]
                    raise
                for (_, future), answer in zip(batch, answers, strict=True):
                    future.set_result(answer)
        return mine.result()
