"""Selectors: which consumer gets a message, what becomes of the rest, and when a wrong one is noticed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    InvalidSelectorException,
    MessageConsumer,
    Queue,
    QueueConnectionFactory,
    Session,
    TextMessage,
    Topic,
    TopicConnectionFactory,
    aio,
)
from tests.helpers import WAIT_MS


def send(session: Session, destination: Queue | Topic) -> None:
    """Send a few messages that differ in header fields and properties."""
    producer = session.create_producer(destination)
    for text, properties, type_, how in [
        ("a", {"region": "EU", "amount": 5}, "order", {}),
        ("b", {"region": "EU", "amount": 500}, "order", {"priority": 8}),
        ("c", {"region": "US", "amount": "500"}, "order", {}),
        ("d", {"amount": 500}, None, {"delivery_mode": DeliveryMode.NON_PERSISTENT}),
    ]:
        message = session.create_text_message(text)
        message.properties.update(properties)
        message.jms_type = type_
        message.jms_correlation_id = f"id-{text}"
        producer.send(message, **how)  # type: ignore[arg-type]


def texts(consumer: MessageConsumer, count: int) -> str:
    """Receive *count* texts, and find that there are no more; sorted, since one has a higher priority."""
    received = [consumer.receive(WAIT_MS) for _ in range(count)]
    assert consumer.receive(50) is None
    return "".join(sorted(str(message.text) for message in received if isinstance(message, TextMessage)))


@pytest.mark.requirement(
    "JMS-3.8.1-1", "JMS-3.8.1.1-56", "JAK-createConsumer-5", "NET-226", "NET-170", "NET-309", "NEV-73", "NEV-108"
)
@pytest.mark.parametrize("place", [Queue, Topic])
@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("region = 'EU'", "ab"),
        ("amount > 100", "bd"),  # what is a string in "c" is no number, and raises nothing
        ("region = 'EU' AND amount > 100", "b"),
        ("region IS NULL", "d"),
        ("JMSType = 'order' AND JMSPriority > 4", "b"),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", "d"),
        ("JMSCorrelationID IN ('id-a', 'id-c') AND JMSMessageID LIKE 'ID:%' AND JMSTimestamp > 0", "ac"),
        ("amount LIKE '5%'", "c"),
    ],
)
def test_a_consumer_gets_only_what_its_selector_matches(
    connection: Connection, kjms_destination_name: str, place: Any, selector: str, expected: str
) -> None:
    """Header fields and properties decide, by queue and by topic."""
    session, destination = connection.create_session(), place(kjms_destination_name)
    consumer = session.create_consumer(destination, selector)
    assert consumer.message_selector == selector
    send(connection.create_session(), destination)
    assert texts(consumer, len(expected)) == expected


@pytest.mark.requirement("JMS-3.8.1-3", "NET-227")
def test_what_is_not_selected_stays_on_a_queue(connection: Connection, queue: Queue) -> None:
    """A consumer that matches gets it later."""
    session = connection.create_session()
    send(session, queue)
    with session.create_consumer(queue, "region = 'EU'") as consumer:
        assert texts(consumer, 2) == "ab"
    assert texts(session.create_consumer(queue), 2) == "cd"


@pytest.mark.requirement("JMS-3.8.1-3", "NET-227")
def test_what_is_not_selected_does_not_reach_a_subscription(connection: Connection, topic: Topic) -> None:
    """Each subscription of a topic takes in what it selects; nothing is left for others."""
    session = connection.create_session()
    europe, large = session.create_consumer(topic, "region = 'EU'"), session.create_consumer(topic, "amount > 100")
    send(connection.create_session(), topic)
    assert texts(europe, 2) == "ab"
    assert texts(large, 2) == "bd"
    assert texts(session.create_consumer(topic), 0) == ""


@pytest.mark.requirement("JAK-createConsumer-6", "JAK-createConsumer-7")
@pytest.mark.parametrize("nothing", [None, ""])
@pytest.mark.parametrize("place", [Queue, Topic])
def test_no_selector_selects_all(
    connection: Connection, kjms_destination_name: str, place: Any, nothing: str | None
) -> None:
    """None and the empty string are none."""
    destination = place(kjms_destination_name)
    consumer = connection.create_session().create_consumer(destination, nothing)
    assert consumer.message_selector is None
    send(connection.create_session(), destination)
    assert texts(consumer, 4) == "abcd"


@pytest.mark.requirement("JAK-createConsumer-8", "JMS-3.8.1.1-54", "JMS-3.8.1.1-55", "NET-25", "NET-293", "NET-294")
@pytest.mark.parametrize("place", [Queue, Topic])
@pytest.mark.parametrize("selector", ["amount >", "= 5", "amount > > 5", "region LIKE 5", "(a = 1", "a = 'x", "1"])
def test_a_wrong_selector_is_refused_at_once(
    kjms_factory: ConnectionFactory, kjms_destination_name: str, place: Any, selector: str
) -> None:
    """The call that is given it raises InvalidSelectorException, with no message sent and none received yet."""
    with kjms_factory.create_connection() as connection:  # not started
        session, destination = connection.create_session(), place(kjms_destination_name)
        with pytest.raises(InvalidSelectorException, match="column"):
            session.create_consumer(destination, selector)
        connection.start()
        consumer = session.create_consumer(destination)  # nothing came of the other one
        send(session, destination)
        assert texts(consumer, 4) == "abcd"


CREATORS: list[tuple[str, type[Queue | Topic], tuple[str, ...]]] = [
    ("create_consumer", Queue, ()),
    ("create_browser", Queue, ()),
    ("create_consumer", Topic, ()),
    ("create_durable_consumer", Topic, ("s",)),
    ("create_shared_consumer", Topic, ("s",)),
    ("create_shared_durable_consumer", Topic, ("s",)),
]
MORE: list[tuple[str, type[Queue | Topic], tuple[str, ...]]] = [("create_durable_subscriber", Topic, ("s",))]
OF_KINDS: list[tuple[str, type[Queue | Topic], tuple[str, ...]]] = [
    ("create_receiver", Queue, ()),
    ("create_subscriber", Topic, ()),
]


@pytest.mark.parametrize(("creator", "place", "more"), CREATORS + MORE)
def test_every_creator_takes_a_selector_by_name(
    kafka: Any, kjms_destination_name: str, creator: str, place: Any, more: tuple[str, ...]
) -> None:
    """Each creator of sessions and contexts takes the selector as `selector`."""
    factory, destination = (
        ConnectionFactory(kafka.bootstrap_servers, client_id=kjms_destination_name),
        place(kjms_destination_name),
    )
    with factory.create_connection() as connection, connection.create_session() as session:
        made = getattr(session, creator)(destination, *more, selector="region = 'EU'")
        assert made.message_selector == "region = 'EU'"
    if (creator, place, more) in CREATORS:
        with factory.create_context() as context:
            made = getattr(context, creator)(destination, *more, selector="region = 'EU'")
            assert made.message_selector == "region = 'EU'"


@pytest.mark.requirement("JAK-createConsumer-5")
def test_a_consumer_takes_its_selector_by_its_name_in_jms_too(session: Session, queue: Queue) -> None:
    """`message_selector` is an alias of `selector`; both at once are refused."""
    assert session.create_consumer(queue, message_selector="n = 2").message_selector == "n = 2"
    with pytest.raises(ValueError, match="selector and message_selector"):
        session.create_consumer(queue, "n = 1", message_selector="n = 2")


@pytest.mark.parametrize("name", ["selector", "message_selector"])
def test_the_jms_1_1_sessions_take_either_name(kafka: Any, kjms_destination_name: str, name: str) -> None:
    """So do receivers and subscribers of sessions for one domain."""
    with QueueConnectionFactory(kafka.bootstrap_servers).create_queue_connection() as queues:
        session = queues.create_queue_session()
        receiver = session.create_receiver(Queue(kjms_destination_name), **{name: "n > 1"})
        assert receiver.message_selector == "n > 1"
    with TopicConnectionFactory(kafka.bootstrap_servers).create_topic_connection() as topics:
        subscriber = topics.create_topic_session().create_subscriber(Topic(kjms_destination_name), **{name: "n > 1"})
        assert subscriber.message_selector == "n > 1"


@pytest.mark.parametrize(("creator", "place", "more"), CREATORS)
def test_every_creator_takes_a_selector_by_name_in_asyncio(
    kafka: Any, kjms_destination_name: str, creator: str, place: Any, more: tuple[str, ...]
) -> None:
    """So do contexts of asyncio."""

    async def main() -> list[str | None]:
        factory = aio.ConnectionFactory(kafka.bootstrap_servers, client_id=kjms_destination_name)
        async with factory.create_context() as context:
            destination = place(kjms_destination_name)
            if creator == "create_browser":
                for region in ("US", "EU"):
                    await context.create_producer().set_property("region", region).send(destination, region)
            async with getattr(context, creator)(destination, *more, selector="region = 'EU'") as made:
                if creator == "create_browser":
                    return [message.properties["region"] async for message in made]
                return [made.message_selector]

    assert asyncio.run(main()) == (["EU"] if creator == "create_browser" else ["region = 'EU'"])


@pytest.mark.requirement("JMS-3.8.1.1-41", "JMS-3.8.1.1-50")
def test_not_in_and_not_like_select_strings_alone(connection: Connection, queue: Queue) -> None:
    """NOT IN and NOT LIKE match no message in which the property is a number."""
    session = connection.create_session()
    producer = session.create_producer(queue)
    for text, amount in (("number", 5), ("string", "6"), ("wanted", "7")):
        message = session.create_text_message(text)
        message.set_object_property("amount", amount)
        producer.send(message)
    connection.start()
    with session.create_consumer(queue, "amount NOT IN ('6') AND amount NOT LIKE '9%'") as consumer:
        assert [consumer.receive(WAIT_MS).text, consumer.receive(500)] == ["wanted", None]  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", [True, False, 1.0, "2", 3, None])
def test_a_delivery_mode_is_one_of_two_numbers(session: Session, queue: Queue, mode: Any) -> None:
    """True equals 1 in Python, and is no delivery mode."""
    producer = session.create_producer(queue)
    with pytest.raises(ValueError, match="delivery_mode"):
        producer.delivery_mode = mode
    if mode is not None:
        with pytest.raises(ValueError, match="delivery_mode"):
            producer.send(session.create_text_message("x"), delivery_mode=mode)
