"""What a session is made with, and what it makes."""

from __future__ import annotations

import threading
from typing import Any

import psutil
import pytest

from kjms import Connection, ConnectionFactory, IllegalStateException, Queue, Session, Topic
from tests.helpers import WAIT_MS, text

MODES = [Session.AUTO_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE]


@pytest.mark.requirement(
    "JAK-AUTO_ACKNOWLEDGE-1", "JAK-CLIENT_ACKNOWLEDGE-1", "JAK-DUPS_OK_ACKNOWLEDGE-1", "JAK-getAcknowledgeMode-1",
    "JMS-B.4.5.1-1", "NEV-235",
)  # fmt: skip
def test_a_session_has_the_mode_that_it_was_made_with(connection: Connection) -> None:
    """One of three whole numbers, for good; such a session is recovered by hand, and has nothing to commit."""
    assert len(set(MODES)) == 3
    for mode in MODES:
        assert isinstance(mode, int)
        session = connection.create_session(mode)
        assert (session.acknowledge_mode, session.transacted) == (mode, False)
        with pytest.raises(AttributeError):
            session.acknowledge_mode = mode  # type: ignore[misc]
        session.recover()
        for call in (session.commit, session.rollback):
            with pytest.raises(IllegalStateException, match="not transacted"):
                call()


@pytest.mark.requirement("JMS-9.1.4-1")
def test_a_session_can_be_made_in_three_ways(connection: Connection) -> None:
    """With whether it is transacted and a mode, with a mode alone, and with nothing, which is AUTO_ACKNOWLEDGE."""
    assert connection.create_session().acknowledge_mode == Session.AUTO_ACKNOWLEDGE
    for mode in MODES:
        assert connection.create_session(mode).acknowledge_mode == mode
        session = connection.create_session(False, mode)
        assert (session.transacted, session.acknowledge_mode) == (False, mode)
    for wrong in (4, -1, "AUTO_ACKNOWLEDGE", None):
        with pytest.raises(ValueError, match="acknowledge mode"):
            connection.create_session(wrong)  # type: ignore[arg-type]


@pytest.mark.requirement("NEV-7", "NEV-180")
def test_a_connection_makes_many_sessions(connection: Connection, queue: Queue) -> None:
    """Each is a session of its own: one can be closed, and the others stay open."""
    sessions = [connection.create_session() for _ in range(3)]
    assert len(set(map(id, sessions))) == 3
    sessions[0].close()
    sessions[1].create_producer(queue).send(sessions[1].create_text_message("a"))
    assert text(sessions[2].create_consumer(queue).receive(WAIT_MS)) == "a"


@pytest.mark.requirement(
    "JAK-Session-3", "JAK-Session-13", "JMS-4.4.2-1", "NEV-8", "NEV-189", "NET-341", "NET-351"
)  # fmt: skip
def test_one_session_serves_many_producers_and_consumers(session: Session, kjms_destination_name: str) -> None:
    """It makes them for any destinations, several for the same one too, and all work side by side."""
    kinds: list[Any] = [Queue, Queue, Topic, Topic]
    places = [kind(f"{kjms_destination_name}-{number}") for number, kind in enumerate(kinds)]
    consumers = [session.create_consumer(place) for place in places]
    producers = [session.create_producer(place) for place in places for _ in range(2)]
    for number, producer in enumerate(producers):
        producer.send(session.create_text_message(str(number)))
    received = [[text(consumer.receive(WAIT_MS)) for _ in range(2)] for consumer in consumers]
    assert received == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"]]


@pytest.mark.requirement("JAK-Session-14", "NET-352", "NEV-212")
def test_a_thread_receives_and_answers_in_one_session(connection: Connection, queue: Queue) -> None:
    """It waits in receive, and when a message has come it uses producers of the same session."""
    served = connection.create_session()
    requests = served.create_consumer(queue)

    def serve() -> None:
        for request in requests:
            answers = served.create_producer(request.jms_reply_to)
            answers.send(served.create_text_message(f"answer to {text(request)}"))

    server = threading.Thread(target=serve)
    server.start()
    session, answers = connection.create_session(), Queue(f"{queue.queue_name}-answers")
    consumer, producer = session.create_consumer(answers), session.create_producer(queue)
    for name in "abc":
        request = session.create_text_message(name)
        request.jms_reply_to = answers
        producer.send(request)
        assert text(consumer.receive(WAIT_MS)) == f"answer to {name}"
    requests.close()
    server.join(20)
    assert not server.is_alive()


@pytest.mark.requirement("NEV-191", "JMS-B.2.21-4", "JAK-createQueue-3", "JAK-createTopic-3", "JMS-B.5.21-1")
def test_a_session_turns_names_into_destinations_and_makes_none(
    kafka: Any, admin: Any, session: Session, kjms_destination_name: str
) -> None:
    """create_queue and create_topic return what stands for a queue or topic of Kafka, and do nothing there."""
    queue, topic = session.create_queue(kjms_destination_name), session.create_topic(f"{kjms_destination_name}-topic")
    assert (queue, topic) == (Queue(kjms_destination_name), Topic(f"{kjms_destination_name}-topic"))
    assert not {queue.queue_name, topic.topic_name} & set(admin.list_topics(timeout=20).topics)
    for destination in (queue, topic):
        consumer = session.create_consumer(destination)
        session.create_producer(destination).send(session.create_text_message("a"))
        assert text(consumer.receive(WAIT_MS)) == "a"
    strict = ConnectionFactory(kafka.bootstrap_servers, create_destinations=False)
    with strict.create_connection() as connection:
        other = connection.create_session()
        other.create_producer(other.create_queue(kjms_destination_name)).send(other.create_text_message("b"))
    assert text(session.create_consumer(queue).receive(WAIT_MS)) == "b"


@pytest.mark.requirement("JAK-Session-2", "NET-340")
def test_a_session_is_light(connection: Connection, queue: Queue) -> None:
    """Sessions with producers and consumers that wait for nothing have no thread of their own, in Python or in C."""

    def use() -> None:
        session = connection.create_session()
        session.create_producer(queue).send(session.create_text_message("a"))
        session.create_consumer(queue)

    use()
    program = psutil.Process()
    before = program.num_threads()
    for _ in range(100):
        use()
    assert program.num_threads() < before + 50  # the first one's Kafka clients may still be starting theirs
