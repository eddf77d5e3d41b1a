"""One process takes over from another: what was settled stays settled, and the rest comes once, counted, in its order.

Connections that are apart share nothing, and so are to each other as processes are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kjms import Message, Queue, RedeliveryPolicy, Session, Topic
from tests.helpers import WAIT_MS, now_ms, seen, text

ROUNDS = 4
LONG_RUN = 1_000  # settled messages that are passed over at once


def first_deliveries(*texts: object) -> list[tuple[str, bool, int]]:
    return [(str(each), False, 1) for each in texts]


@pytest.mark.requirement("JMS-4.4.10.1-2", "JMS-5.8-4")
@pytest.mark.parametrize("prefetch", [1, 1000])
@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE])
def test_processes_in_turn_get_each_message_once_and_in_order(
    desk: Any, queue: Queue, mode: int, prefetch: int
) -> None:
    """Each of several processes takes some messages and closes: no process gets one again, marked, or out of order."""
    desk.send(queue, *range(3 * ROUNDS))
    for number in range(ROUNDS):
        with desk.connect(is_apart=True, prefetch=prefetch) as connection:
            consumer = connection.create_session(mode).create_consumer(queue)
            assert desk.seen(consumer, 3) == first_deliveries(*range(3 * number, 3 * number + 3))
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-3.5.11-1", "JMS-3.4.7-1")
def test_counts_go_on_in_the_next_process(desk: Any, queue: Queue) -> None:
    """A message that no process acknowledges has been delivered once more in each; what was behind it never was."""
    desk.send(queue, "a", "b")
    for count in range(1, ROUNDS + 1):
        with desk.connect(is_apart=True) as connection:
            consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
            assert desk.seen(consumer, 1) == [("a", count > 1, count)]
    assert desk.left(queue) == [("a", True, ROUNDS + 1), ("b", False, 1)]


@pytest.mark.requirement("NEV-256")
def test_deliveries_of_all_processes_count_towards_the_limit(desk: Any, queue: Queue) -> None:
    """After the last delivery that the policy allows, in whatever process, the message is a dead letter."""
    policy = RedeliveryPolicy(max_deliveries=ROUNDS)
    desk.send(queue, "bad", "good")
    for count in range(1, ROUNDS + 1):
        with desk.connect(is_apart=True, redelivery=policy) as connection:
            session = connection.create_session(Session.SESSION_TRANSACTED)
            assert desk.seen(session.create_consumer(queue), 1) == [("bad", count > 1, count)]
            session.rollback()
    with desk.connect(is_apart=True, redelivery=policy) as connection:
        assert desk.seen(connection.create_session().create_consumer(queue), 1) == first_deliveries("good")
    dead = desk.session().create_consumer(Queue(f"{queue.queue_name}.dlq")).receive(WAIT_MS)
    assert text(dead) == "bad"
    assert dead.get_string_property("JMS_kjms_Deliveries") == str(ROUNDS)
    assert dead.get_string_property("JMS_kjms_Cause") == (f"delivered {ROUNDS} times; its transaction was rolled back")


def test_what_was_settled_out_of_order_stays_settled(desk: Any, queue: Queue) -> None:
    """Of messages that were acknowledged one by one, in any order, the next process gets the others alone."""
    desk.send(queue, *range(20))
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
        messages = [consumer.receive(WAIT_MS) for _ in range(15)]
        for number in (14, 0, 7, 3, 8, 9):
            messages[number].acknowledge()
    rest = [number for number in range(15) if number not in {14, 0, 7, 3, 8, 9}]
    assert desk.left(queue) == [(str(number), True, 2) for number in rest] + first_deliveries(*range(15, 20))


@pytest.mark.parametrize("is_transacted", [False, True])
def test_a_long_settled_run_is_passed_over(desk: Any, queue: Queue, is_transacted: bool) -> None:
    """The next process gets what stands before, between and behind long runs of settled messages, and nothing else."""
    count = 2 * LONG_RUN + 200
    unsettled = {0, 1, LONG_RUN + 100, LONG_RUN + 101}
    sending = desk.session(Session.SESSION_TRANSACTED if is_transacted else Session.DUPS_OK_ACKNOWLEDGE)
    producer = sending.create_producer(queue)
    for number in range(count):
        producer.send(sending.create_text_message(str(number)))
        if is_transacted and number % 100 == 99:
            sending.commit()
            producer.send(sending.create_text_message("rolled back"))
            sending.rollback()
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
        for number in range(count):
            message = consumer.receive(WAIT_MS)
            assert text(message) == str(number)
            if number not in unsettled:
                message.acknowledge()
    for _ in range(2):  # what was passed over stays settled
        with desk.connect(is_apart=True) as connection:
            consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
            assert desk.texts(consumer, len(unsettled)) == [str(number) for number in sorted(unsettled)]
    desk.send(queue, "new")
    assert desk.left(queue) == [(str(number), True, 4) for number in sorted(unsettled)] + first_deliveries("new")


@pytest.mark.requirement("NEV-256")
def test_a_message_that_waits_for_its_redelivery_waits_on(desk: Any, queue: Queue) -> None:
    """The delay of a policy holds in the next process."""
    desk.send(queue, "late")
    with desk.connect(is_apart=True, redelivery=RedeliveryPolicy(delay=1_500)) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert desk.texts(session.create_consumer(queue), 1) == ["late"]
        before = now_ms()
        session.recover()
    consumer = desk.connect(is_apart=True).create_session().create_consumer(queue)
    assert desk.seen(consumer, 1) == [("late", True, 2)]
    assert now_ms() - before >= 1_500


@pytest.mark.requirement("NEV-256")
def test_what_waits_for_its_redelivery_holds_up_nothing_in_the_next_process(desk: Any, queue: Queue) -> None:
    """Messages behind one that waits for its redelivery are delivered there."""
    desk.send(queue, "tomorrow", "b")
    with desk.connect(is_apart=True, redelivery=RedeliveryPolicy(delay=86_400_000)) as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        assert desk.texts(session.create_consumer(queue), 1) == ["tomorrow"]
        session.recover()
    assert desk.left(queue) == first_deliveries("b")


@pytest.mark.requirement("JMS-5.8-2", "JMS-3.8.1-3")
def test_what_a_selector_left_out_comes_to_the_next_process_unmarked(desk: Any, queue: Queue) -> None:
    """Passing over a message is no delivery: the process that wants it gets it for the first time, in its order."""
    for number in range(12):
        desk.send(queue, number, properties={"kind": "abc"[number % 3]})
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session().create_consumer(queue, "kind = 'b'")
        assert desk.seen(consumer, 4) == first_deliveries(1, 4, 7, 10)
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session().create_consumer(queue, "kind = 'c'")
        assert desk.seen(consumer, 2) == first_deliveries(2, 5)
    assert desk.left(queue) == first_deliveries(0, 3, 6, 8, 9, 11)


@pytest.mark.requirement("JMS-4.4.7-4", "NEV-217")
def test_an_open_transaction_ends_with_its_process(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """What was sent in it is never seen; what was received in it comes to the next process, in order and counted."""
    desk.send(queue, *"abc")
    with desk.connect(is_apart=True) as connection:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        assert desk.texts(session.create_consumer(queue), 2) == ["a", "b"]
        desk.send(other_queue, "never", by=session)
    consumer = desk.connect(is_apart=True).create_session().create_consumer(queue)
    assert desk.seen(consumer, 3) == [("a", True, 2), ("b", True, 2), ("c", False, 1)]
    assert desk.stored(other_queue) == []


@pytest.mark.requirement("JMS-5.9-1")
def test_a_browser_of_another_process_shows_what_is_not_settled(desk: Any, queue: Queue) -> None:
    """It shows the queue whichever process owns it, and when that process has closed."""
    desk.send(queue, *"abcd")
    looking = desk.connect(is_apart=True).create_session().create_browser(queue)
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
        messages = [consumer.receive(WAIT_MS) for _ in "abc"]
        messages[1].acknowledge()
        assert [text(message) for message in looking] == ["a", "c", "d"]
    assert [seen(message) for message in looking] == [("a", True, 2), ("c", True, 2), ("d", False, 1)]
    assert desk.left(queue) == [("a", True, 2), ("c", True, 2), ("d", False, 1)]


@pytest.mark.requirement("JMS-6.11.5-6", "JMS-6.11.6-4")
@pytest.mark.parametrize("kind", ["durable", "shared_durable"])
def test_a_durable_subscription_goes_on_in_the_next_process(desk: Any, topic: Topic, kind: str) -> None:
    """It keeps its place and what came while no process consumed it."""
    client_id = f"of {topic.topic_name}"
    expected = []
    for number in range(ROUNDS):
        with desk.connect(client_id=client_id, is_apart=True) as connection:
            consumer = getattr(connection.create_session(), f"create_{kind}_consumer")(topic, "it")
            assert desk.seen(consumer, len(expected)) == first_deliveries(*expected)
            desk.send(topic, f"there {number}")
            assert desk.texts(consumer, 1) == [f"there {number}"]
        expected = [f"away {number}", f"away, too {number}"]
        desk.send(topic, *expected)


@pytest.mark.requirement("JMS-3.5.9-8")
def test_a_message_group_goes_on_in_order(desk: Any, queue: Queue) -> None:
    """What a process had of a group comes to the next one before what stands behind it in the group."""
    for number in range(8):
        desk.send(queue, number, properties={"JMSXGroupID": f"group {number % 2}"})
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        assert desk.texts(consumer, 4) == ["0", "1", "2", "3"]
    found = [int(name) for name, _, _ in desk.left(queue)]
    assert [number for number in found if number % 2 == 0] == [0, 2, 4, 6]
    assert [number for number in found if number % 2 == 1] == [1, 3, 5, 7]


@pytest.mark.requirement("JMS-4.4.10.1-2", "JMS-5.8-1")
def test_several_partitions_change_hands(desk: Any, queue: Queue) -> None:
    """Processes join and leave a queue of several partitions: each message is acknowledged once, groups in order."""
    options = {"is_apart": True, "partitions": 4, "hand_over": False}
    sender = desk.connect(**options).create_session()
    sent: dict[str, list[int]] = {f"group {number}": [] for number in range(8)}
    got: dict[str, list[int]] = {name: [] for name in sent}

    def note(message: Message | None) -> None:
        assert message is not None
        got[message.get_string_property("JMSXGroupID") or ""].append(int(text(message)))

    def send(count: int) -> None:
        for _ in range(count):
            for name, numbers in sent.items():
                desk.send(queue, len(numbers), by=sender, properties={"JMSXGroupID": name})
                numbers.append(len(numbers))

    send(5)
    for _ in range(2):
        with desk.connect(**options) as staying:
            consumer = staying.create_session().create_consumer(queue)
            note(consumer.receive(WAIT_MS))
            with desk.connect(**options) as passing:
                other = passing.create_session().create_consumer(queue)
                note(other.receive(WAIT_MS))
                send(2)
                for each in (consumer, other):
                    while (message := each.receive_no_wait()) is not None:
                        note(message)
            send(1)
            note(consumer.receive(WAIT_MS))
    with desk.connect(**options) as last:
        consumer = last.create_session().create_consumer(queue)
        while sum(map(len, got.values())) < sum(map(len, sent.values())):
            note(consumer.receive(WAIT_MS))
    assert got == sent


@pytest.mark.requirement("JMS-4.8-1", "JMS-3.4.9-7")
def test_what_expired_between_two_processes_comes_to_neither(desk: Any, queue: Queue, eventually: Any) -> None:
    """A message that was given back and whose time is over before the next process comes is not delivered again."""
    (short, _) = desk.send(queue, "short", time_to_live=2_000), desk.send(queue, "long")
    with desk.connect(is_apart=True) as connection:
        consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
        first = consumer.receive(WAIT_MS)
        assert text(first) in {"short", "long"}  # a slow machine has let it expire
    eventually(lambda: now_ms() > short[0].jms_expiration)
    assert [name for name, _, _ in desk.left(queue)] == ["long"]


def test_an_offset_without_settlement_replaces_that_of_a_later_version(
    desk: Any, queue: Queue, commit: Callable[..., None], eventually: Any
) -> None:
    """A partition that a later kjms settled is left alone; when the group's offset is set anew, it is read from there.

    `docs/upgrading.md` says so.
    """
    desk.send(queue, *"abc")
    commit(queue, 1, "kjms/99 - - pAAAA")
    told: list[str] = []
    with desk.connect(is_apart=True) as connection:
        connection.exception_listener = lambda failure: told.append(str(failure))
        consumer = connection.create_session().create_consumer(queue)
        eventually(lambda: told)
        assert "is not read: settlement of version 99" in told[0]
        assert consumer.receive_no_wait() is None
    commit(queue, 1, "")
    assert desk.left(queue) == first_deliveries("b", "c")
