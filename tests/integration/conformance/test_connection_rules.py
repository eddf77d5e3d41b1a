"""What JMS says of connections, on a real Kafka: starting and stopping, identity, and what is made of them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from importlib.metadata import version
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kjms import (
    Connection,
    ConnectionFactory,
    ConnectionMetaData,
    IllegalStateException,
    JMSSecurityException,
    Message,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
    Topic,
    __version__,
)
from kjms.broker import LocalBroker

SECONDS = 20_000
NONE = 100  # milliseconds in which nothing is to come

Eventually = Callable[[Callable[[], object]], None]


def send(session: Session, destination: Queue | Topic, *texts: str) -> None:
    with session.create_producer(destination) as producer:
        for text in texts:
            producer.send(session.create_text_message(text))


def text(message: Message | None) -> str | None:
    assert isinstance(message, TextMessage)
    return message.text


class Stage:
    """A connection with a consumer that is asked and two that listen, and a started one that sends to all of them.

    Attributes:
        heard: What the listeners heard.
    """

    def __init__(self, factory: ConnectionFactory, name: str, stack: contextlib.ExitStack) -> None:
        self.queue, self.topic, self.other = Queue(name), Topic(f"{name}-topic"), Queue(f"{name}-other")
        self.connection = stack.enter_context(factory.create_connection())
        self.heard: list[str | None] = []
        self.consumer = self.connection.create_session().create_consumer(self.queue)
        listening = self.connection.create_session()
        for destination in (self.topic, self.other):
            consumer = listening.create_consumer(destination)
            consumer.message_listener = lambda message: self.heard.append(text(message))
        sending = stack.enter_context(factory.create_connection())
        sending.start()
        self._sender = sending.create_session()
        self._witness = self._sender.create_consumer(self.topic)

    def send(self, word: str) -> None:
        """Send *word* to each of the three; on return, somebody who may have it has got that of the topic."""
        for destination in (self.queue, self.other, self.topic):
            send(self._sender, destination, word)
        assert text(self._witness.receive(SECONDS)) == word


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
        assert text(stage.consumer.receive(SECONDS)) == "first"
        eventually(lambda: stage.heard == ["first", "first"])
        stage.connection.stop()
        stage.heard.clear()
    stage.send("held")
    assert stage.consumer.receive_no_wait() is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(stage.consumer.receive, SECONDS)
        with pytest.raises(TimeoutError):
            waiting.result(NONE / 1000)
        assert stage.heard == []
        stage.connection.start()
        assert text(waiting.result()) == "held"
    eventually(lambda: stage.heard == ["held", "held"])


@pytest.mark.requirement("NEV-164", "NEV-165")
def test_starts_and_stops_are_not_counted(stage: Stage, eventually: Eventually) -> None:
    """A second start delivers nothing twice, one stop undoes both, and one start undoes two stops."""
    stage.connection.start()
    stage.connection.start()
    stage.send("a")
    assert text(stage.consumer.receive(SECONDS)) == "a"
    eventually(lambda: len(stage.heard) == 2)
    stage.connection.stop()
    stage.send("b")
    assert stage.consumer.receive(NONE) is None
    stage.connection.stop()
    stage.connection.start()
    assert text(stage.consumer.receive(SECONDS)) == "b"
    eventually(lambda: len(stage.heard) == 4)
    assert stage.consumer.receive(NONE) is None
    assert stage.heard == ["a", "a", "b", "b"]


@pytest.mark.requirement("NEV-150", "NET-73", "NET-78", "NET-84")
def test_from_the_factory_to_producers_and_consumers(
    kjms_factory: ConnectionFactory, kjms_destination_name: str, eventually: Eventually
) -> None:
    """A factory makes a connection, that sessions, these any number of producers and consumers, all after the start."""
    queue, topic = Queue(f"{kjms_destination_name}-queue"), Topic(f"{kjms_destination_name}-topic")
    heard: list[str | None] = []
    with kjms_factory.create_connection() as connection:
        assert isinstance(connection, Connection)
        connection.start()
        one, two = connection.create_session(), connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert isinstance(one, Session)
        assert one is not two
        from_queue = one.create_consumer(queue)
        from_topic = [session.create_consumer(topic) for session in (one, one, two)]
        connection.create_session().create_consumer(topic).message_listener = lambda message: heard.append(
            text(message)
        )
        producers = [(session, session.create_producer(to)) for session in (one, two) for to in (queue, topic)]
        for session, producer in producers:
            producer.send(session.create_text_message("x"))
        assert [text(from_queue.receive(SECONDS)) for _ in range(2)] == ["x", "x"]
        for consumer in from_topic:
            assert [text(consumer.receive(SECONDS)) for _ in range(2)] == ["x", "x"]
        eventually(lambda: heard == ["x", "x"])


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
        assert text(consumers[2].receive(SECONDS)) == "x"
        assert consumers[0].receive(NONE) is None
        with pytest.raises(IllegalStateException):
            consumers[1].receive(NONE)
        connections[0].start()
        assert text(consumers[0].receive(SECONDS)) == "x"


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


@pytest.mark.requirement("NEV-147", "NET-65")
def test_a_connection_is_an_open_socket(kjms_broker: Any, eventually: Eventually) -> None:
    """While a connection is open, so is a socket of its own to the broker, whether or not anything was done with it."""
    ports = {int(server.rpartition(":")[2]) for server in kjms_broker.bootstrap_servers.split(",")}

    def sockets() -> set[int]:
        return {
            socket.laddr.port
            for socket in psutil.Process().net_connections("tcp")
            if socket.status == psutil.CONN_ESTABLISHED and socket.raddr.port in ports
        }

    before = sockets()
    with ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=12_345).create_connection():
        eventually(lambda: sockets() - before)


@pytest.mark.requirement(
    "JMS-4.3.1-1", "JMS-4.3.1-2", "JMS-7.3-5", "JMS-B.4.4-1", "NEV-316", "NET-41", "JMS-7.3-6", "NET-42", "JMS-2.7-1",
)  # fmt: skip
def test_who_connects_is_checked_when_the_connection_is_made(queue: Queue) -> None:
    """User and password may be given with it, and are refused with it; without, the factory's identity counts."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pa55word" user_bob="s3cret";'
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",  # whoever has no name is the broker itself
    }
    bob = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "s3cret",
    }
    with LocalBroker(config=config) as broker:
        admin = AdminClient({"bootstrap.servers": broker.listeners["PLAINTEXT"]})
        may = ("User:bob", "*", AclOperation.IDEMPOTENT_WRITE, AclPermissionType.ALLOW)  # and nothing to any topic
        rule = AclBinding(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, *may)
        admin.create_acls([rule])[rule].result(20)
        factory = ConnectionFactory(broker.bootstrap_servers, kafka=bob, send_timeout=2_000)
        with factory.create_connection("ann", "pa55word") as connection:
            assert isinstance(connection, Connection)
            connection.create_session().create_producer(queue)
        with factory.create_connection() as connection, pytest.raises(JMSSecurityException):
            connection.create_session().create_producer(queue)  # bob is known, and may not
        with pytest.raises(JMSSecurityException, match="uthentication"):
            factory.create_connection("ann", "wrong")


@pytest.mark.requirement("NEV-166", "JMS-4.3.4-6")
def test_stop_waits_for_a_message_that_is_on_its_way(
    kjms_factory: ConnectionFactory, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When stop has returned, no receive that was under way returns with a message until the connection is started."""
    taken, may_go = threading.Event(), threading.Event()
    with kjms_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        send(session, queue, "a")
        acceptable = Session._acceptable

        def slow(self: Session, delivery: Any, consumer: MessageConsumer) -> Message | None:
            taken.set()
            may_go.wait(20)
            return acceptable(self, delivery, consumer)

        monkeypatch.setattr(Session, "_acceptable", slow)
        consumer = session.create_consumer(queue)
        with ThreadPoolExecutor(2) as pool:
            receiving = pool.submit(consumer.receive, SECONDS)
            assert taken.wait(20)
            stopping = pool.submit(connection.stop)
            with pytest.raises(FutureTimeout):
                stopping.result(0.1)
            may_go.set()
            stopping.result(20)
            assert receiving.result(20) is not None
        send(session, queue, "b")
        assert consumer.receive(NONE) is None
        connection.start()
        assert consumer.receive(SECONDS) is not None


@pytest.mark.requirement(
    "JMS-3.5.9-2", "JMS-4.3.7-1", "NET-69", "NET-88", "NET-212", "NEV-96", "NEV-151", "NEV-181", "NEV-182", "NEV-183",
)  # fmt: skip
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
