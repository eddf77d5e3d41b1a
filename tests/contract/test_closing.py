"""What closing a session or connection ends, whom it waits for, and what is refused afterwards."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    IllegalStateException,
    Message,
    Queue,
    Session,
    Topic,
)
from tests.helpers import WAIT_MS, WAIT_SECONDS, Eventually, kjms_threads, send, text


class Made:
    """A session with one of each thing that it makes, and its connection."""

    def __init__(self, factory: ConnectionFactory, queue: Queue) -> None:
        self.queue, self.topic = queue, Topic(f"{queue.queue_name}-topic")
        self.connection = factory.create_connection()
        self.connection.start()
        self.session = self.connection.create_session()
        self.consumer = self.session.create_consumer(queue)
        self.producer = self.session.create_producer(queue)
        self.browser = self.session.create_browser(queue)
        self.message = self.session.create_text_message("x")

    def uses(self, *of: object) -> list[tuple[str, Callable[[], object]]]:
        """Return a use of each public method and property of the session, or of *of*, but for closing."""
        arguments: dict[str, tuple[Any, ...]] = {
            "create_queue": ("q",),
            "create_topic": ("t",),
            "create_browser": (self.queue,),
            "create_consumer": (self.queue,),
            "create_durable_consumer": (self.topic, "name"),
            "create_durable_subscriber": (self.topic, "name"),
            "create_shared_consumer": (self.topic, "name"),
            "create_shared_durable_consumer": (self.topic, "name"),
            "unsubscribe": ("name",),
            "send": (self.message,),
        }
        found: list[tuple[str, Callable[[], object]]] = []
        for thing in of or (self.session,):
            for name in dir(type(thing)):
                member = getattr(type(thing), name)
                if name.startswith("_") or name == "close" or not (callable(member) or isinstance(member, property)):
                    continue
                if isinstance(member, property):
                    found.append((f"{thing} {name}", lambda thing=thing, name=name: getattr(thing, name)))
                    if member.fset is not None:
                        found.append((f"{thing} {name}=", lambda thing=thing, name=name: setattr(thing, name, None)))
                else:
                    use = arguments.get(name, ())
                    found.append(
                        (f"{thing} {name}", lambda thing=thing, name=name, use=use: getattr(thing, name)(*use))
                    )
        return found


@pytest.mark.requirement("JAK-close-1", "JAK-close-3", "JAK-close-18", "JMS-4.4.1-5", "JMS-4.4.1-8", "NEV-202")
def test_after_the_close_of_a_session_only_close_can_be_called(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """Everything else, of the session and of what it made, raises IllegalStateException; the connection stays open."""
    made = Made(kjms_factory, queue)
    made.session.close()
    uses = made.uses(made.session, made.consumer, made.producer, made.browser)
    assert len(uses) > 40
    for name, use in uses:
        with pytest.raises(IllegalStateException, match="closed"):
            pytest.fail(f"{name} returned {use()!r}")
    with pytest.raises(IllegalStateException):
        list(made.browser)
    send(made.connection.create_session(), queue, "a")
    assert text(made.connection.create_session().create_consumer(queue).receive(WAIT_MS)) == "a"
    made.connection.close()


@pytest.mark.requirement("JAK-close-19", "JMS-4.4.1-9", "NEV-203")
def test_closing_what_is_closed_changes_nothing(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """A closed session can be closed again, and so can what it made; another session of the connection stays open."""
    made = Made(kjms_factory, queue)
    other = made.connection.create_session()
    consumer = other.create_consumer(queue)
    made.session.close()
    for closable in (made.session, made.consumer, made.producer, made.browser):
        for _ in range(2):
            closable.close()
            assert "closed" in repr(closable)
    send(other, queue, "a")
    assert text(consumer.receive(WAIT_MS)) == "a"
    made.connection.close()


@pytest.mark.requirement("JMS-4.3.5-6", "JMS-4.3.5-10", "JMS-4.3.5-11", "NEV-178", "NEV-179")
def test_after_the_close_of_a_connection_only_close_can_be_called(
    kjms_factory: ConnectionFactory, queue: Queue
) -> None:
    """Everything else, of the connection and of what it and its sessions made, raises IllegalStateException."""
    made = Made(kjms_factory, queue)
    made.connection.close()
    uses = made.uses(made.connection, made.session, made.consumer, made.producer, made.browser)
    assert len(uses) > 50
    for name, use in uses:
        with pytest.raises(IllegalStateException, match="closed"):
            pytest.fail(f"{name} returned {use()!r}")
    for closable in (made.connection, made.session, made.consumer, made.producer, made.browser):
        for _ in range(2):
            closable.close()
            assert "closed" in repr(closable)


@pytest.mark.requirement("JAK-Session-33")
def test_a_with_statement_closes(kjms_factory: ConnectionFactory, queue: Queue) -> None:
    """At its end connections, sessions and what these make are closed, also when it ends with an exception."""
    made: list[Any] = []

    def use() -> None:
        with kjms_factory.create_connection() as connection, connection.create_session() as session:
            with session.create_producer(queue) as producer, session.create_consumer(queue) as consumer:
                pass
            with session.create_browser(queue) as browser:
                pass
            for refused in (lambda: producer.priority, consumer.receive_no_wait, lambda: browser.queue):
                with pytest.raises(IllegalStateException, match="closed"):
                    refused()
            assert session.transacted is False
            made.extend([session.create_message, connection.start])
            raise KeyError

    with pytest.raises(KeyError):
        use()
    for refused in made:
        with pytest.raises(IllegalStateException, match="closed"):
            refused()


@pytest.mark.requirement("NEV-200")
def test_closing_a_session_releases_what_it_made(connection: Connection, queue: Queue, eventually: Eventually) -> None:
    """Its threads and readers end, though nothing else was closed; its messages go to others at once."""
    send(connection.create_session(), queue, "a")
    before = kjms_threads()
    session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
    held = session.create_consumer(queue).receive(WAIT_MS)
    assert held is not None
    topics = [Topic(f"{queue.queue_name}-{number}") for number in range(2)]
    for topic in topics:
        session.create_consumer(topic)
    look = iter(session.create_browser(queue))
    assert text(next(look)) == "a"
    own = connection.create_session()
    own.create_consumer(topics[0]).message_listener = print

    class Completions:
        def on_completion(self, message: Message) -> None:
            pass

        def on_exception(self, message: Message, exception: Exception) -> None:
            pass

    own.create_producer(topics[0]).send(own.create_text_message("x"), completion_listener=Completions())
    assert len(kjms_threads() - before) >= 4  # two readers, and what calls the two listeners
    session.close()
    own.close()
    again = connection.create_session().create_consumer(queue).receive(WAIT_MS)
    assert again is not None
    assert again.jms_redelivered
    own_names = ["kjms-session-", *(topic.topic_name for topic in topics)]
    eventually(lambda: not [n for n in kjms_threads() - before if any(own_name in n for own_name in own_names)])


@pytest.mark.requirement("JMS-4.4.11-3")
def test_what_a_closed_session_acknowledged_is_durable(
    connection: Connection, queue: Queue, settled: Callable[[Queue], int]
) -> None:
    """When close returns, the message that a listener had last is committed, though nothing asked for another."""
    for count in range(1, 11):
        send(connection, queue, count)
        session = connection.create_session()
        heard = threading.Event()
        session.create_consumer(queue).message_listener = lambda _, heard=heard: heard.set()
        assert heard.wait(WAIT_SECONDS)
        session.close()
        assert settled(queue) == count
