"""Messages: what creates them, what can send them, and how long they can be used."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    IllegalStateException,
    JMSException,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from tests.helpers import NOTHING_MS, WAIT_MS

KINDS: dict[type[Message], str] = {
    Message: "create_message",
    TextMessage: "create_text_message",
    BytesMessage: "create_bytes_message",
    MapMessage: "create_map_message",
    StreamMessage: "create_stream_message",
    ObjectMessage: "create_object_message",
}


def filled(message: Message) -> Message:
    """Give the message a body, and a property."""
    message.properties["region"] = "EU"
    if isinstance(message, TextMessage):
        message.text = "hello"
    elif isinstance(message, BytesMessage):
        message.write_int(7)
    elif isinstance(message, MapMessage):
        message["n"] = 7
    elif isinstance(message, StreamMessage):
        message.write_short(7)
    elif isinstance(message, ObjectMessage):
        message.object = {"n": [7]}
    return message


def body(message: Message) -> Any:
    if isinstance(message, StreamMessage):
        message.reset()
        return message.read_object()
    return message.get_body(object)


BODIES = {
    Message: None, TextMessage: "hello", BytesMessage: b"\0\0\0\7", MapMessage: {"n": 7}, StreamMessage: 7,
    ObjectMessage: {"n": [7]},
}  # fmt: skip


def factories(**rows: list[str]) -> list[Any]:
    return [
        pytest.param(f"create_{name}", marks=pytest.mark.requirement(*ids), id=f"create_{name}")
        for name, ids in rows.items()
    ]


@pytest.mark.requirement("JMS-4.4.5-1", "JMS-4.4.5-2")
@pytest.mark.parametrize("place", [Queue, Topic])
@pytest.mark.parametrize(
    "factory",
    factories(
        message=["JAK-createMessage-1", "JAK-createMessage-2", "JAK-createMessage-3"],
        text_message=["JAK-createTextMessage-1", "JAK-createTextMessage-3"],
        bytes_message=["JAK-createBytesMessage-1", "JAK-createBytesMessage-2"],
        map_message=["JAK-createMapMessage-1", "JAK-createMapMessage-2"],
        stream_message=["JAK-createStreamMessage-1", "JAK-createStreamMessage-2"],
        object_message=["JAK-createObjectMessage-1", "JAK-createObjectMessage-3"],
    ),
)
def test_any_session_sends_what_another_made(
    kjms_factory: ConnectionFactory, connection: Connection, kjms_destination_name: str, place: Callable[[str], Any],
    factory: str,
) -> None:  # fmt: skip
    """What a session's factory makes can be filled and sent by any other session, also when its own is closed."""
    with kjms_factory.create_connection() as other:
        maker = other.create_session()
        message, second = getattr(maker, factory)(), getattr(maker, factory)()
    assert message is not second
    destination, session = place(kjms_destination_name), connection.create_session()
    consumer = session.create_consumer(destination)
    session.create_producer(destination).send(filled(message))
    received = consumer.receive(WAIT_MS)
    assert type(received) is type(message)
    assert received.properties["region"] == "EU"
    assert body(received) == BODIES[type(message)]


@pytest.mark.requirement(
    "JMS-4.4.5-1", "JAK-Session-4", "NEV-17", "NEV-192", "NET-222", "NET-342", "JAK-createTextMessage-2",
    "JAK-createObjectMessage-2",
)  # fmt: skip
def test_a_session_makes_messages_of_kjms(session: Session) -> None:
    """Each factory makes one kind of kjms's own messages, of one common type; two of them fill it as well."""
    assert {factory: type(getattr(session, factory)()) for factory in KINDS.values()} == {
        factory: kind for kind, factory in KINDS.items()
    }
    assert all(issubclass(kind, Message) and kind.__module__.startswith("kjms.") for kind in KINDS)
    assert session.create_text_message("hello").text == "hello"
    assert session.create_object_message({"n": [7]}).object == {"n": [7]}


@pytest.mark.requirement("JAK-createObjectMessage-6")
def test_a_session_makes_no_message_of_what_it_cannot_carry(session: Session) -> None:
    """create_object_message of an object that no codec writes raises a JMSException, which names its type."""
    with pytest.raises(JMSException, match="complex"):
        session.create_object_message(1j)


@pytest.mark.requirement("JMS-4.3.5-12")
def test_messages_outlive_their_connection(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue
) -> None:
    """A message made or received through a connection that was closed is read, changed and sent by another."""
    with kjms_factory.create_connection() as closed:
        closed.start()
        session = closed.create_session(Session.CLIENT_ACKNOWLEDGE)
        made = session.create_text_message("made")
        session.create_producer(queue).send(session.create_text_message("received"))
        received = session.create_consumer(queue).receive(WAIT_MS)
    assert isinstance(received, TextMessage)
    assert (received.text, received.jms_destination) == ("received", queue)
    with pytest.raises(IllegalStateException, match="closed"):
        received.acknowledge()
    received.clear_body()
    received.text = "changed"
    elsewhere, session = Queue(f"{queue.queue_name}-2"), connection.create_session()
    for message in (made, received):
        session.create_producer(elsewhere).send(message)
    consumer = session.create_consumer(elsewhere)
    assert [body(consumer.receive(WAIT_MS)) for _ in range(2)] == ["made", "changed"]  # type: ignore[arg-type]


class ForeignTextMessage:
    """A text message that has nothing of kjms's but the interface."""

    def __init__(self, text: str, properties: dict[str, Any]) -> None:
        self.text = text
        self._properties = properties
        self.jms_type = "foreign"
        self.jms_correlation_id = "order-1"
        self.jms_reply_to = None
        self.jms_message_id = self.jms_destination = self.jms_delivery_mode = self.jms_priority = None
        self.jms_timestamp = self.jms_expiration = self.jms_delivery_time = 0

    def property_names(self) -> list[str]:
        return list(self._properties)

    def get_object_property(self, name: str) -> Any:
        return self._properties[name]


@pytest.mark.requirement("JMS-3.12-1", "JMS-3.4.11-14", "NEV-210", "JMS-4.4.5-2")
def test_a_session_sends_messages_however_they_are_implemented(session: Session, queue: Queue) -> None:
    """A foreign message arrives like one of kjms's own, and gets the header fields that a send sets."""
    foreign = ForeignTextMessage("hello", {"region": "EU", "amount": 7, "vip": True})
    session.create_producer(queue).send(foreign, priority=8, time_to_live=60_000)  # type: ignore[arg-type]
    received = session.create_consumer(queue, "amount = 7 AND vip").receive(WAIT_MS)
    assert isinstance(received, TextMessage)
    assert (received.text, received.jms_type, received.jms_correlation_id) == ("hello", "foreign", "order-1")
    assert received.properties["region"] == "EU"
    sent_fields = ("message_id", "timestamp", "destination", "delivery_mode", "priority", "expiration", "delivery_time")
    for name in (f"jms_{field}" for field in sent_fields):
        assert getattr(foreign, name) == getattr(received, name) is not None


class ForeignMessage:
    """Another provider's implementation of a message, with the body and properties of one of kjms's."""

    def __init__(self, message: Message) -> None:
        self._message = message

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._message, name)


@pytest.mark.requirement("JMS-3.12-1", "NET-223")
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_sends_foreign_messages_of_each_kind(
    session: Session, connection: Connection, queue: Queue, kind: type[Message]
) -> None:
    """The receiver gets a message of kjms's that has the kind, the body and the properties of the foreign one."""
    made = filled(getattr(connection.create_session(), KINDS[kind])())
    if isinstance(made, BytesMessage | StreamMessage):
        made.reset()
    session.create_producer(queue).send(ForeignMessage(made))  # type: ignore[arg-type]
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert type(received) is kind
    assert kind is Message or body(received) == BODIES[kind]
    assert received.get_string_property("region") == "EU"


@pytest.mark.requirement("NET-376")
def test_a_message_can_be_changed_while_its_sends_are_under_way(session: Session, queue: Queue) -> None:
    """What an asynchronous send has taken is what the message was at that moment, whatever the program does to it."""
    message, producer = session.create_stream_message(), session.create_producer(queue)
    done: list[Message] = []

    class Listener:
        def on_completion(self, message: Message) -> None:
            done.append(message)

        def on_exception(self, _message: Message, error: Exception) -> None:
            raise error

    for number in range(50):
        message.clear_body()
        message.write_int(number)
        producer.send(message, completion_listener=Listener())
    message.clear_body()
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in range(50)]
    assert [each is not None and body(each) for each in received] == list(range(50))
    producer.close()
    assert done == [message] * 50


def pickled(message: Message) -> Any:
    return pickle.loads(pickle.dumps(message))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_read", [False, True])
def test_messages_can_be_copied_and_pickled(
    session: Session, queue: Queue, kind: type[Message], duplicate: Callable[[Message], Any], *, is_read: bool
) -> None:
    """A received one, too, read or not yet: the copy has all of it, and can be sent."""
    made = filled(getattr(session, KINDS[kind])())
    made.jms_reply_to = queue
    made.jms_correlation_id = "order-1"
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    producer.send(duplicate(made))
    received = consumer.receive(WAIT_MS)
    assert received is not None
    if is_read and kind is not Message:
        assert body(received) == BODIES[kind]
        assert received.jms_reply_to == queue
    copied = duplicate(received)
    assert type(copied) is kind
    assert kind is Message or body(copied) == BODIES[kind]
    assert copied.properties == received.properties
    assert (copied.jms_message_id, copied.jms_reply_to, copied.jms_correlation_id, copied.jms_timestamp) == (
        received.jms_message_id,
        queue,
        "order-1",
        received.jms_timestamp,
    )
    assert copied.damage == ()
    producer.send(copied)
    again = consumer.receive(WAIT_MS)
    assert again is not None
    assert kind is Message or body(again) == BODIES[kind]


@pytest.mark.parametrize(("duplicate", "left"), [(copy.copy, 0), (copy.deepcopy, 1), (pickled, 1)])
def test_a_deep_copy_acknowledges_nothing(
    connection: Connection, queue: Queue, duplicate: Callable[[Message], Any], left: int
) -> None:
    """What a session delivered stays the message that acknowledges, and its shallow copies."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    session.create_producer(queue).send(session.create_text_message("hello"))
    duplicate(session.create_consumer(queue).receive(WAIT_MS)).acknowledge()
    session.close()
    with connection.create_session() as other:
        found = other.create_consumer(queue).receive(NOTHING_MS if not left else WAIT_MS)
    assert (found is not None) == bool(left)


@pytest.mark.requirement("JMS-4.4.1-10")
@pytest.mark.parametrize(
    "mode",
    [
        Session.CLIENT_ACKNOWLEDGE,
        Session.INDIVIDUAL_ACKNOWLEDGE,
        Session.AUTO_ACKNOWLEDGE,
        Session.DUPS_OK_ACKNOWLEDGE,
    ],
)
def test_messages_outlive_their_session(connection: Connection, queue: Queue, mode: int) -> None:
    """After its session was closed a message can be read, changed and sent; only acknowledge raises."""
    session = connection.create_session(mode)
    made = session.create_map_message()
    session.create_producer(queue).send(session.create_text_message("hello"))
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert isinstance(received, TextMessage)
    session.close()
    assert received.text == "hello"
    assert received.jms_destination == queue
    received.clear_body()
    received.text = "changed"
    made["n"] = 1
    other, elsewhere = connection.create_session(), Queue(f"{queue.queue_name}-2")
    for message in (received, made):
        other.create_producer(elsewhere).send(message)
    consumer = other.create_consumer(elsewhere)
    assert [consumer.receive(WAIT_MS).get_body(object) for _ in range(2)] == ["changed", {"n": 1}]  # type: ignore[union-attr]
    with pytest.raises(IllegalStateException, match="closed"):
        received.acknowledge()
