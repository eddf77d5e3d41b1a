"""When a message counts as consumed, and what comes again: the rules of each acknowledge mode."""

from __future__ import annotations

import copy
import gc
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
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
    MessageConsumer,
    ObjectMessage,
    Queue,
    ResourceAllocationException,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from tests.helpers import WAIT_MS, Eventually, numbered, seen, send, text, texts_of

BY_ITSELF = [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE]
BY_THE_CLIENT = [Session.CLIENT_ACKNOWLEDGE, Session.INDIVIDUAL_ACKNOWLEDGE]

MANY = 600  # messages
LIMIT = 10  # of them, for a session

Settled = Callable[[Queue], int]


def taken(consumer: MessageConsumer) -> Message:
    message = consumer.receive(WAIT_MS)
    assert message is not None
    return message


# What a session keeps.


@pytest.mark.requirement("JAK-Session-10", "JMS-4.4-1", "NEV-195", "NET-348")
@pytest.mark.parametrize("place", [Queue, Topic])
def test_a_session_keeps_what_it_delivered_until_it_is_acknowledged(
    connection: Connection, kjms_destination_name: str, place: Callable[[str], Any]
) -> None:
    """A message can be delivered again as long as it is not acknowledged, though the program has forgotten it."""
    destination, session = place(kjms_destination_name), connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(destination)
    send(connection, destination, "a", "b", "c")
    assert [text(taken(consumer)) for _ in "abc"] == ["a", "b", "c"]
    gc.collect()
    session.recover()
    again = [taken(consumer) for _ in "abc"]
    assert texts_of(again) == ["a", "b", "c"]
    again[0].acknowledge()
    session.recover()
    send(connection, destination, "d")
    assert text(taken(consumer)) == "d"


@pytest.mark.requirement("JAK-CLIENT_ACKNOWLEDGE-4")
def test_many_messages_may_wait_to_be_acknowledged(kafka: Any, queue: Queue, settled: Settled) -> None:
    """A session keeps receiving while it has many times what is fetched ahead, and can acknowledge it all."""
    factory = ConnectionFactory(kafka.bootstrap_servers, prefetch=5)
    with factory.create_connection() as connection:
        connection.start()
        send(connection, queue, *range(60))
        consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        held = [taken(consumer) for _ in range(60)]
        assert texts_of(held) == [str(number) for number in range(60)]
        assert settled(queue) == 0
        held[-1].acknowledge()
        assert settled(queue) == 60


# AUTO_ACKNOWLEDGE and DUPS_OK_ACKNOWLEDGE.


@pytest.mark.requirement("JAK-AUTO_ACKNOWLEDGE-2", "JMS-4.4.11-3", "NEV-238")
@pytest.mark.parametrize("then", ["recover", "the consumer closes", "the session closes", "the connection closes"])
def test_a_message_is_acknowledged_when_receive_has_returned_it(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, then: str
) -> None:
    """Whatever the program does next, without any further call about that message, it does not come again."""
    send(connection, queue, "a", "b")
    with kjms_factory.create_connection() as other:
        other.start()
        session = other.create_session(Session.AUTO_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        assert text(taken(consumer)) == "a"
        if then == "recover":
            session.recover()
        else:
            {"the consumer closes": consumer, "the session closes": session, "the connection closes": other}[
                then
            ].close()
            consumer = connection.create_session().create_consumer(queue)
        assert seen(taken(consumer)) == ("b", False, 1)


@pytest.mark.requirement("JMS-4.4.11-4", "JAK-AUTO_ACKNOWLEDGE-3", "NEV-239")
def test_a_message_is_acknowledged_when_the_listener_has_returned(
    connection: Connection, queue: Queue, settled: Settled, eventually: Eventually
) -> None:
    """Not while the listener runs, but then, without any call."""
    running, may_return = threading.Event(), threading.Event()

    def listener(_message: Message) -> None:
        running.set()
        may_return.wait(20)

    connection.create_session(Session.AUTO_ACKNOWLEDGE).create_consumer(queue).message_listener = listener
    send(connection, queue, "a")
    assert running.wait(20)
    assert settled(queue) == 0
    may_return.set()
    eventually(lambda: settled(queue) == 1)


@pytest.mark.requirement("JMS-4.4.11-2", "JAK-DUPS_OK_ACKNOWLEDGE-2", "NEV-236")
def test_dups_ok_acknowledges_lazily(
    connection: Connection, queue: Queue, settled: Settled, eventually: Eventually
) -> None:
    """Acknowledgements lag behind deliveries, so that a failure would repeat several messages; then they catch up."""
    send(connection, queue, *range(200))
    consumer = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE).create_consumer(queue)
    lags = []
    for received in range(20, 201, 20):
        for _ in range(20):
            taken(consumer)
        lags.append(received - settled(queue))
    assert max(lags) > 1
    eventually(lambda: settled(queue) >= 199)


@pytest.mark.requirement("JMS-3.6-2")
@pytest.mark.parametrize("mode", BY_ITSELF)
def test_acknowledge_is_ignored_where_the_session_acknowledges(
    connection: Connection, queue: Queue, mode: int, eventually: Eventually
) -> None:
    """It raises nothing and does nothing: a message whose listener calls it and then fails comes again."""
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    send(connection, queue, "a", "b")
    taken(consumer).acknowledge()
    heard = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        message.acknowledge()
        if len(heard) == 1:
            raise RuntimeError("too late")

    consumer.message_listener = listener
    eventually(lambda: len(heard) == 2)
    assert heard == [("b", False, 1), ("b", True, 2)]


@pytest.mark.requirement(
    "JMS-4.5.2-2", "JMS-4.5.2-4", "NEV-249", "NEV-251", "JMS-3.5.11-1", "JMS-3.5.11-2", "JAK-AUTO_ACKNOWLEDGE-3"
)
@pytest.mark.parametrize(
    ("mode", "place"),
    [(Session.AUTO_ACKNOWLEDGE, Queue), (Session.DUPS_OK_ACKNOWLEDGE, Queue), (Session.AUTO_ACKNOWLEDGE, Topic)],
)
def test_what_a_listener_failed_at_comes_again_at_once(
    connection: Connection, kjms_destination_name: str, place: Callable[[str], Any], mode: int, eventually: Eventually
) -> None:
    """It is the next message that the listener gets, before those already there, marked and counted each time."""
    destination = place(kjms_destination_name)
    consumer = connection.create_session(mode).create_consumer(destination)
    send(connection, destination, "a", "b")
    heard = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        if len(heard) < 3:
            raise RuntimeError("not yet")

    consumer.message_listener = listener
    eventually(lambda: len(heard) == 4)
    assert heard == [("a", False, 1), ("a", True, 2), ("a", True, 3), ("b", False, 1)]


# CLIENT_ACKNOWLEDGE.


@pytest.mark.requirement("JAK-CLIENT_ACKNOWLEDGE-3", "JMS-4.4.11-6", "NEV-241", "JAK-recover-7")
@pytest.mark.parametrize("which", [0, 1, 2])
def test_acknowledging_one_message_acknowledges_all_that_the_session_consumed(
    connection: Connection, queue: Queue, settled: Settled, which: int
) -> None:
    """Earlier and later ones, those of other consumers too; but none that was not delivered."""
    other = Queue(f"{queue.queue_name}-other")
    send(connection, queue, "a1", "a2", "a3")
    send(connection, other, "b1", "b2")
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    first, second = session.create_consumer(queue), session.create_consumer(other)
    messages = [taken(first), taken(second), taken(first)]
    assert (settled(queue), settled(other)) == (0, 0)
    messages[which].acknowledge()
    assert (settled(queue), settled(other)) == (2, 1)


@pytest.mark.requirement("JMS-4.5.2-5", "NEV-252")
def test_after_a_listener_failed_the_client_gets_the_next_message(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """In CLIENT_ACKNOWLEDGE the message that the listener failed at comes again only when the client recovers."""
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    heard = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        if len(heard) == 1:
            raise RuntimeError("no")
        if text(message) == "c" and not message.jms_redelivered:
            session.recover()

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "a", "b", "c")
    eventually(lambda: len(heard) == 6)
    assert heard == [(name, count > 1, count) for count in (1, 2) for name in "abc"]


@pytest.mark.requirement("JMS-3.6-1", "NET-151")
@pytest.mark.parametrize("mode", BY_THE_CLIENT)
def test_every_kind_of_message_can_be_acknowledged(
    connection: Connection, queue: Queue, mode: int, settled: Settled
) -> None:
    """All have one and the same method for it."""
    kinds = [Message, TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage]
    with connection.create_session() as session, session.create_producer(queue) as producer:
        for kind in kinds:
            producer.send(kind())
    consumer = connection.create_session(mode).create_consumer(queue)
    for number, kind in enumerate(kinds, 1):
        message = taken(consumer)
        assert type(message) is kind
        assert kind.acknowledge is Message.acknowledge
        message.acknowledge()
        assert settled(queue) == number


@pytest.mark.requirement("JMS-4.3.5-9", "NEV-177")
def test_nothing_can_be_acknowledged_when_the_connection_is_closed(
    kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """The call raises IllegalStateException, whatever the session's mode."""
    modes = BY_ITSELF + BY_THE_CLIENT
    with kjms_factory.create_connection() as connection:
        connection.start()
        send(connection, queue, *modes)
        messages = [taken(connection.create_session(mode).create_consumer(queue)) for mode in modes]
    assert texts_of(messages) == [str(mode) for mode in modes]
    for message in messages:
        with pytest.raises(IllegalStateException, match="closed"):
            message.acknowledge()


@pytest.mark.requirement("JAK-CLIENT_ACKNOWLEDGE-5", "JMS-4.4.11-7", "NEV-242")
@pytest.mark.parametrize("mode", [*BY_THE_CLIENT, Session.SESSION_TRANSACTED])
def test_an_administrator_may_limit_unacknowledged_messages(kafka: Any, queue: Queue, mode: int) -> None:
    """A session at its limit receives nothing more until messages are acknowledged; others get them meanwhile."""
    factory = ConnectionFactory(kafka.bootstrap_servers, max_unacknowledged=2)
    with factory.create_connection() as connection:
        connection.start()
        send(connection, queue, *"abcd")
        session = connection.create_session(mode)
        consumer = session.create_consumer(queue)
        held = [taken(consumer) for _ in range(2)]
        with pytest.raises(ResourceAllocationException, match=r"holds 2 messages.*max_unacknowledged"):
            consumer.receive(WAIT_MS)
        assert text(taken(connection.create_session(mode).create_consumer(queue))) == "c"
        if mode == Session.SESSION_TRANSACTED:
            session.commit()
        else:
            held[0].acknowledge()
        assert text(taken(consumer)) == "d"


@pytest.mark.requirement("JMS-4.4.11-7", "NEV-242")
def test_a_listener_at_its_sessions_limit_waits(kafka: Any, queue: Queue, eventually: Eventually) -> None:
    """It is called again when messages were acknowledged; the exception listener is called, once."""
    factory = ConnectionFactory(kafka.bootstrap_servers, max_unacknowledged=2)
    heard: list[Message] = []
    told: list[JMSException] = []
    with factory.create_connection() as connection:
        connection.exception_listener = told.append
        connection.start()
        connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue).message_listener = heard.append
        send(connection, queue, *"abc")
        eventually(lambda: told)
        assert texts_of(heard) == ["a", "b"]
        heard[0].acknowledge()
        eventually(lambda: len(heard) == 3)
        assert text(heard[2]) == "c"
    assert [type(failure) for failure in told] == [ResourceAllocationException]


def test_a_pool_of_threads_acknowledges_what_a_listener_gives_it(
    kafka: Any, queue: Queue, settled: Settled, eventually: Eventually
) -> None:
    """They do so at the same time, and twice; the listener of a session at its limit is called as soon as it may."""
    factory = ConnectionFactory(kafka.bootstrap_servers, max_unacknowledged=LIMIT)
    given = SimpleQueue[Message | None]()
    done: list[Message] = []

    def work() -> None:
        while (message := given.get()) is not None:
            message.acknowledge()
            message.acknowledge()
            done.append(message)

    pool = [threading.Thread(target=work) for _ in range(4)]
    with factory.create_connection() as connection:
        told: list[JMSException] = []
        connection.exception_listener = told.append
        numbered(connection, queue, MANY)
        for thread in pool:
            thread.start()
        connection.start()
        consumer = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
        consumer.message_listener = given.put
        eventually(lambda: len(done) == MANY)
        for _ in pool:
            given.put(None)
        for thread in pool:
            thread.join()
    assert sorted(int(text(message)) for message in done) == list(range(MANY))
    assert {type(failure) for failure in told} <= {ResourceAllocationException}
    assert settled(queue) == MANY


# Recovery.


@pytest.mark.requirement("JAK-recover-3", "JMS-4.4.11-10", "NEV-244", "JMS-4.4.13-3")
@pytest.mark.parametrize("place", [Queue, Topic])
def test_what_was_recovered_is_the_same_message_once_more(
    connection: Connection, kjms_destination_name: str, place: Callable[[str], Any]
) -> None:
    """It has the same id, is marked and counted, and is there once: acknowledged, it has gone."""
    destination, session = place(kjms_destination_name), connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(destination)
    send(connection, destination, "a", "b")
    ids = [taken(consumer).jms_message_id for _ in "ab"]
    for count in (2, 3):
        session.recover()
        again = [taken(consumer) for _ in "ab"]
        assert [seen(message) for message in again] == [("a", True, count), ("b", True, count)]
        assert [message.jms_message_id for message in again] == ids
    again[0].acknowledge()
    send(connection, destination, "c")
    assert seen(taken(consumer)) == ("c", False, 1)


@pytest.mark.requirement("JAK-recover-1", "JAK-recover-2", "JMS-4.4.11-8", "NEV-243")
def test_a_recovered_session_begins_again_with_its_oldest_message(
    kjms_factory: ConnectionFactory, connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """Of all its consumers' messages that is the next one, though others are ready; then come all the rest."""
    places = {"a": queue, "b": Queue(f"{queue.queue_name}-b")}
    for name, place in places.items():  # both are being read from here on
        send(connection, place, "warm")
        taken(connection.create_session().create_consumer(place))
        send(connection, place, *(f"{name}{number}" for number in range(20)))
    series: list[str] = []
    recovered: list[int] = []

    def listener(message: Message) -> None:
        series.append(str(text(message)))
        threading.Event().wait(0.005)  # the other one's are read meanwhile
        if not recovered and series[-1][0] == series[0][0] and {one[0] for one in series} == set(places):
            recovered.append(len(series))
            session.recover()

    with kjms_factory.create_connection() as other:
        session = other.create_session(Session.CLIENT_ACKNOWLEDGE)
        for place in places.values():
            session.create_consumer(place).message_listener = listener
        other.start()
        eventually(lambda: recovered and len(series) == 40 + recovered[0])
    again = series[recovered[0] :]
    assert again[0] == series[0]
    assert sorted(again) == sorted(f"{name}{number}" for name in places for number in range(20))


@pytest.mark.requirement("JAK-recover-4")
@pytest.mark.parametrize("mode", BY_ITSELF + BY_THE_CLIENT)
@pytest.mark.parametrize("how", ["returns", "raises"])
def test_a_listener_may_recover_its_session(
    connection: Connection, queue: Queue, mode: int, how: str, eventually: Eventually
) -> None:
    """Its own message is not acknowledged yet, so it comes again, once, before the next one, in every mode."""
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    send(connection, queue, "a", "b")
    heard = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        if len(heard) == 1:
            session.recover()
            if how == "raises":
                raise RuntimeError("after recover")

    consumer.message_listener = listener
    eventually(lambda: len(heard) == 3)
    assert heard == [("a", False, 1), ("a", True, 2), ("b", False, 1)]
    if mode in BY_ITSELF:
        consumer.message_listener = None
        session.recover()  # there is nothing left
        send(connection, queue, "c")
        assert seen(taken(consumer)) == ("c", False, 1)


HEADERS = [
    "jms_message_id", "jms_timestamp", "jms_correlation_id", "jms_reply_to", "jms_destination", "jms_delivery_mode",
    "jms_type", "jms_expiration", "jms_delivery_time", "jms_priority",
]  # fmt: skip


def filled(session: Session) -> Iterator[Message]:
    """One message of each kind that has a body."""
    yield session.create_text_message("hello")
    data = session.create_bytes_message()
    data.write_int(7)
    yield data
    map_message = session.create_map_message()
    map_message["n"] = 7
    yield map_message
    stream = session.create_stream_message()
    stream.write_string("seven")
    stream.write_int(7)
    yield stream
    yield session.create_object_message({"n": [7]})


def content(message: Message) -> dict[str, Any]:
    """All that a message says, but for what redelivery changes; of a stream as far as it was not read."""
    if isinstance(message, StreamMessage):
        body: Any = [message.read_string(), message.read_int()]
    else:
        body = message.get_body(object)
    properties = {name: value for name, value in message.properties.items() if name != "JMSXDeliveryCount"}
    return copy.deepcopy({"body": body, "properties": properties} | {name: getattr(message, name) for name in HEADERS})


def spoil(message: Message) -> None:
    """Change whatever an application can change."""
    if isinstance(message, ObjectMessage):
        message.object["n"].append(8)
    message.clear_body()
    message.clear_properties()
    message.properties["region"] = "US"
    message.jms_message_id = message.jms_correlation_id = message.jms_type = "spoilt"
    message.jms_timestamp = message.jms_expiration = message.jms_delivery_time = 1
    message.jms_reply_to = message.jms_destination = Queue("spoilt")
    message.jms_delivery_mode, message.jms_priority = 1, 0


@pytest.mark.requirement("JMS-3.10-2")
@pytest.mark.parametrize("again", ["after recover", "from a closed session", "after a listener failed"])
def test_a_message_that_was_changed_comes_again_as_it_was_sent(
    connection: Connection, queue: Queue, again: str, eventually: Eventually
) -> None:
    """What the consumer did to its message is not seen in the next delivery, whatever the kind of message."""
    with connection.create_session() as session, session.create_producer(queue) as producer:
        for message in filled(session):
            message.properties["region"] = "EU"
            message.jms_correlation_id, message.jms_type, message.jms_reply_to = "c-1", "kind", Queue("answers")
            producer.send(message, priority=7, time_to_live=600_000)
    first: list[dict[str, Any]] = []
    second: list[dict[str, Any]] = []

    def use(message: Message) -> None:
        (second if message.jms_redelivered else first).append(content(message))
        spoil(message)
        if again == "after a listener failed" and len(first) > len(second):
            raise RuntimeError("spoilt")

    fails = again == "after a listener failed"
    session = connection.create_session(Session.AUTO_ACKNOWLEDGE if fails else Session.CLIENT_ACKNOWLEDGE)
    consumer = session.create_consumer(queue, "region = 'EU'")
    if fails:
        consumer.message_listener = use
        eventually(lambda: len(second) == 5)
    else:
        for _ in range(5):
            use(taken(consumer))
        if again == "after recover":
            session.recover()
        else:
            session.close()
            consumer = connection.create_session().create_consumer(queue, "region = 'EU'")
        for _ in range(5):
            use(taken(consumer))
    assert first == second
    assert [one["body"] for one in first] == ["hello", b"\0\0\0\7", {"n": 7}, ["seven", 7], {"n": [7]}]
    assert {one["jms_correlation_id"] for one in first} == {"c-1"}
