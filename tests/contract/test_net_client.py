"""The rules of the WebLogic .NET client's interfaces, and of their relatives in JMS, that have no better place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import kjms
from kjms import (
    Connection,
    ConnectionFactory,
    ConnectionMetaData,
    DeliveryMode,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Message,
    MessageFormatException,
    MessageProducer,
    Queue,
    QueueSender,
    ResourceAllocationException,
    Session,
    Topic,
    TopicPublisher,
)
from kjms.engine.kafka import KafkaException
from tests.helpers import WAIT_MS, WAIT_SECONDS, Eventually, refused, send, text

# Exceptions.


@pytest.mark.requirement("NET-28", "NET-29", "NET-30", "NET-31")
def test_the_root_of_all_exceptions() -> None:
    """Every exception is a JMSException, which has a description, a code and a link; the description is its text."""
    classes = [value for name, value in vars(kjms).items() if name.endswith("Exception")]
    classes += [getattr(kjms, name) for name in kjms.__all__ if name.endswith("Exception")]
    assert len(set(classes)) >= 13
    below = OSError("below")
    for kind in classes:
        assert issubclass(kind, JMSException)
        error = kind("what happened", "CODE", below)
        assert (str(error), error.reason, error.error_code) == ("what happened", "what happened", "CODE")
        assert error.linked_exception is below


@pytest.mark.requirement("NEV-313")
@pytest.mark.parametrize(
    "call",
    [
        lambda session, _producer, _consumer: session._connection.create_session(9),
        lambda _session, producer, _consumer: setattr(producer, "priority", 10),
        lambda _session, producer, _consumer: setattr(producer, "delivery_mode", 3),
        lambda _session, producer, _consumer: setattr(producer, "time_to_live", -1),
        lambda _session, _producer, consumer: consumer.receive(-1),
    ],
    ids=["session mode", "priority", "delivery mode", "time to live", "timeout"],
)
def test_what_does_not_exist_is_a_value_error(session: Session, queue: Queue, call: Callable[..., object]) -> None:
    """It is Python's own error for what in Java is an IllegalArgumentException, and no JMSException."""
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    with pytest.raises(ValueError, match=r"not 9|not 10|not 3|is -1") as raised:
        call(session, producer, consumer)
    assert not isinstance(raised.value, JMSException)


@pytest.mark.requirement("NET-43", "NET-32", "JMS-7.3-1", "NEV-329")
def test_a_lack_of_resources(session: Session, queue: Queue) -> None:
    """A message that Kafka has no room for is a ResourceAllocationException, linked to Kafka's own error."""
    message = session.create_bytes_message()
    message.write_bytes(bytes(2_000_000))
    with pytest.raises(ResourceAllocationException, match=queue.queue_name) as caught:
        session.create_producer(queue).send(message)
    assert caught.value.error_code == "MSG_SIZE_TOO_LARGE"
    assert isinstance(caught.value.linked_exception, KafkaException)


@pytest.mark.requirement("NET-18", "NET-19", "NET-23", "NET-33", "NET-34", "NEV-314", "NEV-318", "NEV-319")
def test_each_mistake_has_its_exception(connection: Connection, session: Session, queue: Queue) -> None:
    """A call at a wrong time, a thing that is no destination, and a type that does not fit, each raise their own."""
    with pytest.raises(IllegalStateException, match="not transacted"):
        session.commit()
    with pytest.raises(InvalidDestinationException, match="'orders'"):
        session.create_producer("orders")  # type: ignore[arg-type]
    message = session.create_text_message()
    with pytest.raises(MessageFormatException, match="set"):
        message.set_object_property("name", {1})  # type: ignore[arg-type]
    message.set_string_property("weight", "heavy")
    with pytest.raises(MessageFormatException, match="'heavy'"):
        message.get_int_property("weight")
    with pytest.raises(InvalidSelectorException, match="column"):
        session.create_consumer(queue, "amount >")
    with pytest.raises(IllegalStateException, match="transacted"):
        connection.create_session(Session.SESSION_TRANSACTED).recover()
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for closing in (session, connection):
        closing.close()
        for use in (session.create_message, lambda: producer.send(message), consumer.receive_no_wait):
            with pytest.raises(IllegalStateException, match="closed"):
                use()
    with pytest.raises(IllegalStateException, match="closed"):
        connection.create_session()


# The connection.


@pytest.mark.requirement("NEV-155", "NEV-157")
def test_a_client_identifier_is_set_once_and_first(kjms_factory: ConnectionFactory, kjms_destination_name: str) -> None:
    """A second one, and one after the connection was used, are IllegalStateExceptions."""
    with kjms_factory.create_connection() as named, kjms_factory.create_connection() as used:
        named.client_id = kjms_destination_name
        with pytest.raises(IllegalStateException, match=kjms_destination_name):
            named.client_id = "another"
        used.start()
        with pytest.raises(IllegalStateException, match="before anything else"):
            used.client_id = "late"


@pytest.mark.requirement("JMS-3.5.9-2", "NET-212", "NEV-96", "NEV-183")
def test_a_connection_says_what_it_is(connection: Connection, session: Session, queue: Queue) -> None:
    """Its metadata tell the version of JMS, the provider and its version, and which JMSX properties it supports."""
    data = connection.meta_data
    assert isinstance(data, ConnectionMetaData)
    assert (data.jms_version, data.jms_major_version, data.jms_minor_version) == ("2.0", 2, 0)
    assert data.jms_provider_name == "kjms"
    assert data.provider_version == kjms.__version__
    assert f"{data.provider_major_version}.{data.provider_minor_version}" == ".".join(kjms.__version__.split(".")[:2])
    names = data.jmsx_property_names()
    message = session.create_text_message("x")
    message.set_string_property("JMSXGroupID", "group")
    message.set_int_property("JMSXGroupSeq", 3)
    session.create_producer(queue).send(message)
    received = session.create_consumer(queue).receive(WAIT_MS)
    assert received is not None
    assert {name: received.get_object_property(name) for name in names} == {
        "JMSXGroupID": "group", "JMSXGroupSeq": 3, "JMSXDeliveryCount": 1,
    }  # fmt: skip


# Producers.


@pytest.mark.requirement(
    "NET-344", "JAK-Session-6", "NET-315", "NET-317", "NET-318", "JAK-createProducer-3", "JAK-createProducer-4",
)  # fmt: skip
def test_producers_and_their_destinations(session: Session, kjms_destination_name: str) -> None:
    """Names given at run time become destinations; a producer has one, or each of its sends names one."""
    queue, topic = session.create_queue(kjms_destination_name), session.create_topic(f"{kjms_destination_name}-topic")
    assert (queue, topic) == (Queue(kjms_destination_name), Topic(f"{kjms_destination_name}-topic"))
    consumers = [session.create_consumer(each) for each in (queue, topic)]
    session.create_producer(queue).send(session.create_text_message("to the queue"))
    anonymous = session.create_producer(None)
    assert anonymous.destination is None
    anonymous.send(session.create_text_message("to the topic"), topic)
    assert [text(each.receive(WAIT_MS)) for each in consumers] == ["to the queue", "to the topic"]
    with pytest.raises(InvalidDestinationException):
        anonymous.send(session.create_text_message("nowhere"))
    with pytest.raises(InvalidDestinationException):
        session.create_producer("no destination")  # type: ignore[arg-type]
    assert issubclass(QueueSender, MessageProducer)
    assert issubclass(TopicPublisher, MessageProducer)


@pytest.mark.requirement(
    "NET-8", "NET-9", "NET-11", "NET-320", "NET-323", "NEV-257", "JMS-4.10-1", "JMS-4.6.1-2"
)  # fmt: skip
def test_delivery_modes(session: Session, queue: Queue, ends: Any) -> None:
    """There are two: PERSISTENT returns when Kafka has the message; a producer has one, and each send may name one."""
    assert {mode.name: mode.value for mode in DeliveryMode} == {"PERSISTENT": 2, "NON_PERSISTENT": 1}
    producer = session.create_producer(queue)
    assert producer.delivery_mode == DeliveryMode.PERSISTENT
    producer.send(session.create_message())
    assert ends(queue) == {0: 1}  # what Kafka has at this very moment
    producer.delivery_mode = DeliveryMode.NON_PERSISTENT
    producer.send(session.create_message())
    producer.send(session.create_message(), delivery_mode=DeliveryMode.PERSISTENT)
    assert ends(queue) == {0: 3}
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in range(3)]
    assert [message and message.jms_delivery_mode for message in received] == [2, 1, 2]


@pytest.mark.requirement("NET-80", "NET-79", "NEV-158", "NEV-163")
def test_a_stopped_connection_sends(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A producer sends before its connection is started; once it is, a listener may be called during set-up."""
    heard = threading.Event()
    with kjms_factory.create_connection() as connection:
        session = connection.create_session()
        send(session, queue, "early")
        connection.start()
        session.create_consumer(queue).message_listener = lambda message: heard.set()
        assert heard.wait(WAIT_SECONDS)
        connection.stop()
        other = Queue(f"{queue.queue_name}-other")
        send(connection.create_session(), other, "late")
        assert [text(each) for each in connection.create_session().create_browser(other)] == ["late"]


# Listeners, and whose thread a session is.


@pytest.mark.requirement("NET-17", "NET-312", "NET-313", "NET-314", "NET-422", "NET-424", "NEV-255", "JMS-4.5.2-7")
def test_a_listener_is_called_for_each_message_of_its_consumer(
    connection: Connection, kjms_destination_name: str, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """It gets the message; whose it is, its function knows; one that raises ends nothing, and gets it again, marked."""
    session = connection.create_session()
    queues = [Queue(f"{kjms_destination_name}-{number}") for number in range(2)]
    heard: list[tuple[int, str | None, bool]] = []

    def listen(number: int, message: Message) -> None:
        heard.append((number, text(message), message.jms_redelivered))
        if text(message) == "bad" and not message.jms_redelivered:
            raise RuntimeError("a mistake in a listener")

    for number, queue in enumerate(queues):
        consumer = session.create_consumer(queue)
        consumer.message_listener = partial(listen, number)
        assert consumer.message_listener is not None
    sending = connection.create_session()
    for number, queue in enumerate(queues):
        send(sending, queue, f"to {number}", "bad", "last")
    eventually(lambda: len(heard) == 8)
    for number in range(2):
        own = [(body, again) for whose, body, again in heard if whose == number]
        assert own == [(f"to {number}", False), ("bad", False), ("bad", True), ("last", False)]
    flagged = [record for record in caplog.records if "a message listener raised" in record.getMessage()]
    assert [record.levelname for record in flagged] == 2 * ["ERROR"]


@pytest.mark.requirement(
    "NET-349", "NET-423", "NET-354", "NET-355", "JAK-Session-17", "JMS-4.4.6-2", "NEV-204", "NEV-211",
)  # fmt: skip
def test_a_session_with_listeners_is_its_own_threads(
    connection: Connection, kjms_destination_name: str, eventually: Eventually
) -> None:
    """Its listeners run one at a time, in one thread; meanwhile another thread that uses the session gets an error."""
    session = connection.create_session()
    queues = [Queue(f"{kjms_destination_name}-{number}") for number in range(2)]
    threads: set[threading.Thread] = set()
    running: list[int] = []
    seen: list[int] = []
    first, go_on = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        threads.add(threading.current_thread())
        running.append(1)
        seen.append(len(running))
        first.set()
        assert go_on.wait(WAIT_SECONDS)
        running.pop()

    producer = session.create_producer(queues[0])
    for queue in queues:
        session.create_consumer(queue).message_listener = listen  # a listener of several consumers
    sending = connection.create_session()
    for queue in queues:
        send(sending, queue, "a", "b")
    assert first.wait(WAIT_SECONDS)
    with pytest.raises(IllegalStateException, match=r"kjms-session-.*-delivery"):
        producer.send(sending.create_text_message("from another thread"))
    go_on.set()
    eventually(lambda: len(seen) == 4)
    assert seen == [1, 1, 1, 1]
    assert len(threads) == 1


@pytest.mark.requirement(
    "NET-356", "NET-357", "JMS-4.4.1-2", "JAK-Session-19", "JAK-close-4", "JAK-close-16", "JAK-Session-33",
    "NEV-199",
)  # fmt: skip
def test_close_alone_comes_from_other_threads(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """While a thread waits in receive, another may close the session: the receive ends first, with None, then close."""
    order: list[object] = []
    with connection.create_session() as session:
        consumer, producer = session.create_consumer(queue), session.create_producer(queue)
        waiting = threading.Thread(target=lambda: order.append(consumer.receive()), name="the-other")
        waiting.start()
        eventually(lambda: refused(session.recover))
        for use in (session.recover, consumer.receive_no_wait, lambda: send(session, queue, "x")):
            with pytest.raises(IllegalStateException, match="'the-other' was using it"):
                use()
        session.close()
        order.append("closed")
        waiting.join(WAIT_SECONDS)
        session.close()  # again: nothing
    assert order == [None, "closed"]
    for used in (
        lambda: session.transacted, lambda: session.acknowledge_mode, session.create_message, session.commit,
        session.recover, lambda: session.create_consumer(queue), lambda: session.unsubscribe("x"),
        consumer.receive, lambda: producer.send(Message()),
    ):  # fmt: skip
        with pytest.raises(IllegalStateException, match="closed"):
            used()
