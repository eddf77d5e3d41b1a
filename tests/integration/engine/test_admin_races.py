"""What `kjms.admin.Admin` shows while topics are made, or messages relocated, between two questions to Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kjms import Connection, ConnectionFactory, InvalidDestinationException, Queue, RedeliveryPolicy, Session
from kjms.admin import Admin
from kjms.admin._scopes import Scopes
from kjms.engine.admin import scan
from kjms.engine.admin.questions import Questions
from kjms.engine.admin.topics import Topics
from kjms.engine.delayed import inspection
from kjms.mapping.names import delayed, overflow, queue_group
from kjms.testing import MemoryKafka
from kjms.testing.engine import tuned
from tests.helpers import (
    apart,
    browse,
    dead_letter_queue,
    delete_topic,
    send,
    send_with_length,
    take,
    text,
    wait_for,
)

Relocate = Callable[[Callable[[], object]], None]


@pytest.fixture(params=["memory", pytest.param("real", marks=pytest.mark.slow)])
def kafka(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The Kafka that the test runs on, with its ``bootstrap_servers``."""
    if request.param == "real":
        yield request.getfixturevalue("kjms_broker")
    else:
        with MemoryKafka() as memory:
            yield memory


@pytest.fixture
def figures(kafka: Any) -> Iterator[Admin]:
    """An `Admin` of the test's Kafka."""
    with Admin(ConnectionFactory(kafka.bootstrap_servers)) as admin:
        yield admin


@pytest.fixture
def connection(kafka: Any) -> Iterator[Connection]:
    """A started connection."""
    with apart(kafka.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def relocate(kafka: Any, queue: Queue) -> Iterator[Relocate]:
    """A function that lets half of the 200 messages of `queue` be relocated, until a condition holds."""
    with tuned(most_runs=20), apart(kafka.bootstrap_servers) as connection:
        send_with_length(connection, queue, *map(str, range(200)))
        received = take(connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue), 200)

        def relocate(until: Callable[[], object]) -> None:
            for message in received[::2]:
                message.acknowledge()
            wait_for(until)

        yield relocate


def test_what_is_relocated_while_pages_are_begun_is_on_them(
    kafka: Any,
    queue: Queue,
    relocate: Relocate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue whose overflow topic is made while its settlement is read keeps no message from pages and browsers."""
    look_up, looks = Topics.look_up, list[str]()
    beside = overflow(queue.queue_name, queue_group(queue.queue_name))
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with Admin(factory) as admin, Admin(factory) as other:

        def look_up_before(topics: Topics, topic: str) -> int:
            count = look_up(topics, topic)
            if topic == beside and not looks:
                looks.append(topic)
                assert count == 0
                relocate(lambda: other.queue(queue).overflow)
            return count

        monkeypatch.setattr(Topics, "look_up", look_up_before)
        shown = [each.message for each in admin.browse(queue, limit=1000).messages]
    assert set(map(str, range(1, 200, 2))) <= set(map(text, shown))
    assert looks


def test_what_is_relocated_while_a_count_begins_is_counted(
    kafka: Any,
    queue: Queue,
    relocate: Relocate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A queue whose overflow topic is made after the topics were listed has no smaller depth for that."""
    every, looks = Topics.all, list[str]()
    beside = overflow(queue.queue_name, queue_group(queue.queue_name))
    factory = ConnectionFactory(kafka.bootstrap_servers)
    with Admin(factory) as admin, Admin(factory) as other:

        def list_before(topics: Topics) -> dict[str, int]:
            found = every(topics)
            if not looks:
                looks.append(beside)
                assert beside not in found
                relocate(lambda: "overflow" in {each.place for each in other.browse(queue, limit=1000).messages})
            return found

        monkeypatch.setattr(Topics, "all", list_before)
        depth = admin.queue(queue).depth
    assert depth is not None
    assert depth >= 100
    assert looks


def test_a_topic_that_is_made_again_while_it_is_counted(
    kafka: Any, figures: Admin, connection: Connection, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are counted all the same, though its log never gets as far as it was to be read."""
    other, name = Queue(f"{queue.queue_name}-other"), queue.queue_name
    send_with_length(connection, other, *"ab")
    send_with_length(connection, queue, *"abcdef")
    wait_for(lambda: {name, other.queue_name} <= {each.name for each in figures.queues()})
    send_with_length(connection, queue, "g")  # there is something to read
    committed, made_again = Questions.committed, list[str]()

    def make_again(questions: Questions, groups: Sequence[str]) -> Any:
        if queue_group(name) in groups and not made_again:
            made_again.append(name)
            delete_topic(kafka.bootstrap_servers, name)
            with apart(kafka.bootstrap_servers) as later:
                send_with_length(later, queue, *"xyz")
        return committed(questions, groups)

    monkeypatch.setattr(Questions, "committed", make_again)
    found = {each.name: each.depth for each in figures.queues() if each.name in {name, other.queue_name}}
    assert made_again
    assert found[other.queue_name] == 2
    wait_for(lambda: figures.queue(queue).depth == 3)


@pytest.mark.parametrize("ask", ["dead_letters", "dead_letter_causes"])
@pytest.mark.parametrize(
    ("of", "step"),
    [
        pytest.param(Scopes, "chosen", id="after the queues were listed"),
        pytest.param(scan, "read_progress", id="before its settlement is read"),
        pytest.param(scan, "TopicPartition", id="before its messages are read"),
    ],
)
def test_a_queue_that_is_deleted_while_dead_letters_are_counted(
    kafka: Any,
    figures: Admin,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    ask: str,
    of: Any,
    step: str,
) -> None:
    """It is left out, of the dead-letter queues and of the causes, and the others are counted."""
    queues = [Queue(f"{queue.queue_name}-{name}") for name in ("gone", "stays")]
    gone, stays = (dead_letter_queue(each).queue_name for each in queues)
    with apart(kafka.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=1)) as connection:
        for each in queues:
            fail(connection, each)
            wait_for(lambda each=each: browse(connection, dead_letter_queue(each)))
    deleted = delete_before(monkeypatch, of, step, kafka.bootstrap_servers, gone)
    counted = getattr(figures, ask)()
    found = {name for each in counted for name in ([each.name] if ask == "dead_letters" else each.queues)}
    assert deleted
    assert gone not in found
    assert stays in found


def test_a_queue_that_is_deleted_while_it_is_browsed_is_named(
    kafka: Any, figures: Admin, connection: Connection, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No one waits for messages that are not there any more."""
    send_with_length(connection, queue, *"ab")
    deleted = delete_before(monkeypatch, scan, "TopicPartition", kafka.bootstrap_servers, queue.queue_name)
    with pytest.raises(InvalidDestinationException, match=re.escape(queue.queue_name)):
        figures.browse(queue)
    assert deleted


@pytest.mark.parametrize("is_named", [True, False])
def test_delayed_messages_of_a_destination_that_is_deleted_while_they_are_read(
    kafka: Any,
    figures: Admin,
    connection: Connection,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
) -> None:
    """They do not wait any more, and no one waits for them."""
    (message,) = send(connection, queue, "x", delivery_delay=3_600_000)
    topic = delayed(queue.queue_name)
    deleted = delete_before(monkeypatch, inspection, "TopicPartition", kafka.bootstrap_servers, topic)
    assert not figures.cancel(message.jms_message_id, queue if is_named else None)
    assert deleted
    assert figures.delayed(queue) == []


def fail(connection: Connection, queue: Queue) -> None:
    """Send a message to *queue*, receive it, and roll back."""
    with connection.create_session(Session.SESSION_TRANSACTED) as session:
        send(connection, queue, "x")
        take(session.create_consumer(queue), 1)
        session.rollback()


def delete_before(monkeypatch: pytest.MonkeyPatch, of: Any, step: str, servers: str, topic: str) -> list[str]:
    """Delete *topic* before the first call of *step* that names it; return a list that has it then."""
    real, deleted = getattr(of, step), list[str]()

    def call(*arguments: Any, **named: Any) -> Any:
        if not deleted and topic in repr(arguments):
            deleted.append(topic)
            delete_topic(servers, topic)
        return real(*arguments, **named)

    monkeypatch.setattr(of, step, call)
    return deleted
