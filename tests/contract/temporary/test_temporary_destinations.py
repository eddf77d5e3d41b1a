"""What holds for temporary queues and temporary topics alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    InvalidDestinationException,
    JMSException,
    Session,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
)
from tests.helpers import WAIT_MS, texts

Make = Callable[[Session], Any]
requirement = pytest.mark.requirement


def each_kind(queue: Sequence[str] = (), topic: Sequence[str] = ()) -> pytest.MarkDecorator:
    """Run the test with what makes a temporary queue, and a temporary topic, and the requirements of each."""
    return pytest.mark.parametrize(
        "make",
        [
            pytest.param(Session.create_temporary_queue, marks=[requirement(*queue)] if queue else [], id="queue"),
            pytest.param(Session.create_temporary_topic, marks=[requirement(*topic)] if topic else [], id="topic"),
        ],
    )


@requirement("JMS-4.4.3-4", "JAK-Session-5", "NEV-190", "NEV-205", "NET-343")
@each_kind(queue=["JAK-createTemporaryQueue-1"], topic=["JAK-createTemporaryTopic-1", "NEV-292"])
def test_each_is_made_by_a_session_and_like_no_other(
    kjms_factory: ConnectionFactory, connection: Connection, make: Make
) -> None:
    """Sessions of any connections make them; no two are the same, or have one name."""
    with kjms_factory.create_connection() as other:
        sessions = [each.create_session() for each in (connection, connection, other)]
        made = [make(session) for session in sessions for _ in range(3)]
        kind = TemporaryQueue if make is Session.create_temporary_queue else TemporaryTopic
        assert [type(each) for each in made] == [kind] * 9
        names = {each.queue_name if isinstance(each, TemporaryQueue) else each.topic_name for each in made}
        assert len(set(made)) == len(names) == 9


@requirement("JMS-4.4.3-6", "NET-24")
@each_kind(queue=["JAK-createTemporaryQueue-3"], topic=["JAK-createTemporaryTopic-3"])
def test_deleting(session: Session, make: Make) -> None:
    """It is refused while a consumer is open; after it, sends are refused at once, and consumers and browsers."""
    destination = make(session)
    producer = session.create_producer(destination)
    consumer = session.create_consumer(destination)
    with pytest.raises(JMSException, match="open consumer"):
        destination.delete()
    producer.send(session.create_message())
    assert consumer.receive(WAIT_MS) is not None
    consumer.close()
    destination.delete()
    destination.delete()
    attempts: list[Callable[[], object]] = [
        lambda: producer.send(session.create_message()),
        lambda: session.create_producer(destination),
        lambda: session.create_consumer(destination),
    ]
    if isinstance(destination, TemporaryQueue):
        attempts.append(lambda: session.create_browser(destination))
    for attempt in attempts:
        with pytest.raises(InvalidDestinationException, match="deleted"):
            attempt()


@requirement("JMS-4.4.3-7", "NEV-209")
@each_kind()
def test_it_ends_with_its_connection(kjms_factory: ConnectionFactory, session: Session, make: Make) -> None:
    """When its connection closes it is deleted, though other connections of the program stay open."""
    with kjms_factory.create_connection() as other:
        destination = make(other.create_session())
        producer = session.create_producer(destination)
        producer.send(session.create_message())
    with pytest.raises(InvalidDestinationException, match="deleted"):
        producer.send(session.create_message())
    destination.delete()


@requirement("JAK-createTopic-5", "JAK-createQueue-5", "JMS-B.4.4-6")
def test_naming_makes_nothing(session: Session, admin: Any, kjms_destination_name: str) -> None:
    """Of the methods that give destinations only those for temporary ones make something."""

    def partitions(name: str) -> int:
        found = admin.list_topics(timeout=20).topics.get(name)
        return 0 if found is None else len(found.partitions)

    session.create_queue(kjms_destination_name)
    session.create_topic(kjms_destination_name)
    assert partitions(kjms_destination_name) == 0
    assert partitions(session.create_temporary_queue().queue_name.rpartition("/")[0]) == 2
    assert partitions(session.create_temporary_topic().topic_name.rpartition("/")[0]) == 2
    assert isinstance(session.create_temporary_topic(), Topic)
    with pytest.raises(InvalidDestinationException):
        session.unsubscribe(kjms_destination_name)


@requirement("JMS-4.12-1", "JMS-4.12-2")
@each_kind()
def test_a_delay_is_kept(connection: Connection, make: Make) -> None:
    """A message with a delivery delay waits, and holds up no other; no browser shows it before its time."""
    session = connection.create_session()
    destination = make(session)
    with session.create_consumer(destination) as consumer, session.create_producer(destination) as producer:
        late = session.create_text_message("late")
        producer.send(late, delivery_delay=700)
        if isinstance(destination, TemporaryQueue):
            with session.create_browser(destination) as browser:
                assert list(browser) == []
        producer.send(session.create_text_message("prompt"))
        assert texts(consumer, 1) == ["prompt"]
        message = consumer.receive(WAIT_MS)
        assert message is not None
        assert time.time_ns() // 1_000_000 >= message.jms_delivery_time == late.jms_delivery_time
        assert not message.jms_redelivered
