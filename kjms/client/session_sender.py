"""The sending side of a session: where each message goes, in what order, and what reports on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

from kjms.client.routes import Route, TemporaryRoute
from kjms.destinations import Destination, TemporaryQueue, TemporaryTopic, Topic
from kjms.engine import Copy, destination_name
from kjms.errors import IllegalStateException
from kjms.mapping import sign
from kjms.options import DeliveryMode

if TYPE_CHECKING:
    from kjms.client.completion_listener import CompletionListener
    from kjms.client.completion_queue import CompletionQueue
    from kjms.client.thread_guard import ThreadGuard
    from kjms.client.transacted import Transacted
    from kjms.engine import Engine
    from kjms.message import Message
    from kjms.options import FactoryOptions

__all__ = ["SessionSender"]


class SessionSender:
    """Sends the messages of one session.

    Args:
        engine: What sends.
        options: The factory's options.
        session_id: The session's identifier; its messages' begin with it.
        guard: The session's.
        completions: Counts the sends that are not waited for.
        senders: Returns what is noted in messages to topics: in those with an id, and in those without.
        check_open: Raises IllegalStateException when the session is closed.
        check_own: Raises IllegalStateException in a fork of the session's process.
        check_destination: Raises InvalidDestinationException for what the session cannot send to.

    Attributes:
        transaction: What sends are a part of, if anything.
    """

    def __init__(
        self,
        engine: Engine,
        options: FactoryOptions,
        session_id: str,
        guard: ThreadGuard,
        completions: CompletionQueue,
        senders: Callable[[], tuple[bytes | None, bytes | None]],
        check_open: Callable[[str], None],
        check_own: Callable[[str], None],
        check_destination: Callable[[object], None],
    ) -> None:
        self.transaction: Transacted | None = None
        self.completions = completions
        self.now_ms = engine.tuning.now_ms
        self.check_own = check_own
        self._engine = engine
        self._options = options
        self._id = session_id
        self._guard = guard
        self._senders = senders
        self._check_open = check_open
        self._check_destination = check_destination
        self._sent = itertools.count(1)
        self._routes: dict[Destination, Route] = {}

    def next_message_id(self) -> str:
        """Return the JMSMessageID of the next message."""
        return f"ID:{self._id}-{next(self._sent)}"

    def knows(self, destination: Destination) -> bool:
        """Return whether the route to *destination* is known, so that sending needs no answer of Kafka first."""
        return isinstance(destination, Destination) and destination in self._routes

    def route(self, destination: Destination) -> Route:
        """Return the route to *destination*.

        Raises:
            InvalidDestinationException: There is no such destination, and it may not be created.
        """
        route = self._routes.get(destination) if isinstance(destination, Destination) else None
        if route is None:
            self._check_destination(destination)
            self._check_open("send")
            senders = self._senders() if isinstance(destination, Topic) else (None, None)
            if isinstance(destination, TemporaryQueue | TemporaryTopic):  # not kept: that would keep the destination
                to = self._engine.temporaries.address(destination)
                return TemporaryRoute(to, self._options.defaults, self._id, senders)
            topic, partitions = self._engine.topic_of(destination, self._options)
            chosen = self._options.destination(destination_name(destination))
            route = self._routes[destination] = Route(topic, partitions, chosen, self._id, *senders)
        return route

    def delayed(self, route: Route) -> Route:
        """Return the route to where messages for the destination of *route* wait until they are due."""
        self._check_open("send")
        if isinstance(route, TemporaryRoute):
            return route  # they wait where all its messages do, in the process that has it
        if route.delayed is None:
            route.delayed = route.to_later(self._engine.schedule.prepare(route.topic, route.partitions))
        else:
            self._engine.schedule.serve(route.topic)
        return route.delayed

    def send(self, message: Message, route: Route, listener: CompletionListener | None, original: Message) -> None:
        """Send *message* by *route*; *listener* is called with *original*, which is the application's own object."""
        guard = self._guard
        guard.acquire("send")
        try:
            self._check_open("send")
            record = route.encode(message)
            sender = route.sender if message._message_id is not None else route.sender_without_id
            if sender is not None:
                sign(record, sender)
            partition = route.partition if record.key is None else route.group_partition
            completions = self.completions
            if self.transaction is not None:
                self.transaction.sent(Copy(route.topic, partition, record))
                if listener is not None:  # the message is safe with the session; the rest is the commit's
                    completions.begin(route.topic, original, listener).has_arrived()
                return
            if listener is None and message._delivery_mode == DeliveryMode.PERSISTENT:
                completions.wait_for_arrivals()  # a session's messages stay in order, waited for or not
                self._engine.prompt.send_and_wait(route.topic, partition, record)
                return
            pending = completions.begin(route.topic, original, listener)
            try:
                completions.publisher.send(route.topic, partition, record, pending)
            except Exception:
                completions.cancel()
                raise
        except Exception:
            raise
        except BaseException:  # an interrupt: the client library may have taken the record, and reports it then
            self.completions.give_up_last()
            raise
        finally:
            guard.release()

    def finish(self, doing: str) -> None:
        """Return when every send has been delivered or given up, and its completion listener has returned.

        Raises:
            IllegalStateException: A completion listener of the session called it.
        """
        self.check_not_notifying(doing)
        self.completions.wait()

    def check_not_notifying(self, doing: str) -> None:
        """Raise IllegalStateException if the present thread runs a completion listener of the session."""
        if self.completions.is_notifying:
            raise IllegalStateException(
                f"{doing}: called by a completion listener of the same session (JMS 2.0 §4.6.2.4)"
            )
