"""Pipelines from destination to destination: routing, over a crash, and converting; and what a report tells of them."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from html.parser import HTMLParser

import pytest
from confluent_kafka import Producer
from spark_records import Source

from kjms import (
    BytesMessage,
    ConnectionFactory,
    MapMessage,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
    TextMessage,
    Topic,
    cli,
)
from kjms.errors import InvalidDestinationException, InvalidSelectorException, MessageFormatException
from kjms.mapping import KafkaRecord, confluent
from kjms.spark._confluent import confluent_decoded
from kjms.spark.pipelines import report, route
from tests.helpers import WAIT_MS, bounds

NOW = time.time_ns() // 1_000_000  # what is older than a week, Kafka would delete
ONCE = {"availableNow": True}
EVEN = "number = 0 OR number = 2 OR number = 4"


def received(connection, destination, count):
    with connection.create_session() as session, session.create_consumer(destination) as consumer:
        found = [consumer.receive(WAIT_MS) for _ in range(count)]
        assert consumer.receive_no_wait() is None
        return found


@pytest.mark.usefixtures("no_python_on_executors")
def test_a_route_is_taken_again_after_a_crash_with_the_same_ids(spark, kjms_broker, kjms_queue, tmp_path, f, capsys):
    """Each message goes where a selector wants it; what is sent twice over a crash, consumers can drop."""
    name = kjms_queue.queue_name
    large, even, rest = Queue(f"{name}.large"), Queue(f"{name}.even"), Queue(f"{name}.rest")
    factory = ConnectionFactory(kjms_broker.bootstrap_servers, drop_duplicates=True, kafka={"client.id": name})
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(kjms_queue)
        for number in range(5):
            message = session.create_text_message(str(number))
            message.set_int_property("number", number)
            producer.disable_message_id = number == 4
            producer.send(message)
        query = route(
            spark,
            factory,
            kjms_queue,
            {large: "number > 2", even: EVEN},
            otherwise=rest,
            transform=lambda x: x.withColumns({"priority": f.lit(9), "seen": f.col("destination.name")}),
            checkpoint=str(tmp_path),
            trigger=ONCE,
        )
        assert query.awaitTermination(60)
        for left in ("0", ".0.crc"):  # as if it had been killed before it wrote down that it was done
            (tmp_path / "commits" / left).unlink()
        routes = ["--to", large.queue_name, "number > 2", "--to", even.queue_name, EVEN, "--otherwise", rest.queue_name]
        changes = ["--set", "priority=9", "--set", "seen=destination.name"]
        rest_of = ["--checkpoint", str(tmp_path), "--once", "--bootstrap", kjms_broker.bootstrap_servers]
        assert cli.main(["spark", "route", name, *routes, *changes, *rest_of]) == 0
        assert "batch 0: 5 records" in capsys.readouterr().err
        found = {each: received(connection, each, count) for each, count in ((large, 2), (even, 3), (rest, 1))}
        ends = {
            each: sum(end for _, end in bounds(kjms_broker.bootstrap_servers, each.queue_name).values())
            for each in found
        }
        with session.create_browser(kjms_queue) as browser:
            ids = {message.text: message.jms_message_id for message in browser}
    texts = {each: sorted(message.text for message in messages) for each, messages in found.items()}
    assert texts == {large: ["3", "4"], even: ["0", "2", "4"], rest: ["1"]}
    assert all(ends[each] >= 2 * len(messages) for each, messages in found.items())  # they were sent twice
    for each, messages in found.items():
        for message in messages:
            assert (message.jms_priority, message.get_string_property("seen")) == (9, each.queue_name)
            assert message.jms_message_id == (
                ids[message.text] or f"ID:spark-{query.id}-0-" + message.jms_message_id[-32:]
            )


def test_a_route_that_makes_no_sense_is_refused_before_it_runs(spark, kjms_factory, kjms_queue, tmp_path, f):
    """Wrong selectors, and changes that cannot be sent, raise at once."""
    kjms_factory.create_connection().close()
    to = Topic(f"{kjms_queue.queue_name}.t")
    with kjms_factory.create_connection() as connection:
        connection.create_session().create_producer(kjms_queue)
    how = {"checkpoint": str(tmp_path), "trigger": ONCE}
    with pytest.raises(InvalidSelectorException):
        route(spark, kjms_factory, kjms_queue, {to: "number >"}, **how)
    with pytest.raises(MessageFormatException, match="pause: interval day is no type"):
        route(
            spark,
            kjms_factory,
            kjms_queue,
            {to: None},
            transform=lambda x: x.withColumn("pause", f.expr("INTERVAL '1' DAY")),
            **how,
        )
    with pytest.raises(ValueError, match="routes is empty"):
        route(spark, kjms_factory, kjms_queue, {}, **how)
    assert not list(tmp_path.iterdir())


def struct_messages() -> list[Message]:
    """Messages of all types that the struct carries, with properties of all types."""
    map_ = MapMessage({"n": 1, "name": "x", "nothing": None, "yes": True, "data": b"\0\1"})
    map_.set_float("f", 0.1)
    made = [TextMessage("Grüße"), TextMessage(None), BytesMessage(b"\0\xff"), map_, Message()]
    for number, message in enumerate(made):
        message.jms_message_id, message.jms_timestamp = f"ID:{number}", NOW + number
        message.jms_correlation_id, message.jms_type, message.jms_priority = "c", "sort", number
        message.jms_reply_to = Topic("replies")
        for kind, value in (
            ("boolean", True), ("byte", -7), ("short", 300), ("int", 5), ("long", 2**40), ("float", 0.1),
            ("double", 1e300), ("string", "grün"),
        ):  # fmt: skip
            getattr(message, f"set_{kind}_property")(f"p_{kind}", value)
        message.set_string_property("nothing", None)
    return made


def seen(message):
    names = [name for name in message.property_names() if name != "JMSXDeliveryCount"]
    body = bytes(message._body) if isinstance(message, BytesMessage) else message._body
    return {
        "class": type(message),
        "body": sorted(body.items()) if isinstance(body, dict) else body,  # the entries of a map have no order
        "properties": {n: (message.property_type(n), message.get_object_property(n)) for n in sorted(names)},
        "fields": (message.jms_message_id, message.jms_timestamp, message.jms_correlation_id, message.jms_type),
        "more": (message.jms_reply_to, message.jms_priority, message.jms_delivery_mode, message.jms_expiration),
    }


def given_records() -> list[KafkaRecord]:
    """The struct in Avro and in JSON, with the schema beside it and without, and records of other programs."""
    own = [confluent.encode(message, 7 if number % 2 else None) for number, message in enumerate(struct_messages())]
    own.append(confluent.encode(struct_messages()[3]))
    wrapped = json.dumps({"schema": {}, "payload": json.loads(confluent.encode(TextMessage("in a payload")).value)})
    others = [wrapped.encode(), b"just text", b'{"order": 1}', b"\0\0\0\0\7damaged"]
    return [*own, *(KafkaRecord(None, value, [], NOW + 100) for value in others)]


def test_what_is_no_struct_is_told(records):
    """The column damage says what Python's reading says."""
    given = given_records()
    place = "named_struct('destinationType', 'topic', 'name', topic)"
    rows = sorted(confluent_decoded(records(given), place).collect(), key=lambda row: row["offset"])
    wanted = [confluent.decode(Source(record, number), Topic("orders")) for number, record in enumerate(given)]
    assert [bool(row["damage"]) for row in rows] == [bool(message.damage) for message in wanted]
    assert [row["messageID"] for row in rows] == [message.jms_message_id for message in wanted]


@pytest.mark.usefixtures("no_python_on_executors")
def test_records_of_confluents_connectors_become_messages(
    spark, records, kjms_broker, kjms_connection, kjms_queue, tmp_path
):
    """Avro and JSON, and records of other programs between them, are received as kjms reads them."""
    given = given_records()
    wanted = [confluent.decode(Source(record, number), Topic("orders")) for number, record in enumerate(given)]
    source = f"{kjms_queue.queue_name}.struct"
    kjms_connection.create_session().create_producer(Topic(source))  # the topic is made
    producer = Producer({"bootstrap.servers": kjms_broker.bootstrap_servers})
    for record in given:
        producer.produce(source, record.value, record.key, timestamp=record.timestamp)
    producer.flush(20)
    arguments = ["convert", f"topic://{source}", "--to", kjms_queue.queue_name, "--checkpoint", str(tmp_path), "--once"]
    assert cli.main(["spark", *arguments, "--bootstrap", kjms_broker.bootstrap_servers]) == 0
    kjms_connection.start()
    found = Counter(repr(seen(message)) for message in received(kjms_connection, kjms_queue, len(given)))
    for message in wanted:
        message.jms_message_id = message.jms_message_id and message.jms_message_id.replace("orders-3", f"{source}-0")
    without_id = [message for message in wanted if message.jms_message_id is None]
    assert len(without_id) == 1
    left = found - Counter(repr(seen(message)) for message in wanted)
    missing = Counter(repr(seen(message)) for message in wanted) - found
    assert len(list(left.elements())) == 1, (left, missing)
    assert "ID:spark-" in next(iter(left))
    assert "in a payload" in next(iter(left))


class Page(HTMLParser):
    """Counts the elements of a page, and keeps what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.fetched += [value for name, value in attrs if name in {"src", "href"}]


@pytest.mark.usefixtures("no_python_on_executors")
def test_a_report_tells_what_went_through(spark, kjms_broker, kjms_queue, tmp_path, capsys):
    """Rates, sizes, times of replies, redeliveries and dead letters by cause, what waits; as text, JSON and a page."""
    replies = Queue(f"{kjms_queue.queue_name}.replies")
    factory = ConnectionFactory(
        kjms_broker.bootstrap_servers,
        redelivery=RedeliveryPolicy(max_deliveries=2),
        kafka={"client.id": replies.queue_name},
    )
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        with session.create_producer(None) as producer:
            for number in range(4):
                request = session.create_text_message("x" * (10 + number))
                request.jms_reply_to = replies
                producer.send(request, destination=kjms_queue)
            with session.create_consumer(kjms_queue) as consumer:
                first = consumer.receive(WAIT_MS)
                session.recover()
                assert consumer.receive(WAIT_MS).jms_message_id == first.jms_message_id
                session.recover()
                second = consumer.receive(WAIT_MS)
                answer = session.create_text_message("y")
                answer.jms_correlation_id = second.jms_message_id
                producer.send(answer, destination=replies)
                second.acknowledge()
    wanted = report(spark, factory, [kjms_queue, replies], interval=3_600_000)
    assert {(each.destination, each.messages, each.bytes) for each in wanted.traffic} == {
        (str(kjms_queue), 4, 46), (str(replies), 1, 1),
    }  # fmt: skip
    assert [(each.destination, each.replies) for each in wanted.replies] == [(str(kjms_queue), 1)]
    assert 0 <= wanted.replies[0].median <= wanted.replies[0].slowest < 600_000
    assert Counter(each.event for each in wanted.incidents for _ in range(each.messages)) == {
        "redelivery": 1, "dead letter": 1,
    }  # fmt: skip
    assert all(each.median_age is not None for each in wanted.incidents)
    assert [(each.destination, each.messages) for each in wanted.waiting] == [(str(kjms_queue), 2), (str(replies), 1)]
    with pytest.raises(InvalidDestinationException, match="there is no queue://nowhere"):
        report(spark, factory, Queue("nowhere"))
    page = tmp_path / "report.html"
    given = ["spark", "report", kjms_queue.queue_name, "--since", "1h", "--interval", "1m", "--html", str(page)]
    assert cli.main([*given, "--bootstrap", kjms_broker.bootstrap_servers]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"{kjms_queue}\s+4\s", shown)
    assert "dead letter" in shown
    read = Page(page.read_text("utf-8"))
    assert (read.fetched, read.tags["script"]) == ([], 3 + 2)  # the figures of three plots, the library and its caller
    told = json.loads(wanted.to_json())
    assert told["waiting"][0]["messages"] == 2
    assert wanted.until > time.time() * 1000 - 600_000
