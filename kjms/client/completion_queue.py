"""The asynchronous sends of a session, whose outcomes are reported in the order of sending."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING

from kjms.engine import Condition, failure_of
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.client.completion_listener import CompletionListener
    from kjms.engine import Callbacks, Publisher
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.message import Message

__all__ = ["CompletionQueue", "Pending"]

_log = logging.getLogger("kjms.producer")


class Pending:
    """An asynchronous send; without a listener it is a NON_PERSISTENT message, whose outcome is logged only.

    It is what the publisher reports to: called from the publisher's thread with the error, if there was one.
    """

    __slots__ = ("_queue", "_topic", "error", "is_done", "listener", "message")

    def __init__(
        self, queue: CompletionQueue, topic: str, message: Message, listener: CompletionListener | None
    ) -> None:
        self._queue = queue
        self._topic = topic
        self.message = message
        self.listener = listener
        self.is_done = False
        self.error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, record: KafkaMessage) -> None:
        self.error = failure_of(error, record)
        self.is_done = True
        queue = self._queue
        queue._arrived_count += 1
        if not queue._is_informed:  # once for all reports of a poll
            queue._is_informed = True
            queue.publisher.inform(queue)

    def has_arrived(self) -> None:
        """Note that it needs no sending: it is safe with its session."""
        self.is_done = True
        self._queue._arrived_count += 1
        self._queue.catch_up()

    def catch_up(self) -> None:
        """Find out what became of a send that was interrupted: without a report, it never left if nothing is under way.

        Its listener is not called then: its program knows that it did not send.
        """
        if self.is_done:
            return
        publisher = self._queue.publisher
        if publisher.backlog:
            publisher.inform(self)
            return
        self.listener = None
        self.has_arrived()

    def report(self) -> None:
        """Call the listener; an error that it raises is logged."""
        listener, error = self.listener, self.error
        try:
            if error is None:
                if listener is not None:
                    listener.on_completion(self.message)
                return
            failure = self._queue.publisher.failure(error, self._topic)
            if listener is None:
                _log.warning("a NON_PERSISTENT message was lost: %s", failure)
            else:
                listener.on_exception(self.message, failure)
        except BaseException:
            _log.exception("a completion listener raised")


class CompletionQueue:
    """Counts a session's asynchronous sends, and calls completion listeners in the order of sending, one at a time.

    Sends are begun by the one thread that uses the session, and arrive in the one thread that serves the publisher's
    reports then, so each keeps a count of its own and no lock is needed until a thread waits.

    Args:
        publisher: Makes the sends. Another one may do so when the queue is empty.
        pass_on: Has its argument, which calls the listeners of sends that have arrived, called soon, always by the same
            thread; it is called once for many sends. None: the publisher's threads for callbacks call the listeners.

    Attributes:
        publisher: Makes the sends.
        make_pending: Makes what the publisher reports to.
    """

    def __init__(
        self,
        publisher: Publisher,
        pass_on: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.publisher = publisher
        self._pass_on = pass_on
        self._begun = 0
        self._arrived_count = 0
        self._is_informed = False  # whether the publisher has the queue catch up after its present reports
        self._is_passed_on = False  # whether `_report` is about to be called
        self._order: deque[Pending] = deque()
        self._waiting = 0
        self._reporting = threading.Lock()
        self._changed = Condition()
        self._threads = publisher.callbacks
        self._callbacks: Callbacks | None = None  # since there is a listener, unless they are passed on
        self._reporter = 0  # the identifier of the thread that calls listeners now
        self.make_pending: Callable[[CompletionQueue, str, Message, CompletionListener | None], Pending] = Pending

    @property
    def is_notifying(self) -> bool:
        """Whether the current thread is calling a completion listener of the session."""
        return self._reporter == get_ident()

    def __len__(self) -> int:
        """Return how many sends have not been reported."""
        return len(self._order)

    def begin(self, topic: str, message: Message, listener: CompletionListener | None) -> Pending:
        """Count a send; the publisher reports to what is returned."""
        pending = self.make_pending(self, topic, message, listener)
        if self._callbacks is None and listener is not None and self._pass_on is None:
            self._callbacks = self._threads.join(self._call)
        self._begun += 1
        self._order.append(pending)
        return pending

    def cancel(self) -> None:
        """Take the last one back: it never left."""
        self._order.pop()
        self._begun -= 1

    def give_up_last(self) -> None:
        """Let the publisher find out whether the last one left: a send was interrupted, by Ctrl-C, say.

        If that was not counted yet, the last one is the send before, which is under way, or was reported.
        """
        with contextlib.suppress(IndexError):
            self.publisher.inform(self._order[-1])

    def catch_up(self) -> None:
        """Look at which sends were delivered, or given up, meanwhile."""
        self._is_informed = False  # before the look: a report after it informs again
        if self._callbacks is None:
            order = self._order
            with self._reporting:
                while order and order[0].is_done and order[0].listener is None:
                    order.popleft().report()
        if not self._is_passed_on:  # also where none is left: sends may wait for that
            if self._callbacks is not None:
                self._is_passed_on = True
                self._threads.submit(self._callbacks)
            elif self._pass_on is not None:
                self._is_passed_on = True
                self._pass_on(self._report)
        self._wake_waiting()

    def _wake_waiting(self) -> None:
        """Have threads that wait look again."""
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def _call(self) -> None:
        """Report what has arrived, in a thread for callbacks."""
        self._reporter = get_ident()
        try:
            self._report()
        finally:
            self._reporter = 0
        self._wake_waiting()

    def _report(self) -> None:
        """Report what has arrived, in the order of sending."""
        self._is_passed_on = False  # before the look: what arrives after it is passed on again
        order = self._order
        with self._reporting:  # the publisher may report still, sends from before the first listener
            while order and order[0].is_done:
                order[0].report()
                order.popleft()

    def wait_for_arrivals(self) -> None:
        """Return when every send has been delivered, or given up; each is within the send timeout.

        Raises:
            JMSException: The publisher did not report it in time.
        """
        if self._begun != self._arrived_count and not self._wait(self._have_arrived, self.publisher.report_timeout):
            raise JMSException(f"send: {self._unreported()}")

    def wait(self) -> None:
        """Return when every send has been delivered or given up, and its listener has returned, unless passed on."""
        if self._wait(self._have_arrived, self.publisher.report_timeout):
            self._wait(lambda: not self._order or self._pass_on is not None)
        else:
            _log.warning("%s", self._unreported())

    def _have_arrived(self) -> bool:
        return self._begun == self._arrived_count

    def _unreported(self) -> str:
        count, seconds = self._begun - self._arrived_count, self.publisher.report_timeout
        return f"{count} messages sent before were neither confirmed nor given up within {seconds:g} s"

    def _wait(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(condition, seconds)
            finally:
                self._waiting -= 1

    def close(self) -> None:
        """Wait for everything, and end the thread that the session may have for its listeners."""
        self.wait()
        if self._callbacks is not None:
            self._threads.leave(self._callbacks)
