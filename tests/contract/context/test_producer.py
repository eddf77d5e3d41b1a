"""The producer of the simplified API: what can be sent, and what is set on every message."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    BytesMessage,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    JMSConsumer,
    JMSContext,
    JMSProducer,
    MapMessage,
    Message,
    MessageFormatException,
    MessageNotWriteableException,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from tests.helpers import WAIT_MS, threads_of, wait_for


@pytest.fixture
def consumer(context: JMSContext, queue: Queue) -> JMSConsumer:
    return context.create_consumer(queue)


def received(consumer: JMSConsumer) -> Message:
    message = consumer.receive(WAIT_MS)
    assert message is not None
    return message


# What is sent.


@pytest.mark.requirement("JMS-11.2.4-4", "JMS-11.2.4-5", "JMS-11.2.4-6", "JMS-11.2.4-7")
@pytest.mark.parametrize(
    ("value", "kind", "body"),
    [
        ("text", TextMessage, "text"),
        ("", TextMessage, ""),
        (b"\x00bytes", BytesMessage, b"\x00bytes"),
        (bytearray(b"bytes"), BytesMessage, b"bytes"),
        (memoryview(b"bytes"), BytesMessage, b"bytes"),
        ({"n": 1, "x": 1.5, "s": "é", "b": b"\x00", "none": None, "yes": True}, MapMessage, None),
        ({}, MapMessage, {}),
        (None, Message, None),
        ([1, "two", None], ObjectMessage, None),
        (42, ObjectMessage, None),
        ({"k": [1, 2]}, ObjectMessage, None),
        ({"k": {"n": 1}, "huge": 2**64}, ObjectMessage, None),
        (OrderedDict(k=[{"n": None}]), ObjectMessage, {"k": [{"n": None}]}),
        (False, ObjectMessage, None),
    ],
)
def test_a_value_becomes_a_message_of_its_type(
    context: JMSContext, consumer: JMSConsumer, queue: Queue, value: Any, kind: type[Message], body: Any
) -> None:
    """Text goes as TextMessage, bytes as BytesMessage, a flat dict as MapMessage, None without, others as objects."""
    context.create_producer().send(queue, value)
    message = received(consumer)
    assert type(message) is kind
    assert message.get_body(object) == (value if body is None else body)


def test_a_dicts_values_have_the_types_of_jms(context: JMSContext, consumer: JMSConsumer, queue: Queue) -> None:
    """A number in a dict is an int where it fits, else a long; what has no type is refused, by name."""
    producer = context.create_producer().send(queue, {"small": 1, "large": 2**40})
    message = received(consumer)
    assert isinstance(message, MapMessage)
    with pytest.raises(MessageFormatException):
        message.get_int("large")
    assert (message.get_int("small"), message.get_long("large")) == (1, 2**40)
    for bad in ({"tuple": (1,)}, {"huge": 2**64}):
        with pytest.raises(MessageFormatException, match=next(iter(bad))):
            producer.send(queue, bad)
    with pytest.raises(ValueError, match="name of a map entry"):
        producer.send(queue, {1: "one"})


class Foreign:
    """A text message of another implementation, as far as a send looks at it."""

    text = "from elsewhere"
    jms_correlation_id: str | None = "theirs"
    jms_type = None
    jms_reply_to = None

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {"n": 1}

    def property_names(self) -> list[str]:
        return list(self.kept)

    def get_object_property(self, name: str) -> Any:
        return self.kept[name]

    def set_int_property(self, name: str, value: int) -> None:
        self.kept[name] = value


@pytest.mark.requirement("JMS-11.2.4-1")
def test_messages_are_sent_as_they_are(context: JMSContext, consumer: JMSConsumer, queue: Queue) -> None:
    """A message of any type goes as it is, and has its header fields then; so does one of another implementation."""
    producer = context.create_producer().set_int_property("n", 7).set_jms_correlation_id("ours")
    stream = context.create_stream_message()
    stream.write_int(1)
    assert producer.send(queue, stream) is producer
    got = received(consumer)
    assert isinstance(got, StreamMessage)
    assert (got.jms_message_id, got.jms_destination, got.get_int_property("n")) == (stream.jms_message_id, queue, 7)
    foreign = Foreign()
    producer.send(queue, foreign)
    got = received(consumer)
    assert isinstance(got, TextMessage)
    assert (got.text, got.get_int_property("n"), got.jms_correlation_id) == ("from elsewhere", 7, "ours")
    assert foreign.jms_message_id == got.jms_message_id  # type: ignore[attr-defined]


@pytest.mark.requirement("JMS-11.2.4-2")
def test_each_send_names_its_destination(context: JMSContext, queue: Queue) -> None:
    """One producer sends to any queue or topic; without a destination nothing is sent."""
    topic = Topic(f"{queue.queue_name}-topic")
    of_queue, of_topic = context.create_consumer(queue), context.create_consumer(topic)
    producer = context.create_producer()
    assert not hasattr(producer, "destination")
    producer.send(queue, "to the queue").send(topic, "to the topic")
    assert of_topic.receive_body(str, WAIT_MS) == "to the topic"
    assert of_queue.receive_body(str, WAIT_MS) == "to the queue"
    for bad in (None, queue.queue_name, object()):
        with pytest.raises(InvalidDestinationException):
            producer.send(bad, "lost")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        producer.send(queue)  # type: ignore[call-arg]


@pytest.mark.requirement("JMS-11.2.4-14")
def test_a_producer_is_light(own_factory: ConnectionFactory, queue: Queue) -> None:
    """A producer has no close, starts no thread, and leaves nothing behind when it is forgotten."""
    assert not hasattr(JMSProducer, "close")
    with own_factory.create_context() as context:
        context.create_producer().send(queue, "the first one opens what all share")
        wait_for(lambda: "kjms-destinations" not in threads_of(context, queue.queue_name))  # it ends by itself
        threads = threads_of(context, queue.queue_name)
        producers = [context.create_producer().send(queue, number) for number in range(200)]
        assert threads_of(context, queue.queue_name) == threads
        last = weakref.ref(producers[-1])
        producers.clear()
        gc.collect()
        assert last() is None


# What is set for every message.


@pytest.mark.requirement("JMS-11.2.4-13", "JMS-11.2.4-10", "JMS-11.2.4-12", "JMS-11.2.4-8")
def test_every_setter_returns_the_producer(context: JMSContext, completions: Any, queue: Queue) -> None:
    """Each setter can be followed by the next call; what was set can be read back."""
    producer = context.create_producer()
    chain = (
        producer.set_delivery_mode(DeliveryMode.NON_PERSISTENT)
        .set_priority(7)
        .set_time_to_live(60_000)
        .set_delivery_delay(0)
        .set_disable_message_id(True)
        .set_disable_message_timestamp(True)
        .set_async(completions)
        .set_jms_correlation_id_as_bytes(b"bytes")
        .set_jms_correlation_id("42")
        .set_jms_type("order")
        .set_jms_reply_to(queue)
        .set_property("property", 1)
        .set_object_property("object", 1.5)
        .set_boolean_property("boolean", True)
        .set_byte_property("byte", -1)
        .set_short_property("short", 2)
        .set_int_property("int", 3)
        .set_long_property("long", 4)
        .set_float_property("float", 0.5)
        .set_double_property("double", 0.25)
        .set_string_property("string", "text")
    )
    assert chain is producer
    assert (producer.delivery_mode, producer.priority, producer.time_to_live) == (1, 7, 60_000)
    assert (producer.delivery_delay, producer.async_) == (0, completions)
    assert producer.disable_message_id
    assert producer.disable_message_timestamp
    assert (producer.jms_correlation_id, producer.jms_correlation_id_as_bytes) == ("42", b"42")
    assert (producer.jms_type, producer.jms_reply_to) == ("order", queue)
    assert producer.get_object_property("property") == 1
    assert producer.get_object_property("object") == 1.5
    assert producer.get_boolean_property("boolean") is True
    assert producer.get_byte_property("byte") == -1
    assert producer.get_short_property("short") == producer.get_long_property("short") == 2
    assert producer.get_int_property("int") == 3
    assert producer.get_long_property("long") == 4
    assert producer.get_float_property("float") == producer.get_double_property("float") == 0.5
    assert producer.get_double_property("double") == 0.25
    assert producer.get_string_property("string") == "text"
    assert producer.get_string_property("int") == "3"
    assert producer.get_object_property("missing") is None
    assert producer.property_exists("string")
    assert len(producer.property_names()) == 10
    assert producer.clear_properties() is producer
    assert producer.property_names() == []
    assert not producer.property_exists("string")


def test_a_new_producer_sets_nothing(context: JMSContext) -> None:
    """Until something is set, a producer has JMS's defaults."""
    producer = context.create_producer()
    assert (producer.delivery_mode, producer.priority, producer.time_to_live) == (DeliveryMode.PERSISTENT, 4, 0)
    assert (producer.delivery_delay, producer.async_, producer.property_names()) == (0, None, [])
    assert (producer.disable_message_id, producer.disable_message_timestamp) == (False, False)
    assert (producer.jms_correlation_id, producer.jms_correlation_id_as_bytes) == (None, None)
    assert (producer.jms_type, producer.jms_reply_to) == (None, None)


@pytest.mark.requirement("JMS-11.2.4-1", "JMS-11.2.4-10", "JMS-11.2.4-12")
@pytest.mark.parametrize("value", ["text", b"bytes", {"a": "map"}, ["object"], TextMessage("message")], ids=str)
def test_what_is_set_goes_with_every_message(
    context: JMSContext, consumer: JMSConsumer, queue: Queue, value: Any
) -> None:
    """Options, header fields and typed properties of the producer are those of each message and body it sends."""
    producer = context.create_producer()
    producer.set_delivery_mode(1).set_priority(7).set_time_to_live(60_000)
    producer.set_jms_correlation_id("42").set_jms_type("order").set_jms_reply_to(Queue("replies"))
    kinds = {"boolean": True, "byte": 1, "short": 2, "int": 3, "long": 4, "float": 0.5, "double": 0.25, "string": "s"}
    for kind, example in kinds.items():
        getattr(producer, f"set_{kind}_property")(kind, example)
    for _ in range(2):
        producer.send(queue, value)
        message = received(consumer)
        assert (int(message.jms_delivery_mode), message.jms_priority) == (1, 7)
        assert message.jms_expiration - message.jms_timestamp == 60_000
        assert (message.jms_correlation_id, message.jms_type, message.jms_reply_to) == ("42", "order", Queue("replies"))
        assert {kind: message.get_object_property(kind) for kind in kinds} == kinds
        assert [message.property_type(kind) for kind in kinds] == list(kinds)


@pytest.mark.requirement("JMS-11.2.4-11")
def test_the_producer_overrides_the_message(context: JMSContext, consumer: JMSConsumer, queue: Queue) -> None:
    """What is set on both is sent as the producer has it, what is set on the message alone as the message has it."""
    message = context.create_text_message("a")
    message.set_int_property("both", 1)
    message.set_int_property("alone", 1)
    message.jms_correlation_id, message.jms_type, message.jms_reply_to = "1", "first", Queue("first")
    producer = context.create_producer()
    producer.send(queue, message)
    got = received(consumer)
    assert (got.jms_correlation_id, got.jms_type, got.jms_reply_to) == ("1", "first", Queue("first"))
    producer.set_string_property("both", "2").set_jms_type("second").set_jms_correlation_id_as_bytes(b"\xff")
    producer.send(queue, message)
    got = received(consumer)
    assert (got.get_object_property("both"), got.get_object_property("alone")) == ("2", 1)
    assert (got.jms_correlation_id_as_bytes, got.jms_type, got.jms_reply_to) == (b"\xff", "second", Queue("first"))
    producer.set_jms_correlation_id("3").set_jms_type(None).set_jms_reply_to(Queue("third"))
    message.jms_type = "the message's own"
    producer.send(queue, message)
    got = received(consumer)
    assert (got.jms_correlation_id, got.jms_type, got.jms_reply_to) == ("3", "the message's own", Queue("third"))
    producer.set_property("both", None).send(queue, message)
    got = received(consumer)
    assert got.property_exists("both")
    assert got.get_object_property("both") is None


@pytest.mark.requirement("JMS-7.3-16")
def test_a_received_messages_properties_are_not_overridden(
    context: JMSContext, consumer: JMSConsumer, queue: Queue
) -> None:
    """A received message can be sent on; with properties set on the producer, only after clear_properties."""
    context.create_producer().send(queue, "a")
    message = received(consumer)
    producer = context.create_producer().set_jms_type("again").send(queue, message)
    assert received(consumer).jms_type == "again"
    producer.set_property("n", 1)
    with pytest.raises(MessageNotWriteableException, match="'n'"):
        producer.send(queue, message)
    message.clear_properties()
    producer.send(queue, message)
    assert received(consumer).get_int_property("n") == 1


@pytest.mark.requirement("JMS-3.4.3-5", "JMS-3.4.4-4", "NEV-40")
def test_ids_and_timestamps_can_be_left_out(context: JMSContext, consumer: JMSConsumer, queue: Queue) -> None:
    """A message goes without its id, or its timestamp, where the producer says so."""
    producer = context.create_producer()
    producer.set_disable_message_id(True).send(queue, "no id")
    message = received(consumer)
    assert message.jms_message_id is None
    assert message.jms_timestamp > 0
    producer.set_disable_message_id(False).set_disable_message_timestamp(True).send(queue, "no timestamp")
    message = received(consumer)
    assert (message.jms_message_id or "").startswith("ID:")
    assert message.jms_timestamp == 0


def test_unusable_settings_are_refused_when_they_are_set(context: JMSContext) -> None:
    """A value that is out of range or of the wrong type is refused at once, and changes nothing."""
    producer = context.create_producer().set_property("kept", 1)
    bad: list[tuple[type[Exception], Callable[[], object]]] = [
        (ValueError, lambda: producer.set_priority(10)),
        (ValueError, lambda: producer.set_delivery_mode(3)),
        (ValueError, lambda: producer.set_time_to_live(-1)),
        (ValueError, lambda: producer.set_delivery_delay(-1)),
        (ValueError, lambda: producer.set_delivery_delay(1.5)),  # type: ignore[arg-type]
        (ValueError, lambda: producer.set_async(print)),  # type: ignore[arg-type]
        (MessageFormatException, lambda: producer.set_jms_type(1)),  # type: ignore[arg-type]
        (MessageFormatException, lambda: producer.set_jms_correlation_id(b"1")),  # type: ignore[arg-type]
        (MessageFormatException, lambda: producer.set_jms_correlation_id_as_bytes("1")),  # type: ignore[arg-type]
        (InvalidDestinationException, lambda: producer.set_jms_reply_to("queue")),  # type: ignore[arg-type]
        (MessageFormatException, lambda: producer.set_byte_property("byte", 128)),
        (MessageFormatException, lambda: producer.set_property("list", [])),  # type: ignore[arg-type]
        (MessageFormatException, lambda: producer.set_property("not an identifier", 1)),
        (MessageFormatException, lambda: producer.set_property("JMSXDeliveryCount", 1)),
        (ValueError, lambda: producer.set_property("", 1)),
    ]
    for kind, use in bad:
        with pytest.raises(kind):
            use()
    assert producer.property_names() == ["kept"]
    assert (producer.priority, producer.delivery_mode, producer.time_to_live, producer.async_) == (4, 2, 0, None)
    assert (producer.jms_type, producer.jms_correlation_id, producer.jms_reply_to) == (None, None, None)


# Asynchronous sends.


@pytest.mark.requirement("JMS-11.2.4-9", "JMS-4.6.2.3-1", "JMS-4.6.2.8-2", "JMS-4.6.2.4-1")
def test_sends_are_asynchronous_after_set_async(
    kjms_factory: ConnectionFactory, completions: Any, queue: Queue
) -> None:
    """A producer waits for each send until set_async; then a listener gets them in order, before the context closes."""
    with kjms_factory.create_context() as context:
        producer = context.create_producer().send(queue, "0")
        assert completions.sent == []
        for number in range(1, 300):
            producer.set_async(None if number % 100 == 0 else completions).send(queue, str(number))
    expected = [str(number) for number in range(300)]
    assert completions.texts == [text for text in expected if not text.endswith("00")][1:]
    assert completions.failed == []
    with kjms_factory.create_context(JMSContext.DUPS_OK_ACKNOWLEDGE) as context:
        consumer = context.create_consumer(queue)
        assert [consumer.receive_body(str, WAIT_MS) for _ in range(300)] == expected


@pytest.mark.requirement("JMS-4.6.2.4-4")
@pytest.mark.parametrize("what", ["close", "commit", "rollback", "stop"])
def test_a_completion_listener_may_not_end_its_own_context(
    kjms_factory: ConnectionFactory, queue: Queue, what: str
) -> None:
    """A completion listener that closes, stops, commits or rolls back its own context gets IllegalStateException."""
    mode = JMSContext.SESSION_TRANSACTED if what in {"commit", "rollback"} else JMSContext.AUTO_ACKNOWLEDGE
    raised: list[BaseException] = []
    told = threading.Event()
    with kjms_factory.create_context(mode) as context:

        class Listener:
            def on_completion(self, message: Message) -> None:
                try:
                    getattr(context, what)()
                except IllegalStateException as error:
                    raised.append(error)
                told.set()

            def on_exception(self, message: Message, exception: Exception) -> None:
                raised.append(exception)

        context.create_producer().set_async(Listener()).send(queue, "a")
        assert told.wait(20)
    assert "completion listener" in str(raised[0])
    assert len(raised) == 1
