"""Listeners of applications: what they get, when their message is settled, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    InvalidDestinationException,
    JMSContext,
    Message,
    Queue,
    RedeliveryPolicy,
    Reject,
    Retry,
    Session,
    TextMessage,
    Topic,
)
from kjms.worker import Application, AsyncContext, Context, _running, listener
from tests.helpers import (
    NOTHING_SECONDS,
    SOON_MS,
    WAIT_MS,
    WAIT_SECONDS,
    dead_letter_queue,
    drain,
    seen,
    text,
    texts_of,
    wait_for,
)

TWICE = RedeliveryPolicy(max_deliveries=2)


@dataclasses.dataclass
class Order:
    """A body."""

    item: str
    count: int = 1


@pytest.fixture
def factory(kafka: Any) -> ConnectionFactory:
    """The factory of the applications."""
    return ConnectionFactory(kafka.bootstrap_servers)


@pytest.fixture
def shop(factory: ConnectionFactory) -> Iterator[JMSContext]:
    """Another program on the same queues."""
    with factory.create_context() as context:
        yield context


@pytest.fixture
def packed(queue: Queue) -> Queue:
    """A second queue."""
    return Queue(f"{queue.queue_name}.packed")


def send(shop: JMSContext, destination: Queue | Topic, *bodies: object) -> None:
    for body in bodies:
        shop.create_producer().send(destination, body)


def receive(shop: JMSContext, queue: Queue, timeout: int = WAIT_MS) -> Message | None:
    with shop.create_context() as own, own.create_consumer(queue) as consumer:
        return consumer.receive(timeout)


# What a listener gets.


@pytest.mark.parametrize(
    ("annotation", "sent", "expected"),
    [
        (str, "pen", "pen"),
        (bytes, b"pen", b"pen"),
        (dict, {"item": "pen"}, {"item": "pen"}),
        (dict, '{"item": ["pen"]}', {"item": ["pen"]}),
        (dict[str, int], '{"pens": 3}', {"pens": 3}),
        (Order, '{"item": "pen", "count": 3}', Order("pen", 3)),
        (Order, b'{"item": "pen"}', Order("pen")),
        (Order, {"item": "pen", "count": 3}, Order("pen", 3)),
        (list[Order], '[{"item": "pen"}]', [Order("pen")]),
        (typing.Optional[Order], '{"item": "pen"}', Order("pen")),  # noqa: UP045 - as programs may write it
        (object, "pen", "pen"),
    ],
)
def test_the_annotation_says_what_the_body_becomes(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, annotation: Any, sent: object, expected: object
) -> None:
    """Text, bytes and dicts are given as they are; other types are made of JSON, or of a dict, and checked."""
    got: list[object] = []

    def keep(body: Any) -> None:
        got.append(body)

    keep.__annotations__["body"] = annotation
    send(shop, queue, sent)
    with Application(factory, [listener(queue)(keep)]).running():
        wait_for(lambda: got)
    assert got == [expected]
    assert type(got[0]) is type(expected)


def test_a_listener_gets_the_message_where_it_asks_for_no_body(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue
) -> None:
    """Without an annotation, or with a message's class; the context has it as well."""
    got: list[tuple[str, bool]] = []

    @listener(queue)
    def keep(message, context):  # type: ignore[no-untyped-def]
        got.append((text(message), context.message is message))

    @listener(queue)
    def keep_text(message: TextMessage, context: Context) -> None:
        got.append((text(message), context.message is message))

    send(shop, queue, *map(str, range(20)))
    with Application(factory, [keep, keep_text]).running():
        wait_for(lambda: len(got) == 20)
    assert sorted(got) == sorted((str(number), True) for number in range(20))


@pytest.mark.parametrize(
    "body",
    ["no JSON", '{"count": 3}', '{"item": "secret", "count": "many"}', {"count": 3}],
    ids=["text", "missing", "type", "map"],  # without the words that must not be logged
)
def test_a_body_that_does_not_fit_becomes_a_dead_letter(
    factory: ConnectionFactory,
    shop: JMSContext,
    queue: Queue,
    body: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """At once: no other delivery helps. The error names the fields, and not what they hold."""

    @listener(queue)
    def pack(order: Order) -> None:
        raise AssertionError("called")

    send(shop, queue, body)
    with Application(factory, [pack]).running():
        letter = receive(shop, dead_letter_queue(queue))
    assert letter is not None
    assert letter.properties["JMS_kjms_Exception"] == "kjms.errors.BodyConversionException"
    assert letter.properties["JMS_kjms_Cause"] == "delivered 1 time; its body is not what the listener takes"
    assert "the body is no Order" in str(letter.properties["JMS_kjms_ExceptionMessage"])
    assert "the body is no Order" in caplog.text
    assert "Traceback" not in caplog.text
    assert "secret" not in caplog.text
    assert "many" not in caplog.text


@pytest.mark.parametrize("is_async", [False, True])
def test_a_selector_chooses_messages(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, *, is_async: bool
) -> None:
    """A listener gets those that match; others stay for other consumers."""
    got: list[str] = []

    def keep(body: str) -> None:
        got.append(body)

    async def keep_too(body: str) -> None:
        got.append(body)

    chosen = listener(queue, "region = 'EU'")(keep_too if is_async else keep)  # type: ignore[type-var]
    for region in ("EU", "US", "EU"):
        shop.create_producer().set_property("region", region).send(queue, region)
    with Application(factory, [chosen]).running():
        wait_for(lambda: len(got) == 2)
    left = receive(shop, queue)
    assert (got, text(left)) == (["EU", "EU"], "US")


# Sessions.


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
def test_plain_listeners_run_at_the_same_time(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int
) -> None:
    """concurrency=3 is three messages at a time, each in a session of its own."""
    together = threading.Barrier(3)
    sessions: set[Session] = set()

    @listener(queue, concurrency=3, session_mode=mode)
    def meet(body: str, context: Context) -> None:
        together.wait(WAIT_SECONDS)
        sessions.add(context.session)

    send(shop, queue, "one", "two", "three")
    with Application(factory, [meet]).running():
        wait_for(lambda: len(sessions) == 3)
    assert receive(shop, queue, SOON_MS) is None


def test_async_listeners_run_in_one_event_loop(factory: ConnectionFactory, shop: JMSContext, queue: Queue) -> None:
    """concurrency=3 is three tasks of one loop."""
    threads: list[int] = []
    met: list[int] = []

    @listener(queue, concurrency=3)
    async def meet(body: str) -> None:
        threads.append(threading.get_ident())
        while len(threads) < 3:
            await asyncio.sleep(0)
        met.append(1)

    send(shop, queue, "one", "two", "three")
    with Application(factory, [meet]).running():
        wait_for(lambda: len(met) == 3)
    assert len(set(threads)) == 1
    assert receive(shop, queue, SOON_MS) is None


async def test_it_runs_in_the_loop_of_an_application_server(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue
) -> None:
    """``async with`` runs async listeners in the loop of the caller, and plain ones in threads beside it."""
    got: dict[str, int] = {}
    all_there = asyncio.Event()
    loop = asyncio.get_running_loop()

    @listener(queue, "kind = 'async'")
    async def one(body: str) -> None:
        got["async"] = threading.get_ident()
        await asyncio.to_thread(ready.wait, WAIT_SECONDS)
        all_there.set()

    ready = threading.Event()

    @listener(queue, "kind = 'plain'")
    def other(body: str) -> None:
        got["plain"] = threading.get_ident()
        ready.set()

    for kind in ("async", "plain"):
        shop.create_producer().set_property("kind", kind).send(queue, "x")
    async with Application(factory, [one, other]).running():
        await asyncio.wait_for(all_there.wait(), WAIT_SECONDS)
    assert loop is asyncio.get_running_loop()
    assert got["async"] == threading.get_ident() != got["plain"]


def test_topics_with_and_without_a_subscription(factory: ConnectionFactory, shop: JMSContext, topic: Topic) -> None:
    """Sessions share a named subscription, which keeps messages meanwhile; without one, each gets each message."""
    got: list[tuple[str, str]] = []

    @listener(topic, subscription=f"{topic.topic_name}-s", concurrency=2)
    def shared(body: str) -> None:
        got.append(("shared", body))

    @listener(topic)
    def own(body: str) -> None:
        got.append(("own", body))

    application = Application(factory, [shared, own])
    with application.running():
        send(shop, topic, "one")
        wait_for(lambda: len(got) == 2)
    send(shop, topic, "two")
    with application.running():
        send(shop, topic, "three")
        wait_for(lambda: len(got) == 5)
    assert sorted(got) == [("own", "one"), ("own", "three"), *(("shared", each) for each in ("one", "three", "two"))]
    shop.unsubscribe(f"{topic.topic_name}-s")


# Transactions and sending.


@pytest.mark.parametrize("is_async", [False, True])
def test_sending_and_receiving_are_one_transaction(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, packed: Queue, *, is_async: bool
) -> None:
    """What a listener sends before it raises is never seen; what it sends in the delivery that succeeds is."""
    deliveries: list[int] = []

    @listener(queue, session_mode=Session.SESSION_TRANSACTED)
    def pack(body: str, context: Context) -> None:
        deliveries.append(context.message.get_int_property("JMSXDeliveryCount"))
        context.send(packed, f"{body} {deliveries[-1]}")
        if deliveries[-1] < 3:
            raise ValueError("not yet")

    @listener(queue, session_mode=Session.SESSION_TRANSACTED)
    async def pack_too(body: str, context: AsyncContext) -> None:
        deliveries.append(context.message.get_int_property("JMSXDeliveryCount"))
        await context.send(packed, f"{body} {deliveries[-1]}")
        if deliveries[-1] < 3:
            raise ValueError("not yet")

    send(shop, queue, "pen")
    with Application(factory, [pack_too if is_async else pack]).running(), shop.create_consumer(packed) as consumer:
        assert text(consumer.receive(WAIT_MS)) == "pen 3"
        assert consumer.receive(int(NOTHING_SECONDS * 1000)) is None
    assert deliveries == [1, 2, 3]
    assert receive(shop, queue, SOON_MS) is None


@pytest.mark.parametrize("is_async", [False, True])
def test_sends_take_options(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, packed: Queue, *, is_async: bool
) -> None:
    """Priority, delivery mode, expiry, delay and properties are those of the call, and of no other."""

    @listener(queue)
    def pack(body: str, context: Context) -> None:
        how: Any = {"priority": 7, "delivery_mode": DeliveryMode.NON_PERSISTENT, "properties": {"size": 3}}
        context.send(packed, body, time_to_live=60_000, **how)
        context.send(packed, "plain")

    @listener(queue)
    async def pack_too(body: str, context: AsyncContext) -> None:
        how: Any = {"priority": 7, "delivery_mode": DeliveryMode.NON_PERSISTENT, "properties": {"size": 3}}
        await context.send(packed, body, time_to_live=60_000, **how)
        await context.send(packed, "plain")

    send(shop, queue, "pen")
    with Application(factory, [pack_too if is_async else pack]).running(), shop.create_consumer(packed) as consumer:
        got = {text(each): each for each in (consumer.receive(WAIT_MS), consumer.receive(WAIT_MS)) if each is not None}
    sent, plain = got["pen"], got["plain"]
    assert (sent.jms_priority, sent.jms_delivery_mode, sent.properties["size"]) == (7, DeliveryMode.NON_PERSISTENT, 3)
    assert sent.jms_expiration > 0
    assert (plain.jms_priority, plain.jms_delivery_mode) == (4, DeliveryMode.PERSISTENT)
    assert not plain.property_exists("size")


# Failures.


MODES = [
    Session.AUTO_ACKNOWLEDGE,
    Session.DUPS_OK_ACKNOWLEDGE,
    Session.SESSION_TRANSACTED,
    Session.CLIENT_ACKNOWLEDGE,
    Session.INDIVIDUAL_ACKNOWLEDGE,
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_listener_that_raises_gets_the_message_again(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int, *, is_async: bool
) -> None:
    """As often as its policy says, marked and counted; then it is a dead letter that names the exception."""
    got: list[tuple[str, bool, int]] = []

    @listener(queue, session_mode=mode, redelivery=TWICE)
    def fail(message: Message) -> None:
        got.append(seen(message))
        raise ValueError("no")

    @listener(queue, session_mode=mode, redelivery=TWICE)
    async def fail_too(message: Message) -> None:
        got.append(seen(message))
        raise ValueError("no")

    send(shop, queue, "pen")
    with Application(factory, [fail_too if is_async else fail]).running():
        letter = receive(shop, dead_letter_queue(queue))
    assert got == [("pen", False, 1), ("pen", True, 2)]
    assert letter is not None
    assert letter.properties["JMS_kjms_Exception"] == "ValueError"
    assert letter.get_int_property("JMS_kjms_Deliveries") == 2


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "mode"),
    [
        *((SystemExit(3), mode) for mode in MODES),
        *((kind(), Session.AUTO_ACKNOWLEDGE) for kind in (KeyboardInterrupt, asyncio.CancelledError, GeneratorExit)),
    ],
    ids=repr,
)
def test_no_exception_of_a_listener_ends_its_process_or_loses_its_message(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, error: BaseException, mode: int, *, is_async: bool
) -> None:
    """`sys.exit` in a listener is a failure like others: marked, counted, a dead letter; the listener continues."""
    got: list[tuple[str, bool, int]] = []

    def work(message: Message) -> None:
        got.append(seen(message))
        if text(message) == "pen":
            raise error

    @listener(queue, session_mode=mode, redelivery=TWICE)
    def fail(message: Message) -> None:
        work(message)
        message.acknowledge()

    @listener(queue, session_mode=mode, redelivery=TWICE)
    async def fail_too(message: Message, context: AsyncContext) -> None:
        work(message)
        await context.session.acknowledge(message)

    send(shop, queue, "pen", "ink")
    with Application(factory, [fail_too if is_async else fail]).running():
        letter = receive(shop, dead_letter_queue(queue))
        wait_for(lambda: len(got) == 3)
    assert sorted(got) == [("ink", False, 1), ("pen", False, 1), ("pen", True, 2)]
    assert letter is not None
    assert letter.properties["JMS_kjms_Exception"].endswith(type(error).__name__)
    assert letter.get_int_property("JMS_kjms_Deliveries") == 2


def test_ctrl_c_in_an_async_listener_ends_the_program_and_brings_its_message_again(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue
) -> None:
    """Where Ctrl-C can come, in the main thread, it propagates, once the message has gone back, marked and counted."""

    @listener(queue)
    async def pack(body: str) -> None:
        raise KeyboardInterrupt

    async def run() -> None:
        async with Application(factory, [pack]).running():
            await asyncio.Event().wait()

    send(shop, queue, "pen")
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())
    assert seen(receive(shop, queue)) == ("pen", True, 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_loop_that_another_task_ends_loses_no_message(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int
) -> None:
    """`sys.exit` in some other task ends the event loop: what a listener works on comes again, marked."""

    @listener(queue, session_mode=mode)
    async def pack(body: str) -> None:
        asyncio.get_running_loop().call_soon(exit_)
        await asyncio.Event().wait()

    def exit_() -> None:
        raise SystemExit(3)

    async def run() -> None:
        async with Application(factory, [pack]).running():
            await asyncio.Event().wait()

    send(shop, queue, "pen")
    with pytest.raises(SystemExit):
        asyncio.run(run())
    assert seen(receive(shop, queue)) == ("pen", True, 2)


@pytest.mark.parametrize("mode", [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_listener_may_acknowledge_itself(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int, *, is_async: bool
) -> None:
    """With these modes only what it acknowledges is done: the rest goes back, marked, when it ends."""
    got: list[str] = []

    @listener(queue, session_mode=mode)
    def keep(message: Message) -> None:
        if text(message) == "one":
            message.acknowledge()
        got.append(text(message))

    @listener(queue, session_mode=mode)
    async def keep_too(message: Message, context: AsyncContext) -> None:
        if text(message) == "one":
            await context.session.acknowledge(message)
        got.append(text(message))

    send(shop, queue, "one", "two")
    with Application(factory, [keep_too if is_async else keep]).running():
        wait_for(lambda: len(got) == 2)
    assert seen(receive(shop, queue)) == ("two", True, 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_rejects_and_retries(
    factory: ConnectionFactory,
    shop: JMSContext,
    queue: Queue,
    packed: Queue,
    mode: int,
    caplog: pytest.LogCaptureFixture,
    *,
    is_async: bool,
) -> None:
    """Whatever the mode: no traceback, what was sent in a transaction is rolled back, and the policy's delay is not."""
    got: list[tuple[str, bool, int]] = []

    def work(message: Message) -> None:
        got.append(seen(message))
        if got[-1] == ("bad", False, 1):
            raise Reject("no such customer")
        if got[-1] == ("slow", False, 1):
            raise Retry("not yet", after=0)

    @listener(queue, session_mode=mode, redelivery=RedeliveryPolicy(delay=3_600_000))
    def pack(message: Message, context: Context) -> None:
        if mode == Session.SESSION_TRANSACTED:
            context.send(packed, text(message))
        work(message)
        message.acknowledge()

    @listener(queue, session_mode=mode, redelivery=RedeliveryPolicy(delay=3_600_000))
    async def pack_too(message: Message, context: AsyncContext) -> None:
        if mode == Session.SESSION_TRANSACTED:
            await context.send(packed, text(message))
        work(message)
        await context.session.acknowledge(message)

    send(shop, queue, "bad", "slow")
    with Application(factory, [pack_too if is_async else pack]).running():
        letter = receive(shop, dead_letter_queue(queue))
        wait_for(lambda: len(got) == 3)
        if mode == Session.SESSION_TRANSACTED:
            assert text(receive(shop, packed)) == "slow"
    assert got == [("bad", False, 1), ("slow", False, 1), ("slow", True, 2)]
    assert letter is not None
    assert letter.properties["JMS_kjms_Cause"] == "delivered 1 time; rejected: no such customer"
    assert "Traceback" not in caplog.text
    assert receive(shop, queue, SOON_MS) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_that_is_acknowledged_is_done_whatever_follows(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, packed: Queue, mode: int, *, is_async: bool
) -> None:
    """An exception brings it again no more; in a transaction what was sent before is committed, and no more."""
    got: list[tuple[str, bool, int]] = []

    @listener(queue, session_mode=mode)
    def pack(message: Message, context: Context) -> None:
        got.append(seen(message))
        context.send(packed, "before")
        context.acknowledge()
        context.send(packed, "after")
        raise ValueError

    @listener(queue, session_mode=mode)
    async def pack_too(message: Message, context: AsyncContext) -> None:
        got.append(seen(message))
        await context.send(packed, "before")
        await context.acknowledge()
        await context.send(packed, "after")
        raise ValueError

    send(shop, queue, "one", "two")
    with Application(factory, [pack_too if is_async else pack]).running():
        wait_for(lambda: len(got) == 2)
    assert got == [("one", False, 1), ("two", False, 1)]
    assert receive(shop, queue, SOON_MS) is None
    with shop.create_context() as own, own.create_consumer(packed) as consumer:
        bodies = texts_of(drain(consumer._consumer, count=2))
    assert sorted(bodies) == ["after"] * (0 if mode == Session.SESSION_TRANSACTED else 2) + ["before"] * 2


def test_a_listener_names_exceptions_of_its_own(factory: ConnectionFactory, shop: JMSContext, queue: Queue) -> None:
    """Beside the other settings of the policy that holds for its destination."""
    made = ConnectionFactory(
        factory._options.bootstrap_servers, redelivery=RedeliveryPolicy(dead_letter="dead.{queue}")
    )

    @listener(queue, dead_letter_on=[LookupError, "json.JSONDecodeError"])
    def pack(body: str) -> None:
        raise KeyError(body)

    send(shop, queue, "pen")
    with Application(made, [pack]).running():
        letter = receive(shop, Queue(f"dead.{queue.queue_name}"))
    assert letter is not None
    assert letter.properties["JMS_kjms_Cause"] == "delivered 1 time; the listener raised KeyError, which is not retried"


# Replies.


def asked(
    shop: JMSContext, queue: Queue, replies: Queue | None, body: str, correlation_id: str | None = None
) -> Message:
    """Send a request, and return it."""
    request = TextMessage(body)
    request.jms_reply_to = replies
    request.jms_correlation_id = correlation_id
    shop.create_producer().send(queue, request)
    return request


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_function_returns_is_the_reply(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, packed: Queue, mode: int, *, is_async: bool
) -> None:
    """It names its request; in a transaction it is sent with the commit, and only once; None is no reply."""
    deliveries: list[str] = []

    def work(body: str) -> str | None:
        deliveries.append(body)
        return None if body == "nothing" else body.upper()

    def failing(context: Context, call_next: Callable[[], object]) -> object:
        result = call_next()
        if text(context.message) == "twice" and deliveries.count("twice") == 1:
            context.reply("too early")
            raise ValueError
        return result

    async def failing_too(context: AsyncContext, call_next: Callable[[], Awaitable[object]]) -> object:
        result = await call_next()
        if text(context.message) == "twice" and deliveries.count("twice") == 1:
            await context.reply("too early")
            raise ValueError
        return result

    @listener(queue, session_mode=mode)
    def answer(body: str) -> str | None:
        return work(body)

    @listener(queue, session_mode=mode)
    async def answer_too(body: str) -> str | None:
        return work(body)

    chosen: Any = [answer_too], [failing_too]
    if not is_async:
        chosen = [answer], [failing]
    own = asked(shop, queue, packed, "pen", "mine")
    other = asked(shop, queue, packed, "ink")
    asked(shop, queue, None, "unasked")
    asked(shop, queue, packed, "nothing")
    twice = asked(shop, queue, packed, "twice")
    with Application(factory, *chosen).running() as running, shop.create_consumer(packed) as consumer:
        got = [(text(each), each.jms_correlation_id) for each in drain(consumer._consumer, count=3)]
    early = [] if mode == Session.SESSION_TRANSACTED else [("too early", twice.jms_message_id)]
    assert sorted(got, key=str) == sorted(
        [("PEN", "mine"), ("INK", other.jms_message_id), ("TWICE", twice.jms_message_id), *early], key=str
    )
    assert own.jms_correlation_id == "mine"
    assert running.dropped_replies == 0
    assert receive(shop, queue, SOON_MS) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_reply_whose_asker_has_gone_is_dropped_and_counted(
    factory: ConnectionFactory,
    shop: JMSContext,
    queue: Queue,
    packed: Queue,
    mode: int,
    caplog: pytest.LogCaptureFixture,
    *,
    is_async: bool,
) -> None:
    """The message is done: it does not come again, and is no dead letter; what else was sent is sent."""
    sent: list[bool] = []
    caplog.set_level("INFO", "kjms.worker")

    @listener(queue, session_mode=mode)
    def answer(message: Message, context: Context) -> str:
        context.send(packed, "done")
        sent.append(context.reply("by hand"))
        message.acknowledge()
        return "returned"

    @listener(queue, session_mode=mode)
    async def answer_too(message: Message, context: AsyncContext) -> str:
        await context.send(packed, "done")
        sent.append(await context.reply("by hand"))
        await context.session.acknowledge(message)
        return "returned"

    replies = shop.create_temporary_queue()
    asked(shop, queue, replies, "pen")
    replies.delete()
    with Application(factory, [answer_too if is_async else answer]).running() as running:
        assert text(receive(shop, packed)) == "done"
        wait_for(lambda: running.dropped_replies == 2)
    assert sent == [False]
    assert "the reply to message" in caplog.text
    assert receive(shop, queue, SOON_MS) is None
    assert receive(shop, dead_letter_queue(queue), SOON_MS) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_is_the_reply_where_it_is_to_be(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, packed: Queue, mode: int, *, is_async: bool
) -> None:
    """Its class and text; what was sent in the transaction is not, and the message is done. Retry retries."""
    got: list[tuple[str, bool, int]] = []

    def work(message: Message) -> None:
        got.append(seen(message))
        if got[-1] == ("slow", False, 1):
            raise Retry(after=0)
        raise LookupError(f"no {text(message)}")

    @listener(queue, session_mode=mode, error_replies=True)
    def answer(message: Message, context: Context) -> None:
        if mode == Session.SESSION_TRANSACTED:
            context.send(packed, "never sent")
        work(message)

    @listener(queue, session_mode=mode, error_replies=True)
    async def answer_too(message: Message, context: AsyncContext) -> None:
        if mode == Session.SESSION_TRANSACTED:
            await context.send(packed, "never sent")
        work(message)

    asked(shop, queue, packed, "pen")
    asked(shop, queue, packed, "slow")
    with Application(factory, [answer_too if is_async else answer]).running(), shop.create_consumer(packed) as consumer:
        found = drain(consumer._consumer, count=2)
    assert sorted(texts_of(found)) == ["no pen", "no slow"]
    assert {each.properties["JMS_kjms_Exception"] for each in found} == {"LookupError"}
    assert sorted(got) == [("pen", False, 1), ("slow", False, 1), ("slow", True, 2)]
    assert receive(shop, queue, SOON_MS) is None


@pytest.mark.parametrize("is_async", [False, True])
def test_an_exception_is_no_reply_where_none_is_asked_for(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, *, is_async: bool
) -> None:
    """A message without JMSReplyTo fails as ever, whatever the option says."""

    @listener(queue, error_replies=True, redelivery=TWICE)
    def answer(body: str) -> None:
        raise LookupError(body)

    @listener(queue, error_replies=True, redelivery=TWICE)
    async def answer_too(body: str) -> None:
        raise LookupError(body)

    asked(shop, queue, None, "pen")
    with Application(factory, [answer_too if is_async else answer]).running():
        letter = receive(shop, dead_letter_queue(queue))
    assert letter is not None
    assert letter.properties["JMS_kjms_Deliveries"] == 2


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED, Session.CLIENT_ACKNOWLEDGE])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_message_whose_error_reply_cannot_be_sent_fails_as_ever(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int, *, is_async: bool
) -> None:
    """It is not done: a destination that is no temporary one may be there the next time."""
    got: list[tuple[str, bool, int]] = []

    def work(message: Message) -> None:
        got.append(seen(message))
        raise LookupError

    @listener(queue, session_mode=mode, error_replies=True, redelivery=TWICE)
    def answer(message: Message) -> None:
        work(message)

    @listener(queue, session_mode=mode, error_replies=True, redelivery=TWICE)
    async def answer_too(message: Message) -> None:
        work(message)

    asked(shop, queue, Queue("longer than Kafka permits" * 10), "pen")
    with Application(factory, [answer_too if is_async else answer]).running():
        letter = receive(shop, dead_letter_queue(queue))
    assert got == [("pen", False, 1), ("pen", True, 2)]
    assert letter is not None
    assert letter.properties["JMS_kjms_Exception"] == "LookupError"


def test_an_id_that_is_bytes_comes_back_as_it_was(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, packed: Queue
) -> None:
    """A correlation id of another program may be no text."""

    @listener(queue)
    def answer(body: str) -> str:
        return body

    request = TextMessage("pen")
    request.jms_reply_to, request.jms_correlation_id_as_bytes = packed, b"\xff\x00"
    shop.create_producer().send(queue, request)
    with Application(factory, [answer]).running():
        reply = receive(shop, packed)
    assert reply is not None
    assert reply.jms_correlation_id_as_bytes == b"\xff\x00"


# Middleware and state.


def test_middleware_is_called_around_listeners(factory: ConnectionFactory, shop: JMSContext, queue: Queue) -> None:
    """The first one is outermost; each sees the context, the outcome and the exception; one may leave out the call."""
    calls: list[str] = []

    def outer(context: Context, call_next: Callable[[], object]) -> object:
        calls.append(f"outer {text(context.message)}")
        try:
            return call_next()
        except ValueError:
            calls.append("raised")
            raise
        finally:
            calls.append("outer end")

    def inner(context: Context, call_next: Callable[[], object]) -> object:
        return None if text(context.message) == "skip" else call_next()

    @listener(queue, redelivery=RedeliveryPolicy(max_deliveries=1))
    def pack(body: str) -> None:
        calls.append(body)
        if body == "bad":
            raise ValueError(body)

    send(shop, queue, "skip", "good", "bad")
    with Application(factory, [pack], [outer, inner]).running():
        wait_for(lambda: calls.count("outer end") == 3)
    skipped, good = ["outer skip", "outer end"], ["outer good", "good", "outer end"]
    assert calls == [*skipped, *good, "outer bad", "bad", "raised", "outer end"]
    assert receive(shop, queue, SOON_MS) is None


def test_async_middleware_is_called_around_async_listeners(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue
) -> None:
    """And plain middleware around the plain ones of the same application."""
    calls: list[str] = []

    async def timed(context: AsyncContext, call_next: Callable[[], Awaitable[object]]) -> object:
        calls.append(f"timed {context.listener.function.__name__}")
        return await call_next()

    def plain(context: Context, call_next: Callable[[], object]) -> object:
        calls.append(f"plain {context.listener.function.__name__}")
        return call_next()

    @listener(queue, "kind = 'async'")
    async def one(body: str) -> None:
        calls.append("one")

    @listener(queue, "kind = 'plain'")
    def other(body: str) -> None:
        calls.append("other")

    for kind in ("async", "plain"):
        shop.create_producer().set_property("kind", kind).send(queue, "x")
    with Application(factory, [one, other], [timed, plain]).running():
        wait_for(lambda: len(calls) == 4)
    assert sorted(calls) == ["one", "other", "plain other", "timed one"]


@pytest.mark.parametrize("is_async", [False, True])
def test_the_lifespan_is_around_everything(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, *, is_async: bool
) -> None:
    """It is entered before the first call and left after the last one; the contexts have what it yields."""
    order: list[str] = []

    @contextlib.contextmanager
    def services() -> Iterator[dict[str, str]]:
        order.append("entered")
        yield {"name": "shop"}
        order.append("left")

    @contextlib.asynccontextmanager
    async def services_too() -> AsyncIterator[dict[str, str]]:
        order.append("entered")
        yield {"name": "shop"}
        order.append("left")

    started = threading.Event()

    @listener(queue)
    def pack(body: str, context: Context[dict[str, str]]) -> None:
        started.set()
        while not context.is_stopping:
            threading.Event().wait(0.01)
        order.append(context.state["name"])

    send(shop, queue, "pen")
    with Application(factory, [pack], lifespan=services_too if is_async else services).running():
        assert started.wait(WAIT_SECONDS)
    assert order == ["entered", "shop", "left"]


# The end.


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.SESSION_TRANSACTED])
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_in_flight_is_finished_and_the_rest_goes_back(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int, *, is_async: bool
) -> None:
    """At the end the listener that runs finishes its message; the next one is neither marked nor counted."""
    began, may_finish = threading.Event(), threading.Event()
    done: list[str] = []

    @listener(queue, session_mode=mode)
    def pack(body: str, context: Context) -> None:
        began.set()
        may_finish.wait(WAIT_SECONDS)
        done.append(body)

    @listener(queue, session_mode=mode)
    async def pack_too(body: str, context: AsyncContext) -> None:
        began.set()
        await asyncio.to_thread(may_finish.wait, WAIT_SECONDS)
        done.append(body)

    send(shop, queue, "one", "two")
    with Application(factory, [pack_too if is_async else pack]).running() as running:
        assert began.wait(WAIT_SECONDS)
        threading.Thread(target=lambda: (wait_for(lambda: running.is_stopping), may_finish.set())).start()
    assert done == ["one"]
    assert running.unfinished == 0
    assert seen(receive(shop, queue)) == ("two", False, 1)


def test_no_message_begins_when_it_says_that_it_stops(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that returns as soon as its context says so is the last one, however late its connection stops."""
    began: list[str] = []
    first, second = threading.Event(), threading.Event()
    stop = Connection.stop

    def stop_late(connection: Connection) -> None:
        second.wait(NOTHING_SECONDS)
        stop(connection)

    @listener(queue)
    def pack(body: str, context: Context) -> None:
        (second if began else first).set()
        began.append(body)
        wait_for(lambda: context.is_stopping)

    monkeypatch.setattr(Connection, "stop", stop_late)
    send(shop, queue, "one", "two")
    with Application(factory, [pack]).running():
        assert first.wait(WAIT_SECONDS)
    assert began == ["one"]
    assert seen(receive(shop, queue)) == ("two", False, 1)


@pytest.mark.parametrize("mode", MODES)
def test_an_async_listener_is_cancelled_after_the_grace_period(
    kafka: Any, shop: JMSContext, queue: Queue, packed: Queue, mode: int
) -> None:
    """Its message goes back: marked, because it saw it, and not counted; what it sent in its transaction is gone."""
    factory = ConnectionFactory(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=1))
    began = threading.Event()
    ended: list[str] = []

    @listener(queue, session_mode=mode)
    async def pack(body: str, context: AsyncContext) -> None:
        if mode == Session.SESSION_TRANSACTED:
            await context.send(packed, body)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(body)

    send(shop, queue, "pen")
    with Application(factory, [pack]).running(grace=10) as running:
        assert began.wait(WAIT_SECONDS)
    assert (running.unfinished, ended) == (1, ["pen"])
    with factory.create_context() as strict:  # a counted delivery would have been the last one
        assert seen(receive(strict, queue)) == ("pen", True, 2)
    assert receive(shop, packed, int(NOTHING_SECONDS * 1000)) is None


def forget(task: Any) -> None:
    """Have asyncio not complain that *task* never ends."""
    task._log_destroy_pending = False


@pytest.mark.parametrize("mode", MODES)
def test_an_async_listener_that_ignores_its_cancellation_keeps_no_message(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It still runs when its session closes: its message is not done, and goes back, marked."""
    monkeypatch.setattr(_running, "CANCEL_SECONDS", NOTHING_SECONDS)
    began = threading.Event()

    @listener(queue, session_mode=mode)
    async def pack(body: str) -> None:
        forget(asyncio.current_task())
        began.set()
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    send(shop, queue, "pen")
    with Application(factory, [pack]).running(grace=10) as running:
        assert began.wait(WAIT_SECONDS)
    assert running.unfinished == 1
    assert seen(receive(shop, queue)) == ("pen", True, 2)


def test_an_event_loop_that_ends_in_the_middle_loses_no_message(
    factory: ConnectionFactory, shop: JMSContext, queue: Queue
) -> None:
    """Its tasks are destroyed while a listener runs, and its connection is never closed: the message comes again."""
    began = threading.Event()

    @listener(queue)
    async def pack(body: str) -> None:
        began.set()
        await asyncio.Event().wait()

    async def run() -> None:
        running = Application(factory, [pack]).running()
        await running.__aenter__()
        kept.append(running)
        await asyncio.to_thread(began.wait, WAIT_SECONDS)

    kept: list[Any] = []
    send(shop, queue, "pen")
    loop = asyncio.new_event_loop()
    loop.run_until_complete(run())
    session = kept[0]._async[0]
    forget(session._task)
    session._task.get_coro().close()
    loop.close()
    assert seen(receive(shop, queue)) == ("pen", True, 2)
    session._context._context._connection.close()


async def test_the_grace_period_can_be_cut_short(factory: ConnectionFactory, shop: JMSContext, queue: Queue) -> None:
    """hurry() ends it at once; without it a listener may run as long as it likes."""
    began = asyncio.Event()

    @listener(queue)
    async def pack(body: str) -> None:
        began.set()
        await asyncio.Event().wait()

    send(shop, queue, "pen")
    running = Application(factory, [pack]).running()
    async with running:
        await asyncio.wait_for(began.wait(), WAIT_SECONDS)
        running.hurry()
    assert running.unfinished == 1


def test_a_start_that_fails_leaves_nothing(kafka: Any, shop: JMSContext, queue: Queue) -> None:
    """The lifespan is left, the connections are closed, and the error is that of the listener that failed."""
    send(shop, queue, "pen")  # the queue is there now, and the other one is not
    missing = Queue(f"{queue.queue_name}.missing")
    strict = ConnectionFactory(kafka.bootstrap_servers, create_destinations=False)
    left: list[bool] = []

    @contextlib.contextmanager
    def services() -> Iterator[None]:
        try:
            yield
        finally:
            left.append(True)

    @listener(missing)
    async def never(body: str) -> None: ...

    @listener(queue)
    def fine(body: str) -> None: ...

    before = set(threading.enumerate())
    running = Application(strict, [fine, never], lifespan=services).running()
    with pytest.raises(InvalidDestinationException, match=missing.queue_name):
        running.__enter__()
    assert left == [True]
    wait_for(lambda: not [each for each in set(threading.enumerate()) - before if "delivery" in each.name])
