"""In which order a queue's messages are delivered: by priority, and message groups one session at a time."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, Message, Queue, Session
from kjms.testing.engine import consumer_statistics
from tests.helpers import NOTHING_MS, WAIT_MS, Busy, Eventually, send, text, texts, texts_of


@pytest.mark.requirement("JMS-3.4.10-2", "JMS-3.4.10-3", "JMS-4.4.10.2-1", "NEV-55", "NEV-56", "NEV-58", "NEV-226")
def test_what_is_ready_is_handed_out_by_priority(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """Of the messages that wait, those of a higher priority come first, and those of one priority in their order."""
    for number in range(40):
        send(connection, queue, str(number), priority=number % 10)
    consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
    eventually(lambda: consumer_statistics(consumer).ready == 40)
    expected = sorted(map(str, range(40)), key=lambda number: (-(int(number) % 10), int(number)))
    assert texts(consumer, 40) == expected


def test_an_urgent_message_is_found_far_behind(kafka: Any, queue: Queue, eventually: Eventually) -> None:
    """Where messages have priorities, an urgent one overtakes a backlog that is larger than what is held ready."""
    factory = ConnectionFactory(kafka.bootstrap_servers, prefetch=20)
    with factory.create_connection() as connection:
        send(connection, queue, "a", priority=3)
        send(connection, queue, *["b"] * 150)
        send(connection, queue, "urgent", priority=9)
        consumer = connection.create_session().create_consumer(queue)
        connection.start()
        eventually(lambda: consumer_statistics(consumer).ready == 152)
        assert texts(consumer, 2) == ["urgent", "b"]


def test_urgent_messages_that_were_settled_first_stay_settled(
    kjms_factory: ConnectionFactory, queue: Queue, eventually: Eventually
) -> None:
    """What overtook others is settled on its own: the others come to the next consumer, unmarked and in order."""
    with kjms_factory.create_connection() as connection:
        send(connection, queue, "a", "b", "c", priority=2)
        send(connection, queue, "urgent", "urgent, too", priority=9)
        consumer = connection.create_session().create_consumer(queue)
        connection.start()
        eventually(lambda: consumer_statistics(consumer).ready == 5)
        assert texts(consumer, 2) == ["urgent", "urgent, too"]
    with kjms_factory.create_connection() as connection:
        connection.start()
        consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        left = [consumer.receive(WAIT_MS) for _ in range(3)]
        assert texts_of(left) == ["a", "b", "c"]
        assert not any(message is None or message.jms_redelivered for message in left)
        assert consumer.receive(NOTHING_MS) is None


@pytest.mark.requirement("JMS-3.5.9-8", "NEV-98", "NET-217")
def test_a_message_group_is_with_one_session_at_a_time(connection: Connection, queue: Queue) -> None:
    """While a session has a message of a group, the next of that group goes to no other; other messages do."""
    send(connection, queue, "g1", "g2", group="g")
    send(connection, queue, "plain")
    send(connection, queue, "g3", group="g")
    send(connection, queue, "h1", group="h")
    first, second = (connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue) for _ in range(2))
    g1 = first.receive(WAIT_MS)
    assert g1 is not None
    assert text(g1) == "g1"
    assert texts(second, 2) == ["plain", "h1"]
    assert second.receive(NOTHING_MS) is None
    assert texts(first, 1) == ["g2"]
    g1.acknowledge()
    assert texts(second, 1) == ["g3"]


@pytest.mark.requirement("JMS-3.5.9-8")
def test_a_message_that_comes_again_keeps_its_place_in_its_group(connection: Connection, queue: Queue) -> None:
    """What a session that closes had of a group goes to the next one before what waited behind it."""
    send(connection, queue, "1", "2", "3", group="g")
    leaving, staying = (connection.create_session(Session.CLIENT_ACKNOWLEDGE) for _ in range(2))
    ahead, behind = leaving.create_consumer(queue), staying.create_consumer(queue)
    assert texts(ahead, 1) == ["1"]
    assert behind.receive(NOTHING_MS) is None
    leaving.close()
    assert texts(behind, 3) == ["1", "2", "3"]


@pytest.mark.requirement("JMS-3.5.9-8")
def test_another_consumers_look_at_a_group_changes_no_order(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """A session with a message of a group gets the next ones in order, whichever of them another session asked for."""
    first = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
    second = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue, "kind = 'late'")
    send(connection, queue, "1", group="g")
    assert texts(first, 1) == ["1"]
    send(connection, queue, "2", group="g")
    send(connection, queue, "3", group="g", properties={"kind": "late"})
    eventually(lambda: consumer_statistics(first).ready == 2)
    assert second.receive(NOTHING_MS) is None
    assert texts(first, 2) == ["2", "3"]


@pytest.mark.requirement("JMS-3.5.9-8")
@pytest.mark.parametrize("listens", [False, True], ids=["receive", "listener"])
def test_a_session_at_work_asks_again_for_what_waits_for_it(
    connection: Connection, queue: Queue, eventually: Eventually, listens: bool
) -> None:
    """No wake-up tells a session of a message of its group that came while it had another one: it asks again."""
    first = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
    other: list[str] = []
    send(connection, queue, "1", group="g")
    if not listens:
        assert texts(first, 1) == ["1"]
    with Busy(first, blocks=True) if listens else contextlib.nullcontext() as busy:
        if busy is not None:
            eventually(lambda: busy.got == ["1"])
        second = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        second.message_listener = lambda message: other.append(text(message))
        send(connection, queue, "2", group="g")
        eventually(lambda: consumer_statistics(first).group_blocked == 1)
    if busy is not None:
        eventually(lambda: busy.got == ["1", "2"])
    else:
        assert texts(first, 1) == ["2"]
    assert other == []


@pytest.mark.parametrize("group", [None, "g"])
def test_what_a_session_rolled_back_goes_to_others_while_it_waits_elsewhere(
    connection: Connection, queue: Queue, group: str | None
) -> None:
    """A consumer that a session does not ask again keeps what it had no longer than a moment."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    first, elsewhere = session.create_consumer(queue), session.create_consumer(Queue(f"{queue.queue_name}.other"))
    other = connection.create_session().create_consumer(queue)
    send(connection, queue, "1", "2", group=group)
    assert texts(first, 1) == ["1"]
    if group:
        assert other.receive(NOTHING_MS) is None
    else:
        assert texts(other, 1) == ["2"]
    session.rollback()
    found: list[Message | None] = []
    waiting = threading.Thread(target=lambda: found.append(elsewhere.receive(WAIT_MS)))
    waiting.start()
    assert texts(other, 2 if group else 1) == ["1", "2"][: 2 if group else 1]
    send(connection, Queue(f"{queue.queue_name}.other"), "over")
    waiting.join()
    assert [text(message) for message in found] == ["over"]


@pytest.mark.requirement("JMS-3.5.9-8")
def test_groups_spread_over_sessions_and_stay_in_order(
    connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """Several listeners share the groups; each group's messages are worked on one after the other, in order."""
    for number in range(100):
        send(connection, queue, str(number), group=str(number % 5))
    working: set[str | None] = set()
    done: dict[str | None, list[int]] = {}
    overlaps: list[str | None] = []

    def listen(message: Message) -> None:
        group = message.get_string_property("JMSXGroupID")
        if group in working:
            overlaps.append(group)
        working.add(group)
        time.sleep(0.001)  # so that others get at the next one, if they may
        done.setdefault(group, []).append(int(text(message)))
        working.discard(group)

    sessions = [connection.create_session() for _ in range(3)]
    for session in sessions:
        session.create_consumer(queue).message_listener = listen
    eventually(lambda: sum(map(len, done.values())) == 100)
    assert overlaps == []
    assert done == {str(group): list(range(group, 100, 5)) for group in range(5)}
