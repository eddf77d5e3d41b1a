"""Messages cross the bridge between a real ActiveMQ Artemis and kjms, either way, with all that belongs to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from java_remote import Java, JavaObject, Typed

from kjms import (
    BytesMessage,
    ConnectionFactory,
    MapMessage,
    Message,
    Queue,
    Session,
    StreamMessage,
    TextMessage,
    Topic,
)
from kjms.destinations import Destination
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException
from kjms.message._values import float32
from tests.helpers import WAIT_MS

if TYPE_CHECKING:
    from artemis_process import Artemis

    from kjms.bridge import Bridge

VALUES: list[tuple[str, str, Any]] = [
    ("boolean", "Boolean", True), ("byte", "Byte", -128), ("short", "Short", -300), ("char", "Char", "é"),
    ("int", "Int", -(2**31)), ("long", "Long", 2**63 - 1), ("float", "Float", float32(0.1)),
    ("double", "Double", 0.1), ("string", "String", "grüße 🎉"), ("bytes", "Bytes", b"\x00\xff"),
]  # fmt: skip
PROPERTIES = [entry for entry in VALUES if entry[0] not in {"char", "bytes"}]


@pytest.fixture
def old(java: Java, artemis: Artemis) -> Iterator[JavaObject]:
    """A session of Java with the old broker."""
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", artemis.url).createConnection()
    connection.start()
    yield connection.createSession(False, 1)
    connection.close()


@pytest.fixture
def bridging(
    artemis: Artemis, kjms_factory: ConnectionFactory, eventually: Callable[[Callable[[], object]], None]
) -> Iterator[Callable[..., Bridge]]:
    """Runs a bridge in a thread until the test ends."""
    from kjms.bridge import BridgeIn, BridgeOptions, BridgeOut, PeerOptions

    running: list[tuple[Bridge, threading.Thread, list[BaseException]]] = []

    def start(
        source: Destination, target: Destination | None = None, *, inward: bool, url: str | None = None, **options: Any
    ) -> Bridge:
        kind = BridgeIn if inward else BridgeOut
        bridge = kind(kjms_factory, PeerOptions(url or artemis.url), source, target, BridgeOptions(**options))
        failures: list[BaseException] = []

        def run() -> None:
            try:
                bridge.run()
            except JMSException as failure:
                failures.append(failure)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        running.append((bridge, thread, failures))
        return bridge

    yield start
    for bridge, _, _ in running:
        bridge.stop()
    for _, thread, failures in running:
        thread.join(30)
        assert not thread.is_alive()
        assert not failures


def move(
    kjms_factory: ConnectionFactory,
    url: str,
    source: Destination,
    target: Destination | None = None,
    *,
    inward: bool,
    **options: Any,
) -> Any:
    """Run a bridge until it is done."""
    from kjms.bridge import BridgeIn, BridgeOptions, BridgeOut, PeerOptions

    kind = BridgeIn if inward else BridgeOut
    return kind(kjms_factory, PeerOptions(url), source, target, BridgeOptions(**options)).run()


def received(consumer: Any) -> Message:
    message = consumer.receive(WAIT_MS)
    assert message is not None
    return message  # type: ignore[no-any-return]


def test_bodies_and_properties_come_in(
    old: JavaObject, here: Session, artemis: Artemis, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """Every type of body and property of a message in the old broker is what it was when kjms has it."""
    producer = old.createProducer(old.createQueue(kjms_destination_name))
    text = old.createTextMessage("grüße 🎉")
    for kind, name, value in PROPERTIES:
        getattr(text, f"set{name}Property")(f"its_{kind}", Typed(kind, value))
    data = old.createBytesMessage()
    data.writeUTF("x")
    map_, stream = old.createMapMessage(), old.createStreamMessage()
    for kind, name, value in VALUES:
        getattr(map_, f"set{name}")(kind, Typed(kind, value))
        getattr(stream, f"write{name}")(Typed(kind, value))
    for message in (text, data, map_, stream, old.createMessage(), old.createTextMessage()):
        producer.send(message)
    done = move(kjms_factory, artemis.url, Queue(kjms_destination_name), inward=True, count=6)
    assert done == (6, 0, 0)
    consumer = here.create_consumer(Queue(kjms_destination_name))
    first = received(consumer)
    assert isinstance(first, TextMessage)
    assert first.text == "grüße 🎉"
    for kind, _, value in PROPERTIES:
        assert (first.property_type(f"its_{kind}"), first.get_object_property(f"its_{kind}")) == (kind, value)
    assert first.jms_message_id == text.getJMSMessageID()
    assert first.jms_timestamp == text.getJMSTimestamp()
    assert first.jms_destination == Queue(kjms_destination_name)
    second, third, fourth, fifth, sixth = (received(consumer) for _ in range(5))
    assert isinstance(second, BytesMessage)
    assert second.read_utf() == "x"
    assert isinstance(third, MapMessage)
    assert third._body == {kind: (kind, value) for kind, _, value in VALUES}
    assert isinstance(fourth, StreamMessage)
    assert fourth._body == [(kind, value) for kind, _, value in VALUES]
    assert type(fifth) is Message
    assert isinstance(sixth, TextMessage)
    assert sixth.text is None


def test_bodies_and_properties_go_out(
    old: JavaObject, here: Session, artemis: Artemis, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """Every type of body and property of a message in kjms is what it was when the old broker has it."""
    producer = here.create_producer(Queue(kjms_destination_name))
    text = here.create_text_message("grüße 🎉")
    for kind, _, value in PROPERTIES:
        getattr(text, f"set_{kind}_property")(f"its_{kind}", value)
    map_, stream = here.create_map_message(), here.create_stream_message()
    for kind, _, value in VALUES:
        getattr(map_, f"set_{kind}")(kind, value)
        getattr(stream, f"write_{kind}")(value)
    for message in (text, BytesMessage(b"\x00\x01x"), map_, stream, Message()):
        producer.send(message)
    done = move(kjms_factory, artemis.url, Queue(kjms_destination_name), inward=False, count=5)
    assert done == (5, 0, 0)
    consumer = old.createConsumer(old.createQueue(kjms_destination_name))
    first, second, third, fourth, fifth = (consumer.receive(Typed("long", WAIT_MS)) for _ in range(5))
    assert first.getText() == "grüße 🎉"
    for kind, name, value in PROPERTIES:
        assert getattr(first, f"get{name}Property")(f"its_{kind}") == value
    assert first.getJMSMessageID() == text.jms_message_id
    assert first.getJMSTimestamp() == text.jms_timestamp
    assert second.readUTF() == "x"
    for kind, name, value in VALUES:
        assert getattr(third, f"get{name}")(kind) == value
    assert [fourth.readBoolean(), fourth.readByte(), fourth.readShort()] == [True, -128, -300]
    assert fifth.class_name == "JmsMessage"


def test_header_fields_come_in_and_go_out_again(
    old: JavaObject, here: Session, artemis: Artemis, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """Correlation, type, reply-to, priority, mode, group, expiry and ids are kept on the way in and out again."""
    source, target = kjms_destination_name, f"{kjms_destination_name}-2"
    producer = old.createProducer(old.createQueue(source))
    sent = old.createTextMessage("a")
    sent.setJMSCorrelationID("order-7")
    sent.setJMSType("paper")
    sent.setJMSReplyTo(old.createTopic("answers"))
    sent.setStringProperty("JMSXGroupID", "g")
    sent.setIntProperty("JMSXGroupSeq", 3)
    producer.send(sent, 1, 7, Typed("long", 3_600_000))
    assert move(kjms_factory, artemis.url, Queue(source), inward=True, count=1).moved == 1
    for message in here.create_browser(Queue(source)):
        assert (message.jms_correlation_id, message.jms_type) == ("order-7", "paper")
        assert message.jms_reply_to == Topic("answers")
        assert (message.jms_priority, message.jms_delivery_mode) == (7, 1)
        assert (message.get_string_property("JMSXGroupID"), message.get_int_property("JMSXGroupSeq")) == ("g", 3)
        assert message.jms_expiration == sent.getJMSExpiration()
    # To another queue, by a bridge of another name: the mark of the first one is for the queue that it came from.
    done = move(kjms_factory, artemis.url, Queue(source), Queue(target), inward=False, count=1, name=target)
    assert done.moved == 1
    received = old.createConsumer(old.createQueue(target)).receive(Typed("long", WAIT_MS))
    assert (received.getJMSCorrelationID(), received.getJMSType()) == ("order-7", "paper")
    assert received.getJMSReplyTo().getTopicName() == "answers"
    assert (received.getJMSPriority(), received.getJMSDeliveryMode()) == (7, 1)
    assert (received.getStringProperty("JMSXGroupID"), received.getIntProperty("JMSXGroupSeq")) == ("g", 3)
    assert abs(received.getJMSExpiration() - sent.getJMSExpiration()) < 1000
    assert received.getJMSMessageID() == sent.getJMSMessageID()
    assert received.getJMSDestination().getQueueName() == target
    assert received.getStringProperty("JMS_kjms_Bridges") == f";127.0.0.1:{artemis.port}/{source};{target};"


def test_a_selector_leaves_the_others_there(
    old: JavaObject,
    here: Session,
    artemis: Artemis,
    kjms_factory: ConnectionFactory,
    kjms_destination_name: str,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    """A bridge with a selector moves what it selects, in and out, and the rest stays where it is."""
    name = kjms_destination_name
    producer = old.createProducer(old.createQueue(name))
    for number in range(6):
        message = old.createTextMessage(str(number))
        message.setIntProperty("n", number)
        producer.send(message)
    assert move(kjms_factory, artemis.url, Queue(name), inward=True, selector="n >= 2", idle=300).moved == 4
    consumer = old.createConsumer(old.createQueue(name))
    assert [consumer.receive(Typed("long", WAIT_MS)).getText() for _ in range(2)] == ["0", "1"]
    consumer.close()
    done = move(
        kjms_factory, artemis.url, Queue(name), Queue(f"{name}-2"), inward=False, selector="n > 3", count=2, name="x"
    )
    assert done.moved == 2
    consumer = old.createConsumer(old.createQueue(f"{name}-2"))
    assert [consumer.receive(Typed("long", WAIT_MS)).getText() for _ in range(2)] == ["4", "5"]
    rest = here.create_consumer(Queue(name))
    assert [received(rest).get_int_property("n") for _ in range(2)] == [2, 3]


def test_a_topic_is_followed_also_while_no_bridge_runs(
    old: JavaObject,
    artemis: Artemis,
    here: Session,
    kjms_factory: ConnectionFactory,
    bridging: Callable[..., Bridge],
    kjms_destination_name: str,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    """A bridge that follows a topic gets what was sent while it did not run, until its subscription is ended."""
    from kjms.bridge import BridgeIn, PeerOptions

    topic = Topic(kjms_destination_name)
    assert move(kjms_factory, artemis.url, topic, Queue(topic.topic_name), inward=True, idle=100) == (0, 0, 0)
    producer = old.createProducer(old.createTopic(kjms_destination_name))
    for number in range(3):
        producer.send(old.createTextMessage(str(number)))
    bridge = bridging(topic, Queue(topic.topic_name), inward=True)
    consumer = here.create_consumer(Queue(kjms_destination_name))
    assert [received(consumer).text for _ in range(3)] == ["0", "1", "2"]  # type: ignore[attr-defined]
    producer.send(old.createTextMessage("3"))
    assert received(consumer).text == "3"  # type: ignore[attr-defined]
    bridge.stop()
    other = BridgeIn(kjms_factory, PeerOptions(artemis.url), topic, Queue(topic.topic_name))

    def ended() -> bool:
        try:
            other.end_subscription()
        except JMSException:  # the bridge has it still
            return False
        return True

    eventually(ended)
    producer.send(old.createTextMessage("4"))
    assert move(kjms_factory, artemis.url, topic, Queue(topic.topic_name), inward=True, idle=100) == (0, 0, 0)


def test_a_pair_of_bridges_moves_nothing_in_circles(
    old: JavaObject,
    here: Session,
    artemis: Artemis,
    bridging: Callable[..., Bridge],
    kjms_destination_name: str,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    """With a bridge in and one out between two topics, each message arrives once on the other side."""
    topic = Topic(kjms_destination_name)
    there = old.createConsumer(old.createTopic(kjms_destination_name))
    ours = here.create_consumer(topic)
    inward, outward = bridging(topic, inward=True), bridging(topic, inward=False)
    eventually(lambda: inward.is_connected and outward.is_connected)
    old.createProducer(old.createTopic(kjms_destination_name)).send(old.createTextMessage("from there"))
    assert received(ours).text == "from there"  # type: ignore[attr-defined]
    assert there.receive(Typed("long", WAIT_MS)).getText() == "from there"
    here.create_producer(topic).send(TextMessage("from here"))
    assert received(ours).text == "from here"  # type: ignore[attr-defined]
    assert there.receive(Typed("long", WAIT_MS)).getText() == "from here"
    eventually(lambda: (inward.progress.moved, outward.progress.moved) == (1, 1))
    assert there.receive(Typed("long", 300)) is None
    assert ours.receive(300) is None
    assert (inward.progress.moved, outward.progress.moved) == (1, 1)


def test_a_rate_is_kept(
    old: JavaObject, artemis: Artemis, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """A bridge with a rate moves no more messages in a second."""
    producer = old.createProducer(old.createQueue(kjms_destination_name))
    for number in range(30):
        producer.send(old.createTextMessage(str(number)))
    for inward in (True, False):
        began = time.monotonic()
        target = Queue(f"{kjms_destination_name}-2") if not inward else None
        name = None if inward else "slow"
        done = move(
            kjms_factory, artemis.url, Queue(kjms_destination_name), target, inward=inward, count=30, rate=50, name=name
        )
        assert done.moved == 30
        assert time.monotonic() - began >= (30 - 5 - 1) / 50  # a tenth of a second's messages may go at once


def test_what_came_already_is_dropped(
    here: Session, artemis: Artemis, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """A message whose id came before, over this bridge, is dropped by a later run, unless repeats are to be kept."""
    from kjms.bridge._link_spec import LinkSpec
    from kjms.bridge._options import PeerOptions
    from kjms.bridge._peer_link import PeerLink
    from kjms.mapping.amqp import encode

    message = TextMessage("a")
    message._message_id = f"ID:{kjms_destination_name}"
    spec = LinkSpec(False, kjms_destination_name, False, None, False, "sender", "sender")
    sender = PeerLink(PeerOptions(artemis.url), spec, 10, lambda: None)
    sender.start()
    for options, done in (({}, (1, 0, 0)), ({}, (0, 1, 0)), ({"keep_repeats": True}, (1, 0, 0))):
        sender.send([(object(), encode(message).encode())])
        queue = Queue(kjms_destination_name)
        assert move(kjms_factory, artemis.url, queue, inward=True, idle=500, **options) == done
    sender.close()


def test_there_and_back_again(
    old: JavaObject, here: Session, artemis: Artemis, kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """What came over a bridge goes back by one of another name, as often as one likes: no broker takes it for known."""
    message = old.createTextMessage("a")
    message.setStringProperty("_AMQ_DUPL_ID", kjms_destination_name)
    queue = Queue(kjms_destination_name)
    old.createProducer(old.createQueue(kjms_destination_name)).send(message)
    for number in range(2):
        for inward in (True, False):
            name = f"{'in' if inward else 'out'} {number}"
            assert move(kjms_factory, artemis.url, queue, inward=inward, count=1, name=name) == (1, 0, 0)
    consumer = old.createConsumer(old.createQueue(kjms_destination_name))
    assert consumer.receive(Typed("long", WAIT_MS)).getText() == "a"


def test_who_is_not_let_in(artemis: Artemis, kjms_factory: ConnectionFactory, guarded: Artemis) -> None:
    """A wrong password, an address that is not there, and a broker that does not answer are named in the error."""
    from kjms.bridge import BridgeIn, BridgeOut, PeerOptions

    place = f"127.0.0.1:{guarded.port}"
    with pytest.raises(JMSSecurityException, match="user 'mover'") as refused:
        BridgeIn(kjms_factory, PeerOptions(f"amqp://mover:wrong@{place}"), Queue("a")).run()
    assert "wrong" not in str(refused.value)
    with pytest.raises(JMSSecurityException):
        BridgeIn(kjms_factory, PeerOptions(f"amqp://{place}"), Queue("a")).run()
    peer = PeerOptions(f"amqp://mover@{place}", password="secret")
    for kind in (BridgeIn, BridgeOut):
        with pytest.raises(InvalidDestinationException, match="amqp:not-found"):
            kind(kjms_factory, peer, Queue("closed.a"), Queue("closed.a")).run()
    with pytest.raises(JMSException, match="no broker at 127"):
        BridgeIn(kjms_factory, PeerOptions("amqp://127.0.0.1:1", connect_timeout=300), Queue("a")).run()


def test_the_broker_goes_and_comes_back(
    java: Java,
    guarded: Artemis,
    here: Session,
    bridging: Callable[..., Bridge],
    kjms_destination_name: str,
    eventually: Callable[[Callable[[], object]], None],
) -> None:
    """Bridges wait for a broker that was killed, and continue when it is back: nothing is lost, nothing comes twice."""
    url = f"amqp://mover:secret@127.0.0.1:{guarded.port}"
    name = kjms_destination_name
    factory = java.new("org.apache.qpid.jms.JmsConnectionFactory", "mover", "secret", guarded.url)

    def fill(begin: int, end: int) -> None:
        connection = factory.createConnection()
        session = connection.createSession(False, 1)
        producer = session.createProducer(session.createQueue(name))
        for number in range(begin, end):
            producer.send(session.createTextMessage(str(number)))
        connection.close()

    fill(0, 50)
    inward = bridging(Queue(name), inward=True, url=url, rate=200)
    outward = bridging(Queue(name), Queue(f"{name}-2"), inward=False, url=url, rate=200, name=f"{name}-back")
    eventually(lambda: outward.progress.moved > 10)
    guarded.kill()
    eventually(lambda: not inward.is_connected)
    guarded.start()
    fill(50, 60)
    eventually(lambda: outward.progress.moved >= 60)
    connection = factory.createConnection()
    connection.start()
    session = connection.createSession(False, 1)
    consumer = session.createConsumer(session.createQueue(f"{name}-2"))
    assert [consumer.receive(Typed("long", WAIT_MS)).getText() for _ in range(60)] == [str(n) for n in range(60)]
    assert consumer.receive(Typed("long", 200)) is None
    connection.close()
