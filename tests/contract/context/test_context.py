"""Contexts: how they are made and configured, what they share, and what ends them."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

import kjms
from kjms import (
    BytesMessage,
    Connection,
    ConnectionFactory,
    Destination,
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    JMSConsumer,
    JMSContext,
    JMSException,
    JMSProducer,
    MapMessage,
    Message,
    MessageConsumer,
    MessageProducer,
    ObjectMessage,
    Queue,
    QueueBrowser,
    Session,
    SessionMode,
    StreamMessage,
    TextMessage,
    Topic,
)
from tests.helpers import NOTHING_MS, WAIT_MS, Eventually, text, texts_of

MODES = [
    JMSContext.AUTO_ACKNOWLEDGE,
    JMSContext.CLIENT_ACKNOWLEDGE,
    JMSContext.DUPS_OK_ACKNOWLEDGE,
    JMSContext.SESSION_TRANSACTED,
    JMSContext.INDIVIDUAL_ACKNOWLEDGE,
]


def is_open(context: JMSContext) -> bool:
    try:
        context.meta_data  # noqa: B018
    except IllegalStateException:
        return False
    return True


# Making contexts.


@pytest.mark.requirement("JMS-11-1", "JMS-11.2.1-1", "JMS-11.3.2-2")
def test_one_object_sends_and_receives(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A context alone makes producers and consumers, shows no connection and no session, and its maker closes it."""
    context = kjms_factory.create_context()
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    assert (type(context), type(producer), type(consumer)) == (JMSContext, JMSProducer, JMSConsumer)
    producer.send(queue, "hello")
    assert consumer.receive_body(str, WAIT_MS) == "hello"
    for item in (context, producer, consumer):
        shown = [getattr(item, name, None) for name in dir(item) if not name.startswith("_")]
        assert not [value for value in shown if isinstance(value, Connection | Session | MessageProducer)]
    assert is_open(context)
    context.close()
    assert not is_open(context)


@pytest.mark.requirement("JMS-11.2.2-1", "NET-13")
def test_the_session_modes_are_one_enumeration() -> None:
    """The constants of contexts and of sessions are the members of SessionMode, which are numbers."""
    values = {
        "SESSION_TRANSACTED": 0,
        "AUTO_ACKNOWLEDGE": 1,
        "CLIENT_ACKNOWLEDGE": 2,
        "DUPS_OK_ACKNOWLEDGE": 3,
        "INDIVIDUAL_ACKNOWLEDGE": 101,
    }
    assert {mode.name: mode.value for mode in SessionMode} == values
    for name, value in values.items():
        assert getattr(JMSContext, name) is getattr(Session, name) is SessionMode[name]
        assert getattr(JMSContext, name) == value


@pytest.mark.requirement("JMS-11.2.2-1")
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_means_what_it_means_on_a_session(
    kjms_factory: ConnectionFactory, mode: SessionMode, queue: Queue
) -> None:
    """What is acknowledged when a context closes is what its mode says; a plain number is a mode, too."""
    with kjms_factory.create_context(int(mode)) as context, kjms_factory.create_connection() as connection:
        session = connection.create_session(mode)
        assert (context.session_mode, context.transacted) == (session.acknowledge_mode, session.transacted)
    with kjms_factory.create_context() as context:
        context.create_producer().send(queue, "a").send(queue, "b")
    with kjms_factory.create_context(mode) as context:
        assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "a"
    by_itself = mode in {SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE}
    with kjms_factory.create_context() as context:
        message = context.create_consumer(queue).receive(WAIT_MS)
        assert message is not None
        assert (text(message), message.jms_redelivered) == (("b", False) if by_itself else ("a", True))


@pytest.mark.parametrize("mode", [4, -1, True, False, "AUTO_ACKNOWLEDGE", None, [1]])
def test_an_unknown_mode_is_refused(kjms_factory: ConnectionFactory, context: JMSContext, mode: Any) -> None:
    """A mode that there is not is named, before anything is made."""
    for create in (kjms_factory.create_context, context.create_context):
        with pytest.raises(ValueError, match=r"acknowledge mode.*AUTO_ACKNOWLEDGE \(1\)"):
            create(mode)


@pytest.mark.requirement("JMS-11.2.3-1", "JMS-11.2.3-2")
def test_a_context_makes_messages(context: JMSContext) -> None:
    """There is a message of each type; those of text and of objects may be given a body at once."""
    empty = {
        context.create_message: Message,
        context.create_text_message: TextMessage,
        context.create_bytes_message: BytesMessage,
        context.create_map_message: MapMessage,
        context.create_stream_message: StreamMessage,
        context.create_object_message: ObjectMessage,
    }
    for create, kind in empty.items():
        assert type(create()) is kind
    assert context.create_text_message().text is None
    assert context.create_object_message().object is None
    assert context.create_text_message("hello").text == "hello"
    assert context.create_object_message([1, "two"]).object == [1, "two"]


@pytest.mark.requirement("JAK-createMessage-3", "JAK-createTextMessage-3", "JAK-createObjectMessage-3")
@pytest.mark.requirement("JAK-createBytesMessage-2", "JAK-createMapMessage-2", "JAK-createStreamMessage-2")
def test_a_message_belongs_to_no_context(context: JMSContext, kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A message that a session or context made can be sent by another context, also when its maker is closed."""
    with kjms_factory.create_connection() as connection, connection.create_session() as session:
        makers = (session, context.create_context())
        messages = [
            create()
            for maker in makers
            for create in (
                maker.create_message,
                maker.create_text_message,
                maker.create_object_message,
                maker.create_bytes_message,
                maker.create_map_message,
                maker.create_stream_message,
            )
        ]
    makers[1].close()
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    for message in messages:
        producer.send(queue, message)
        assert type(consumer.receive(WAIT_MS)) is type(message)


@pytest.mark.requirement("JMS-11.2.4-3")
def test_a_context_names_destinations(context: JMSContext) -> None:
    """The queue or topic of a name is a plain value."""
    assert context.create_queue("orders") == Queue("orders")
    assert context.create_topic("prices") == Topic("prices")
    assert isinstance(context.create_queue("orders"), Destination)
    with pytest.raises(InvalidDestinationException):
        context.create_queue("")


@pytest.mark.requirement("JMS-11.1-1")
def test_nothing_is_missing() -> None:
    """What connections, sessions, producers and consumers can do, the simplified API can do, under the same names."""

    def names(*classes: type) -> set[str]:
        return {name for each in classes for name in dir(each) if not name.startswith("_")}

    replaced = {
        "create_session": "create_context",
        "acknowledge_mode": "session_mode",
        "create_durable_subscriber": "create_durable_consumer",  # the same under its older name
        "number": "__repr__",  # not JMS's: for people
    }
    of_sessions_alone = {"message_listener"}  # JMS has no such thing for contexts; their consumers have listeners
    wanted = {replaced.get(name, name) for name in names(Connection, Session) - of_sessions_alone}
    assert {name for name in wanted if not hasattr(JMSContext, name)} == set()
    assert names(MessageConsumer) - names(JMSConsumer) == set()
    settings = names(MessageProducer) - {
        "destination",
        "close",
        "send",
    }  # each send names one; there is nothing to close
    assert settings - names(JMSProducer) == set()
    assert {f"set_{name}" for name in settings} - names(JMSProducer) == set()


def test_a_browser_shows_a_queue(context: JMSContext, queue: Queue) -> None:
    """A context's browser shows what its selector wants, also while the connection is stopped, and takes nothing."""
    producer = context.create_producer()
    for number in range(4):
        producer.set_property("n", number).send(queue, str(number))
    with context.create_browser(queue, "n > 1") as browser:
        assert isinstance(browser, QueueBrowser)
        assert texts_of(browser) == ["2", "3"]
    assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "0"


# What belongs to the connection.


@pytest.mark.requirement("JMS-11.2.1-3", "JMS-11.2.6-1", "JMS-11.2.6-2", "JMS-11.2.8-2")
def test_contexts_share_a_connection_until_the_last_is_closed(
    own_factory: ConnectionFactory, queue: Queue, eventually: Eventually
) -> None:
    """A context's context has its connection, and a session of its own; the last one closes the connection."""
    client_id = f"client-{uuid.uuid4().hex[:12]}"
    before = set(threading.enumerate())

    def is_free() -> bool:
        with own_factory.create_context() as other:
            try:
                other.client_id = client_id
            except InvalidClientIDException:
                return False
        return True

    first = own_factory.create_context()
    first.client_id = client_id
    second = first.create_context(JMSContext.CLIENT_ACKNOWLEDGE)
    with ThreadPoolExecutor(1) as pool:  # any thread may
        third = pool.submit(second.create_context, JMSContext.SESSION_TRANSACTED).result(20)
    assert [context.session_mode for context in (first, second, third)] == [1, 2, 0]
    assert second.client_id == third.client_id == client_id
    third.create_producer().send(queue, "a")
    first.create_producer().send(queue, "b")
    consumer = second.create_consumer(queue)
    assert consumer.receive_body(str, WAIT_MS) == "b"
    third.commit()  # its session's, and nobody else's
    assert consumer.receive_body(str, WAIT_MS) == "a"
    first.close()
    with pytest.raises(IllegalStateException, match="closed"):
        first.create_context()
    second.recover()
    assert [consumer.receive_body(str, WAIT_MS) for _ in range(2)] == ["b", "a"]
    second.close()
    assert not is_free()
    third.create_producer().send(queue, "c")
    third.commit()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(third.close).result(20)
    assert is_free()
    eventually(lambda: not [thread for thread in set(threading.enumerate()) - before if "kjms" in thread.name])


@pytest.mark.requirement("JMS-11.2.6-1", "JMS-7.3-3")
def test_what_is_closed_says_so(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A closed context, and what it made, raise IllegalStateException at any use but closing; others stay usable."""
    with kjms_factory.create_context() as other:
        with other.create_context() as context:
            producer, consumer, browser = (
                context.create_producer(),
                context.create_consumer(queue),
                context.create_browser(queue),
            )
            with consumer, browser:
                pass
            second = context.create_consumer(queue)
        message = Message()
        topic = Topic(queue.queue_name)
        uses: list[Callable[[], object]] = [
            context.create_context,
            context.create_producer,
            context.create_message,
            context.create_text_message,
            context.create_bytes_message,
            context.create_map_message,
            context.create_stream_message,
            context.create_object_message,
            context.start,
            context.stop,
            context.acknowledge,
            context.commit,
            context.rollback,
            context.recover,
            lambda: context.create_queue("q"),
            lambda: context.create_topic("t"),
            lambda: context.create_browser(queue),
            lambda: context.create_consumer(queue),
            lambda: context.create_durable_consumer(topic, "n"),
            lambda: context.create_shared_consumer(topic, "n"),
            lambda: context.create_shared_durable_consumer(topic, "n"),
            lambda: context.unsubscribe("n"),
            lambda: context.client_id,
            lambda: setattr(context, "client_id", "x"),
            lambda: context.exception_listener,
            lambda: setattr(context, "exception_listener", print),
            lambda: context.meta_data,
            lambda: context.session_mode,
            lambda: context.transacted,
            lambda: context.auto_start,
            lambda: setattr(context, "auto_start", False),
            lambda: producer.send(queue, message),
            *(use for each in (consumer, second) for use in (each.receive, each.receive_no_wait)),
            lambda: second.receive_body(str),
            lambda: second.receive_body_no_wait(str),
            lambda: second.message_listener,
            lambda: setattr(second, "message_listener", print),
            lambda: second.message_selector,
            lambda: list(browser),
        ]
        for use in uses:
            with pytest.raises(IllegalStateException, match="closed"):
                use()
        for closable in (context, consumer, second, browser):
            closable.close()
        other.create_producer().send(queue, "a")
        assert other.create_consumer(queue).receive_body(str, WAIT_MS) == "a"


@pytest.mark.requirement("JMS-B.5.11-1")
def test_everything_closes_at_the_end_of_a_with_block(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """All that has a close is closed when the block that it was opened for ends."""
    with (
        kjms_factory.create_connection() as connection,
        connection.create_session() as session,
        session.create_producer(queue) as producer,
        session.create_consumer(queue) as consumer,
        session.create_browser(queue) as browser,
    ):
        pass
    with kjms_factory.create_context() as context, context.create_consumer(queue) as simple_consumer:
        pass
    for use in (
        connection.start,
        session.create_message,
        lambda: producer.priority,
        lambda: consumer.message_selector,
        lambda: browser.message_selector,
        context.start,
        lambda: simple_consumer.message_selector,
    ):
        with pytest.raises(IllegalStateException, match="closed"):
            use()


@pytest.mark.requirement("JMS-4.3.2-2", "JMS-4.3.2-4", "JMS-4.3.2-5")
def test_the_client_id_is_set_first(kafka: Any, kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A context's client id comes from the factory, or is set once, before anything else is done with the context."""
    mine = f"client-{uuid.uuid4().hex[:12]}"
    with kjms_factory.create_context() as context:
        assert (context.client_id, context.session_mode, context.meta_data.jms_version) == (None, 1, "2.0")
        with pytest.raises(InvalidClientIDException):
            context.client_id = ""
        context.client_id = mine
        assert context.client_id == mine
        with pytest.raises(IllegalStateException, match="already"):
            context.client_id = "other"
        with kjms_factory.create_context() as other, pytest.raises(InvalidClientIDException):
            other.client_id = mine
    with ConnectionFactory(kafka.bootstrap_servers, client_id=mine).create_context() as context:
        assert context.client_id == mine
        with pytest.raises(InvalidClientIDException):
            ConnectionFactory(kafka.bootstrap_servers, client_id=mine).create_context()
    actions: list[Callable[[JMSContext], object]] = [
        JMSContext.start,
        JMSContext.stop,
        JMSContext.create_producer,
        JMSContext.create_message,
        JMSContext.acknowledge,
        JMSContext.recover,
        lambda context: context.create_context().close(),
        lambda context: context.create_consumer(queue),
        lambda context: context.create_queue("q"),
        lambda context: setattr(context, "exception_listener", print),
        lambda context: setattr(context, "auto_start", False),
    ]
    for act in actions:
        with kjms_factory.create_context() as context:
            act(context)
            with pytest.raises(IllegalStateException, match="before anything else"):
                context.client_id = "late"


@pytest.mark.requirement("JMS-11.2.7-1", "JMS-11.2.7-2")
@pytest.mark.parametrize("kind", ["plain", "durable", "shared", "shared durable"])
def test_creating_a_consumer_starts_delivery(kjms_factory: ConnectionFactory, topic: Topic, kind: str) -> None:
    """Each kind of consumer gets messages without a start; stop holds them back, start lets them come."""
    with kjms_factory.create_context() as context:
        context.client_id = f"client-{uuid.uuid4().hex[:12]}"
        assert context.auto_start
        consumer = {
            "plain": lambda: context.create_consumer(topic),
            "durable": lambda: context.create_durable_consumer(topic, "name"),
            "shared": lambda: context.create_shared_consumer(topic, "name"),
            "shared durable": lambda: context.create_shared_durable_consumer(topic, "name"),
        }[kind]()
        producer = context.create_producer().send(topic, "a")
        assert consumer.receive_body(str, WAIT_MS) == "a"
        context.stop()
        producer.send(topic, "b")
        assert consumer.receive(NOTHING_MS) is None
        context.start()
        assert consumer.receive_body(str, WAIT_MS) == "b"
        consumer.close()
        if "durable" in kind:
            context.unsubscribe("name")


@pytest.mark.requirement("JMS-11.2.7-3")
def test_with_auto_start_off_delivery_waits_for_a_start(context: JMSContext, queue: Queue) -> None:
    """With auto_start off, creating consumers starts nothing; start does; it is each context's own setting."""
    context.auto_start = False
    assert context.auto_start is False
    consumer = context.create_consumer(queue)
    context.create_producer().send(queue, "a")
    assert consumer.receive(NOTHING_MS) is None
    context.create_consumer(queue).close()
    assert consumer.receive_no_wait() is None
    context.start()
    assert consumer.receive_body(str, WAIT_MS) == "a"
    context.stop()
    with context.create_context() as second:
        assert second.auto_start
        second.create_consumer(queue)  # starts the connection, which is the first one's, too
    context.create_producer().send(queue, "b")
    assert consumer.receive_body(str, WAIT_MS) == "b"


@pytest.mark.requirement("JMS-11.3.5-2")
def test_a_context_permits_everything(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A context has a settable client id, listener and auto_start, starts, stops, settles and closes."""
    with kjms_factory.create_context(JMSContext.CLIENT_ACKNOWLEDGE) as context:
        context.client_id = f"client-{uuid.uuid4().hex[:12]}"
        assert context.exception_listener is None
        context.exception_listener = print
        assert context.exception_listener is print
        context.auto_start = False
        consumer = context.create_consumer(queue)
        context.create_producer().send(queue, "a").send(queue, "b")
        context.start()
        assert consumer.receive_body(str, WAIT_MS) == "a"
        context.acknowledge()
        assert consumer.receive_body(str, WAIT_MS) == "b"
        context.recover()
        message = consumer.receive(WAIT_MS)
        assert message is not None
        assert (text(message), message.jms_redelivered) == ("b", True)
        context.acknowledge()
        context.stop()
        for call in (context.commit, context.rollback):
            with pytest.raises(IllegalStateException, match="not transacted"):
                call()
        transacted = context.create_context(JMSContext.SESSION_TRANSACTED)
        assert transacted.transacted
        transacted.create_producer().send(queue, "dropped")
        transacted.rollback()
        transacted.create_producer().send(queue, "kept")
        transacted.commit()
        with pytest.raises(IllegalStateException, match="transacted"):
            transacted.recover()
        transacted.close()
        context.start()
        assert consumer.receive_body(str, WAIT_MS) == "kept"
        context.acknowledge()
    with kjms_factory.create_context() as context:
        assert context.create_consumer(queue).receive(NOTHING_MS) is None


def test_acknowledge_is_for_the_modes_that_wait_for_it(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Acknowledge settles what the context received with CLIENT and INDIVIDUAL; elsewhere it changes nothing."""
    with kjms_factory.create_context() as context:
        for mode in MODES:
            context.create_producer().send(queue, mode.name).send(queue, "next")
            with context.create_context(mode) as second:
                consumer = second.create_consumer(queue)
                assert consumer.receive_body(str, WAIT_MS) == mode.name
                second.acknowledge()
                if second.transacted:
                    second.rollback()
                    assert consumer.receive_body(str, WAIT_MS) == mode.name
                    assert consumer.receive_body(str, WAIT_MS) == "next"
                    second.commit()
            if mode is not JMSContext.SESSION_TRANSACTED:
                assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "next"


def test_reprs_tell_the_state(context: JMSContext, queue: Queue) -> None:
    """Repr of everything tells its state in a line, and no property's value."""
    consumer, producer = context.create_consumer(queue), context.create_producer()
    producer.set_property("region", "secret")
    assert repr(context).startswith("<JMSContext, AUTO_ACKNOWLEDGE: <Session ")
    assert "started, 1 sessions" in repr(context)
    assert repr(consumer) == f"<JMSConsumer, <MessageConsumer on {queue!r}: open>>"
    assert repr(producer) == "<JMSProducer: PERSISTENT, priority 4, properties region>"
    second = context.create_context()
    second.close()
    assert repr(second) == "<JMSContext, AUTO_ACKNOWLEDGE: closed>"


def test_durations_may_be_timedeltas(context: JMSContext, queue: Queue) -> None:
    """Receives and time to live take a timedelta for milliseconds."""
    producer, consumer = context.create_producer(), context.create_consumer(queue)
    assert producer.set_time_to_live(timedelta(minutes=1)).time_to_live == 60_000
    assert consumer.receive(timedelta(milliseconds=1)) is None
    producer.send(queue, "a")
    assert consumer.receive_body(str, timedelta(seconds=20)) == "a"


# Exceptions.


@pytest.mark.requirement("JMS-11-1", "JMS-11.2.9-1", "JMS-7.2-2")
@pytest.mark.parametrize(
    "name",
    [
        "JMS", "IllegalState", "InvalidClientID", "InvalidDestination", "InvalidSelector", "JMSSecurity",
        "MessageFormat", "MessageNotWriteable", "ResourceAllocation", "TransactionInProgress", "TransactionRolledBack",
    ],
)  # fmt: skip
def test_each_exception_has_its_runtime_name(name: str) -> None:
    """A program may catch what the simplified API raises by its Java name."""
    runtime = getattr(kjms, f"{name}RuntimeException")
    assert runtime is getattr(kjms, f"{name}Exception")
    assert issubclass(runtime, kjms.JMSRuntimeException)


@pytest.mark.requirement(
    "JMS-11.2.1-4", "JMS-7.2-2", "JMS-7.3-3", "JMS-7.3-11", "JMS-7.3-16", "JMS-7.3-19", "JMS-3.8.1.1-55",
)  # fmt: skip
def test_errors_are_runtime_exceptions(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """What goes wrong in the simplified API raises the exception of its kind, a JMSRuntimeException."""
    large = "x" * 1_200_000  # characters; a Kafka topic takes about a million bytes unless told otherwise
    with kjms_factory.create_context() as context, context.create_context(JMSContext.SESSION_TRANSACTED) as transacted:
        producer = context.create_producer()
        producer.send(queue, "a")
        consumer = context.create_consumer(queue)
        received = consumer.receive(WAIT_MS)
        transacted.create_producer().send(queue, large)
        bad: list[tuple[type[JMSException], Callable[[], object]]] = [
            (kjms.IllegalStateRuntimeException, context.commit),
            (kjms.IllegalStateRuntimeException, transacted.recover),
            (kjms.IllegalStateRuntimeException, lambda: setattr(context, "client_id", "late")),
            (kjms.IllegalStateRuntimeException, lambda: context.create_durable_consumer(Topic("t"), "needs an id")),
            (kjms.InvalidDestinationRuntimeException, lambda: producer.send(None, "a")),  # type: ignore[arg-type]
            (kjms.InvalidDestinationRuntimeException, lambda: producer.send("orders", "a")),  # type: ignore[arg-type]
            (kjms.InvalidDestinationRuntimeException, lambda: context.unsubscribe("no such name")),
            (kjms.InvalidSelectorRuntimeException, lambda: context.create_consumer(queue, "a > > 1")),
            (kjms.InvalidSelectorRuntimeException, lambda: context.create_browser(queue, "a > > 1")),
            (kjms.MessageFormatRuntimeException, lambda: producer.send(queue, object())),
            (kjms.MessageFormatRuntimeException, lambda: producer.send(queue, {"tuple": (1, 2)})),
            (kjms.MessageFormatRuntimeException, lambda: producer.set_property("n", 2**64)),
            (kjms.MessageFormatRuntimeException, lambda: producer.get_int_property("missing")),
            (kjms.MessageFormatRuntimeException, lambda: producer.set_property("x", 1.5).get_int_property("x")),
            (kjms.MessageFormatRuntimeException, lambda: context.create_object_message(object())),
            (
                kjms.MessageNotWriteableRuntimeException,
                lambda: context.create_producer().set_property("n", 1).send(queue, received),
            ),
            (kjms.MessageNotWriteableRuntimeException, lambda: setattr(received, "text", "another")),
            (kjms.ResourceAllocationRuntimeException, lambda: producer.send(queue, large)),
            (kjms.TransactionRolledBackRuntimeException, transacted.commit),
        ]
        for kind, use in bad:
            with pytest.raises(kjms.JMSRuntimeException) as raised:
                use()
            assert isinstance(raised.value, kind)
        with kjms_factory.create_context() as other, pytest.raises(kjms.InvalidClientIDRuntimeException):
            other.client_id = ""


@pytest.mark.requirement("JMS-7.3-17", "NEV-329", "NET-43")
def test_a_send_for_which_there_is_no_room(kafka: Any, queue: Queue) -> None:
    """A send that does not get the memory it needs raises ResourceAllocationRuntimeException, and the next may."""
    tight = ConnectionFactory(kafka.bootstrap_servers, kafka={"queue.buffering.max.kbytes": 10}, send_timeout=1_000)
    with tight.create_context() as context:
        producer = context.create_producer()
        with pytest.raises(kjms.ResourceAllocationRuntimeException, match="buffer was full"):
            producer.send(queue, "x" * 20_000)
        producer.send(queue, "small")
        assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "small"
