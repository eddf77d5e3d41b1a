"""What a transacted session promises: its sends and receives come through together at its commit, or not at all."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    IllegalStateException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    Topic,
    TransactionInProgressException,
)
from tests.helpers import NOTHING_MS, WAIT_MS, Completions, Eventually, now_ms, refused, seen, text


def redelivered(*texts: str, count: int = 2) -> list[tuple[str, bool, int]]:
    """What redelivered messages look like."""
    return [(each, True, count) for each in texts]


# Which sessions are transacted.


TRANSACTED = [(0,), (Session.SESSION_TRANSACTED,), (True,), (True, Session.CLIENT_ACKNOWLEDGE), (True, 1), (True, 99)]


@pytest.mark.requirement(
    "JAK-SESSION_TRANSACTED-1", "JAK-SESSION_TRANSACTED-2", "JAK-SESSION_TRANSACTED-3", "JAK-getTransacted-1",
    "JAK-getAcknowledgeMode-2", "JAK-Session-21", "NET-359", "NEV-215",
)  # fmt: skip
@pytest.mark.parametrize("arguments", TRANSACTED)
def test_a_session_may_be_transacted(desk: Any, queue: Queue, arguments: tuple[int, ...]) -> None:
    """However that is said, the session says so, and what it sends waits for its commit."""
    session = desk.connection.create_session(*arguments)
    assert session.transacted is True
    assert session.acknowledge_mode == Session.SESSION_TRANSACTED == 0
    desk.send(queue, "a", by=session)
    assert desk.stored(queue) == []
    session.commit()
    assert desk.stored(queue) == ["a"]


@pytest.mark.requirement("JMS-4.4.7-1", "JAK-getAcknowledgeMode-3", "JMS-B.5.5-1", "JAK-recover-8", "JMS-B.2.21-5")
@pytest.mark.parametrize("arguments", TRANSACTED)
def test_a_transacted_session_has_no_other_mode(desk: Any, queue: Queue, arguments: tuple[int, ...]) -> None:
    """The mode given beside it is ignored: acknowledging does nothing, and recover is refused."""
    desk.send(queue, "a")
    session = desk.connection.create_session(*arguments)
    consumer = session.create_consumer(queue)
    consumer.receive(WAIT_MS).acknowledge()
    with pytest.raises(IllegalStateException, match="transacted"):
        session.recover()
    session.rollback()
    assert desk.seen(consumer, 1) == redelivered("a")


@pytest.mark.requirement("JAK-getTransacted-2", "JMS-4.4.11-1", "JAK-commit-7", "JAK-rollback-7", "NET-20")
@pytest.mark.parametrize(
    "mode",
    [Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE],
)
def test_without_a_transaction_there_is_nothing_to_commit(desk: Any, mode: int) -> None:
    """A session of one of the three other modes has that mode, and refuses commit and rollback."""
    for session in (desk.connection.create_session(mode), desk.connection.create_session(False, mode)):
        assert session.transacted is False
        assert session.acknowledge_mode == mode
        for end in (session.commit, session.rollback):
            with pytest.raises(IllegalStateException, match="not transacted"):
                end()


# One unit.


class Everything:
    """A session that received from a queue, a topic and subscriptions, and sent to two queues and a topic."""

    def __init__(self, desk: Any, queue: Queue, topic: Topic) -> None:
        self.source, self.slot = queue, topic
        self.queues = [Queue(f"{queue.queue_name}-{number}") for number in range(2)]
        self.target = Topic(f"{topic.topic_name}-out")
        self.session = desk.transacted(desk.connect(client_id=f"client-{uuid.uuid4().hex[:8]}"))
        self.consumers = [
            self.session.create_consumer(self.source),
            self.session.create_consumer(self.slot),
            self.session.create_durable_consumer(self.slot, "durable"),
            self.session.create_shared_durable_consumer(self.slot, "shared durable"),
            self.session.create_shared_consumer(self.slot, "shared"),
        ]
        watching = desk.connect(is_apart=True).create_session()
        self.watchers = [watching.create_consumer(place) for place in (*self.queues, self.target)]
        desk.send(self.source, "a", "b")
        desk.send(self.slot, "a", "b")
        assert [desk.texts(consumer, 2) for consumer in self.consumers] == [["a", "b"]] * 5
        for place in (*self.queues, self.target):
            desk.send(place, "1", "2", by=self.session)


@pytest.fixture
def everything(desk: Any, queue: Queue, kjms_destination_name: str) -> Everything:
    return Everything(desk, queue, Topic(f"{kjms_destination_name}-topic"))


@pytest.mark.requirement("JAK-Session-25", "JAK-commit-1", "JMS-4.4.7-3", "NEV-3", "NEV-217", "NEV-231", "NET-362")
def test_a_commit_sends_what_was_sent(desk: Any, everything: Everything) -> None:
    """Before it nothing of it is visible; after it all of it is there."""
    for watcher in everything.watchers:
        assert watcher.receive_no_wait() is None
    assert desk.stored(everything.queues[0]) == desk.stored(everything.target) == []
    everything.session.commit()
    assert [desk.texts(watcher, 2) for watcher in everything.watchers] == [["1", "2"]] * 3
    assert [desk.stored(queue) for queue in everything.queues] == [["1", "2"]] * 2


@pytest.mark.requirement("JAK-Session-24", "JAK-commit-1", "JMS-4.4.7-3", "NEV-217", "NEV-234", "NET-361")
def test_a_commit_acknowledges_what_was_received(desk: Any, everything: Everything) -> None:
    """After it nothing of it comes again, neither with a rollback nor to another consumer."""
    everything.session.commit()
    everything.session.rollback()
    desk.send(everything.source, "c")
    desk.send(everything.slot, "c")
    assert [desk.seen(consumer, 1) for consumer in everything.consumers] == [[("c", False, 1)]] * 5
    everything.session.close()
    assert desk.left(everything.source) == redelivered("c")


@pytest.mark.requirement(
    "JAK-Session-7", "JAK-Session-23", "JMS-4.4.7-2", "JMS-B.4.1-1", "NEV-193", "NEV-216", "NET-345", "NET-360"
)
def test_transactions_are_a_series_of_units(desk: Any, everything: Everything) -> None:
    """Sends and receives of queues, topics and subscriptions end together, one transaction after the other."""
    everything.session.commit()
    desk.send(everything.source, "c")
    desk.send(everything.slot, "c")
    assert [desk.texts(consumer, 1) for consumer in everything.consumers] == [["c"]] * 5
    desk.send(everything.target, "rolled back", by=everything.session)
    everything.session.rollback()
    assert [desk.seen(consumer, 1) for consumer in everything.consumers] == [redelivered("c")] * 5
    desk.send(everything.target, "3", by=everything.session)
    everything.session.commit()
    assert desk.stored(everything.target) == ["1", "2", "3"]
    everything.session.close()
    assert desk.left(everything.source) == []


@pytest.mark.requirement(
    "JAK-Session-26", "JAK-Session-27", "JAK-rollback-1", "JMS-4.4.7-4", "NEV-218", "NEV-234", "NET-363", "NET-364",
)  # fmt: skip
def test_a_rollback_undoes_all_of_it(desk: Any, everything: Everything) -> None:
    """What was sent never becomes visible; what was received comes again at once, in order, marked and counted."""
    for count in (2, 3):
        everything.session.rollback()
        again = [desk.seen(consumer, 2) for consumer in everything.consumers]
        assert again == [redelivered("a", "b", count=count)] * 5
    everything.session.commit()
    for place in (*everything.queues, everything.target):
        desk.send(place, "3")
    assert [desk.texts(watcher, 1) for watcher in everything.watchers] == [["3"]] * 3
    assert desk.stored(everything.queues[0]) == desk.stored(everything.target) == ["3"]


@pytest.mark.requirement(
    *["JAK-Session-22", "JAK-Session-29", "JAK-Session-30", "JMS-4.4.7-1", "JMS-4.4.7-5", "NEV-219", "NET-366"],
    *["NET-367"],
)
def test_the_end_of_a_transaction_is_the_beginning_of_the_next(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """Without any further call each commit or rollback is about what was done since the last one, and only that."""
    desk.send(queue, *"abcd")
    session = desk.transacted()
    consumer = session.create_consumer(queue)
    expected: list[str] = []
    for number, end in enumerate([session.commit, session.rollback, session.rollback, session.commit, session.commit]):
        desk.send(other_queue, text(consumer.receive(WAIT_MS)), number, by=session)
        end()
        expected += {0: ["a", "0"], 3: ["b", "3"], 4: ["c", "4"]}.get(number, [])
        assert desk.stored(other_queue) == expected
    session.close()
    assert desk.left(queue) == [("d", False, 1)]


@pytest.mark.requirement("JAK-Session-28", "NET-365", "JAK-Session-7", "NET-345")
def test_a_transaction_holds_only_what_its_own_session_did(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """Neither what other sessions of the connection did, transacted or not, nor what was done before it."""
    desk.send(queue, "a", "b", "c")
    mine, yours, nobodys = desk.transacted(), desk.transacted(), desk.connection.create_session()
    consumers = [session.create_consumer(queue) for session in (mine, yours, nobodys)]
    assert [desk.texts(consumer, 1) for consumer in consumers] == [["a"], ["b"], ["c"]]
    for session, name in ((mine, "mine"), (yours, "yours"), (nobodys, "nobody's")):
        desk.send(other_queue, name, by=session)
    assert desk.stored(other_queue) == ["nobody's"]
    mine.rollback()
    yours.commit()
    assert desk.stored(other_queue) == ["nobody's", "yours"]
    nobodys.close()
    yours.close()
    assert desk.seen(consumers[0], 1) == redelivered("a")
    assert consumers[0].receive(NOTHING_MS) is None
    mine.commit()
    assert desk.stored(other_queue) == ["nobody's", "yours"]


@pytest.mark.requirement("JMS-8.3.5-1")
def test_receiving_a_message_is_no_part_of_the_transaction_that_sent_it(desk: Any, queue: Queue) -> None:
    """A session does not receive what it has not committed; afterwards sender and receiver go their own ways."""
    sender, receiver = desk.transacted(), desk.transacted()
    own = sender.create_consumer(queue)
    desk.send(queue, "a", by=sender)
    assert own.receive(NOTHING_MS) is None
    own.close()
    sender.commit()
    consumer = receiver.create_consumer(queue)
    assert desk.seen(consumer, 1) == [("a", False, 1)]
    receiver.rollback()
    assert desk.stored(queue) == ["a"]
    sender.rollback()
    sender.close()
    assert desk.seen(consumer, 1) == redelivered("a")
    receiver.commit()
    receiver.close()
    assert desk.left(queue) == []


def test_an_empty_transaction_asks_kafka_nothing(desk: Any, queue: Queue) -> None:
    """Committing or rolling back nothing is done at once."""
    session = desk.transacted(desk.connect(is_apart=True))
    consumer = session.create_consumer(queue)
    assert consumer.receive_no_wait() is None
    for end in (session.commit, session.rollback, session.commit):
        end()


# What a transaction holds.


@pytest.mark.requirement("JAK-commit-2", "JAK-rollback-2")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_end_of_a_transaction_lets_go_of_what_it_held(desk: Any, queue: Queue, end: str) -> None:
    """What waited behind a message of its group, or was received in it and comes back, others get."""
    with desk.connection.create_session() as session, session.create_producer(queue) as producer:
        for name in ("a1", "a2"):
            message = session.create_text_message(name)
            message.set_string_property("JMSXGroupID", "a")
            producer.send(message)
    holder = desk.transacted()
    first = holder.create_consumer(queue)
    assert desk.texts(first, 1) == ["a1"]
    second = desk.connection.create_session().create_consumer(queue)
    assert second.receive(NOTHING_MS) is None
    first.close()
    getattr(holder, end)()
    again = [] if end == "commit" else redelivered("a1")
    assert desk.seen(second, len(again) + 1) == [*again, ("a2", False, 1)]


@pytest.mark.requirement("JAK-close-15", "JMS-4.4.1-6", "JMS-4.3.5-7", "NEV-176", "NEV-201")
@pytest.mark.parametrize("what", ["session", "connection"])
def test_closing_rolls_back(desk: Any, queue: Queue, other_queue: Queue, what: str) -> None:
    """The transaction in progress on a session that is closed, or whose connection is, is rolled back."""
    desk.send(queue, "a", "b")
    connection = desk.connect(is_apart=what == "connection")
    sessions = [desk.transacted(connection) for _ in range(2)]
    for session in sessions:
        desk.texts(session.create_consumer(queue), 1)
        desk.send(other_queue, "never", by=session)
    for closed in sessions if what == "session" else [connection]:
        closed.close()
    assert desk.left(queue) == redelivered("a", "b")
    assert desk.stored(other_queue) == []


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", ["create_consumer", "create_durable_consumer", "create_shared_durable_consumer"])
def test_a_transaction_outlives_its_consumers_and_producers(
    desk: Any, queue: Queue, other_queue: Queue, topic: Topic, kind: str, end: str
) -> None:
    """What a consumer received, and a producer sent, before they were closed is still the transaction's."""
    client_id = f"client-{uuid.uuid4().hex[:8]}"
    session = desk.transacted(desk.connect(client_id=client_id))
    place = queue if kind == "create_consumer" else topic
    arguments = (place,) if kind == "create_consumer" else (place, "name")
    consumer = getattr(session, kind)(*arguments)
    desk.send(place, "a", "b")
    assert desk.texts(consumer, 1) == ["a"]
    consumer.close()
    desk.send(other_queue, "sent", by=session)  # its producer is closed when that returns
    getattr(session, end)()
    assert desk.stored(other_queue) == (["sent"] if end == "commit" else [])
    consumer = getattr(session, kind)(*arguments)
    again = [] if end == "commit" else redelivered("a")
    assert desk.seen(consumer, len(again) + 1) == [*again, ("b", False, 1)]
    session.commit()


@pytest.mark.requirement("JAK-unsubscribe-6", "NEV-307", "NET-45", "JMS-7.3-18", "NEV-330")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_subscription_stays_while_its_messages_are_in_a_transaction(desk: Any, topic: Topic, end: str) -> None:
    """Ending it meanwhile raises TransactionInProgressException, and changes nothing; afterwards it can be ended."""
    session = desk.transacted(desk.connect(client_id=f"client-{uuid.uuid4().hex[:8]}"))
    consumer = session.create_durable_consumer(topic, "name")
    desk.send(topic, "a")
    assert desk.texts(consumer, 1) == ["a"]
    consumer.close()
    with pytest.raises(TransactionInProgressException, match="commit or roll back"):
        session.unsubscribe("name")
    getattr(session, end)()
    consumer = session.create_durable_consumer(topic, "name")
    desk.send(topic, "b")
    assert desk.texts(consumer, 1) == ["b" if end == "commit" else "a"]
    session.commit()
    consumer.close()
    session.unsubscribe("name")


@pytest.mark.requirement("JMS-3.4.9-2", "NET-328")
def test_a_message_lives_from_its_sending_on(desk: Any, queue: Queue, eventually: Eventually) -> None:
    """JMSExpiration counts from the send, not from the commit: what has expired by then is not delivered."""
    session = desk.transacted()
    producer = session.create_producer(queue)
    short, long = session.create_text_message("short"), session.create_text_message("long")
    producer.send(short, time_to_live=50)
    producer.send(long, time_to_live=60_000)
    sent_by = time.time_ns() // 1_000_000
    assert long.jms_expiration == long.jms_timestamp + 60_000 <= sent_by + 60_000
    eventually(lambda: time.time_ns() // 1_000_000 > short.jms_expiration)
    session.commit()
    assert desk.stored(queue) == ["short", "long"]
    message = session.create_consumer(queue).receive(WAIT_MS)
    assert message is not None
    assert (text(message), message.jms_expiration) == ("long", long.jms_expiration)
    session.commit()


def test_a_selective_consumer_holds_only_what_it_wants(desk: Any, queue: Queue) -> None:
    """The others stay for consumers that match, whatever the transaction becomes."""
    with desk.connection.create_session() as session, session.create_producer(queue) as producer:
        for number in range(6):
            message = session.create_text_message(str(number))
            message.set_int_property("n", number)
            producer.send(message)
    session = desk.transacted()
    even = session.create_consumer(queue, "n = 0 OR n = 2 OR n = 4")
    assert desk.texts(even, 2) == ["0", "2"]
    session.rollback()
    assert desk.seen(even, 3) == [*redelivered("0", "2"), ("4", False, 1)]
    session.commit()
    session.close()
    assert desk.left(queue) == [(number, False, 1) for number in "135"]


def test_messages_of_a_transaction_have_their_priority(desk: Any, queue: Queue) -> None:
    """Of what was committed and is ready the most urgent come first; rolled back, they come in the order they came."""
    session = desk.transacted()
    for priority in (1, 9, 4, 9):
        desk.send(queue, priority, by=session, priority=priority)
    session.commit()
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 4) == ["9", "9", "4", "1"]
    session.rollback()
    assert desk.seen(consumer, 4) == redelivered("9", "9", "4", "1")
    session.commit()


# Redelivery.


def test_what_was_rolled_back_too_often_is_a_dead_letter(
    desk: Any, queue: Queue, kjms_destination_name: str, eventually: Eventually
) -> None:
    """Each rollback counts as a delivery; after the last one the message goes to the dead-letter queue, alone."""
    connection = desk.connect(is_apart=True, redelivery=RedeliveryPolicy(max_deliveries=3))
    desk.send(queue, "bad", "good")
    session = desk.transacted(connection)
    consumer = session.create_consumer(queue)
    for count in (1, 2, 3):
        assert desk.seen(consumer, 1) == [("bad", count > 1, count)]
        desk.send(Queue(kjms_destination_name + "-never"), "x", by=session)
        session.rollback()
    assert desk.seen(consumer, 1) == [("good", False, 1)]
    session.commit()
    eventually(lambda: desk.stored(Queue(f"{queue.queue_name}.dlq")) == ["bad"])
    connection.close()
    assert desk.left(queue) == []


def test_what_was_rolled_back_waits_for_its_time(desk: Any, queue: Queue) -> None:
    """With a delay, the messages behind it are delivered meanwhile, in another transaction."""
    connection = desk.connect(is_apart=True, redelivery=RedeliveryPolicy(delay=600))
    desk.send(queue, "a", "b")
    session = desk.transacted(connection)
    consumer = session.create_consumer(queue)
    assert desk.texts(consumer, 1) == ["a"]
    began = now_ms()
    session.rollback()
    assert desk.seen(consumer, 1) == [("b", False, 1)]
    session.commit()
    assert desk.seen(consumer, 1) == redelivered("a")
    assert now_ms() - began >= 600
    session.commit()


# Listeners.


@pytest.mark.requirement("JMS-4.4.7-3", "JMS-4.4.7-4")
def test_a_listener_ends_its_sessions_transactions(
    desk: Any, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """It commits and rolls back as any program does: what it rolled back comes first, and in its order."""
    session = desk.transacted()
    producer = session.create_producer(other_queue)
    heard: list[tuple[str | None, bool, int]] = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        producer.send(session.create_text_message(text(message)))
        if len(heard) == 3:
            session.rollback()
        elif len(heard) % 2 == 0 and len(heard) > 3:
            session.commit()

    session.create_consumer(queue).message_listener = listener
    desk.send(queue, *"abcde")
    eventually(lambda: len(heard) == 8)
    first = [(name, False, 1) for name in "abcde"]
    assert heard == [*first[:3], *redelivered("a", "b", "c"), *first[3:]]
    eventually(lambda: desk.stored(other_queue) == list("abcde"))
    session.close()
    assert desk.left(queue) == []


@pytest.mark.requirement("JMS-4.5.2-6", "NEV-254", "NEV-253")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_listener_that_raises_ends_no_transaction(
    desk: Any, queue: Queue, other_queue: Queue, end: str, eventually: Eventually
) -> None:
    """The next message is delivered, and the client decides what becomes of them all."""
    session = desk.transacted()
    producer = session.create_producer(other_queue)
    heard: list[tuple[str | None, bool, int]] = []
    ended = threading.Event()

    def listener(message: Message) -> None:
        heard.append(seen(message))
        producer.send(session.create_text_message(text(message)))
        if text(message) == "c" and not message.jms_redelivered:
            getattr(session, end)()
            ended.set()
        elif not message.jms_redelivered:
            raise RuntimeError("no")

    session.create_consumer(queue).message_listener = listener
    desk.send(queue, *"abc")
    assert ended.wait(20)
    again = [] if end == "commit" else redelivered(*"abc")
    eventually(lambda: len(heard) == 3 + len(again))
    assert heard == [("a", False, 1), ("b", False, 1), ("c", False, 1), *again]
    session.close()
    assert desk.stored(other_queue) == (["a", "b", "c"] if end == "commit" else [])
    assert desk.left(queue) == ([] if end == "commit" else redelivered(*"abc", count=3))


def test_several_listeners_of_a_session_share_its_transaction(
    desk: Any, queue: Queue, other_queue: Queue, eventually: Eventually
) -> None:
    """A rollback redelivers what each of them got, beginning with the oldest."""
    session = desk.transacted()
    heard: list[tuple[str | None, bool, int]] = []

    def listener(message: Message) -> None:
        heard.append(seen(message))
        if len(heard) == 3:
            session.rollback()
        elif len(heard) == 6:
            session.commit()

    for place in (other_queue, queue):
        session.create_consumer(place).message_listener = listener
    for number, place in enumerate((queue, other_queue, queue), 1):
        desk.send(place, number)
        eventually(lambda count=number: len(heard) >= count)
    eventually(lambda: len(heard) == 6)
    assert heard[3] == ("1", True, 2)
    assert sorted(heard[3:]) == redelivered("1", "2", "3")
    session.close()
    assert desk.left(queue) == desk.left(other_queue) == []


# One thread at a time.


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_no_other_thread_ends_a_transaction_that_is_being_used(
    desk: Any, queue: Queue, other_queue: Queue, end: str, eventually: Eventually
) -> None:
    """IllegalStateException, and the transaction stays open: while a listener runs, and while a receive waits."""
    session = desk.transacted()
    may_return, has_message = threading.Event(), threading.Event()

    def listener(message: Message) -> None:
        desk.send(other_queue, text(message), by=session)
        has_message.set()
        may_return.wait(20)
        session.commit()

    consumer = session.create_consumer(queue)
    consumer.message_listener = listener
    desk.send(queue, "a")
    assert has_message.wait(20)
    with pytest.raises(IllegalStateException, match="while thread"):
        getattr(session, end)()
    may_return.set()
    eventually(lambda: desk.stored(other_queue) == ["a"])
    consumer.message_listener = None
    waiting = threading.Thread(target=consumer.receive)
    waiting.start()
    eventually(lambda: refused(session.rollback))
    with pytest.raises(IllegalStateException, match="while thread"):
        getattr(session, end)()
    consumer.close()
    waiting.join()
    getattr(session, end)()


# Asynchronous sends.


class EndsTheSession(Completions):
    """A completion listener that first calls what it may not."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.action = action
        self.raised: list[BaseException] = []

    def on_completion(self, message: Message) -> None:
        try:
            self.action()
        except BaseException as error:
            self.raised.append(error)
        super().on_completion(message)


@pytest.mark.requirement(
    *["JMS-4.6.2.4-2", "JAK-commit-3", "JAK-commit-4", "JAK-commit-5", "JAK-rollback-3", "JAK-rollback-4"],
    *["JAK-rollback-5"],
)
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_end_waits_for_completion_listeners(desk: Any, queue: Queue, end: str) -> None:
    """Commit and rollback return when each was called, in the order of sending, and has returned; not before."""
    session = desk.transacted()
    listener = Completions()
    listener.may_return.clear()
    producer = session.create_producer(queue)
    for number in range(5):
        producer.send(session.create_text_message(str(number)), completion_listener=listener)
    ended = threading.Event()

    def call() -> None:
        getattr(session, end)()
        ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    assert not ended.wait(NOTHING_MS / 1000)
    assert desk.stored(queue) == []
    listener.may_return.set()
    thread.join()
    assert listener.texts == ["0", "1", "2", "3", "4"]
    assert listener.failed == []
    assert desk.stored(queue) == (["0", "1", "2", "3", "4"] if end == "commit" else [])


@pytest.mark.requirement("JAK-commit-6", "JAK-rollback-6", "JMS-4.6.2.4-2")
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_completion_listener_ends_no_transaction_of_its_session(desk: Any, queue: Queue, end: str) -> None:
    """It gets IllegalStateException, and the transaction stays open."""
    session = desk.transacted()
    listener = EndsTheSession(getattr(session, end))
    with contextlib.closing(session.create_producer(queue)) as producer:
        producer.send(session.create_text_message("a"), completion_listener=listener)
    assert [type(error) for error in listener.raised] == [IllegalStateException]
    assert listener.texts == ["a"]
    assert desk.stored(queue) == []
    session.commit()
    assert desk.stored(queue) == ["a"]


# Several at a time.


def test_sessions_that_commit_at_the_same_time_each_get_their_own(desk: Any, queue: Queue, other_queue: Queue) -> None:
    """Each message is moved once, by one of several sessions of one connection, with rollbacks between."""
    count = 200
    desk.send(queue, *range(count))
    left = threading.Semaphore(count)

    def move(session: Session, number: int) -> None:
        consumer = session.create_consumer(queue)
        turn = 0
        while left.acquire(blocking=False):
            texts = [text(consumer.receive(WAIT_MS))]
            while len(texts) <= (number + turn) % 3 and left.acquire(blocking=False):
                texts.append(text(consumer.receive(WAIT_MS)))
            desk.send(other_queue, *texts, by=session)
            turn += 1
            if turn % 5 == 0:
                session.rollback()
                left.release(len(texts))
            else:
                session.commit()
        session.close()

    threads = [threading.Thread(target=move, args=(desk.transacted(), number)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, desk.stored(other_queue))) == list(range(count))
    assert desk.left(queue) == []
