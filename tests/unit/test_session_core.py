"""The receive loop that all sessions share: what it delivers, what it settles, and that it never waits."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from kjms import JMSException, MessageFormatException, Queue, TextMessage
from kjms.client.session_core import SessionCore
from kjms.options import DestinationOptions, FactoryOptions

NOW = 1_000_000
QUEUE = Queue("orders")


class Reader:
    """Gives out deliveries, and notes what it is asked to do with them."""

    def __init__(self, *deliveries: Delivery) -> None:
        self.ready = deque(deliveries)
        self.done: list[tuple[str, str | None]] = []
        self.can_record: bool | JMSException = True

    def take(self, slot: Slot) -> Delivery | None:
        if not self.ready:
            return None
        delivery = self.ready.popleft()
        delivery.slot = slot
        return delivery

    def settle(self, deliveries: list[Delivery]) -> None:
        self.done += [("settle", delivery.text) for delivery in deliveries]

    def record(self, delivery: Delivery) -> bool:
        if isinstance(self.can_record, JMSException):
            raise self.can_record
        self.done.append(("record", delivery.text))
        return self.can_record

    def give_back(self, deliveries: list[Delivery], *, to: Slot | None = None, is_counted: bool) -> None:
        assert not is_counted
        self.done.append(("give back" if to is None else "give back to its consumer", deliveries[0].text))


class Slot:
    """A consumer's slot."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.has_priorities = False

    def poll(self) -> Delivery | None:
        return self.reader.take(self)


class Delivery:
    """A delivery of a text, and the partition that decodes it."""

    def __init__(self, text: str, *, expires: int = 0, count: int = 1, priority: int | None = None) -> None:
        self.text = text
        self.count = count
        self.slot: Slot | None = None
        self.decoded: TextMessage | None = None
        self.priority = 4
        self.partition = self
        self.record = object()
        self._expires = expires
        self._priority = priority

    def message(self, destination: Queue) -> TextMessage:
        return self.decode(self.record, destination, self.count)

    def decode(self, record: object, destination: Queue, count: int) -> TextMessage:
        assert (record, destination, count) == (self.record, QUEUE, self.count)
        message = TextMessage(self.text)
        if self._expires:
            message._properties["JMSExpiration"] = self._expires
            message.jms_expiration = self._expires
        if self._priority is not None:
            message._properties["JMSPriority"] = message.jms_priority = self._priority
        return message


class Redelivery:
    """Allows five deliveries."""

    def __init__(self) -> None:
        self.expired: list[tuple[str, str]] = []

    def is_one_too_many(self, delivery: Delivery) -> bool:
        return delivery.count > 5

    def expire(self, delivery: Delivery, queue_name: str) -> None:
        self.expired.append((delivery.text, queue_name))


class Acknowledgement:
    """Notes what was received and what was looped over."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []
        self.continued = 0

    def continues(self) -> None:
        self.continued += 1

    def received(self, delivery: Delivery, _: Any) -> None:
        self.noted.append(("received", delivery.text))

    def looping(self, delivery: Delivery, _: Any) -> None:
        self.noted.append(("looping", delivery.text))


def core_of(options: FactoryOptions | None = None, acknowledgement: Any = None) -> Any:
    chosen = acknowledgement or Acknowledgement()
    return SessionCore(1, options or FactoryOptions("localhost:9092"), lambda: NOW, Redelivery(), chosen)  # type: ignore[arg-type]


def taken(core: Any, reader: Reader) -> list[str]:
    """Take until nothing is left."""
    slot, texts = Slot(reader), []
    while (found := core.take(slot, QUEUE, core.acknowledgement.received)) is not None:
        texts.append(found[1].text)
    return texts


def test_messages_are_delivered_and_noted_in_their_order() -> None:
    """Each message is noted before it is returned; without one the core returns at once."""
    core, reader = core_of(), Reader(Delivery("a"), Delivery("b"))
    assert taken(core, reader) == ["a", "b"]
    assert core.acknowledgement.noted == [("received", "a"), ("received", "b")]
    assert reader.done == []


def test_an_expired_message_is_settled_and_the_next_one_delivered() -> None:
    """A message whose time is over is settled; one whose time is not is delivered."""
    reader = Reader(Delivery("old", expires=NOW - 1), Delivery("new", expires=NOW + 1))
    assert taken(core_of(), reader) == ["new"]
    assert reader.done == [("settle", "old")]


@pytest.mark.parametrize(("queue_name", "is_moved"), [("expired", True), ("orders", False)])
def test_an_expired_message_goes_to_the_expiry_queue(queue_name: str, is_moved: bool) -> None:
    """It is moved there; in the expiry queue itself it is settled."""
    core = core_of(FactoryOptions("localhost:9092", defaults=DestinationOptions(expiry_queue=queue_name)))
    reader = Reader(Delivery("old", expires=NOW - 1))
    assert taken(core, reader) == []
    assert core.redelivery.expired == ([("old", queue_name)] if is_moved else [])
    assert reader.done == ([] if is_moved else [("settle", "old")])


def test_a_repeated_delivery_is_recorded_before_it_is_made() -> None:
    """The first delivery is not recorded; one too many is not made, and not recorded."""
    reader = Reader(Delivery("first"), Delivery("again", count=2), Delivery("often", count=6))
    assert taken(core_of(), reader) == ["first", "again"]
    assert reader.done == [("record", "again")]


def test_the_session_continues_before_a_repeated_delivery_is_recorded() -> None:
    """What it notes of the message before is durable then: a message that kills its consumer takes no other with it."""
    core, found = core_of(), []

    class Recording(Reader):
        def record(self, delivery: Delivery) -> bool:
            found.append((delivery.text, core.acknowledgement.continued, len(core.acknowledgement.noted)))
            return super().record(delivery)

    taken(core, Recording(Delivery("first"), Delivery("again", count=2), Delivery("kills", count=3)))
    assert found == [("again", 1, 1), ("kills", 2, 2)]


def test_a_delivery_that_cannot_be_recorded_goes_back() -> None:
    """To any consumer if its partition was lost; to its own one, before later messages, if the broker refused it."""
    core, reader = core_of(), Reader(Delivery("lost", count=2), Delivery("refused", count=2))
    reader.can_record = False
    assert core.take(Slot(Reader()), QUEUE) is None
    assert core.acceptable(reader.take(Slot(reader)), QUEUE) is None
    reader.can_record = JMSException("refused")
    with pytest.raises(JMSException, match="refused"):
        taken(core, reader)
    assert reader.done == [("record", "lost"), ("give back", "lost"), ("give back to its consumer", "refused")]


@pytest.mark.parametrize(("priority", "is_noted"), [(None, False), (4, False), (3, True), (9, True)])
def test_another_priority_than_the_default_one_is_noted(priority: int | None, is_noted: bool) -> None:
    """The dispatcher, which ranks nothing while all messages of quick consumers have one priority, learns of it."""
    delivery = Delivery("a", priority=priority)
    core, slot = core_of(), Slot(Reader(delivery))
    assert core.take(slot, QUEUE) is not None
    assert slot.has_priorities is is_noted
    assert delivery.priority == (priority or 4), "of its place if it comes again"


def test_a_message_on_its_way_to_the_program_holds_up_stopping() -> None:
    """The lock that stopping waits for is held while the delivery is noted."""
    core = core_of()
    held: list[bool] = []
    core.take(Slot(Reader(Delivery("a"))), QUEUE, lambda *_: held.append(core.delivering._is_owned()))
    assert held == [True]
    assert not core.delivering._is_owned()


@pytest.mark.parametrize("is_loop", [False, True])
def test_a_message_is_read_before_it_is_noted(is_loop: bool) -> None:
    """A message whose body was read is noted as received, or as a loop's."""
    core, read = core_of(), []
    found = core.take(Slot(Reader(Delivery("a"))), QUEUE, core.delivery(read.append, is_loop=is_loop))
    assert found is not None
    assert [message.text for message in read] == ["a"]
    assert core.acknowledgement.noted == [("looping" if is_loop else "received", "a")]


def test_a_message_that_cannot_be_read_is_received_unless_the_session_acknowledges_by_itself() -> None:
    """With modes other than AUTO and DUPS_OK the program can still acknowledge it, or recover."""
    core, reader = core_of(), Reader(Delivery("a"))

    def read(_: Any) -> None:
        raise MessageFormatException("no such body")

    with pytest.raises(MessageFormatException):
        core.take(Slot(reader), QUEUE, core.delivery(read, is_loop=False))
    assert core.acknowledgement.noted == [("received", "a")]
    assert reader.done == []


def test_a_message_that_cannot_be_read_comes_again_if_the_session_acknowledges_by_itself() -> None:
    """With AUTO and DUPS_OK it goes back to its consumer, uncounted, before any later message."""
    from kjms.client.acknowledge_modes import Auto

    core, reader = core_of(acknowledgement=Auto(Redelivery())), Reader(Delivery("a"))  # type: ignore[arg-type]

    def read(_: Any) -> None:
        raise MessageFormatException("no such body")

    with pytest.raises(MessageFormatException):
        core.take(Slot(reader), QUEUE, core.delivery(read, is_loop=False))
    assert reader.done == [("give back to its consumer", "a")]
