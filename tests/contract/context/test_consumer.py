"""The consumer of the simplified API: messages, their bodies, and what becomes of a body of the wrong type."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kjms import (
    ConnectionFactory,
    IllegalStateException,
    JMSConsumer,
    JMSContext,
    JMSException,
    Message,
    MessageFormatException,
    MessageFormatRuntimeException,
    Queue,
    SessionMode,
    StreamMessage,
    TextMessage,
    Topic,
)
from kjms.testing.engine import consumer_statistics
from tests.helpers import NOTHING_MS, WAIT_MS, Eventually, refused, seen, text

BY_ITSELF = [SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE]
BY_THE_PROGRAM = [
    SessionMode.CLIENT_ACKNOWLEDGE,
    SessionMode.INDIVIDUAL_ACKNOWLEDGE,
    SessionMode.SESSION_TRANSACTED,
]


def left(factory: ConnectionFactory, queue: Queue) -> list[tuple[str | None, bool, int]]:
    """Return, and take away, what is left in *queue*."""
    with factory.create_context() as context:
        context.create_producer().send(queue, "the end")
        consumer = context.create_consumer(queue)
        found = []
        while (message := seen(consumer.receive(WAIT_MS)))[0] != "the end":
            found.append(message)
    return found


# Making consumers.


@pytest.mark.requirement("JMS-11.2.5.1-1", "JMS-6.11.1-1")
def test_a_consumer_of_a_destination(context: JMSContext, queue: Queue, topic: Topic) -> None:
    """A consumer is made from a destination, with a selector, and without the connection's own messages of a topic."""
    queue = Queue(f"{queue.queue_name}-queue")
    producer = context.create_producer()
    everything, some, others = (
        context.create_consumer(topic),
        context.create_consumer(topic, "n = 2"),
        context.create_consumer(topic, "n = 2", True),
    )
    assert (everything.message_selector, some.message_selector) == (None, "n = 2")
    for number in (1, 2):
        producer.set_property("n", number).send(topic, str(number)).send(queue, str(number))
    assert [everything.receive_body(str, WAIT_MS) for _ in range(2)] == ["1", "2"]
    assert some.receive_body(str, WAIT_MS) == "2"
    assert others.receive(NOTHING_MS) is None
    assert context.create_consumer(queue, "n = 2", no_local=True).receive_body(str, WAIT_MS) == "2"
    assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "1"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.requirement(*ids))
        for kind, *ids in (
            ("shared", "JMS-11.2.5.1-2", "JMS-6.11.4-2", "JMS-6.11.4-3"),
            ("durable", "JMS-11.2.5.1-3", "JMS-6.11.5-2", "JMS-6.11.5-4"),
            (
                *("shared_durable", "JMS-11.2.5.1-4", "JMS-6.11.6-2", "JMS-6.11.6-3"),
                "JAK-createSharedDurableConsumer-11",
            ),
        )
    ],
)
def test_a_consumer_of_a_subscription(kjms_factory: ConnectionFactory, topic: Topic, kind: str) -> None:
    """A consumer of each kind of subscription is made from a topic and a name, with a selector and no_local."""
    with kjms_factory.create_context() as context, kjms_factory.create_context() as elsewhere:
        context.client_id = f"client-{uuid.uuid4().hex[:12]}"
        create = getattr(context, f"create_{kind}_consumer")
        consumers = {
            "all": create(topic, "all"),
            "some": create(topic, "some", "n > 1"),
            "others": create(topic, "others", "n > 1", True),
        }
        assert {type(consumer) for consumer in consumers.values()} == {JMSConsumer}
        for number in (1, 2):
            context.create_producer().set_property("n", number).send(topic, f"own {number}")
            elsewhere.create_producer().set_property("n", number).send(topic, f"other {number}")
        expected = {
            "all": ["own 1", "other 1", "own 2", "other 2"],
            "some": ["own 2", "other 2"],
            "others": ["other 2"],
        }
        for name, texts in expected.items():
            consumer = consumers[name]
            assert [consumer.receive_body(str, WAIT_MS) for _ in texts] == texts
            if "shared" in kind:
                create(topic, name, *({"some": ("n > 1",), "others": ("n > 1", True)}.get(name, ()))).close()
            else:
                with pytest.raises(JMSException):
                    create(topic, name)
            consumer.close()
            if "durable" in kind:
                context.unsubscribe(name)


@pytest.mark.requirement("JMS-6.11.5-6")
def test_a_durable_subscription_keeps_messages(kjms_factory: ConnectionFactory, topic: Topic) -> None:
    """What is sent while a durable subscription has no consumer waits for the next one, until unsubscribe."""
    client_id = f"client-{uuid.uuid4().hex[:12]}"
    with kjms_factory.create_context() as context:
        context.client_id = client_id
        context.create_durable_consumer(topic, "name").close()
    with kjms_factory.create_context() as context:
        context.create_producer().send(topic, "a")
    with kjms_factory.create_context() as context:
        context.client_id = client_id
        with context.create_durable_consumer(topic, "name") as consumer:
            assert consumer.receive_body(str, WAIT_MS) == "a"
        context.create_producer().send(topic, "b")
        context.unsubscribe("name")
        with context.create_durable_consumer(topic, "name") as consumer:
            assert consumer.receive(NOTHING_MS) is None
        context.unsubscribe("name")


# Receiving.


@pytest.mark.requirement("JMS-11.2.5.3-2")
@pytest.mark.parametrize("receive", ["receive", "receive_body"])
def test_a_receive_waits_for_what_comes_within_its_time(
    kjms_factory: ConnectionFactory, context: JMSContext, queue: Queue, receive: str, eventually: Eventually
) -> None:
    """It returns what another thread sends while it waits."""
    consumer = context.create_consumer(queue)
    ask = partial(consumer.receive, WAIT_MS) if receive == "receive" else partial(consumer.receive_body, str, WAIT_MS)
    with ThreadPoolExecutor(1) as pool, kjms_factory.create_context() as sender:
        received = pool.submit(ask)
        eventually(lambda: consumer_statistics(consumer).waiting == 1)
        assert not received.done()
        sender.create_producer().send(queue, "late")
        found = received.result()
    assert (found if isinstance(found, str) else text(found)) == "late"


@pytest.mark.requirement("JMS-11.2.5.3-1", "JMS-11.2.5.3-3")
def test_messages_are_received_one_by_one(context: JMSContext, queue: Queue, eventually: Eventually) -> None:
    """A receive waits without limit or as long as asked; receive_no_wait takes what is ready; a loop takes all."""
    consumer, producer = context.create_consumer(queue), context.create_producer()
    assert consumer.receive(1) is None
    assert consumer.receive_no_wait() is None
    assert consumer.receive_body_no_wait(str) is None
    assert consumer.receive_body(str, 1) is None
    for number in range(5):
        producer.send(queue, str(number))
    assert seen(consumer.receive())[0] == "0"
    assert seen(consumer.receive(WAIT_MS))[0] == "1"
    bodies: list[str | None] = []
    eventually(lambda: bodies.append(consumer.receive_body_no_wait(str)) or bodies[-1])  # type: ignore[func-returns-value]
    assert bodies[-1] == "2"
    assert consumer.receive_body(str) == "3"
    for message in consumer:
        assert seen(message)[0] == "4"
        consumer.close()
    with pytest.raises(ValueError, match="timeout"):
        context.create_consumer(queue).receive_body(str, -1)


@pytest.mark.requirement("JMS-11.2.5.2-1", "JMS-11.2.8-3", "JMS-11.2.8-4", "JMS-B.2.21-2")
def test_listeners_are_called_at_once_and_one_at_a_time(
    context: JMSContext, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """A listener is called by the context's own thread without a start; a second one may be set while it is."""
    calls: list[tuple[str, str | None]] = []
    threads: set[threading.Thread] = set()
    inside = threading.Lock()

    def listener(name: str) -> Callable[[Message], None]:
        def listen(message: Message) -> None:
            assert inside.acquire(blocking=False)
            threads.add(threading.current_thread())
            calls.append((name, seen(message)[0]))
            inside.release()

        return listen

    sender = context.create_context()
    for number in range(50):
        sender.create_producer().send(queue, str(number)).send(other_queue, str(number))
    first, second = context.create_consumer(queue), context.create_consumer(other_queue)
    listens = listener("first")
    first.message_listener = listens
    assert first.message_listener is listens
    eventually(lambda: calls)
    second.message_listener = listener("second")
    eventually(lambda: len(calls) == 100)
    for name in ("first", "second"):
        assert [text for caller, text in calls if caller == name] == [str(number) for number in range(50)]
    assert len(threads) == 1
    assert threading.current_thread() not in threads
    with pytest.raises(JMSException, match="message listener"):
        first.receive_body(str, 1)
    first.message_listener = second.message_listener = None
    assert first.message_listener is None
    sender.create_producer().send(queue, "asked for")
    assert first.receive_body(str, WAIT_MS) == "asked for"
    sender.close()


@contextlib.contextmanager
def receiving(consumer: JMSConsumer) -> Iterator[Future[str | None]]:
    """Have another thread wait for a message of *consumer*, and return what it gets; the block ends when it does."""
    waits = threading.Event()

    def receive() -> str | None:
        waits.set()
        return consumer.receive_body(str)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receive)
        assert waits.wait(20)
        yield waiting


@pytest.mark.requirement("JMS-11.2.8-1")
def test_a_context_is_used_by_one_thread_at_a_time(context: JMSContext, queue: Queue, eventually: Eventually) -> None:
    """While one thread waits in a context, another thread gets an error; closing the consumer ends the wait."""
    consumer, second = context.create_consumer(queue), context.create_consumer(queue)
    producer = context.create_producer().send(queue, "sets up what is shared")
    assert consumer.receive_body(str, WAIT_MS) is not None
    with receiving(consumer) as waiting:
        eventually(lambda: refused(context.acknowledge))
        for use in (lambda: producer.send(queue, "a"), context.acknowledge, context.recover, lambda: second.receive(1)):
            with pytest.raises(IllegalStateException, match="was using it"):
                use()
        consumer.close()
        assert waiting.result(20) is None


@pytest.mark.requirement("JMS-11.2.8-2")
def test_any_thread_may_close_a_context(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A receive that waits returns None when another thread closes the context, and may be left by a new context."""
    context = kjms_factory.create_context()
    with receiving(context.create_consumer(queue)) as waiting:
        other = context.create_context()
        context.close()
        assert waiting.result(20) is None
    other.create_producer().send(queue, "a")
    assert other.create_consumer(queue).receive_body(str, WAIT_MS) == "a"
    other.close()


@pytest.mark.requirement("JMS-11.4.9-1", "JMS-4.4.15-1")
def test_two_contexts_share_a_queue_in_parallel(context: JMSContext, queue: Queue) -> None:
    """Listeners of two contexts on one connection get the messages of one queue, at the same time."""
    both = threading.Barrier(2, timeout=20)
    got: list[str | None] = []
    done = threading.Semaphore(0)

    def listener(message: Message) -> None:
        both.wait()  # neither returns before the other one is running
        got.append(seen(message)[0])
        done.release()

    contexts = [context.create_context() for _ in range(2)]
    for each in contexts:
        each.create_consumer(queue).message_listener = listener
    for number in range(10):
        context.create_producer().send(queue, str(number))
    assert all(done.acquire(timeout=20) for _ in range(10))
    assert sorted(text for text in got if text) == [str(number) for number in range(10)]
    for each in contexts:
        each.close()


@pytest.mark.requirement("JMS-B.5.18-1")
@pytest.mark.parametrize("what", ["stop", "close", "close the consumer"])
def test_a_listener_may_not_stop_or_close_its_own(
    context: JMSContext, queue: Queue, what: str, eventually: Eventually
) -> None:
    """A listener that stops or closes its own context, or closes its own consumer, gets IllegalStateException."""
    consumer = context.create_consumer(queue)
    call = {"stop": context.stop, "close": context.close, "close the consumer": consumer.close}[what]
    raised: list[BaseException] = []

    def listener(message: Message) -> None:
        try:
            call()
        except IllegalStateException as error:
            raised.append(error)

    consumer.message_listener = listener
    with context.create_context() as sender:
        sender.create_producer().send(queue, "a").send(queue, "b")
        eventually(lambda: len(raised) == 2)  # it goes on


def test_a_listener_may_close_another_context_of_its_connection(
    own_factory: ConnectionFactory, queue: Queue, eventually: Eventually
) -> None:
    """A listener closes another context while its own is being closed: both end, and the connection with them."""
    before = set(threading.enumerate())
    context = own_factory.create_context()
    other = context.create_context()
    running, may_go = threading.Event(), threading.Event()

    def listener(message: Message) -> None:
        running.set()
        may_go.wait(20)
        other.close()

    other.create_producer().send(queue, "a")
    context.create_consumer(queue).message_listener = listener
    assert running.wait(20)
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(context.close)
        eventually(lambda: "closed" in repr(context))
        may_go.set()
        closing.result(20)
    assert "closed" in repr(other)
    eventually(lambda: not [thread for thread in set(threading.enumerate()) - before if "kjms" in thread.name])


# Bodies.


@pytest.mark.requirement("JMS-11.2.5.1-5", "JMS-11.2.5.1-6", "JMS-11.2.5.1-7")
@pytest.mark.parametrize(
    ("value", "types"),
    [
        ("text", (str, object)),
        ("", (str,)),
        (b"bytes", (bytes, object)),
        (b"", (bytes,)),
        ({"n": 1}, (dict, Mapping, object)),
        ({}, (dict,)),
        ([1, "two"], (list, object)),
        (42, (int, object)),
        (0, (int,)),
        (False, (bool, object)),
    ],
)
def test_a_body_is_received_as_what_it_is(
    context: JMSContext, queue: Queue, value: Any, types: tuple[type, ...]
) -> None:
    """The body of each message type comes as its Python type, or as one that this type derives from."""
    consumer, producer = context.create_consumer(queue), context.create_producer()
    for type_ in types:
        producer.send(queue, value)
        body = consumer.receive_body(type_, WAIT_MS)
        assert (body, type(body)) == (value, type(value))


def stream() -> StreamMessage:
    message = StreamMessage()
    message.write_int(1)
    return message


@pytest.mark.requirement("JMS-11.2.5.1-8", "JMS-11.2.9-1", "JMS-7.3-11")
@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("text", bytes),
        ("text", dict),
        ("42", int),
        (b"bytes", str),
        ({"n": 1}, list),
        ([1], dict),
        (True, int),
        (Message(), object),
        (stream(), object),
        (TextMessage(), str),
        (TextMessage(), object),
    ],
    ids=str,
)
def test_another_body_is_refused(context: JMSContext, queue: Queue, value: Any, type_: type) -> None:
    """A body of another type, no body, and message types that have none, raise MessageFormatRuntimeException."""
    consumer = context.create_consumer(queue)
    context.create_producer().send(queue, value)
    with pytest.raises(MessageFormatRuntimeException):
        consumer.receive_body(type_, WAIT_MS)
    with pytest.raises(MessageFormatException):  # and again, since it counts as not received
        consumer.receive_body_no_wait(type_)
    assert consumer.receive_no_wait() is not None


def test_a_type_is_a_class(context: JMSContext, queue: Queue) -> None:
    """What is no class is refused before anything is received."""
    consumer = context.create_consumer(queue)
    context.create_producer().send(queue, "a")
    for bad in ("str", None, (str, bytes), str | bytes):
        for receive in (consumer.receive_body, consumer.receive_body_no_wait):
            with pytest.raises(ValueError, match="class"):
                receive(bad)  # type: ignore[operator]
    assert consumer.receive_body(str, WAIT_MS) == "a"


@pytest.mark.requirement("JMS-11.2.5.1-9")
@pytest.mark.parametrize("mode", BY_ITSELF)
def test_a_body_of_the_wrong_type_comes_again_as_if_new(
    kjms_factory: ConnectionFactory, queue: Queue, mode: SessionMode
) -> None:
    """With AUTO and DUPS_OK the failed call counts as not made: the message is next, unmarked and not counted."""
    with kjms_factory.create_context(mode) as context:
        consumer, producer = context.create_consumer(queue), context.create_producer()
        producer.send(queue, "a").send(queue, "b").send(queue, "c")
        for _ in range(20):  # more than max_deliveries: none of them is one
            with pytest.raises(MessageFormatException):
                consumer.receive_body(bytes, WAIT_MS)
        producer.set_priority(9).send(queue, "in a hurry")
        with pytest.raises(MessageFormatException):
            consumer.receive_body_no_wait(dict)
        assert seen(consumer.receive(WAIT_MS)) == ("a", False, 1)
        rest = [consumer.receive_body(str, WAIT_MS) for _ in range(3)]
        assert [text for text in rest if text != "in a hurry"] == ["b", "c"]
    assert left(kjms_factory, queue) == []  # each of them was acknowledged


@pytest.mark.parametrize("mode", BY_ITSELF)
def test_a_body_of_the_wrong_type_is_not_acknowledged(
    kjms_factory: ConnectionFactory, queue: Queue, mode: SessionMode
) -> None:
    """A message whose body was refused goes to others, unmarked, when its consumer closes."""
    with kjms_factory.create_context(mode) as context, kjms_factory.create_context() as other:
        context.create_producer().send(queue, "a").send(queue, "b")
        with context.create_consumer(queue) as consumer, pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, WAIT_MS)
        second = other.create_consumer(queue)
        assert [seen(second.receive(WAIT_MS)) for _ in range(2)] == [("a", False, 1), ("b", False, 1)]
        context.create_producer().send(queue, "c")
        second.close()
        consumer = context.create_consumer(queue)
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, WAIT_MS)
    assert left(kjms_factory, queue) == [("c", False, 1)]


def test_a_redelivered_body_of_the_wrong_type_is_not_counted_again(
    kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """A message that was delivered before keeps its mark and its count."""
    with kjms_factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        context.create_producer().send(queue, "a")
        assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "a"
    with kjms_factory.create_context() as context:
        consumer = context.create_consumer(queue)
        for _ in range(3):
            with pytest.raises(MessageFormatException):
                consumer.receive_body(bytes, WAIT_MS)
        assert seen(consumer.receive(WAIT_MS)) == ("a", True, 2)


@pytest.mark.requirement("JMS-11.2.5.1-10", "JMS-11.2.5.1-11")
@pytest.mark.parametrize("mode", BY_THE_PROGRAM)
def test_a_body_of_the_wrong_type_was_received(
    kjms_factory: ConnectionFactory, queue: Queue, mode: SessionMode
) -> None:
    """With CLIENT and in transactions the message comes again only after recover or rollback, marked and counted."""
    with kjms_factory.create_context(mode) as context:
        settle = context.commit if context.transacted else context.acknowledge
        again = context.rollback if context.transacted else context.recover
        with kjms_factory.create_context() as sender:
            sender.create_producer().send(queue, "a").send(queue, "b").send(queue, "c")
        consumer = context.create_consumer(queue)
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, WAIT_MS)
        assert seen(consumer.receive(WAIT_MS)) == ("b", False, 1)
        again()
        assert seen(consumer.receive(WAIT_MS)) == ("a", True, 2)
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, WAIT_MS)
        again()
        assert [seen(consumer.receive(WAIT_MS)) for _ in range(2)] == [("a", True, 3), ("b", True, 3)]
        with pytest.raises(MessageFormatException):
            consumer.receive_body(bytes, WAIT_MS)
        settle()
    assert left(kjms_factory, queue) == []


@pytest.mark.parametrize("mode", [*BY_ITSELF, *BY_THE_PROGRAM])
def test_a_body_of_the_right_type_is_received_as_a_message_is(
    kjms_factory: ConnectionFactory, queue: Queue, mode: SessionMode
) -> None:
    """Acknowledging, committing and closing treat it as they treat a message."""
    with kjms_factory.create_context(mode) as context:
        with kjms_factory.create_context() as sender:
            sender.create_producer().send(queue, "a").send(queue, "b")
        consumer = context.create_consumer(queue)
        assert [consumer.receive_body(str, WAIT_MS) for _ in range(2)] == ["a", "b"]
    expected = [] if mode in BY_ITSELF else [("a", True, 2), ("b", True, 2)]
    assert left(kjms_factory, queue) == expected
