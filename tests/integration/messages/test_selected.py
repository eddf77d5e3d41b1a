"""Selectors on a real Kafka: who gets what, what becomes of the rest, and when a wrong one is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    InvalidSelectorException,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
    Topic,
)

SECONDS = 20_000


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
    received = [consumer.receive(SECONDS) for _ in range(count)]
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
    """Whoever wants it gets it later."""
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
