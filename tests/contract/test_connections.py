"""What JMS says of connections: starting and stopping, identity, and what is made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from importlib.metadata import version
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    ConnectionMetaData,
    IllegalStateException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    Topic,
    __version__,
)
from tests.helpers import NOTHING_MS, WAIT_MS, Eventually, send, text


class Stage:
    """A connection with a consumer that is asked and two that listen, and a started one that sends to all of them.

    Attributes:
        received: What the listeners got.
    """

    def __init__(self, factory: ConnectionFactory, name: str, stack: contextlib.ExitStack) -> None:
        self.queue, self.topic, self.other = Queue(name), Topic(f"{name}-topic"), Queue(f"{name}-other")
        self.connection = stack.enter_context(factory.create_connection())
        self.received: list[str | None] = []
        self.consumer = self.connection.create_session().create_consumer(self.queue)
        listening = self.connection.create_session()
        for destination in (self.topic, self.other):
            consumer = listening.create_consumer(destination)
            consumer.message_listener = lambda message: self.received.append(text(message))
        sending = stack.enter_context(factory.create_connection())
        sending.start()
        self._sender = sending.create_session()
        self._witness = self._sender.create_consumer(self.topic)

    def send(self, word: str) -> None:
        """Send *word* to each of the three; on return, one of the topic's consumers has got it."""
        for destination in (self.queue, self.other, self.topic):
            send(self._sender, destination, word)
        assert text(self._witness.receive(WAIT_MS)) == word


@pytest.fixture
def stage(kjms_factory: ConnectionFactory, kjms_destination_name: str) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack:
        yield Stage(kjms_factory, kjms_destination_name, stack)


@pytest.mark.requirement("NEV-6", "NEV-9", "NEV-159", "NEV-160", "NET-74", "NET-75", "NET-76", "NEV-162")
@pytest.mark.parametrize("was_started", [False, True])
def test_nothing_is_delivered_unless_started(stage: Stage, was_started: bool, eventually: Eventually) -> None:
    """A new connection, and one that was stopped, delivers to none of its consumers until it is started."""
    if was_started:
        stage.connection.start()
        stage.send("first")
        assert text(stage.consumer.receive(WAIT_MS)) == "first"
        eventually(lambda: stage.received == ["first", "first"])
        stage.connection.stop()
        stage.received.clear()
    stage.send("held")
    assert stage.consumer.receive_no_wait() is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stage.consumer.receive, WAIT_MS)
        with pytest.raises(FutureTimeoutError):
            waiting.result(NOTHING_MS / 1000)
        assert stage.received == []
        stage.connection.start()
        assert text(waiting.result()) == "held"
    eventually(lambda: stage.received == ["held", "held"])


@pytest.mark.requirement("NEV-164", "NEV-165")
def test_starts_and_stops_are_not_counted(stage: Stage, eventually: Eventually) -> None:
    """A second start delivers nothing twice, one stop undoes both, and one start undoes two stops."""
    stage.connection.start()
    stage.connection.start()
    stage.send("a")
    assert text(stage.consumer.receive(WAIT_MS)) == "a"
    eventually(lambda: len(stage.received) == 2)
    stage.connection.stop()
    stage.send("b")
    assert stage.consumer.receive(NOTHING_MS) is None
    stage.connection.stop()
    stage.connection.start()
    assert text(stage.consumer.receive(WAIT_MS)) == "b"
    eventually(lambda: len(stage.received) == 4)
    assert stage.consumer.receive(NOTHING_MS) is None
    assert stage.received == ["a", "a", "b", "b"]


@pytest.mark.requirement("NEV-150", "NET-73", "NET-78", "NET-84")
def test_from_the_factory_to_producers_and_consumers(
    kjms_factory: ConnectionFactory, kjms_destination_name: str, eventually: Eventually
) -> None:
    """A factory makes a connection, that sessions, these any number of producers and consumers, all after the start."""
    queue, topic = Queue(f"{kjms_destination_name}-queue"), Topic(f"{kjms_destination_name}-topic")
    received: list[str | None] = []
    with kjms_factory.create_connection() as connection:
        assert isinstance(connection, Connection)
        connection.start()
        one, two = connection.create_session(), connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert isinstance(one, Session)
        assert one is not two
        from_queue = one.create_consumer(queue)
        from_topic = [session.create_consumer(topic) for session in (one, one, two)]
        connection.create_session().create_consumer(topic).message_listener = lambda message: received.append(
            text(message)
        )
        producers = [(session, session.create_producer(to)) for session in (one, two) for to in (queue, topic)]
        for session, producer in producers:
            producer.send(session.create_text_message("x"))
        assert [text(from_queue.receive(WAIT_MS)) for _ in range(2)] == ["x", "x"]
        for consumer in from_topic:
            assert [text(consumer.receive(WAIT_MS)) for _ in range(2)] == ["x", "x"]
        eventually(lambda: received == ["x", "x"])


@pytest.mark.requirement("NET-72")
def test_connections_are_independent(kjms_factory: ConnectionFactory, topic: Topic) -> None:
    """Of several connections of one program each is started, stopped and closed for itself."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(kjms_factory.create_connection()) for _ in range(3)]
        sessions = [connection.create_session() for connection in connections]
        consumers: list[MessageConsumer] = [session.create_consumer(topic) for session in sessions]
        for connection in connections:
            connection.start()
        connections[0].stop()
        connections[1].close()
        send(sessions[2], topic, "x")
        assert text(consumers[2].receive(WAIT_MS)) == "x"
        assert consumers[0].receive(NOTHING_MS) is None
        with pytest.raises(IllegalStateException):
            consumers[1].receive(NOTHING_MS)
        connections[0].start()
        assert text(consumers[0].receive(WAIT_MS)) == "x"


@pytest.mark.requirement("NEV-156")
def test_a_client_id_comes_before_any_other_action(kjms_factory: ConnectionFactory, kjms_destination_name: str) -> None:
    """The id is accepted at once after the connection was made, and refused after anything was done with it."""
    actions: list[Callable[[Connection], object]] = [
        lambda connection: connection.create_session(),
        lambda connection: connection.start(),
        lambda connection: connection.stop(),
        lambda connection: setattr(connection, "exception_listener", print),
    ]
    with kjms_factory.create_connection() as early:
        early.client_id = kjms_destination_name
        for action in actions:
            action(early)
            assert early.client_id == kjms_destination_name
            with kjms_factory.create_connection() as late:
                action(late)
                with pytest.raises(IllegalStateException, match="before anything else"):
                    late.client_id = f"{kjms_destination_name}-late"
                assert late.client_id is None


@pytest.mark.requirement("JMS-4.3.7-1", "NET-69", "NET-88", "NEV-151", "NEV-181", "NEV-182")
def test_the_metadata_are_those_of_the_connection(connection: Connection) -> None:
    """They name JMS 2.0, kjms and its version, and the JMSX properties that messages of the connection can have."""
    metadata: Any = connection.meta_data
    assert isinstance(metadata, ConnectionMetaData)
    assert (metadata.jms_version, metadata.jms_major_version, metadata.jms_minor_version) == ("2.0", 2, 0)
    assert metadata.jms_provider_name == "kjms"
    assert metadata.provider_version == __version__ == version("kjms")
    major, minor = __version__.split(".")[:2]
    assert (metadata.provider_major_version, metadata.provider_minor_version) == (int(major), int(minor))
    names = list(metadata.jmsx_property_names())
    assert sorted(names) == ["JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq"]
    message = Message()
    for name in names:
        if name != "JMSXDeliveryCount":  # the provider's
            message.set_object_property(name, "group" if name == "JMSXGroupID" else 1)
            assert message.property_exists(name)
    for name in ("JMSXUserID", "JMSXAppID", "JMSXProducerTXID", "JMSXConsumerTXID", "JMSXRcvTimestamp", "JMSXState"):
        assert name not in names
