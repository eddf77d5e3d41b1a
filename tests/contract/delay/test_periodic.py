"""Periodic messages: when they come, how often, and what changes their definitions."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from kjms import (
    Connection,
    ConnectionFactory,
    DestinationOptions,
    IllegalStateException,
    InvalidDestinationException,
    JMSException,
    Message,
    MessageConsumer,
    Queue,
    ResourceAllocationException,
    Topic,
)
from kjms.engine.kafka import AdminPort, NewTopic
from kjms.engine.tuning import tuned
from kjms.mapping.names import delayed
from kjms.schedule import Schedule, Schedules
from kjms.testing import MemoryKafka
from tests.helpers import NOTHING_MS, WAIT_MS, WAIT_SECONDS, Desk, name_of, stored_records, text

Take = Callable[..., list[Message]]

SECONDLY = "* * * * * *"
YEARLY = "0 0 1 1 *"
TIME = "JMS_kjms_ScheduledTime"


@pytest.fixture(scope="module")
def memory_kafka() -> Iterator[MemoryKafka]:
    """An in-memory Kafka whose time passes when these tests tell it."""
    with MemoryKafka() as kafka, ConnectionFactory(kafka.bootstrap_servers).create_connection():
        yield kafka


@pytest.fixture
def schedules(desk: Desk, queue: Queue) -> Iterator[Schedules]:
    """The periodic messages of the test's Kafka; this process sends their messages, until the test ends."""
    with Schedules(ConnectionFactory(desk.servers)) as found:
        yield found
    with Schedules(ConnectionFactory(desk.servers)) as found:
        for each in found.list():
            if name_of(each.destination).startswith(queue.queue_name):
                found.remove(each.name, each.destination)


@pytest.fixture
def pass_time(kafka: Any) -> Callable[[], None]:
    """A function that lets a second pass, at once where that is possible."""
    return lambda: kafka.clock.advance(timedelta(seconds=1)) if isinstance(kafka, MemoryKafka) else time.sleep(0.1)


@pytest.fixture
def take(pass_time: Callable[[], None]) -> Take:
    """A function that returns the next messages of a consumer, and lets the time pass until they come."""

    def take(consumer: MessageConsumer, count: int = 1) -> list[Message]:
        found: list[Message] = []
        deadline = time.monotonic() + WAIT_SECONDS
        while len(found) < count:
            assert time.monotonic() < deadline
            message = consumer.receive(100)
            if message is None:
                pass_time()
            else:
                found.append(message)
        return found

    return take


def times(messages: list[Message]) -> list[int]:
    return [each.get_long_property(TIME) for each in messages]


def scheduled(records: list[Any]) -> list[int]:
    """Return the scheduled times of the records of a Kafka topic."""
    return [int(dict(record.headers())[TIME]) for record in records]


def is_each_second_once(found: list[int]) -> bool:
    return found == list(range(found[0], found[-1] + 1, 1_000))


def test_messages_come_at_their_times(desk: Desk, queue: Queue, schedules: Schedules, take: Take) -> None:
    """Each has the body and the fields of the definition, an id of its own, and the time that it was scheduled for."""
    session = desk.session()
    message = session.create_text_message("hello")
    message.set_int_property("amount", 3)
    message.jms_correlation_id = "order-1"
    consumer = session.create_consumer(queue)
    added = schedules.add("tea", queue, message, cron=SECONDLY, priority=7, time_to_live=timedelta(minutes=1))
    assert added.next_time is not None
    first, second, third = found = take(consumer, 3)
    assert is_each_second_once(times(found))
    begin = int(added.next_time.timestamp()) * 1_000
    assert times(found)[0] == begin if added.last_time is None else times(found)[0] < begin  # one was sent during `add`
    assert all(each.jms_timestamp >= each.get_long_property(TIME) for each in found)
    assert all(each.jms_expiration == each.jms_timestamp + 60_000 for each in found)
    assert len({each.jms_message_id for each in found}) == 3
    assert (text(first), first.jms_priority, first.jms_correlation_id) == ("hello", 7, "order-1")
    assert (second.get_int_property("amount"), second.get_string_property("JMS_kjms_Schedule")) == (3, "tea")
    assert (third.jms_redelivered, third.get_int_property("JMSXDeliveryCount")) == (False, 1)
    assert third.jms_delivery_time == third.jms_timestamp


def test_a_definition_is_no_message(desk: Desk, queue: Queue, schedules: Schedules) -> None:
    """Before its time no reader of the destination sees anything, and it is listed with its next time."""
    added = schedules.add("new year", queue, {"cups": 2}, cron=YEARLY, timezone="Asia/Tokyo")
    assert schedules.list(queue) == [added]
    assert added in schedules.list()
    assert (added.name, added.destination, added.cron, added.timezone) == ("new year", queue, YEARLY, "Asia/Tokyo")
    assert (added.last_time, added.is_paused) == (None, False)
    assert added.next_time is not None
    assert f"{added.next_time:%m-%d %H:%M %Z}" == "01-01 00:00 JST"
    assert list(desk.session().create_browser(queue)) == []
    assert desk.records(queue.queue_name) == []


def test_a_name_is_unique_at_its_destination(
    desk: Desk, queue: Queue, other_queue: Queue, schedules: Schedules
) -> None:
    """A second definition of a name is refused, and the first one stays; other destinations have names of their own."""
    name = f"tea for {queue.queue_name}"  # other tests have definitions on the same cluster
    first = schedules.add(name, queue, "first", cron=YEARLY)
    with pytest.raises(IllegalStateException, match=rf"has a periodic message '{name}' \(0 0 1 1 \*, UTC\).*--replace"):
        schedules.add(name, queue, "second", cron=SECONDLY)
    assert schedules.list(queue) == [first]
    other = schedules.add(name, other_queue, "other", cron=YEARLY)
    with pytest.raises(IllegalStateException, match=f"2 destinations have a periodic message '{name}'"):
        schedules.remove(name)
    schedules.remove(name, queue)
    assert schedules.list(queue) == []
    assert schedules.list(other_queue) == [other]
    schedules.remove(name)
    with pytest.raises(JMSException, match=f"there is no periodic message '{name}'"):
        schedules.remove(name)
    schedules.add(name, queue, "again", cron=YEARLY)


def test_one_of_several_programs_defines_a_name(desk: Desk, queue: Queue) -> None:
    """Of programs that add the same name at once, one succeeds, and the others are refused."""
    outcomes: list[str] = []

    def add(number: int) -> None:
        factory = ConnectionFactory(desk.servers, kafka={"client.id": f"adder-{number}"})
        with Schedules(factory) as own:
            try:
                outcomes.append(own.add("tea", queue, f"{number}", cron=YEARLY).name)
            except IllegalStateException:
                outcomes.append("refused")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused", "refused", "tea"]


def test_a_replacement_takes_over_at_the_next_time(desk: Desk, queue: Queue, schedules: Schedules, take: Take) -> None:
    """From the replacement on its messages come, for no time twice; replacing what is not there adds it."""
    consumer = desk.session().create_consumer(queue)
    schedules.add("tea", queue, "before", cron=SECONDLY, replace=True)
    found = take(consumer, 1)
    schedules.add("tea", queue, "after", cron=SECONDLY, replace=True)
    while text(found[-1]) != "after":
        found += take(consumer, 1)
    found += take(consumer, 1)
    assert times(found) == sorted(set(times(found)))
    assert [text(each) for each in found[-2:]] == ["after", "after"]
    assert [each.name for each in schedules.list(queue)] == ["tea"]


def test_nothing_comes_after_a_removal(desk: Desk, queue: Queue, schedules: Schedules, take: Take) -> None:
    """Once the removal has returned, no further message is sent, also if one was due at that moment."""
    consumer = desk.session().create_consumer(queue)
    schedules.add("removed", queue, "removed", cron=SECONDLY)
    take(consumer, 1)
    schedules.remove("removed")
    sent = desk.stored(queue).count("removed")
    schedules.add("kept", queue, "kept", cron=SECONDLY)
    for _ in range(2):
        while text(take(consumer, 1)[0]) != "kept":
            pass
    assert desk.stored(queue).count("removed") == sent


def test_a_paused_message_does_not_come(kafka: Any, desk: Desk, queue: Queue, schedules: Schedules, take: Take) -> None:
    """Pausing ends it until it is resumed; what was paused is not made up."""
    consumer = desk.session().create_consumer(queue)
    schedules.add("tea", queue, "tea", cron=SECONDLY)
    take(consumer, 1)
    paused = schedules.pause("tea", queue)
    assert (paused.is_paused, paused.next_time) == (True, None)
    assert schedules.pause("tea", queue).is_paused
    before = len(desk.records(queue.queue_name))
    schedules.add("other", queue, "other", cron=SECONDLY)
    while text(take(consumer, 1)[0]) != "other":
        pass
    assert desk.stored(queue).count("tea") == before
    paused_until = (kafka.clock.time() / 1000 if isinstance(kafka, MemoryKafka) else time.time()) * 1_000
    resumed = schedules.resume("tea", queue)
    assert (resumed.is_paused, resumed.cron) == (False, SECONDLY)
    schedules.remove("other")
    while text(message := take(consumer, 1)[0]) != "tea":
        pass
    assert resumed.next_time is not None
    assert paused_until < times([message])[0] <= int(resumed.next_time.timestamp()) * 1_000


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"cron": "61 * * * *"}, ValueError, "cron expression '61 .*bad minute; a cron expression has five fields"),
        ({"cron": "0 0 30 2 *"}, ValueError, "bad day-of-month"),
        ({"timezone": "Mars/Olympus"}, ValueError, "time zone 'Mars/Olympus' is not known"),
        ({"name": ""}, ValueError, "name of a periodic message is text of 1 to 200 printable characters"),
        ({"name": "a\nb"}, ValueError, "printable"),
        ({"priority": 10}, ValueError, "priority"),
        ({"time_to_live": -1}, ValueError, "time_to_live"),
        ({"delivery_mode": 3}, ValueError, "delivery_mode"),
        ({"destination": None}, InvalidDestinationException, "a Queue or a Topic"),
        ({"destination": Queue("a-misspelt-name")}, InvalidDestinationException, "there is no Kafka topic 'a-missp"),
        ({"destination": Queue("confluent")}, InvalidDestinationException, "layout 'confluent'"),
    ],
)
def test_bad_input_is_refused(
    desk: Desk, queue: Queue, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    """The error names the value and the rule, and nothing is defined."""
    arguments: dict[str, Any] = {"name": "tea", "destination": queue, "body": "tea", "cron": YEARLY, **changes}
    options: Any = {"destinations": {"confluent": DestinationOptions(convention="confluent")}}
    with Schedules(ConnectionFactory(desk.servers, create_destinations=False, **options)) as schedules:
        with pytest.raises(error, match=why):
            schedules.add(arguments.pop("name"), arguments.pop("destination"), arguments.pop("body"), **arguments)
        assert [each for each in schedules.list() if each.destination == queue] == []


def test_a_temporary_destination_has_none(desk: Desk, schedules: Schedules) -> None:
    """A temporary queue ends with its connection, so it has no periodic messages."""
    with pytest.raises(InvalidDestinationException, match="is temporary"):
        schedules.add("tea", desk.session().create_temporary_queue(), "tea", cron=YEARLY)


def test_a_topic_has_them_as_well(desk: Desk, topic: Topic, schedules: Schedules, take: Take) -> None:
    """The subscribers at the time of a message get it, also those that subscribed after it was defined."""
    first = desk.session().create_consumer(topic)
    schedules.add("news", topic, "news", cron=SECONDLY)
    take(first, 1)
    second = desk.session().create_consumer(topic)
    (got,) = take(second, 1)
    assert text(got) == "news"
    assert got.get_long_property(TIME) in times(take(first, 3))


def test_another_process_continues(
    desk: Desk, process: Callable[..., Connection], queue: Queue, schedules: Schedules, pass_time: Callable[[], None]
) -> None:
    """When the process that sends them ends, another one continues: each time comes once, in order."""

    def await_two_more() -> None:
        before = len(desk.records(queue.queue_name))
        deadline = time.monotonic() + WAIT_SECONDS
        while len(desk.records(queue.queue_name)) < before + 2:
            assert time.monotonic() < deadline
            pass_time()
            time.sleep(0.01)

    schedules.add("tea", queue, "tea", cron=SECONDLY)
    first, second = process(), process()
    consumers = [each.create_session().create_consumer(queue) for each in (first, second)]
    await_two_more()
    schedules.close()
    await_two_more()
    first.close()
    await_two_more()
    assert consumers
    assert is_each_second_once(scheduled(desk.records(queue.queue_name)))


def test_definitions_are_written_anew(desk: Desk, queue: Queue, process: Callable[..., Connection], take: Take) -> None:
    """Definitions do not hold up the log of delayed messages, and no time is lost or comes twice by that.

    Messages that do not fit into memory are no hindrance.
    """
    with tuned(delayed_held=40, delayed_held_each=40, delayed_commit_seconds=0.1, delayed_retention_seconds=0.2):
        connection = process()
        own = Schedules(ConnectionFactory(desk.servers, kafka={"client.id": "tuned"}))
    with own:
        own.add("tea", queue, "tea", cron=SECONDLY)
        own.add("new year", queue, "new year", cron=YEARLY)
        session = connection.create_session()
        producer = session.create_producer(queue)
        for number in range(1_200):
            producer.send(session.create_text_message(f"{number}"), delivery_delay=3_600_000, delivery_mode=1)
        consumer = session.create_consumer(queue)
        found = take(consumer, 4)
        assert [text(each) for each in found] == ["tea"] * 4
        assert is_each_second_once(times(found))
        assert [each.name for each in own.list(queue)] == ["new year", "tea"]
        log = [dict(each.headers() or ()) for each in stored_records(desk.servers, delayed(queue.queue_name))]
        assert [headers for headers in log if {"kjms-schedule", "kjms-delayed"} <= headers.keys()]
        with pytest.raises(IllegalStateException, match="has a periodic message 'new year'"):
            own.add("new year", queue, "again", cron=YEARLY)
        own.remove("new year", queue)
        own.remove("tea", queue)
        assert own.list(queue) == []


def test_the_largest_definition_is_kept(
    desk: Desk, admin: AdminPort, queue: Queue, process: Callable[..., Connection], take: Take
) -> None:
    """One that is too large to be written anew stays where it is, and its messages come all the same."""
    made = NewTopic(queue.queue_name, 1, 1, config={"max.message.bytes": "4000"})
    admin.create_topics([made], operation_timeout=20, request_timeout=20)[queue.queue_name].result()
    connection = process()
    with Schedules(ConnectionFactory(desk.servers, kafka={"client.id": "large"})) as own:
        size = 3_200
        with contextlib.suppress(ResourceAllocationException):
            while size < 4_000:
                own.add("large", queue, "x" * size, cron=SECONDLY, replace=True)
                size += 10
        assert 3_200 < size < 4_000
        own.add("small", queue, "small", cron=SECONDLY)
        session = connection.create_session()
        producer = session.create_producer(queue)
        for number in range(1_100):
            producer.send(session.create_text_message(f"{number}"), delivery_delay=3_600_000)
        consumer = session.create_consumer(queue)
        found: list[str | None] = []
        while found.count("small") < 4:
            found.append(text(take(consumer)[0]))
        assert "x" * (size - 10) in found[found.index("small") :]
        own.remove("small", queue)
        own.remove("large", queue)


# On the in-memory Kafka alone, whose time passes when a test says so.


@pytest.fixture
def memory() -> Any:
    """An in-memory Kafka of the test's own."""
    with MemoryKafka() as kafka:
        yield kafka


def advance_to(kafka: MemoryKafka, moment: datetime) -> None:
    kafka.clock.advance(timedelta(seconds=moment.timestamp() - kafka.clock.time() / 1000))


def received(consumer: MessageConsumer) -> Message:
    message = consumer.receive(WAIT_MS)
    assert message is not None
    return message


def next_of(added: Schedule) -> datetime:
    assert added.next_time is not None
    return added.next_time


def test_of_missed_times_the_last_one_is_made_up(memory: MemoryKafka, queue: Queue) -> None:
    """Where no process ran for days, one message comes for the last time, and then the next one at its time."""
    factory = ConnectionFactory(memory.bootstrap_servers)
    with Schedules(factory) as schedules:
        added = schedules.add("nightly", queue, "close the books", cron="0 2 * * *", timezone="Europe/Berlin")
    first = next_of(added)
    advance_to(memory, first + timedelta(days=10, hours=5))
    with factory.create_connection() as connection, Schedules(factory) as schedules:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        made_up = received(consumer)
        last = datetime.fromtimestamp(made_up.get_long_property(TIME) / 1_000, first.tzinfo)
        assert (last.date(), last.hour) == ((first + timedelta(days=10)).date(), 2)
        assert consumer.receive(NOTHING_MS) is None
        (now,) = schedules.list(queue)
        assert now.last_time == last
        assert (next_of(now).date() - last.date(), next_of(now).hour) == (timedelta(days=1), 2)
        advance_to(memory, next_of(now))
        assert times([received(consumer)]) == [int(next_of(now).timestamp() * 1_000)]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("2027-03-27T12:00+01:00", ["2027-03-28T03:00+02:00", "2027-03-29T02:30+02:00"]),
        ("2027-10-30T12:00+02:00", ["2027-10-31T02:30+02:00", "2027-11-01T02:30+01:00"]),
    ],
)
def test_messages_come_where_clocks_change(memory: MemoryKafka, queue: Queue, begin: str, expected: list[str]) -> None:
    """At 02:30 in the gap of spring a message comes at its end; in the fold of autumn one comes, at the first 02:30."""
    factory = ConnectionFactory(memory.bootstrap_servers)
    advance_to(memory, datetime.fromisoformat(begin))
    with factory.create_connection() as connection, Schedules(factory) as schedules:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        schedules.add("nightly", queue, "close the books", cron="30 2 * * *", timezone="Europe/Berlin")
        for moment in map(datetime.fromisoformat, expected):
            advance_to(memory, moment - timedelta(seconds=5))
            assert consumer.receive(NOTHING_MS) is None
            advance_to(memory, moment)
            assert times([received(consumer)]) == [int(moment.timestamp() * 1_000)]
            advance_to(memory, moment + timedelta(hours=2))
            assert consumer.receive(NOTHING_MS) is None


@pytest.mark.parametrize("carried_out", [True, False], ids=["carried out", "not carried out"])
@pytest.mark.parametrize(
    ("operation", "fatal"), [("commit_transaction", False), ("commit_transaction", True), ("produce", False)]
)
def test_a_lost_answer_repeats_and_loses_nothing(
    memory: MemoryKafka, queue: Queue, operation: Any, fatal: bool, carried_out: bool
) -> None:
    """Where the outcome of a transaction is unknown, the log decides: each time comes once."""
    factory = ConnectionFactory(memory.bootstrap_servers)
    with factory.create_connection() as connection, Schedules(factory) as schedules:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        schedules.add("tea", queue, "tea", cron=SECONDLY)
        found = [received(consumer)]
        where = {"topic": queue.queue_name} if operation == "produce" else {}
        memory.faults.time_out(operation, carried_out=carried_out, fatal=fatal, times=2, **where)
        for _ in range(4):
            memory.clock.advance(timedelta(seconds=1))
            found.append(received(consumer))
        assert is_each_second_once(times(found))
        assert is_each_second_once(scheduled(stored_records(memory.bootstrap_servers, queue.queue_name)))
