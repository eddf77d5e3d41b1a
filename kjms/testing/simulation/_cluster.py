"""The simulated cluster: which messages each queue and subscription has, and which process has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kjms.destinations import Destination, Queue
from kjms.engine import Delivery
from kjms.engine.kafka import KafkaMessage
from kjms.mapping import decode
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine import AssignedPartition, ConsumerSlot
    from kjms.mapping import KafkaRecord
    from kjms.message import Message
    from kjms.selector import Selector

__all__ = ["Cluster", "Entry", "Group", "SimulatedDelivery", "Stored", "listed"]

CREATED: Final = 1  # the kind of a timestamp that the producer gives


class Stored:
    """A message of a topic.

    Attributes:
        number: The message's, for people: copies of a message have the same.
        record: Its record.
        message: The message, for selectors and priorities; no program gets this object.
    """

    def __init__(self, number: int, record: KafkaMessage, message: Message) -> None:
        self.number = number
        self.record = record
        self.message = message

    def __str__(self) -> str:
        return f"message {self.number}"


class SimulatedDelivery(Delivery):
    """One delivery of an entry; what became of it is kept in the entry."""

    __slots__ = ("entry",)

    def __init__(self, entry: Entry, partition: AssignedPartition) -> None:
        stored = entry.stored
        super().__init__(stored.record, partition, stored.record.offset() or 0, stored.number)
        self.entry = entry

    @property
    def is_held(self) -> bool:
        """Whether its session still has the message: no other one got it, and it is not settled."""
        return self.entry.delivery is self

    def note(self, *, is_last: bool = False) -> None:
        """Note nothing: a crash is noted when it happens."""

    def possibly_made(self) -> None:
        """Note nothing, likewise."""


class Entry:
    """A message of a queue or subscription that is not settled.

    Attributes:
        stored: The message.
        history: What happened to it so far.
        is_new: Whether no session ever had it.
        ready_at: When it may be delivered, in milliseconds since 1970.
        slot: The consumer that is to get it again; None: any.
        delivery: Its delivery to the session that has it; None: no session has it.
    """

    def __init__(self, stored: Stored, ready_at: int) -> None:
        self.stored = stored
        self.history = NEVER
        self.is_new = True
        self.ready_at = ready_at
        self.slot: ConsumerSlot | None = None
        self.delivery: SimulatedDelivery | None = None

    @property
    def is_only_for(self) -> ConsumerSlot | None:
        """The consumer that alone may get it now."""
        slot = self.slot
        return slot if slot is not None and slot.is_open and slot.is_started else None

    def come_again(self, at: int) -> None:
        """Let any consumer have it, as its history says, from *at* on, in milliseconds since 1970."""
        self.delivery, self.slot = None, None
        self.ready_at = max(at, self.history.due)


class Group:
    """The messages of a queue, or of a subscription, that are not settled.

    Args:
        name: For people.
        destination: What they were sent to.
        selector: Which messages it takes; None: all.
        is_kept: Whether it is kept while it has no consumers.

    Attributes:
        slots: Its consumers.
    """

    def __init__(
        self, name: str, destination: Destination, selector: Selector | None = None, *, is_kept: bool = True
    ) -> None:
        self.name = name
        self.destination = destination
        self.is_kept = is_kept
        self.entries: list[Entry] = []
        self.slots: list[ConsumerSlot] = []
        self._selector = selector

    def add(self, stored: Stored) -> None:
        """Add a message, if the group takes it."""
        if self._selector is None or self._selector.matches(stored.message):
            self.entries.append(Entry(stored, stored.message.jms_delivery_time))
            self.wake()

    def wake(self) -> None:
        """Have the consumers look for messages."""
        for slot in self.slots:
            slot.wakeup.set()

    def settle(self, entry: Entry) -> None:
        """Take *entry* out: it is settled; others of its message group may be delivered now."""
        entry.delivery = None
        self.entries.remove(entry)
        self.wake()

    def next_for(self, slot: ConsumerSlot, now_ms: int) -> Entry | None:
        """Return what the consumer of *slot* gets next: what it had before, then by priority, then the oldest.

        Messages of a message group come in order, to one session at a time.
        """
        blocked: set[bytes] = set()
        possible: list[Entry] = []
        for entry in self.entries:
            group = entry.stored.record.key()
            if group is not None and group in blocked:
                continue
            if entry.delivery is not None:
                holder = entry.delivery.slot
                if group is not None and (holder is None or holder.wakeup is not slot.wakeup):
                    blocked.add(group)
                continue
            is_ready = entry.ready_at <= now_ms and entry.is_only_for in {None, slot}
            if is_ready and (slot.selector is None or slot.selector.matches(entry.stored.message)):
                possible.append(entry)
            elif is_ready or entry.is_new:
                continue  # another consumer's, or a delayed message: it holds no other one up
            if group is not None:
                blocked.add(group)
        return min(possible, key=lambda each: (each.slot is not slot, -each.stored.message.jms_priority), default=None)


class Topic:
    """A Kafka topic: all that was sent to it, and the groups that consume it."""

    def __init__(self, destination: Destination) -> None:
        self.destination = destination
        self.stored: list[Stored] = []
        self.groups: list[Group] = [Group(destination._name, destination)] if isinstance(destination, Queue) else []


class Cluster:
    """Topics with their messages, and durable subscriptions.

    Args:
        now_ms: The virtual time, in milliseconds since 1970.
        at: Calls something at a virtual time, in milliseconds since 1970.
    """

    def __init__(self, now_ms: Callable[[], int], at: Callable[[int, Callable[[], None]], None]) -> None:
        self.subscriptions: dict[object, tuple[object, Topic, Group]] = {}
        self._now_ms = now_ms
        self._at = at
        self._topics: dict[str, Topic] = {}
        self._numbers: dict[str, int] = {}

    def topic(self, name: str, destination: Destination) -> Topic:
        """Return the topic *name*, which is made where it is missing."""
        return self._topics.setdefault(name, Topic(destination))

    def name_of(self, topic: str) -> str:
        """Return the name of the destination that has *topic*."""
        return self._topics[topic].destination._name

    def queue(self, name: str, destination: Destination) -> Group:
        """Return the messages of the queue that has the topic *name*."""
        return self.topic(name, destination).groups[0]

    def leave(self, group: Group, slots: Iterable[ConsumerSlot]) -> None:
        """Take the consumers of *slots* away from *group*, which may end with the last of them."""
        for slot in slots:
            slot.is_open = slot.is_started = False
            if slot in group.slots:
                group.slots.remove(slot)
        if not group.slots and not group.is_kept:
            for topic in self._topics.values():
                if group in topic.groups:
                    topic.groups.remove(group)
            self.subscriptions = {key: found for key, found in self.subscriptions.items() if found[2] is not group}
        group.wake()

    def append(self, name: str, record: KafkaRecord) -> Stored:
        """Store *record* in the topic *name*, for its queue or its subscriptions."""
        topic = self._topics[name]
        made = KafkaMessage(
            topic=name,
            partition=0,
            offset=len(topic.stored),
            key=record.key,
            value=record.value,
            headers=record.headers,
            timestamp=(CREATED, record.timestamp or self._now_ms()),
        )
        message = decode(made, topic.destination, 1)
        identity = message.jms_message_id or f"{name}-{len(topic.stored)}"
        number = self._numbers.setdefault(identity, len(self._numbers) + 1)
        stored = Stored(number, made, message)
        topic.stored.append(stored)
        for group in topic.groups:
            group.add(stored)
            self.wake_at(group, message.jms_delivery_time)
        return stored

    def wake_at(self, group: Group, time: int) -> None:
        """Have the consumers of *group* look for messages at *time*, in milliseconds since 1970."""
        if time > self._now_ms():
            self._at(time, group.wake)

    def messages(self, name: str) -> list[Message]:
        """Return what was sent to the topic *name*, decoded anew."""
        topic = self._topics.get(name)
        if topic is None:
            return []
        return [decode(each.record, topic.destination, 1) for each in topic.stored]


def listed(what: Iterable[Stored]) -> str:
    """Return *what* in words, such as "messages 1, 2"."""
    numbers = [str(each.number) for each in dict.fromkeys(what)]
    return f"message {numbers[0]}" if len(numbers) == 1 else f"messages {', '.join(numbers)}"
