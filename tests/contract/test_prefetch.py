"""However many messages a process holds ahead of its consumers: the same come, in the same order, to the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, DeliveryMode, Message, Queue, Session
from kjms.options import SessionMode
from tests.helpers import WAIT_MS, Eventually, give_back, text

MESSAGES = 60


@pytest.fixture(params=[1, 2, 1000])
def connection(request: pytest.FixtureRequest, desk: Any) -> Connection:
    """A started connection with each number of messages held ahead."""
    return desk.connect(is_apart=True, prefetch=request.param)  # type: ignore[no-any-return]


def send(connection: Connection, queue: Queue, *texts: object, **properties: Any) -> None:
    """Send messages, and return when Kafka has them."""
    with connection.create_session() as session, session.create_producer(queue) as producer:
        producer.delivery_mode = DeliveryMode.NON_PERSISTENT  # so that they come in batches
        for each in texts:
            message = session.create_text_message(str(each))
            for name, value in properties.items():
                message.properties[name] = value
            producer.send(message)


@pytest.mark.requirement("JMS-4.4.10.1-2", "JMS-5.8-4")
@pytest.mark.parametrize("mode", list(SessionMode))
def test_messages_come_in_their_order(desk: Any, connection: Connection, queue: Queue, mode: SessionMode) -> None:
    """In every mode a consumer may receive more than is held ahead before it acknowledges any of it."""
    send(connection, queue, *range(MESSAGES))
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    messages = [consumer.receive(WAIT_MS) for _ in range(MESSAGES)]
    assert [text(message) for message in messages] == [str(number) for number in range(MESSAGES)]
    for message in messages:
        assert message is not None
        message.acknowledge()
    if session.transacted:
        session.commit()
    session.close()
    assert desk.left(queue, connection) == []


@pytest.mark.requirement("JMS-4.4.7-4", "JMS-4.4.11-10")
@pytest.mark.parametrize("mode", [SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.SESSION_TRANSACTED])
def test_all_that_is_given_back_comes_again_in_its_order(
    desk: Any, connection: Connection, queue: Queue, mode: SessionMode
) -> None:
    """Recover and rollback give back more than is held ahead, before anything that is new."""
    send(connection, queue, *range(MESSAGES))
    session = connection.create_session(mode)
    consumer = session.create_consumer(queue)
    desk.texts(consumer, MESSAGES - 5)
    give_back(session)
    again = [(str(number), True, 2) for number in range(MESSAGES - 5)]
    new = [(str(number), False, 1) for number in range(MESSAGES - 5, MESSAGES)]
    assert desk.seen(consumer, MESSAGES) == again + new


@pytest.mark.requirement("JMS-5.8-2", "JMS-3.8.1-3")
def test_a_selector_passes_over_any_number_of_messages(desk: Any, connection: Connection, queue: Queue) -> None:
    """What a consumer wants comes however many messages before it stay on the queue, which others get in order."""
    send(connection, queue, *range(MESSAGES), kind="unwanted")
    send(connection, queue, "wanted", kind="wanted")
    send(connection, queue, MESSAGES, kind="unwanted")
    consumer = connection.create_session().create_consumer(queue, "kind = 'wanted'")
    assert desk.seen(consumer, 1) == [("wanted", False, 1)]
    rest = connection.create_session().create_consumer(queue, "kind = 'unwanted'")
    assert desk.seen(rest, MESSAGES + 1) == [(str(number), False, 1) for number in range(MESSAGES + 1)]


@pytest.mark.requirement("JMS-5.8-1", "NEV-224")
def test_consumers_share_all_messages(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """Listeners of several sessions get each message once, and each listener what it gets in the order of sending."""
    got: list[list[int]] = [[], [], []]

    def listen(heard: list[int]) -> Callable[[Message], None]:
        return lambda message: heard.append(int(text(message)))

    for heard in got:
        connection.create_session().create_consumer(queue).message_listener = listen(heard)
    send(connection, queue, *range(MESSAGES))
    eventually(lambda: sum(map(len, got)) >= MESSAGES)
    assert sorted(number for heard in got for number in heard) == list(range(MESSAGES))
    assert got == [sorted(heard) for heard in got]


@pytest.mark.requirement("JMS-3.5.9-8")
def test_groups_are_worked_on_in_their_order(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """The messages of a group reach listeners of several sessions one after the other, in the order of sending."""
    got: dict[str | None, list[int]] = {f"group {number}": [] for number in range(5)}

    def listener(message: Message) -> None:
        got[message.get_string_property("JMSXGroupID")].append(int(text(message)))

    for _ in range(3):
        connection.create_session().create_consumer(queue).message_listener = listener
    for number in range(MESSAGES):
        send(connection, queue, number, JMSXGroupID=f"group {number % 5}")
    eventually(lambda: sum(map(len, got.values())) >= MESSAGES)
    assert got == {f"group {number}": list(range(number, MESSAGES, 5)) for number in range(5)}


@pytest.mark.requirement("JMS-4.5.3-1", "JMS-4.4.10.1-2")
def test_what_a_closed_consumer_did_not_receive_comes_to_the_next(
    desk: Any, connection: Connection, queue: Queue
) -> None:
    """Consumers that come one after the other, some without receiving, get the messages in order and unmarked."""
    send(connection, queue, *range(MESSAGES))
    got = []
    with connection.create_session(Session.AUTO_ACKNOWLEDGE) as session:
        while len(got) < MESSAGES:
            session.create_consumer(queue).close()
            with session.create_consumer(queue) as consumer:
                got += desk.seen(consumer, 6)
    assert got == [(str(number), False, 1) for number in range(MESSAGES)]


@pytest.mark.requirement("JMS-5.8-1", "JMS-5.8-2")
@pytest.mark.parametrize("is_temporary", [False, True], ids=["queue", "temporary queue"])
def test_consumers_with_different_selectors_do_not_hold_each_other_up(
    desk: Any, connection: Connection, queue: Queue, is_temporary: bool
) -> None:
    """Messages for a consumer that receives nothing keep nothing from the one beside it, however many they are."""
    place = connection.create_session().create_temporary_queue() if is_temporary else queue
    connection.create_session().create_consumer(place, "kind = 'a'")
    consumer = connection.create_session().create_consumer(place, "kind = 'b'")
    for number in range(MESSAGES):
        send(connection, place, number, kind="ab"[number % 2])
    assert desk.texts(consumer, MESSAGES // 2) == [str(number) for number in range(1, MESSAGES, 2)]
