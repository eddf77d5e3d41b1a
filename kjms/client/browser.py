"""Queue browsers: looking at the messages of a queue without taking them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kjms.client.closing import AutoCloseable
from kjms.destinations import TemporaryQueue
from kjms.errors import IllegalStateException

if TYPE_CHECKING:
    from kjms.client.session_connection import SessionConnection
    from kjms.client.thread_guard import ThreadGuard
    from kjms.destinations import Queue
    from kjms.engine import Browsing, InboxLook
    from kjms.message import Message
    from kjms.selector import Selector

__all__ = ["QueueBrowser"]


class QueueBrowser(AutoCloseable):
    """Shows the messages of a queue; made by `kjms.Session.create_browser`.

    Iterating over it is a look at the queue: each one begins anew, at the oldest message, and ends with what the queue
    held when it began. It shows what is not acknowledged, messages in flight included, and changes
    nothing. JMSXDeliveryCount is what the next delivery would say. Messages of one partition come in their order;
    what expired is left out. The connection need not be started.

    Spec: JMS 2.0 §5.9.
    """

    def __init__(
        self,
        connection: SessionConnection,
        queue: Queue,
        selector: Selector | None,
        guard: ThreadGuard,
        on_close: Callable[[QueueBrowser], None],
    ) -> None:
        if isinstance(queue, TemporaryQueue):
            connection._engine.temporaries.check_owned(queue, connection._id)
        else:
            connection._engine.topic_of(queue, connection._options)
        self._connection = connection
        self._queue = queue
        self._selector = selector
        self._guard = guard
        self._on_close = on_close
        self._looks: set[Browsing | InboxLook] = set()  # that are under way
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<QueueBrowser of {self._queue!r}: {'closed' if self._is_closed else 'open'}>"

    @property
    def queue(self) -> Queue:
        """The queue that it shows (JMS 2.0 §5.9)."""
        self._check_open("queue")
        return self._queue

    @property
    def message_selector(self) -> str | None:
        """The selector that the browser was made with, or None (JMS 2.0 §3.8.1)."""
        self._check_open("message_selector")
        return None if self._selector is None else self._selector.text

    def __iter__(self) -> Iterator[Message]:
        """Return the messages that the queue holds now, one by one.

        Raises:
            IllegalStateException: The browser is closed, or closes meanwhile, or another thread is using the session.
            JMSException: The broker does not answer.
        """
        self._check_open("browse")
        return self._messages()

    def _messages(self) -> Iterator[Message]:
        with self._guard.taken_to("browse"):
            self._check_open("browse")
            look = self._look()
        self._looks.add(look)
        try:
            while True:
                self._check_open("browse")
                with self._guard.taken_to("browse"):
                    message = look.next()
                self._check_open("browse")
                if message is None:
                    return
                yield message
        finally:
            self._looks.discard(look)
            look.close()

    def _look(self) -> Browsing | InboxLook:
        connection = self._connection
        if isinstance(self._queue, TemporaryQueue):
            return connection._engine.temporaries.look_at(self._queue, connection._id, self._selector)
        return connection._engine.browse(self._queue, connection._options, self._selector)

    def _check_open(self, doing: str) -> None:
        if self._is_closed:
            self._connection._ownership.check(doing)
            raise IllegalStateException(f"{doing}: this browser of {self._queue} is closed (JMS 2.0 §5.9)")

    def close(self) -> None:
        """Close the browser, from whatever thread; looks that are under way end with IllegalStateException."""
        if self._is_closed:
            return
        self._is_closed = True
        for look in list(self._looks):
            look.close()
        self._on_close(self)
