"""Queue browsers: what they show, and that they change nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSException,
    Queue,
    QueueBrowser,
    Session,
    Topic,
)
from kjms.testing.engine import tuned
from tests.helpers import (
    WAIT_MS,
    WAIT_SECONDS,
    Eventually,
    Intercepted,
    apart,
    intercepted,
    refused,
    send,
    send_with_length,
    take,
    texts_of,
    wait_past,
)


class Interrupted(Intercepted):
    """A consumer that receives what is committed, and is then held up.

    Attributes:
        meanwhile: What happens before its program has the answer, once.
    """

    meanwhile: ClassVar[list[Callable[[], None]]] = []

    def committed(self, *asked: Any) -> Any:
        answer = self.inner.committed(*asked)
        if self.meanwhile and all(place.offset < 0 for place in answer):
            self.meanwhile.pop()()
        return answer


def test_a_first_commit_while_a_browser_asks_is_not_one_that_kafka_has_deleted(
    kafka: Any, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """The group had committed nothing when it was asked; then a consumer did, closed, and left a copy of it."""
    servers = kafka.bootstrap_servers

    def consume() -> None:
        with apart(servers) as other, other.create_session() as session:
            assert session.create_consumer(queue).receive(WAIT_MS) is not None

    with intercepted(servers, consumer=Interrupted), apart(servers) as connection:
        send(connection, queue, "a", "b")
        Interrupted.meanwhile.append(consume)
        with connection.create_session() as session, session.create_browser(queue) as browser:
            assert marks(browser) == {"b": (False, 1)}
    assert Interrupted.meanwhile == []
    assert "has deleted the group's offsets" not in caplog.text


def marks(browser: QueueBrowser) -> dict[str, tuple[bool, int]]:
    """Return, by text, whether a message is marked as redelivered, and its count."""
    return {m.text: (m.jms_redelivered, m.get_int_property("JMSXDeliveryCount")) for m in browser}  # type: ignore[attr-defined]


@pytest.mark.requirement(
    *("JMS-5.9-1", "JMS-5.9-2", "JAK-Session-12", "JAK-createBrowser-1", "NEV-197", "NEV-281", "NET-350"),
)
def test_a_browser_shows_the_messages_and_takes_none(session: Session, queue: Queue) -> None:
    """Each iteration scans the whole queue in order; afterwards every message is delivered, for the first time."""
    sent = [f"message {number}" for number in range(20)]
    send_with_length(session, queue, *sent)
    browser = session.create_browser(queue)
    assert browser.queue == queue
    assert texts_of(browser) == sent
    send_with_length(session, queue, "later")
    assert texts_of(browser) == [*sent, "later"]
    consumer = session.create_consumer(queue)
    received = [consumer.receive(WAIT_MS) for _ in range(21)]
    assert [(m.text, m.jms_redelivered, m.get_int_property("JMSXDeliveryCount")) for m in received] == [  # type: ignore[union-attr,attr-defined]
        (text, False, 1) for text in [*sent, "later"]
    ]


def test_a_browser_works_on_a_connection_that_is_not_started(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Delivery, which starting permits, has nothing to do with looking."""
    with kjms_factory.create_connection() as connection, connection.create_session() as session:
        assert texts_of(session.create_browser(queue)) == []
        send_with_length(session, queue, "a")
        assert texts_of(session.create_browser(queue)) == ["a"]


@pytest.mark.requirement("JMS-5.9-3", "JAK-createBrowser-4", "JAK-createBrowser-5", "JMS-B.4.4-5")
def test_a_selector_says_what_a_browser_shows(session: Session, queue: Queue) -> None:
    """With a selector a browser shows the messages that match; None and "" are none."""
    send_with_length(session, queue, "a", "bb", "cc", "ddd")
    chosen = session.create_browser(queue, "n = 2")
    assert (texts_of(chosen), chosen.message_selector) == (["bb", "cc"], "n = 2")
    for nothing in (None, ""):
        browser = session.create_browser(queue, nothing)
        assert (texts_of(browser), browser.message_selector) == (["a", "bb", "cc", "ddd"], None)
    assert texts_of(session.create_browser(queue)) == ["a", "bb", "cc", "ddd"]


@pytest.mark.requirement("JAK-createBrowser-6")
def test_a_wrong_selector_is_refused_at_once(session: Session, queue: Queue) -> None:
    """A selector whose syntax is wrong makes no browser."""
    with pytest.raises(InvalidSelectorException, match="column"):
        session.create_browser(queue, "n = = 2")


@pytest.mark.requirement("JAK-createBrowser-2")
def test_a_browser_needs_a_queue(session: Session, topic: Topic, kafka: Any) -> None:
    """What is no queue, or a queue that is not there and may not be made, is an invalid destination."""
    for wrong in (None, topic, "orders"):
        with pytest.raises(InvalidDestinationException):
            session.create_browser(wrong)  # type: ignore[arg-type]
    factory = ConnectionFactory(kafka.bootstrap_servers, create_destinations=False)
    with factory.create_connection() as careful:
        its_session = careful.create_session()
        with pytest.raises(InvalidDestinationException):
            its_session.create_browser(Queue(f"{topic.topic_name}-missing"))


def test_settled_messages_are_hidden_and_held_ones_are_shown(
    connection: Connection, session: Session, queue: Queue, kafka: Any
) -> None:
    """What was acknowledged is hidden, wherever it stood; what a consumer has and did not acknowledge is shown."""
    send_with_length(session, queue, *"abcdef")
    holder = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
    consumer = holder.create_consumer(queue)
    held = [consumer.receive(WAIT_MS) for _ in range(5)]
    for number in (1, 3):
        held[number].acknowledge()  # type: ignore[union-attr]
    other = ConnectionFactory(kafka.bootstrap_servers, send_timeout=9_999)  # shares nothing with the first
    with other.create_connection() as elsewhere:
        browser = elsewhere.create_session().create_browser(queue)
        first_delivery = dict.fromkeys("acef", (False, 1))
        assert marks(browser) == first_delivery
        holder.recover()
        assert marks(session.create_browser(queue)) == {**dict.fromkeys("ace", (True, 2)), "f": (False, 1)}
        for text in "ace":
            message = consumer.receive(WAIT_MS)
            assert message is not None
            assert texts_of([message]) == [text]
            message.acknowledge()
        assert texts_of(browser) == ["f"]


def test_what_is_acknowledged_lazily_is_hidden_at_once_in_its_own_process(
    connection: Connection, session: Session, queue: Queue
) -> None:
    """DUPS_OK tells Kafka later; a browser of the same process knows."""
    send_with_length(session, queue, *"abc")
    lazy = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
    consumer = lazy.create_consumer(queue)
    for _ in range(3):
        assert consumer.receive(WAIT_MS) is not None
    consumer.close()
    assert texts_of(session.create_browser(queue)) == []


def test_what_is_relocated_again_and_again_is_shown_once(kafka: Any, queue: Queue) -> None:
    """A message whose copy is itself relocated while a look begins is shown by that look, and once."""
    count = 600
    with tuned(most_runs=20), apart(kafka.bootstrap_servers) as connection:
        send_with_length(connection, queue, *range(count))
        consumer = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
        browser = connection.create_session().create_browser(queue)
        received = take(consumer, count)

        def acknowledge() -> None:
            for message in received[::2]:
                message.acknowledge()

        acknowledging = threading.Thread(target=acknowledge)
        acknowledging.start()
        left = [str(number) for number in range(1, count, 2)]
        looks = 0
        while len(shown := texts_of(browser)) > len(left) or acknowledging.is_alive() or looks < 30:
            assert len(set(shown)) == len(shown)
            assert set(left) <= set(shown)
            looks += 1
        acknowledging.join(WAIT_SECONDS)
        assert sorted(shown, key=int) == left


def test_browsing_while_messages_are_consumed_disturbs_nobody(
    connection: Connection, session: Session, queue: Queue
) -> None:
    """A consumer gets every message once and in order, however often the queue is browsed meanwhile."""
    sent = [str(number) for number in range(300)]
    send_with_length(session, queue, *sent)
    received: list[str] = []

    def consume() -> None:
        consumer = connection.create_session().create_consumer(queue)
        for _ in sent:
            message = consumer.receive(WAIT_MS)
            assert message is not None
            assert not message.jms_redelivered
            received.extend(texts_of([message]))

    thread = threading.Thread(target=consume)
    thread.start()
    browser = session.create_browser(queue)
    while thread.is_alive():
        shown = texts_of(browser)
        assert shown == sent[len(sent) - len(shown) :]
    thread.join()
    assert received == sent


def test_every_partition_is_shown_and_the_group_is_left_alone(kafka: Any, queue: Queue, settled: Any) -> None:
    """All partitions are scanned, each in order, and nothing is committed."""
    factory = ConnectionFactory(kafka.bootstrap_servers, partitions=4, ordering="none")
    with factory.create_connection() as connection, connection.create_session() as session:
        for group in "wxyz":
            with session.create_producer(queue) as producer:
                for number in range(5):
                    message = session.create_text_message(f"{group}{number}")
                    message.properties["JMSXGroupID"] = group
                    producer.send(message)
        shown = texts_of(session.create_browser(queue))
        assert sorted(shown) == [f"{group}{number}" for group in "wxyz" for number in range(5)]
        for group in "wxyz":
            assert [text for text in shown if text[0] == group] == sorted(text for text in shown if text[0] == group)
    assert settled(queue) <= 0


def test_expired_messages_are_not_shown(session: Session, queue: Queue) -> None:
    """An expired message is not on the queue any more."""
    (stale,) = send(session, queue, "stale", time_to_live=1)
    send(session, queue, "fresh", time_to_live=600_000)
    wait_past(stale.jms_expiration)
    assert texts_of(session.create_browser(queue)) == ["fresh"]


@pytest.mark.requirement("JMS-5.9-5")
def test_a_message_is_not_shown_before_its_delivery_time(
    session: Session, queue: Queue, write: Any, eventually: Eventually
) -> None:
    """A browser shows a message from its delivery time on."""
    browser = session.create_browser(queue)
    now = time.time_ns() // 1_000_000
    for text, due in (("now", now), ("soon", now + 1_500), ("tomorrow", now + 86_400_000)):
        headers = {"kjms": b"1;text", "JMSTimestamp": b"%d" % now, "JMSDeliveryTime": b"%d" % due}
        write(queue, text.encode(), headers=headers.items())
    first = texts_of(browser)
    assert first == ["now"] or time.time_ns() // 1_000_000 > now + 1_500
    eventually(lambda: texts_of(browser) == ["now", "soon"])
    assert time.time_ns() // 1_000_000 >= now + 1_500


def test_a_closed_browser_refuses(connection: Connection, session: Session, queue: Queue) -> None:
    """After close() of the browser or its session everything but close() is refused."""
    send_with_length(session, queue, "a", "b")
    with session.create_browser(queue) as browser:
        assert texts_of(browser) == ["a", "b"]
    browser.close()
    its_session = connection.create_session()
    second = its_session.create_browser(queue)
    its_session.close()
    for closed in (browser, second):
        with pytest.raises(IllegalStateException, match="closed"):
            iter(closed)
        for name in ("queue", "message_selector"):
            with pytest.raises(IllegalStateException, match="closed"):
                getattr(closed, name)
    with pytest.raises(IllegalStateException, match="closed"):
        its_session.create_browser(queue)


def test_a_look_ends_when_its_session_closes(connection: Connection, session: Session, queue: Queue) -> None:
    """A look that is under way ends with IllegalStateException: it has not shown everything."""
    send_with_length(session, queue, "a", "b")
    looking = connection.create_session()
    look = iter(looking.create_browser(queue))
    assert texts_of([next(look)]) == ["a"]
    closer = threading.Thread(target=looking.close)
    closer.start()
    closer.join(20)
    assert not closer.is_alive()
    with pytest.raises(IllegalStateException, match="closed"):
        next(look)


def test_one_thread_at_a_time(session: Session, queue: Queue, eventually: Eventually) -> None:
    """A browser belongs to its session: while another thread uses that, it refuses."""
    send_with_length(session, queue, "a")
    consumer = session.create_consumer(Queue(f"{queue.queue_name}-empty"))
    thread = threading.Thread(target=consumer.receive)
    thread.start()
    browser = session.create_browser(queue)
    eventually(lambda: refused(lambda: texts_of(browser)))
    with pytest.raises(IllegalStateException, match="thread"):
        texts_of(browser)
    consumer.close()
    thread.join()


def test_a_settlement_of_a_later_version_is_not_guessed(session: Session, queue: Queue, commit: Any) -> None:
    """Where a later kjms has written what is settled, a browser says so, and shows nothing that may be settled."""
    send_with_length(session, queue, "a")
    commit(queue, 0, "kjms/99 - - pAAAA")
    with pytest.raises(JMSException, match="version 99"):
        texts_of(session.create_browser(queue))
