"""The temporary destinations of one engine: made, owned by connections, read and deleted (JMS 2.0 §4.4.3)."""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic
from kjms.engine.admin.janitor import Janitor
from kjms.engine.admin.registry import LEASE_EXPIRED, Registry
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.kafka import IN_USE, inherited
from kjms.engine.statistics import InboxStatistics
from kjms.engine.temporary.deletions import Deletions
from kjms.engine.temporary.inbox import Entry, Inbox
from kjms.engine.temporary.inbox_browsing import InboxLook
from kjms.engine.temporary.inbox_factory import InboxFactory
from kjms.engine.temporary.inbox_source import InboxSource
from kjms.engine.threads import start_thread
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.temporary import PARTITIONS, place_of, temporary_name

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.options import DestinationOptions
    from kjms.selector import Selector

__all__ = ["Address", "Temporaries"]

_log = logging.getLogger("kjms.inbox")

CLOSE_SECONDS: Final = 5.0  # how long closing waits for a Kafka that does not answer

T = TypeVar("T", TemporaryQueue, TemporaryTopic)

_inboxes: dict[str, Inbox] = {}
"""The inboxes of this process, by their topics: what is deleted here is deleted at once for all that is sent here."""


class Address(NamedTuple):
    """Where messages for a temporary destination go."""

    inbox: str
    number: int
    check: Callable[[], None]
    """Raises InvalidDestinationException if the destination is deleted."""


@dataclass
class _Shared:
    """A shared non-durable subscription on a temporary topic: all its consumers are of one connection."""

    entry: Entry
    source: InboxSource
    terms: tuple[Selector | None, bool]


class Temporaries:
    """Creates the engine's inbox when it is first needed, and keeps its temporary destinations.

    Args:
        factory: Creates inboxes.
        deletions: Says what other processes have deleted.
        registry: Where the inbox is claimed, so that others can find out when it has no owner any more.
        topics: Makes and deletes Kafka topics.
        report: Reports a failure that belongs to no call.
    """

    def __init__(
        self,
        factory: InboxFactory,
        deletions: Deletions,
        registry: Registry,
        topics: Topics,
        report: Callable[[JMSException], None],
    ) -> None:
        self._factory = factory
        self._deletions = deletions
        self._registry = registry
        self._topics = topics
        self._report = report
        self._lock = threading.Lock()  # never held while Kafka or another thread is waited for
        self._making = threading.Lock()
        self._sharing = threading.Lock()  # held while consumers of shared subscriptions come and go
        self._inbox: Inbox | None = None
        self.claim = ""
        self._janitor: Janitor | None = None
        self._numbers = itertools.count(1)
        self._shared: dict[tuple[str | None, str], _Shared] = {}
        self._is_closed = False
        self.is_inherited = False  # whether this process is a fork of the one that has them

    def __repr__(self) -> str:
        return f"<Temporaries: {self._inbox}>"

    def statistics(self) -> InboxStatistics | None:
        """Return what is in the inbox; None: there is none yet."""
        inbox = self._inbox
        return None if inbox is None else inbox.statistics()

    def threads(self) -> list[threading.Thread | None]:
        """Return the threads of the inbox."""
        inbox, janitor = self._inbox, self._janitor
        return [*([] if inbox is None else inbox.threads), None if janitor is None else janitor.thread]

    # Making.

    def create(self, kind: type[T], owner: str, chosen: DestinationOptions) -> T:
        """Return a new temporary destination of the connection *owner*.

        Raises:
            JMSException: Kafka does not let us.
        """
        inbox = self._inbox or self._make_inbox(chosen.replication_factor)
        number = next(self._numbers)
        name = temporary_name(inbox.topic, number)
        entry = Entry(kind(name), number, owner, chosen.prefetch or 1)
        if kind is TemporaryQueue:
            entry.sources = (self._factory.source(inbox, entry),)
        destination = kind(name)
        destination._end = partial(self._delete, inbox, number)
        weakref.finalize(destination, inbox.forgotten.append, number).atexit = False
        inbox.entries[number] = entry
        return destination

    def _make_inbox(self, replication_factor: int | None) -> Inbox:
        with self._making:
            if self._inbox is not None:
                return self._inbox
            if self._is_closed:
                raise JMSException("the connection to the cluster is closed")
            inbox, claim = self._factory.open(replication_factor, self._forget)
            with self._lock:
                self.claim = claim
                self._inbox = _inboxes[inbox.topic] = inbox
            if not self._registry.counts(claim):
                self.lost(claim)
                raise JMSException(f"{LEASE_EXPIRED}; try again")
            self._janitor = Janitor(self._registry, self._topics, _inboxes.__contains__)
            return inbox

    # Sending.

    def address(self, destination: Destination) -> Address:
        """Return where messages for *destination*, whosever it is, go.

        Raises:
            InvalidDestinationException: There is no such temporary destination, or it is deleted.
        """
        topic, number = place_of(destination)

        def check() -> None:
            inbox = _inboxes.get(topic)
            if inbox is not None:
                entry = inbox.entries.get(number)
                is_gone = entry is None or entry.destination != destination
            else:
                is_gone = self._deletions.includes(topic, number)
            if is_gone:
                raise InvalidDestinationException(f"{destination} is deleted, or never existed (JMS 2.0 §4.4.3)")

        check()
        return Address(topic, number, check)

    # Receiving.

    def open_slot(
        self, destination: Destination, owner: str, selector: Selector | None, wakeup: threading.Event
    ) -> ConsumerSlot:
        """Return a slot for a consumer of the connection *owner*: of the queue, or of the topic from now on.

        Raises:
            InvalidDestinationException: It is deleted, or of another connection.
            JMSException: The broker does not answer.
        """
        inbox, entry = self._owned(destination, owner)
        if entry.sources and isinstance(destination, Queue):
            return self._add_slot(inbox, entry, entry.sources[0], selector, wakeup)
        source = self._subscribe(inbox, entry)
        return self._add_slot(inbox, entry, source, selector, wakeup)

    def open_shared(
        self,
        identity: tuple[str | None, str],
        topic: TemporaryTopic,
        owner: str,
        terms: tuple[Selector | None, bool],
        wanted: Selector | None,
        wakeup: threading.Event,
    ) -> ConsumerSlot:
        """Return a slot for a consumer of a shared non-durable subscription on a temporary topic.

        Args:
            identity: The subscription's client identifier and name.
            topic: The topic.
            owner: The connection's id.
            terms: The subscription's selector, and whether it has no_local.
            wanted: What decides about messages: the selector, with what no_local adds to it.
            wakeup: The consumer's; see `ConsumerSlot`.

        Raises:
            InvalidDestinationException: The topic is deleted, or of another connection.
            JMSException: The subscription has consumers, and is on another topic or has other terms.
        """
        inbox, entry = self._owned(topic, owner)
        with self._sharing:
            shared = self._shared.get(identity)
            if shared is None:
                shared = self._shared[identity] = _Shared(entry, self._subscribe(inbox, entry), terms)
            elif shared.entry is not entry or shared.terms != terms:
                raise JMSException(
                    f"shared subscription {identity[1]!r} has a consumer, so its topic, selector and no_local cannot"
                    " change (JMS 2.0 §6.11.4)",
                    IN_USE,
                )
            return self._add_slot(inbox, entry, shared.source, wanted, wakeup)

    def _owned(self, destination: Destination, owner: str) -> tuple[Inbox, Entry]:
        topic, number = place_of(destination)
        inbox = self._inbox
        entry = inbox.entries.get(number) if inbox is not None and inbox.topic == topic else None
        if inbox is None or entry is None or entry.destination != destination:
            is_known = topic in _inboxes and number in _inboxes[topic].entries
            why = "belongs to another connection" if is_known else "is deleted, or belongs to another program"
            raise InvalidDestinationException(f"{destination} {why} (JMS 2.0 §4.4.3)")
        if entry.owner != owner:
            raise InvalidDestinationException(
                f"{destination} belongs to another connection, and only that one can receive from it (JMS 2.0 §4.4.3)"
            )
        return inbox, entry

    def _subscribe(self, inbox: Inbox, entry: Entry) -> InboxSource:
        """Return a source that gets what is sent to a topic from now on."""
        source = self._factory.source(inbox, entry)
        with self._lock:
            entry.sources = (*entry.sources, source)
        try:
            # It gets more than that already, and lets it go.
            source.begin_at(self._topics.ends(inbox.topic, PARTITIONS))
        except BaseException:
            self._unsubscribe(entry, source)
            raise
        return source

    def _unsubscribe(self, entry: Entry, source: InboxSource) -> None:
        with self._lock:
            entry.sources = tuple(other for other in entry.sources if other is not source)
        source.end()

    def _add_slot(
        self, inbox: Inbox, entry: Entry, source: InboxSource, selector: Selector | None, wakeup: threading.Event
    ) -> ConsumerSlot:
        slot = ConsumerSlot(source, selector, wakeup)
        with self._lock:
            if inbox.entries.get(entry.number) is not entry:
                raise InvalidDestinationException(f"{entry.destination} is deleted (JMS 2.0 §4.4.3)")
            entry.slots.add(slot)
            source.slots.add(slot)
        return slot

    def leave(self, slots: Sequence[ConsumerSlot]) -> list[ConsumerSlot]:
        """Note that consumers are closed; return those that are not of temporary destinations."""
        others: list[ConsumerSlot] = []
        for slot in slots:
            source = slot.reader
            if isinstance(source, InboxSource):
                self._left(source, slot)
            else:
                others.append(slot)
        return others

    def _left(self, source: InboxSource, slot: ConsumerSlot) -> None:
        inbox = self._inbox
        entry = inbox.entries.get(source.number) if inbox is not None and inbox.topic == source.topic else None
        if entry is None or inbox is None:
            return
        with contextlib.nullcontext() if isinstance(entry.destination, Queue) else self._sharing:
            with self._lock:
                entry.slots.discard(slot)
                source.slots.discard(slot)
            if not source.slots and not isinstance(entry.destination, Queue):
                self._shared = {key: shared for key, shared in self._shared.items() if shared.source is not source}
                self._unsubscribe(entry, source)
        if entry.is_forgotten and not entry.slots:
            inbox.forgotten.append(entry.number)

    def look_at(self, queue: Queue, owner: str, selector: Selector | None) -> InboxLook:
        """Return a look at what a temporary queue of the connection *owner* holds.

        Raises:
            InvalidDestinationException: It is deleted, or of another connection.
            JMSException: The broker does not answer.
        """
        inbox, entry = self._owned(queue, owner)
        return self._factory.look(inbox, entry, selector)

    def check_owned(self, destination: Destination, owner: str) -> None:
        """Make sure that the connection *owner* may receive from *destination*.

        Raises:
            InvalidDestinationException: It is deleted, or of another connection.
        """
        self._owned(destination, owner)

    # Deleting.

    def _delete(self, inbox: Inbox, number: int) -> None:
        """Delete one that no consumer is on; once it is deleted, do nothing.

        Raises:
            JMSException: It has a consumer, or Kafka did not take it.
            IllegalStateException: This process is a fork of the one that made it.
        """
        if self.is_inherited:
            raise inherited("delete")
        with self._lock:
            entry = inbox.entries.get(number)
            if entry is None:
                return
            if entry.slots:
                raise JMSException(f"delete: {entry.destination} has an open consumer (JMS 2.0 §4.4.3)", IN_USE)
            del inbox.entries[number]
        _end([entry])
        inbox.retention.delete([number])

    def _forget(self, numbers: Iterable[int]) -> None:
        """Delete those that the program has lost all references to, as soon as no consumer is on them."""
        inbox = self._inbox
        if inbox is None:
            return
        gone = []
        with self._lock:
            for number in numbers:
                entry = inbox.entries.get(number)
                if entry is not None and entry.slots:
                    entry.is_forgotten = True
                elif entry is not None:
                    gone.append(inbox.entries.pop(number))
        if gone:
            _end(gone)
            try:
                inbox.retention.delete((entry.number for entry in gone), wait=False)
            except JMSException as failure:  # what others still send is not read
                _log.warning("%s", failure)

    def end_of(self, owner: str) -> None:
        """Delete what the connection *owner* made: it is closed, with all its consumers. Trouble is logged."""
        inbox = self._inbox
        if inbox is None:
            return
        with self._lock:
            gone = [entry for entry in inbox.entries.values() if entry.owner == owner]
            for entry in gone:
                del inbox.entries[entry.number]
        if gone:
            _end(gone)
            try:
                inbox.retention.delete(entry.number for entry in gone)
            except JMSException as failure:  # what others still send is not read
                _log.warning("%s", failure)

    def lost(self, claim: str) -> None:
        """Report that the lease of the inbox expired: other processes have removed its claim, and delete it."""
        with self._lock:
            if not claim or claim != self.claim or self._inbox is None:
                return
            inbox, self._inbox, self.claim = self._inbox, None, ""
            _inboxes.pop(inbox.topic, None)
            gone = list(inbox.entries.values())
            inbox.entries.clear()
            self._shared.clear()

        def report() -> None:
            _end(gone)
            inbox.close()
            self._factory.delete(inbox)
            self._report(JMSException(f"{LEASE_EXPIRED} and deleted its temporary destinations"))

        start_thread(report, "kjms-inbox-lost")

    def close(self) -> None:
        """Delete the inbox: the engine ends."""
        with self._making, self._lock:
            self._is_closed = True
            inbox, self._inbox = self._inbox, None
            claim, self.claim = self.claim, ""
        if self._janitor is not None:
            self._janitor.close()
        if inbox is not None:
            _inboxes.pop(inbox.topic, None)
            inbox.close()
            is_deleted = self._factory.delete(inbox)
            try:
                self._registry.take_away([claim], wait=is_deleted)  # else Kafka does not answer
            except JMSException as failure:  # it is tried again as long as the registry is read
                _log.warning("%s", failure)
        self._deletions.close()


def _end(entries: Iterable[Entry]) -> None:
    for entry in entries:
        for source in entry.sources:
            source.end()
