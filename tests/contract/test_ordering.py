"""In which order messages are produced and consumed, and what priorities they have."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kjms import (
    ConnectionFactory,
    DeliveryMode,
    DestinationOptions,
    Message,
    MessageConsumer,
    Queue,
    Session,
    Topic,
)
from tests.helpers import WAIT_MS, Eventually, send, text


def numbers(consumer: MessageConsumer, count: int) -> list[int]:
    return [int(text(consumer.receive(WAIT_MS))) for _ in range(count)]


@pytest.mark.requirement("JAK-Session-8", "JMS-4.4.10.1-1", "NEV-194", "NET-346", "JAK-recover-6")
def test_what_a_session_consumes_is_one_series(
    kjms_factory: ConnectionFactory, kjms_destination_name: str, eventually: Eventually
) -> None:
    """Several consumers' listeners are called one at a time, also after recover, and are acknowledged together."""
    name = kjms_destination_name
    places: dict[str, Any] = {"a": Queue(f"{name}-a"), "b": Queue(f"{name}-b"), "c": Topic(f"{name}-c")}
    count = 10
    with kjms_factory.create_connection() as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        one_at_a_time = threading.Lock()
        series: list[str] = []
        overlaps: list[str] = []
        all_came = threading.Event()

        def listener(message: Message) -> None:
            if not one_at_a_time.acquire(blocking=False):
                overlaps.append(text(message))
                return
            series.append(text(message))
            all_came.wait(0.002)  # long enough for another thread to get in
            if len(series) == 3 * count:
                session.recover()
            elif len(series) == 6 * count:
                message.acknowledge()
                session.recover()
                all_came.set()
            one_at_a_time.release()

        for place in places.values():
            session.create_consumer(place).message_listener = listener
        for name, place in places.items():
            send(connection, place, *(f"{name}{number}" for number in range(count)))
        connection.start()
        assert all_came.wait(20)
        send(connection, places["a"], "the next")
        eventually(lambda: len(series) > 6 * count)
    assert overlaps == []
    for part in (series[: 3 * count], series[3 * count : 6 * count]):
        for name in places:
            assert [one for one in part if one[0] == name] == [f"{name}{number}" for number in range(count)]
    assert series[6 * count :] == ["the next"]


@pytest.mark.requirement("JAK-Session-9", "NEV-194", "NET-347", "JMS-4.4.10.1-2")
@pytest.mark.parametrize("place", [Queue, Topic])
def test_what_a_session_produces_is_one_series(
    kafka: Any, kjms_destination_name: str, place: Callable[[str], Any]
) -> None:
    """Whichever of its producers sends, and on however many partitions, it arrives in the order of sending."""
    destination = place(kjms_destination_name)
    options = {kjms_destination_name: DestinationOptions(partitions=5)}
    with ConnectionFactory(kafka.bootstrap_servers, destinations=options).create_connection() as connection:
        consumer = connection.create_session().create_consumer(destination)
        session = connection.create_session()
        bound = [session.create_producer(destination) for _ in range(3)]
        for number in range(80):
            message = session.create_text_message(str(number))
            if number % 4 == 3:
                session.create_producer().send(message, destination)
            else:
                bound[number % 4].send(message)
        connection.start()  # only now, so that all partitions have messages
        assert numbers(consumer, 80) == list(range(80))


@pytest.mark.requirement("JMS-4.4.10.2-3", "NEV-228", "NEV-230")
@pytest.mark.parametrize("place", [Queue, Topic])
def test_each_delivery_mode_keeps_its_order(
    kafka: Any, kjms_destination_name: str, place: Callable[[str], Any]
) -> None:
    """Of mixed messages, large and small, none overtakes an earlier one of its mode."""
    destination = place(kjms_destination_name)
    modes = list(itertools.islice(itertools.cycle([1, 1, 2, 1, 2, 2, 1]), 140))
    options = {kjms_destination_name: DestinationOptions(partitions=5)}
    with ConnectionFactory(kafka.bootstrap_servers, destinations=options).create_connection() as connection:
        consumer = connection.create_session().create_consumer(destination)
        session = connection.create_session()
        producer = session.create_producer(destination)
        for number, mode in enumerate(modes):
            message = session.create_text_message(str(number))
            message.properties["padding"] = "x" * (20_000 if number % 10 == 0 else 0)
            producer.send(message, delivery_mode=mode)
        connection.start()
        got: dict[int, list[int]] = {DeliveryMode.PERSISTENT: [], DeliveryMode.NON_PERSISTENT: []}
        for _ in modes:
            received = consumer.receive(WAIT_MS)
            got[received.jms_delivery_mode].append(int(text(received)))  # type: ignore[union-attr]
    for mode, arrived in got.items():
        assert arrived == [number for number, sent in enumerate(modes) if sent == mode]


@pytest.mark.requirement("JMS-5.8-3")
def test_a_selector_passes_over_earlier_messages(session: Session, queue: Queue) -> None:
    """Reading with selectors takes a sender's later message before an earlier one."""
    producer = session.create_producer(queue)
    for name, region in (("earlier", "US"), ("later", "EU")):
        message = session.create_text_message(name)
        message.properties["region"] = region
        producer.send(message)
    with session.create_consumer(queue, "region = 'EU'") as consumer:
        assert text(consumer.receive(WAIT_MS)) == "later"
    assert text(session.create_consumer(queue).receive(WAIT_MS)) == "earlier"


@pytest.mark.requirement("NEV-55", "NET-321", "NET-324")
def test_a_priority_is_0_to_9(session: Session, queue: Queue) -> None:
    """4 unless the producer or the call says otherwise; each of the ten arrives, and no other number is taken."""
    consumer, message = session.create_consumer(queue), session.create_text_message()

    def from_the_producer(priority: Any) -> None:
        producer = session.create_producer(queue)
        producer.priority = priority
        producer.send(message)

    def from_the_call(priority: Any) -> None:
        session.create_producer(queue).send(message, priority=priority)

    session.create_producer(queue).send(message)
    assert consumer.receive(WAIT_MS).jms_priority == 4  # type: ignore[union-attr]
    for send_with in (from_the_producer, from_the_call):
        for priority in range(10):
            send_with(priority)
            assert consumer.receive(WAIT_MS).jms_priority == priority  # type: ignore[union-attr]
        for wrong in (-1, 10, 255, True, "5", 4.0):
            with pytest.raises(ValueError, match="from 0 to 9"):
                send_with(wrong)
    assert consumer.receive_no_wait() is None
