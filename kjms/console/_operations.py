"""What the console asks of a cluster and changes in it: the only module of the console that uses `kjms.admin`.

It runs in a child process, so arguments and results are plain values.
"""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.admin import Admin, ConsumerFigures, Subscription
from kjms.child_process import CalledOff, Progress
from kjms.client.connection import Connection
from kjms.client.engine_access import engine_of, options_of
from kjms.console._message import detail, raw_body, summary
from kjms.destinations import Destination, Queue, Topic, parse_destination
from kjms.errors import InvalidDestinationException, JMSSecurityException
from kjms.mapping.json_form import from_json
from kjms.mapping.names import is_internal
from kjms.schedule import Schedules

if TYPE_CHECKING:
    from kjms.admin import DeadLetterQueue, DelayedMessage, MessageFigures, QueueFigures, SubscriptionFigures
    from kjms.client.connection_factory import ConnectionFactory
    from kjms.schedule import Schedule

__all__ = ["Operations", "Place"]

SCAN: Final = 50_000  # messages that one page looks at, at the most
DELAYED: Final = 1_000  # of a destination that are listed
LETTERS: Final = 100_000  # dead letters of a queue that are counted by their causes
COUNT_SECONDS: Final = 5.0
SEARCH_SECONDS: Final = 20.0


class Place(NamedTuple):
    """Where messages are: a queue, or a durable subscription.

    Attributes:
        queue: The queue's name; empty: it is a subscription.
        subscription: The subscription's name.
        client_id: The client identifier that it belongs to; empty: it has none.
    """

    queue: str = ""
    subscription: str = ""
    client_id: str = ""

    @property
    def source(self) -> Queue | Subscription:
        """What `Admin` takes.

        Raises:
            ValueError: It names a queue and a subscription.
            InvalidDestinationException: It names neither.
        """
        if self.queue and self.subscription:
            raise ValueError(f"name a queue or a subscription, not {self.queue!r} and {self.subscription!r}")
        if self.queue:
            return Queue(self.queue)
        if not self.subscription:
            raise InvalidDestinationException("name a queue or a subscription")
        return Subscription(self.subscription, self.client_id or None)

    def __str__(self) -> str:
        return f"queue {self.queue}" if self.queue else f"subscription {self.subscription}"


class Operations:
    """Asks one cluster as one user.

    Args:
        factory: Says which cluster, and how to connect.
        user: The name for SASL.
        password: The password for it.

    Raises:
        JMSSecurityException: The broker refused the credentials.
        JMSException: No broker answered within the send timeout.
    """

    def __init__(self, factory: ConnectionFactory, user: str | None, password: str | None) -> None:
        options = replace(options_of(factory), client_id=None, create_destinations=False)
        existing = copy.copy(factory)
        existing._options = options
        self._access = existing, user, password
        self._connection = Connection(options, user, password)
        self._admin = Admin.of(self._connection)
        self._counting = Admin.of(self._connection)  # keeps what it has counted; large changes do not wait for it

    def close(self) -> None:
        """Disconnect."""
        self._admin.close()
        self._counting.close()
        self._connection.close()

    def connect(self) -> None:
        """Do nothing: to have been made is all that a login asks for."""

    # Figures.

    def figures(self, *, estimate: bool) -> dict[str, Any]:
        """Return what queues and subscriptions hold, and where the Kafka topics of the queues end."""
        queues = self._counting.queues(estimate=estimate)
        subscriptions = self._counting.subscriptions(estimate=estimate)
        cluster = engine_of(self._connection).admin
        there = cluster.topics()
        topics = {each.topic: there[each.topic] for each in queues if each.topic in there}
        ends = {topic: sum(end for _, end in spans) for topic, spans in cluster.spans(topics).items()}
        return {
            "queues": [_queue(each) | {"end": ends.get(each.topic)} for each in queues],
            "subscriptions": [_figures(each) for each in subscriptions],
        }

    def consumers(self) -> list[dict[str, Any]]:
        """Return the processes that consume, and what they have in flight."""
        return [_consumer(each) for each in self._counting.consumers(in_flight=True)]

    def destinations(self) -> list[dict[str, Any]]:
        """Return Kafka's topics as destinations, without the internal ones."""
        return [asdict(each) for each in self._counting.destinations(estimate=True)]

    # Messages.

    def browse(self, place: Place, selector: str | None, limit: int, after: str | None) -> dict[str, Any]:
        """Return a page of messages."""
        page = self._admin.browse(place.source, selector, limit=limit, after=after, scan_limit=max(SCAN, limit))
        return {"messages": [summary(each) for each in page.messages], "next": page.next, "looked": page.looked}

    def count(self, place: Place, selector: str | None) -> dict[str, Any]:
        """Return how many messages match, or how many were looked at in a few seconds."""
        clock = _Clock(COUNT_SECONDS)
        try:
            return {"count": self._admin.count(place.source, selector, progress=clock), "looked": None}
        except CalledOff:
            return {"count": None, "looked": clock.looked}

    def message(self, place: Place, message_id: str, after: str | None = None) -> dict[str, Any] | None:
        """Return all of a message; None: it is not there."""
        found = self._found(place, message_id, after)
        return None if found is None else detail(found)

    def body(self, place: Place, message_id: str, after: str | None = None) -> bytes | None:
        """Return a message's body as bytes; None: the message is not there."""
        found = self._found(place, message_id, after)
        return None if found is None else raw_body(found.message)

    def _found(self, place: Place, message_id: str, after: str | None) -> MessageFigures | None:
        """Return a message: first from the page that listed it, which began *after* another one."""
        if after:
            wanted = "JMSMessageID = '{}'".format(message_id.replace("'", "''"))
            with contextlib.suppress(ValueError):  # it is no cursor, or one of another destination
                page = self._admin.browse(place.source, wanted, limit=1, after=after, scan_limit=SCAN)
                if page.messages:
                    return page.messages[0]
        return self._admin.message(place.source, message_id, progress=_Clock(SEARCH_SECONDS))

    def find(self, message_id: str) -> dict[str, Any]:
        """Return where a message is, in all queues and durable subscriptions that could be searched in time."""
        clock = _Clock(SEARCH_SECONDS)
        places: list[dict[str, Any]] = []
        try:
            self._admin.find(message_id, progress=clock, found=lambda each: places.append(summary(each)))
        except CalledOff:
            return {"places": places, "is_complete": False}
        return {"places": places, "is_complete": True}

    def history(self, message_id: str) -> list[dict[str, Any]]:
        """Return what happened to a message after its first delivery."""
        found = self._admin.redeliveries(message_id, progress=_Clock(COUNT_SECONDS))
        return [asdict(each) | {"time": round(each.time.timestamp() * 1000)} for each in found]

    def dead_letters(self) -> dict[str, Any]:
        """Return the dead-letter queues, and the causes across all of them, as far as they are counted in time."""
        clock = _Clock(SEARCH_SECONDS)
        queues: list[DeadLetterQueue] = []
        uncounted: list[str] = []
        for name in sorted(each.name for each in self._counting.queues(estimate=True) if each.is_dead_letter_queue):
            try:
                queues += self._admin.dead_letters(name, limit=LETTERS + 1, progress=clock)
            except CalledOff:
                uncounted.append(name)
            except (InvalidDestinationException, JMSSecurityException):
                continue  # it was deleted, or this user may not read it
        causes: dict[str, dict[str, Any]] = {}
        for queue in queues:
            for cause, count in queue.causes.items():
                found = causes.setdefault(cause, {"cause": cause, "dead_letters": 0, "queues": {}})
                found["dead_letters"] += count
                found["queues"][queue.name] = count
        return {
            "queues": [
                {
                    "name": each.name,
                    "dead_letters": min(each.dead_letters, LETTERS),
                    "is_complete": each.dead_letters <= LETTERS,
                    "last_failure": _ms(each.last_failure),
                }
                for each in queues
            ],
            "uncounted": uncounted,
            "causes": sorted(causes.values(), key=lambda each: -each["dead_letters"]),
        }

    # Delayed and periodic messages.

    def delayed(self, destination: str | None) -> list[dict[str, Any]]:
        """Return the messages that are not due yet, of one destination or of all."""
        found: list[dict[str, Any]] = []
        if destination:
            named = _destination(destination)
            return [_delayed(named, each) for each in self._admin.delayed(named)[:DELAYED]]
        for each in self._with_delayed():
            try:
                found += [_delayed(each, entry) for entry in self._admin.delayed(each)[:DELAYED]]
            except (InvalidDestinationException, JMSSecurityException):
                continue  # it was deleted, or this user may not read it
        return sorted(found, key=lambda each: each["due"] or 0)[:DELAYED]

    def _with_delayed(self) -> list[Queue | Topic]:
        topics = {each.topic: each for each in self._counting.destinations(internal=True, estimate=True)}
        found: list[Queue | Topic] = []
        for topic, each in topics.items():
            if not is_internal(topic) and f"{topic}.kjms.delayed" in topics:
                found.append(Queue(each.name) if each.kind == "queue" else self._kind(each.name, topic))
        return found

    def _kind(self, name: str, topic: str) -> Queue | Topic:
        is_queue = any(each.topic == topic for each in self._counting.queues(estimate=True))
        return Queue(name) if is_queue else Topic(name)

    def schedules(self) -> list[dict[str, Any]]:
        """Return the periodic messages."""
        with Schedules(*self._access) as schedules:
            return [_schedule(each) for each in schedules.list()]

    def add_schedule(self, name: str, destination: str, form: Mapping[str, Any], cron: str, timezone: str) -> None:
        """Define a periodic message."""
        draft = from_json(json.dumps(form), time.time_ns() // 1_000_000)
        how = {
            name: value for name, value in draft.how.items() if name in {"priority", "delivery_mode", "time_to_live"}
        }
        with Schedules(*self._access) as schedules:
            schedules.add(name, _destination(destination), draft.message, cron=cron, timezone=timezone, **how)

    def set_schedule(self, action: str, name: str, destination: str) -> None:
        """Remove, pause or resume a periodic message."""
        named = _destination(destination)
        with Schedules(*self._access) as schedules:
            if all(each.name != name for each in schedules.list(named)):
                raise InvalidDestinationException(f"there is no periodic message {name!r} of {named}")
            {"remove": schedules.remove, "pause": schedules.pause, "resume": schedules.resume}[action](name, named)

    def cancel(self, message_id: str, destination: str) -> dict[str, Any]:
        """Cancel a delayed message."""
        return _done(message_id, self._admin.cancel(message_id, _destination(destination)))

    def deliver(self, message_id: str, destination: str) -> dict[str, Any]:
        """Deliver a delayed message now."""
        return _done(message_id, self._admin.deliver(message_id, _destination(destination)))

    # Changes.

    def change(
        self,
        action: str,
        place: Place,
        target: str = "",
        selector: str | None = None,
        message_ids: Collection[str] | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Purge, move, copy or retry messages; *progress* gets how many are done, and how many there are."""

        def on_progress(value: Any) -> None:
            if progress is not None:
                progress((value.done, value.total))

        how: dict[str, Any] = {
            "selector": selector or None, "message_ids": message_ids, "limit": limit, "progress": on_progress
        }  # fmt: skip
        if action == "purge":
            changed = self._admin.purge(place.source, **how)
        elif action == "retry":
            if not isinstance(place.source, Queue):
                raise ValueError(f"dead letters are in queues: name one, not {place}")
            changed = self._admin.retry_dead_letters(Queue(place.queue), **how)
        else:
            method = self._admin.move if action == "move" else self._admin.copy
            changed = method(place.source, _destination(target), **how)
        return {"changed": int(changed), "matched": changed.matched, "stayed": dict(changed.stayed)}

    def send(self, destination: str, form: Mapping[str, Any], delay: int) -> dict[str, Any]:
        """Send a message, and return its id."""
        draft = from_json(json.dumps(form), time.time_ns() // 1_000_000)
        named = _destination(destination)
        with self._connection.create_session() as session:
            session.create_producer(named).send(draft.message, delivery_delay=delay, **draft.how)
        return {"changed": 1, "message_id": draft.message.jms_message_id}

    def create(self, kind: str, name: str, partitions: int | None) -> None:
        """Create a queue or topic."""
        (self._admin.create_queue if kind == "queue" else self._admin.create_topic)(name, partitions=partitions)

    def delete(self, kind: str, name: str) -> None:
        """Delete a queue or topic."""
        (self._admin.delete_queue if kind == "queue" else self._admin.delete_topic)(name)

    def unsubscribe(self, name: str, client_id: str) -> None:
        """Delete a durable subscription."""
        self._admin.unsubscribe(name, client_id or None)


class _Clock:
    """Ends a search after some seconds, as a function that is called with its progress."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._seconds = seconds
        self.looked = 0

    def __call__(self, progress: Any) -> None:
        self.looked = max(self.looked, progress.done)
        if time.monotonic() > self._until:
            raise CalledOff(f"the search ended after {self._seconds:g} s and {self.looked:,} messages")


def _destination(text: str) -> Queue | Topic:
    """Return the queue or topic that *text* names: ``orders``, ``queue://orders`` or ``topic://prices``."""
    found: Destination = parse_destination(text) if "://" in text else Queue(text)
    if type(found) not in {Queue, Topic}:
        raise InvalidDestinationException(f"{found} is temporary: it belongs to the connection that made it")
    assert isinstance(found, Queue | Topic)
    return found


def _ms(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _figures(found: QueueFigures | SubscriptionFigures) -> dict[str, Any]:
    return asdict(found) | {"oldest": _ms(found.oldest)}


def _queue(found: QueueFigures) -> dict[str, Any]:
    return _figures(found)


def _consumer(found: ConsumerFigures) -> dict[str, Any]:
    return {
        "destination": str(found.destination),
        "subscription": found.subscription,
        "group": found.group,
        "member_id": found.member_id,
        "client_id": found.client_id,
        "host": found.host.lstrip("/"),
        "application": found.application,
        "process_id": found.process_id,
        "host_name": found.host_name,
        "partitions": list(found.partitions),
        "in_flight": found.in_flight,
    }


def _delayed(destination: Queue | Topic, found: DelayedMessage) -> dict[str, Any]:
    return {
        "message_id": found.message_id,
        "destination": str(destination),
        "due": _ms(found.due),
        "partition": found.partition,
        "offset": found.offset,
    }


def _schedule(found: Schedule) -> dict[str, Any]:
    return {
        "name": found.name,
        "destination": str(found.destination),
        "cron": found.cron,
        "timezone": found.timezone,
        "next_time": _ms(found.next_time),
        "last_time": _ms(found.last_time),
        "is_paused": found.is_paused,
    }


def _done(message_id: str, is_done: bool) -> dict[str, Any]:
    if not is_done:
        raise InvalidDestinationException(
            f"there is no delayed message {message_id!r}: it was delivered or cancelled, or was never there"
        )
    return {"changed": 1}
