"""Java and Python send each other every type of message, property and header field, through the gateway."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from java_remote import Java, JavaObject, Typed

from kjms import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from kjms.mapping.amqp import AmqpObject
from kjms.mapping.amqp.types import Int
from kjms.message._values import float32

WAIT = 10_000
VALUES: list[tuple[str, str, Any]] = [
    ("boolean", "Boolean", True), ("byte", "Byte", -128), ("short", "Short", -300), ("char", "Char", "é"),
    ("int", "Int", -(2**31)), ("long", "Long", 2**63 - 1), ("float", "Float", float32(0.1)),
    ("double", "Double", 0.1), ("string", "String", "grüße 🎉"), ("bytes", "Bytes", b"\x00\xff"),
]  # fmt: skip
PROPERTIES = [entry for entry in VALUES if entry[0] not in {"char", "bytes"}]


class Both:
    """A queue, with a producer and a consumer on either side."""

    def __init__(self, java: Java, there: JavaObject, here: Session, name: str) -> None:
        self.java, self.there, self.here = java, there, here
        self._queue = Queue(name)
        self._their_queue = there.createQueue(name)
        self._producer: Any = None
        self._consumer: Any = None

    def to_python(self, message: JavaObject) -> Message:
        self._producer = self._producer or self.there.createProducer(self._their_queue)
        self._consumer = self._consumer or self.here.create_consumer(self._queue)
        self._producer.send(message)
        received = self._consumer.receive(WAIT)
        assert received is not None
        return received  # type: ignore[no-any-return]

    def to_java(self, message: Message) -> JavaObject:
        self._producer = self._producer or self.here.create_producer(self._queue)
        self._consumer = self._consumer or self.there.createConsumer(self._their_queue)
        self._producer.send(message)
        received = self._consumer.receive(Typed("long", WAIT))
        assert received is not None
        return received  # type: ignore[no-any-return]


@pytest.fixture
def both(java: Java, there: JavaObject, here: Session, kjms_destination_name: str) -> Both:
    return Both(java, there, here, kjms_destination_name)


# --------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.requirement("AMQP-3.2.4-1")
def test_texts_and_bytes_from_java(both: Both) -> None:
    """Text, bytes and plain messages of Java are those of Python, empty and null ones included."""
    received = both.to_python(both.there.createTextMessage("grüße 🎉"))
    assert isinstance(received, TextMessage)
    assert received.text == "grüße 🎉"
    received = both.to_python(both.there.createTextMessage())
    assert isinstance(received, TextMessage)
    assert received.text is None
    data = both.there.createBytesMessage()
    data.writeInt(7)
    data.writeUTF("x")
    received = both.to_python(data)
    assert isinstance(received, BytesMessage)
    assert (received.read_int(), received.read_utf(), received.body_length) == (7, "x", 7)
    assert type(both.to_python(both.there.createMessage())) is Message


@pytest.mark.requirement("AMQP-3.2.4-1")
def test_texts_and_bytes_from_python(both: Both) -> None:
    """Text, bytes and plain messages of Python are those of Java, empty and null ones included."""
    received = both.to_java(TextMessage("grüße 🎉"))
    assert (received.class_name, received.getText()) == ("JmsTextMessage", "grüße 🎉")
    assert both.to_java(TextMessage()).getText() is None
    assert both.to_java(TextMessage("")).getText() == ""
    received = both.to_java(BytesMessage(b"\x00\x00\x00\x07\x00\x01x"))
    assert (received.readInt(), received.readUTF(), received.getBodyLength()) == (7, "x", 7)
    assert both.to_java(BytesMessage()).getBodyLength() == 0
    assert both.to_java(Message()).class_name == "JmsMessage"


@pytest.mark.requirement("AMQP-3.2.4-1")
def test_maps_and_streams_from_java(both: Both) -> None:
    """Map and stream values of every type come with value and type."""
    map_, stream = both.there.createMapMessage(), both.there.createStreamMessage()
    for kind, name, value in VALUES:
        getattr(map_, f"set{name}")(kind, Typed(kind, value))
        getattr(stream, f"write{name}")(Typed(kind, value))
    map_.setString("null", None)
    received = both.to_python(map_)
    assert isinstance(received, MapMessage)
    assert received._body == {**{kind: (kind, value) for kind, _, value in VALUES}, "null": ("string", None)}
    received = both.to_python(stream)
    assert isinstance(received, StreamMessage)
    assert received._body == [(kind, value) for kind, _, value in VALUES]


@pytest.mark.requirement("AMQP-3.2.4-1")
def test_maps_and_streams_from_python(both: Both, java: Java) -> None:
    """Map and stream values of every type arrive with value and type."""
    map_, stream = MapMessage(), StreamMessage()
    for kind, _, value in VALUES:
        getattr(map_, f"set_{kind}")(kind, value)
        getattr(stream, f"write_{kind}")(value)
    map_.set_string("null", None)
    received = both.to_java(map_)
    for kind, _, value in VALUES:
        assert java.typed(received, "getObject", kind) == (kind, value)
    assert received.itemExists("null")
    assert received.getObject("null") is None
    received = both.to_java(stream)
    for kind, _, value in VALUES:
        assert java.typed(received, "readObject") == (kind, value)


@pytest.mark.requirement("AMQP-3.2.4.6-2", "AMQP-3.2.4.6-5")
def test_objects_between_java_programs(both: Both, java: Java) -> None:
    """What Java serialised passes through Kafka unread and comes out as the object that it was; Python keeps off."""
    number = java.new("java.math.BigInteger", "12345678901234567890")
    opaque = both.to_python(both.there.createObjectMessage(number))
    assert isinstance(opaque, ObjectMessage)
    assert opaque.serialized is not None
    assert opaque.serialized[0] == "java"
    producer = both.here.create_producer(Queue(f"{both._queue.queue_name}-back"))
    producer.send(opaque)
    consumer = both.there.createConsumer(both.there.createQueue(f"{both._queue.queue_name}-back"))
    received = consumer.receive(Typed("long", WAIT))
    assert received.getObject().toString() == "12345678901234567890"


def test_objects_between_python_and_java(both: Both, java: Java) -> None:
    """Plain values of Python are Java's, and objects that Java writes in AMQP's types can be read here."""
    received = both.to_java(ObjectMessage({"a": [1, 2.5, "x", None]}))
    assert received.getObject().get("a").toString() == "[1, 2.5, x, null]"


def test_typed_objects_from_java(both: Both, java: Java) -> None:
    """Objects that Java writes in AMQP's types are read here with those types."""
    message = both.there.createObjectMessage()
    message.setBooleanProperty("JMS_AMQP_TYPED_ENCODING", True)
    values = java.new("java.util.ArrayList")
    values.add(Typed("int", 5))
    values.add("text")
    message.setObject(values)
    received = both.to_python(message)
    assert isinstance(received, ObjectMessage)
    assert received.object == AmqpObject([Int(5), "text"])


# ---------------------------------------------------------------------------------------------------- properties


@pytest.mark.requirement("AMQP-3.3.3-1", "AMQP-3.1-4", "AMQP-3.1-5")
def test_properties_from_java(both: Both) -> None:
    """Properties of every type come with value and type, the group's and the application's among them."""
    message = both.there.createMessage()
    for kind, name, value in PROPERTIES:
        getattr(message, f"set{name}Property")(f"a_{kind}", Typed(kind, value))
    message.setStringProperty("a_null", None)
    message.setStringProperty("JMSXGroupID", "cars")
    message.setIntProperty("JMSXGroupSeq", -3)
    message.setStringProperty("JMS_AMQP_REPLY_TO_GROUP_ID", "answers")
    received = both.to_python(message)
    for kind, _, value in PROPERTIES:
        assert (received.property_type(f"a_{kind}"), received.properties[f"a_{kind}"]) == (kind, value)
    assert received.property_exists("a_null")
    assert received.properties["a_null"] is None
    assert received.get_string_property("JMSXGroupID") == "cars"
    assert received.get_int_property("JMSXGroupSeq") == -3
    assert received.get_string_property("JMS_AMQP_REPLY_TO_GROUP_ID") == "answers"
    assert received.get_int_property("JMSXDeliveryCount") == 1


@pytest.mark.requirement("AMQP-3.2-2", "AMQP-3.2.2-5", "AMQP-3.2.2-6")
def test_properties_from_python(both: Both, java: Java) -> None:
    """Properties of every type arrive with value and type, the group's among them, and none besides."""
    message = TextMessage()
    for kind, _, value in PROPERTIES:
        getattr(message, f"set_{kind}_property")(f"a_{kind}", value)
    message.set_string_property("JMSXGroupID", "cars")
    message.set_int_property("JMSXGroupSeq", -3)
    received = both.to_java(message)
    for kind, _, value in PROPERTIES:
        assert java.typed(received, "getObjectProperty", f"a_{kind}") == (kind, value)
    assert received.getStringProperty("JMSXGroupID") == "cars"
    assert received.getIntProperty("JMSXGroupSeq") == -3
    assert received.getIntProperty("JMSXDeliveryCount") == 1
    assert set(received.getPropertyNames()) == {
        *(f"a_{kind}" for kind, _, _ in PROPERTIES), "JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount",
    }  # fmt: skip


def test_not_a_number_passes() -> None:
    """NaN and infinities are values like others."""
    from kjms.mapping.amqp import decode, encode

    message = TextMessage()
    message.set_double_property("d", math.nan)
    message.set_float_property("f", math.inf)
    back = decode(encode(message).encode())
    assert math.isnan(back.get_double_property("d"))
    assert back.get_float_property("f") == math.inf


# -------------------------------------------------------------------------------------------------- header fields


@pytest.mark.requirement(
    "AMQP-3.2.1-1", "AMQP-3.2.1-6", "AMQP-3.2.1-12", "AMQP-3.2.1-14", "AMQP-3.2.1-23", "AMQP-3.2.1-29", "AMQP-3.1-3"
)  # fmt: skip
def test_header_fields_from_java(both: Both, connect: Callable[..., JavaObject]) -> None:
    """What the Java program sees of a message that it has sent is what Python receives."""
    message = both.there.createTextMessage("x")
    message.setJMSCorrelationID("order 7")
    message.setJMSType("invoice")
    message.setJMSReplyTo(both.there.createTopic("replies"))
    producer = both.there.createProducer(both._their_queue)
    producer.setPriority(7)
    producer.setTimeToLive(Typed("long", 600_000))
    producer.send(message)
    received = both.here.create_consumer(both._queue).receive(WAIT)
    assert received is not None
    assert received.jms_message_id == message.getJMSMessageID()
    assert received.jms_timestamp == message.getJMSTimestamp()
    assert received.jms_expiration == message.getJMSExpiration()
    assert received.jms_delivery_time == message.getJMSDeliveryTime()
    assert received.jms_correlation_id == "order 7"
    assert received.jms_type == "invoice"
    assert received.jms_reply_to == Topic("replies")
    assert received.jms_destination == both._queue
    assert received.jms_priority == 7
    assert received.jms_delivery_mode == 2
    assert not received.jms_redelivered


@pytest.mark.requirement("AMQP-3.2.1-7", "AMQP-3.2.1-12", "AMQP-3.2.1-14", "AMQP-5.1-2", "AMQP-5.1-7", "AMQP-6.1-1")
def test_header_fields_from_python(both: Both) -> None:
    """What a Python program sees of a message that it has sent is what Java receives."""
    message = TextMessage("x")
    message.jms_correlation_id = "order 7"
    message.jms_type = "invoice"
    message.jms_reply_to = Topic("replies")
    producer = both.here.create_producer(both._queue)
    producer.send(message, priority=7, time_to_live=600_000, delivery_mode=1)
    received = both.there.createConsumer(both._their_queue).receive(Typed("long", WAIT))
    assert received.getJMSMessageID() == message.jms_message_id
    assert received.getJMSTimestamp() == message.jms_timestamp
    assert received.getJMSExpiration() == message.jms_expiration
    assert received.getJMSDeliveryTime() == message.jms_delivery_time
    assert received.getJMSCorrelationID() == "order 7"
    assert received.getJMSType() == "invoice"
    assert received.getJMSReplyTo().class_name == "JmsTopic"
    assert received.getJMSReplyTo().getTopicName() == "replies"
    assert received.getJMSDestination().class_name == "JmsQueue"
    assert received.getJMSDestination().getQueueName() == both._queue.queue_name
    assert (received.getJMSPriority(), received.getJMSDeliveryMode()) == (7, 1)
    assert received.getJMSRedelivered() is False


@pytest.mark.requirement("AMQP-3.2.1.1-2", "AMQP-3.2.1.1-23")
@pytest.mark.parametrize("data", [b"\xab\xcd\xef", b""])
def test_correlation_ids_as_bytes(both: Both, data: bytes) -> None:
    """Bytes that Java sets as correlation id are Python's, and those of Python are Java's."""
    message = both.there.createMessage()
    message.setJMSCorrelationIDAsBytes(data)
    received = both.to_python(message)
    assert received.jms_correlation_id_as_bytes == data
    back = Message()
    back.jms_correlation_id_as_bytes = data
    both.here.create_producer(Queue(f"{both._queue.queue_name}-back")).send(back)
    consumer = both.there.createConsumer(both.there.createQueue(f"{both._queue.queue_name}-back"))
    assert consumer.receive(Typed("long", WAIT)).getJMSCorrelationIDAsBytes() == data


def test_a_message_without_id_and_timestamp(both: Both) -> None:
    """A producer that sends neither is obeyed."""
    producer = both.there.createProducer(both._their_queue)
    producer.setDisableMessageID(True)
    producer.setDisableMessageTimestamp(True)
    producer.send(both.there.createTextMessage("x"))
    received = both.here.create_consumer(both._queue).receive(WAIT)
    assert received is not None
    assert received.jms_message_id is None
    assert received.jms_timestamp == 0


@pytest.mark.requirement("AMQP-9-1", "AMQP-9-2", "AMQP-9-5", "AMQP-9-12")
def test_delivery_delay(both: Both) -> None:
    """A delayed message of Java comes when it is due, and says when that was to be."""
    producer = both.there.createProducer(both._their_queue)
    consumer = both.there.createConsumer(both._their_queue)
    producer.setDeliveryDelay(Typed("long", 700))
    message = both.there.createTextMessage("later")
    producer.send(message)
    received = consumer.receive(Typed("long", WAIT))
    assert time.time() * 1000 >= received.getJMSDeliveryTime()
    assert received.getText() == "later"
    assert received.getJMSDeliveryTime() == message.getJMSDeliveryTime() >= message.getJMSTimestamp() + 700


def test_an_expired_message_is_not_delivered(both: Both) -> None:
    """What has expired in the queue is passed over."""
    producer = both.there.createProducer(both._their_queue)
    producer.setTimeToLive(Typed("long", 1))
    producer.send(both.there.createTextMessage("too late"))
    producer.setTimeToLive(Typed("long", 0))
    producer.send(both.there.createTextMessage("in time"))
    assert both.there.createConsumer(both._their_queue).receive(Typed("long", WAIT)).getText() == "in time"


@pytest.mark.parametrize("size", [200_000, 900_000])
def test_large_messages(both: Both, size: int) -> None:
    """Messages of many frames arrive whole, in both directions."""
    data = uuid.uuid4().bytes * (size // 16)
    message = both.there.createBytesMessage()
    message.writeBytes(data)
    received = both.to_python(message)
    assert isinstance(received, BytesMessage)
    assert received.read_bytes() == data
    both.here.create_producer(Queue(f"{both._queue.queue_name}-back")).send(BytesMessage(data))
    consumer = both.there.createConsumer(both.there.createQueue(f"{both._queue.queue_name}-back"))
    back = consumer.receive(Typed("long", WAIT))
    assert back.getBodyLength() == len(data)


def test_asynchronous_and_non_persistent_sends(both: Both, java: Java) -> None:
    """Sends with a completion listener complete in order, and those without a listener arrive, too."""
    producer = both.there.createProducer(both._their_queue)
    heard = java.new("kjms.Heard")
    for number in range(50):
        producer.send(both.there.createTextMessage(str(number)), heard)
    assert [heard.next(Typed("long", WAIT)).getText() for _ in range(50)] == [str(number) for number in range(50)]
    producer.setDeliveryMode(1)
    for number in range(50, 100):
        producer.send(both.there.createTextMessage(str(number)))
    consumer = both.here.create_consumer(both._queue)
    texts = [
        message.text for message in (consumer.receive(WAIT) for _ in range(100)) if isinstance(message, TextMessage)
    ]
    assert texts == [str(number) for number in range(100)]
