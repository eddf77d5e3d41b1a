"""The asynchronous sends of a session, whose outcomes are reported in the order of sending."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.client.completion_listener import CompletionListener
    from kjms.engine import Publisher
    from kjms.engine.kafka import KafkaError
    from kjms.message import Message

__all__ = ["CompletionQueue", "Pending"]

_log = logging.getLogger("kjms.producer")


class Pending:
    """An asynchronous send; without a listener it is a NON_PERSISTENT message, whose outcome is logged only.

    It is what the publisher reports to: called from the publisher's thread with the error, if there was one.
    """

    __slots__ = ("_publisher", "_queue", "_topic", "error", "is_done", "listener", "message")

    def __init__(
        self,
        queue: CompletionQueue,
        publisher: Publisher,
        topic: str,
        message: Message,
        listener: CompletionListener | None,
    ) -> None:
        self._queue = queue
        self._publisher = publisher
        self._topic = topic
        self.message = message
        self.listener = listener
        self.is_done = False
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _message: object) -> None:
        self.error = error
        self.is_done = True
        queue = self._queue
        queue._arrived_count += 1
        self._publisher.inform(queue)

    def has_arrived(self) -> None:
        """Note that it needs no sending: it is safe with its session."""
        self.is_done = True
        self._queue._arrived_count += 1
        self._queue.catch_up()

    def report(self) -> None:
        """Call the listener; an error that it raises is logged."""
        failure = None if self.error is None else self._publisher.failure(self.error, self._topic)
        listener = self.listener
        if listener is None:
            if failure is not None:
                _log.warning("a NON_PERSISTENT message was lost: %s", failure)
            return
        try:
            if failure is None:
                listener.on_completion(self.message)
            else:
                listener.on_exception(self.message, failure)
        except BaseException:
            _log.exception("a completion listener raised")


class CompletionQueue:
    """Counts a session's asynchronous sends, and calls completion listeners, in the order of sending, by one thread.

    Sends are begun by the one thread that uses the session, and arrive in the publisher's one thread, so each keeps a
    count of its own and no lock is needed until a thread waits.

    Args:
        thread_name: The name of the thread for completion listeners, which is started when there is one. None: they are
            called in the publisher's thread, and must do no more than pass it on.
    """

    def __init__(self, thread_name: str | None) -> None:
        self._thread_name = thread_name
        self._begun = 0
        self._report_timeout = 0.0  # seconds after the last send until its publisher has reported it
        self._arrived_count = 0
        self._order: deque[Pending] = deque()
        self._waiting = 0
        self._reporting = threading.Lock()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closing = False

    @property
    def is_notifying(self) -> bool:
        """Whether the current thread is the one that calls completion listeners."""
        return threading.current_thread() is self._thread

    def begin(self, publisher: Publisher, topic: str, message: Message, listener: CompletionListener | None) -> Pending:
        """Count a send; the publisher reports to what is returned."""
        pending = Pending(self, publisher, topic, message, listener)
        if listener is not None and self._thread is None and self._thread_name is not None:
            self._thread = threading.Thread(target=self._notify, name=self._thread_name, daemon=True)
            self._thread.start()
        self._begun += 1
        self._report_timeout = publisher.report_timeout
        self._order.append(pending)
        return pending

    def cancel(self) -> None:
        """Take the last one back: it never left."""
        self._order.pop()
        self._begun -= 1

    def catch_up(self) -> None:
        """Look at which sends were delivered, or given up, meanwhile."""
        if self._thread is None:
            with self._reporting:
                is_for_all = self._thread_name is None
                while self._order and self._order[0].is_done and (is_for_all or self._order[0].listener is None):
                    self._order.popleft().report()
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def _notify(self) -> None:
        """Report in the order of sending: the thread for completion listeners."""
        order = self._order
        while not self._is_closing:
            with self._reporting:  # another may be at it still, with sends from before the first listener
                while order and order[0].is_done:
                    order[0].report()
                    order.popleft()
            with self._changed:
                self._waiting += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._is_closing or bool(order and order[0].is_done))
                self._waiting -= 1

    def wait_for_arrivals(self) -> None:
        """Return when every send has been delivered, or given up; each is within the send timeout.

        Raises:
            JMSException: The publisher did not report it in time.
        """
        if self._begun != self._arrived_count and not self._wait(self._have_arrived, self._report_timeout):
            raise JMSException(f"send: {self._unreported()}")

    def wait(self) -> None:
        """Return when every send has been delivered or given up, and its listener has returned."""
        if self._wait(self._have_arrived, self._report_timeout):
            self._wait(lambda: not self._order)
        else:
            _log.warning("%s", self._unreported())

    def _have_arrived(self) -> bool:
        return self._begun == self._arrived_count

    def _unreported(self) -> str:
        count = self._begun - self._arrived_count
        return f"{count} messages sent before were neither confirmed nor given up within {self._report_timeout:g} s"

    def _wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(condition, seconds)
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """Wait for everything, and end the thread."""
        self.wait()
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
