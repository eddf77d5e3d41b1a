"""What observers learn of messages, transactions and rebalances, and that they change nothing."""

from __future__ import annotations

import contextlib
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    RedeliveryPolicy,
    Session,
    TextMessage,
    aio,
)
from kjms.client.brokered_session import BrokeredSession
from kjms.observe import Observer, Sending
from kjms.observe._observers import Observers
from tests.helpers import NOTHING_MS, WAIT_MS, WAIT_SECONDS, Eventually, send, stored_records, text, texts, wait_for
from tests.observing import EVENTS, Recorder

MODES = (
    Session.AUTO_ACKNOWLEDGE,
    Session.CLIENT_ACKNOWLEDGE,
    Session.DUPS_OK_ACKNOWLEDGE,
    Session.INDIVIDUAL_ACKNOWLEDGE,
)
Open = Callable[..., Connection]


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def observed(process: Open, recorder: Recorder) -> Connection:
    """A connection that *recorder* observes."""
    return process(observers=[recorder])


def settled_messages(recorder: Recorder) -> list[tuple[str | None, str]]:
    """Return the text of each settled message, and what became of it."""
    return [(text(each.message), event.outcome) for event in recorder["settled"] for each in event.messages]


@pytest.mark.parametrize("mode", [DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT])
def test_a_send_is_observed(
    observed: Connection, recorder: Recorder, queue: Queue, eventually: Eventually, mode: DeliveryMode
) -> None:
    """Each send has one `sending` before and one `sent` after it, when the broker has the message."""
    sent = send(observed, queue, "one", "two", delivery_mode=mode)
    eventually(lambda: len(recorder["sent"]) == 2)
    assert [event.message for event in recorder["sending"]] == sent
    assert [event.sending for event in recorder["sent"]] == recorder["sending"]
    assert {event.destination for event in recorder["sending"]} == {queue}
    assert all(event.error is None and event.duration_ms > 0 for event in recorder["sent"])
    assert not any(event.is_transacted for event in recorder["sending"])


def test_a_send_with_a_completion_listener_is_observed(
    observed: Connection, recorder: Recorder, queue: Queue, eventually: Eventually
) -> None:
    """An asynchronous send is over when the broker has confirmed it."""
    done: list[Message] = []

    class Listener:
        def on_completion(self, message: Message) -> None:
            done.append(message)

        def on_exception(self, message: Message, exception: Exception) -> None:
            raise AssertionError(exception)

    send(observed, queue, "one", completion_listener=Listener())
    eventually(lambda: done and recorder["sent"])
    assert [event.sending.message for event in recorder["sent"]] == done


def test_a_send_that_fails_is_observed(observed: Connection, recorder: Recorder, queue: Queue) -> None:
    """A send that raises says what it raised."""
    producer = observed.create_session().create_producer(queue)
    with pytest.raises(JMSException) as raised:
        producer.send(TextMessage("x" * 30_000_000))
    assert [event.error for event in recorder["sent"]] == [raised.value]


def test_observers_add_headers_to_the_record(process: Open, kafka: Any, queue: Queue) -> None:
    """What `sending` returns is in the record, in place of a header of that name, and is a property of the message."""
    connection = process(observers=[Recorder(("traceparent", b"new"), ("tracestate", b"a=1"))])
    send(connection, queue, "one", properties={"traceparent": "old", "kept": "yes"})
    (record,) = stored_records(kafka.bootstrap_servers, queue.queue_name)
    headers = record.headers() or []
    assert [value for name, value in headers if name == "traceparent"] == [b"new"]
    assert {name for name, _ in headers} >= {"JMSMessageID", "kept", "tracestate"}
    received = connection.create_session().create_consumer(queue).receive(WAIT_MS)
    assert received is not None
    assert received.get_string_property("traceparent") == "new"


@pytest.mark.parametrize("mode", MODES)
def test_receiving_is_observed(observed: Connection, recorder: Recorder, queue: Queue, mode: int) -> None:
    """Each message is received once and settled once, whatever the mode."""
    bodies = [str(number) for number in range(5)]
    send(observed, queue, *bodies)
    with observed.create_session(mode) as session, session.create_consumer(queue) as consumer:
        for body in bodies:
            message = consumer.receive(WAIT_MS)
            assert text(message) == body
            if mode == Session.INDIVIDUAL_ACKNOWLEDGE:
                message.acknowledge()  # type: ignore[union-attr]
        if mode == Session.CLIENT_ACKNOWLEDGE:
            message.acknowledge()  # type: ignore[union-attr]
    received = recorder["received"]
    assert texts_of_events(received) == bodies
    assert {(event.destination, event.delivery_count, event.is_listener) for event in received} == {(queue, 1, False)}
    assert [(event.topic, event.offset) for event in received] == [(queue.queue_name, n) for n in range(5)]
    assert all(event.time_in_queue_ms >= 0 for event in received)
    assert settled_messages(recorder) == [(body, "acknowledged") for body in bodies]
    assert [each for event in recorder["settled"] for each in event.messages] == received
    at_once = mode in {Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE}
    assert sum(len(event.processing_ms) for event in recorder["settled"]) == (0 if at_once else 5)
    assert len(recorder["settled"]) == (1 if mode == Session.CLIENT_ACKNOWLEDGE else 5)
    assert recorder["redelivered"] == []


def texts_of_events(events: list[Any]) -> list[str]:
    return [text(event.message) for event in events]


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE])
def test_a_loop_is_observed(observed: Connection, recorder: Recorder, queue: Queue, mode: int) -> None:
    """A message of a loop is settled when the loop asks for the next one, with the time that its body took."""
    send(observed, queue, "one", "two")
    with observed.create_session(mode) as session, session.create_consumer(queue) as consumer:
        for message in consumer:
            if text(message) == "two":
                assert settled_messages(recorder) == [("one", "acknowledged")]
                break
    assert settled_messages(recorder) == [("one", "acknowledged"), ("two", "acknowledged")]
    assert all(len(event.processing_ms) == 1 and event.processing_ms[0] > 0 for event in recorder["settled"])


@pytest.mark.parametrize("mode", [Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE])
def test_a_listener_is_called_within_what_observers_return(
    observed: Connection, recorder: Recorder, queue: Queue, eventually: Eventually, mode: int
) -> None:
    """A listener runs inside of `processing`, after `received` and before `settled`."""
    session = observed.create_session(mode)
    session.create_consumer(queue).message_listener = lambda _: recorder.order.append("listener")
    send(observed, queue, "one")
    eventually(lambda: recorder["settled"])
    about = [name for name in recorder.order if name not in {"sending", "sent"}]
    about = about[about.index("received") :]
    assert about == ["received", "processing", "entered", "listener", "left", "settled"]
    assert recorder["received"] == recorder["processing"]
    assert recorder["received"][0].is_listener
    assert recorder["settled"][0].processing_ms[0] > 0


def test_a_listener_that_raises_is_observed(
    process: Open, recorder: Recorder, queue: Queue, dead: Queue, eventually: Eventually
) -> None:
    """A message whose listener raises is returned, comes again, and ends as a dead letter, each time with the error."""
    connection = process(observers=[recorder], redelivery=RedeliveryPolicy(max_deliveries=2))
    session = connection.create_session()
    failure = RuntimeError("no")

    def listen(_: Message) -> None:
        raise failure

    session.create_consumer(queue).message_listener = listen
    send(connection, queue, "one")
    eventually(lambda: recorder["dead_lettered"])
    assert recorder.errors == [failure, failure]
    assert [event.delivery_count for event in recorder["received"]] == [1, 2]
    assert [event.received for event in recorder["redelivered"]] == recorder["received"][1:]
    assert "RuntimeError" in recorder["redelivered"][0].cause
    assert [(event.outcome, event.error) for event in recorder["settled"]] == [
        ("returned", failure),
        ("dead-lettered", failure),
    ]
    (event,) = recorder["dead_lettered"]
    assert (event.destination, event.queue, event.delivery_count, event.error) == (queue, dead, 2, failure)
    assert text(event.message) == "one"


def test_a_transaction_is_observed(observed: Connection, recorder: Recorder, queue: Queue, other_queue: Queue) -> None:
    """A commit tells of what was sent and received in it; messages are sent when it is through."""
    send(observed, queue, "one", "two")
    before = len(recorder["sent"])
    with observed.create_session(Session.SESSION_TRANSACTED) as session:
        consumer = session.create_consumer(queue)
        assert texts(consumer, 2) == ["one", "two"]
        sent = send(session, other_queue, "three")
        assert len(recorder["sent"]) == before
        assert recorder["settled"] == []
        session.commit()
    (event,) = recorder["committed"]
    assert texts_of_events(event.received) == ["one", "two"]
    assert [each.message for each in event.sent] == sent
    assert event.sent[0].is_transacted
    assert event.duration_ms > 0
    assert [each.sending for each in recorder["sent"][before:]] == list(event.sent)
    assert settled_messages(recorder) == [("one", "acknowledged"), ("two", "acknowledged")]
    assert recorder["rolled_back"] == []


@pytest.mark.parametrize("how", ["rollback", "close"])
def test_a_rollback_is_observed(
    observed: Connection, recorder: Recorder, queue: Queue, other_queue: Queue, how: str
) -> None:
    """A rollback, or the close of a session, tells of what was not sent, and returns what was received."""
    send(observed, queue, "one")
    session = observed.create_session(Session.SESSION_TRANSACTED)
    consumer = session.create_consumer(queue)
    assert texts(consumer, 1) == ["one"]
    send(session, other_queue, "two")
    getattr(session, how)()
    (event,) = recorder["rolled_back"]
    assert texts_of_events(event.received) == ["one"]
    assert texts_of_events(event.sent) == ["two"]
    assert event.error is None
    assert settled_messages(recorder) == [("one", "returned")]
    assert len(recorder["sent"]) == 1
    assert recorder["committed"] == []


def test_a_rebalance_is_observed(process: Open, queue: Queue, eventually: Eventually) -> None:
    """Partitions that a second process takes over are revoked from the first one and assigned to the other."""
    first, second = Recorder(), Recorder()
    connection = process(observers=[first], partitions=2)
    consumer = connection.create_session().create_consumer(queue)
    assert consumer.receive(NOTHING_MS) is None
    eventually(lambda: first["rebalanced"])
    assert [(each.destination, each.change) for each in first["rebalanced"]] == [(queue, "assigned")]
    assert set(first["rebalanced"][0].partitions) == {0, 1}
    assert first["rebalanced"][0].group
    other = process(observers=[second]).create_session().create_consumer(queue)
    eventually(lambda: other.receive(NOTHING_MS) is None and second["rebalanced"])
    revoked = [number for each in first["rebalanced"] if each.change == "revoked" for number in each.partitions]
    assert revoked == [number for each in second["rebalanced"] for number in each.partitions]
    assert all(each.duration_ms > 0 for each in first["rebalanced"])


class Broken(Observer):
    """Raises from every method."""

    def __init__(self) -> None:
        for name in EVENTS:
            setattr(self, name, self._fail)

    def _fail(self, event: object) -> Any:
        raise RuntimeError(f"cannot observe {type(event).__name__}")


class BrokenInside(Observer):
    """Returns what raises, and headers that are none."""

    def sending(self, event: Sending) -> Any:
        return [("name", "no bytes")]

    @contextlib.contextmanager
    def processing(self, event: object) -> Any:
        yield
        raise RuntimeError("cannot leave")


@pytest.mark.parametrize("broken", [Broken, BrokenInside])
def test_an_observer_that_raises_changes_nothing(
    process: Open,
    recorder: Recorder,
    queue: Queue,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
    broken: type[Observer],
) -> None:
    """Messages are sent, received and settled although an observer raises, and the next observer is called."""
    connection = process(observers=[broken(), recorder])
    heard: list[str] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        heard.append(text(message))
        if len(heard) == 3:
            done.set()

    connection.create_session().create_consumer(queue).message_listener = listen
    send(connection, queue, "one", "two", "three")
    assert done.wait(WAIT_SECONDS)
    eventually(lambda: len(recorder["settled"]) == 3)
    assert heard == ["one", "two", "three"]
    assert len(recorder["sent"]) == 3
    complaints = [record.message for record in caplog.records if record.name == "kjms.observe"]
    assert len(complaints) == len(set(complaints))  # each method once, not once for each message


@pytest.mark.parametrize("wrong", ["prometheus", [object()], Recorder(), 7])
def test_what_is_no_observer_is_refused(wrong: Any) -> None:
    """A factory says at once that it was given no observers."""
    with pytest.raises(TypeError, match=r"kjms\.observe\.Observer"):
        ConnectionFactory("localhost:9092", observers=wrong)


def test_an_observer_is_called_once_for_each_event(process: Open, recorder: Recorder, queue: Queue) -> None:
    """An observer that is named twice is called once."""
    send(process(observers=[recorder, recorder]), queue, "one")
    assert len(recorder["sent"]) == 1
    assert repr(Observers([recorder, recorder])) == "<Observers: Recorder>"


class Plain(Observer):
    """An observer that can be pickled."""


def test_a_factory_with_observers_can_be_pickled() -> None:
    """Processes that are spawned get the factory with its observers."""
    copy = pickle.loads(pickle.dumps(ConnectionFactory("localhost:9092", observers=[Plain()])))
    assert [type(each) for each in copy._options.observers] == [Plain]


async def test_contexts_of_a_loop_are_observed(kafka: Any, recorder: Recorder, queue: Queue) -> None:
    """What a program of asyncio sends, receives and settles is observed, too."""
    factory = aio.ConnectionFactory(kafka.bootstrap_servers, observers=[recorder])
    async with factory.create_context(Session.CLIENT_ACKNOWLEDGE) as context:
        await context.create_producer().send(queue, "one")
        async with context.create_consumer(queue) as consumer:
            message = await consumer.receive(WAIT_MS)
            assert isinstance(message, TextMessage)
            assert recorder["settled"] == []
            await context.acknowledge()
    assert [event.sending for event in recorder["sent"]] == recorder["sending"]
    assert [event.message for event in recorder["received"]] == [message]
    assert settled_messages(recorder) == [("one", "acknowledged")]


def polled(session: BrokeredSession, consumer: MessageConsumer, count: int) -> list[Any]:
    """Return the next *count* messages, with their deliveries."""
    found: list[Any] = []

    def is_there() -> bool:
        while len(found) < count and (one := session.poll(consumer)) is not None:
            found.append(one)
        return len(found) == count

    wait_for(is_there)
    return found


def test_a_session_of_the_gateway_is_observed(observed: Connection, recorder: Recorder, queue: Queue) -> None:
    """Messages that are accepted, released, failed and rejected one by one are observed like others."""
    send(observed, queue, "accepted", "released", "failed", "rejected")
    before = len(recorder["sent"])
    session = observed._create_session(BrokeredSession, Session.INDIVIDUAL_ACKNOWLEDGE, 1)
    consumer = session.create_consumer(queue)
    deliveries = [delivery for delivery, _ in polled(session, consumer, 4)]
    accepted, released, failed, rejected = deliveries
    session.accept([accepted])
    session.flush()
    session.rest(consumer)
    session.release([released])
    session.fail([failed], "it failed")
    session.reject([rejected], "it was rejected")
    assert settled_messages(recorder) == [
        ("accepted", "acknowledged"),
        ("released", "returned"),
        ("failed", "returned"),
        ("rejected", "dead-lettered"),
    ]
    assert [event.cause for event in recorder["dead_lettered"]] == ["it was rejected"]
    assert len(recorder["sent"]) == before


@pytest.mark.parametrize("sends", [False, True])
def test_a_transaction_of_the_gateway_is_observed(
    observed: Connection, recorder: Recorder, queue: Queue, other_queue: Queue, sends: bool
) -> None:
    """A transaction that only received, which one commit of the group settles, is committed like others."""
    send(observed, queue, "one")
    session = observed._create_session(BrokeredSession, Session.INDIVIDUAL_ACKNOWLEDGE, 1)
    consumer = session.create_consumer(queue)
    ((delivery, message),) = polled(session, consumer, 1)
    transaction = session.begin()
    session.accept([delivery], transaction)
    if sends:
        producer = session.create_passthrough_producer(other_queue)
        with session.within(transaction):
            producer.forward(message, other_queue)
    assert session.end_well(transaction) is None
    (event,) = recorder["committed"]
    assert texts_of_events(event.received) == ["one"]
    assert [each.destination for each in event.sent] == [other_queue] * sends
    assert settled_messages(recorder) == [("one", "acknowledged")]
    assert event.duration_ms > 0


@pytest.mark.parametrize("mode", [*MODES, Session.SESSION_TRANSACTED])
def test_what_an_interrupted_listener_had_is_returned(
    observed: Connection, recorder: Recorder, queue: Queue, eventually: Eventually, mode: int
) -> None:
    """A worker that is stopped in a listener gives its message back, and that is observed."""
    session, is_over = observed.create_session(mode), threading.Event()
    session.create_consumer(queue).message_listener = lambda _: is_over.wait(WAIT_SECONDS)
    send(observed, queue, "one")
    eventually(lambda: recorder["received"])
    try:
        session._core.acknowledgement.interrupt()
        assert settled_messages(recorder) == [("one", "returned")]
        assert len(recorder["rolled_back"]) == (mode == Session.SESSION_TRANSACTED)
    finally:
        is_over.set()
