"""Messages through Kafka and Spark: what kjms sends Spark reads, what Spark writes kjms receives."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kjms import (
    BytesMessage,
    ConnectionFactory,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from kjms.errors import InvalidDestinationException, MessageFormatException
from kjms.spark import (
    Pattern,
    Subscription,
    decode,
    encode,
    get_property,
    read_batch,
    read_stream,
    write_batch,
    write_stream,
)
from tests.helpers import WAIT_MS, WAIT_SECONDS, partitions

PROPERTIES = {
    "flag": ("boolean", True),
    "tiny": ("byte", -128),
    "small": ("short", 32767),
    "number": ("int", -(2**31)),
    "large": ("long", 2**63 - 1),
    "single": ("float", 0.10000000149011612),
    "real": ("double", 1e300),
    "text": ("string", "grün"),
}


def messages() -> list[Message]:
    """A message of each type, with properties of all types and every header field that an application sets."""
    stream = StreamMessage()
    for kind, value in (("byte", 7), ("short", -7), ("char", "ß"), ("long", 1), ("double", 0.5), ("bytes", b"\0\xff")):
        getattr(stream, f"write_{kind}")(value)
    stream.write_object(None)
    map_ = MapMessage({"n": 1, "name": "x", "nothing": None, "data": b"\1", "yes": True})
    map_.set_float("f", 0.5)
    map_.set_char("c", "c")
    made = [
        TextMessage("Grüße 😀"),
        TextMessage(None),
        BytesMessage(b"\0\1\xff"),
        map_,
        MapMessage({}),
        stream,
        ObjectMessage({"list": [1, None, {"deep": 2.5}]}),
        Message(),
    ]
    for number, message in enumerate(made):
        for name, (kind, value) in PROPERTIES.items():
            getattr(message, f"set_{kind}_property")(name, value)
        message.set_string_property("nothing", None)
        message.jms_correlation_id = f"c{number}"
        message.jms_reply_to = Queue("replies")
        message.jms_type = "sort"
    made[0].jms_correlation_id_as_bytes = b"\xff\0"
    return made


def seen(message: Message) -> dict[str, object]:
    """What a consumer sees of a message, but for what is its own at every send."""
    names = [name for name in message.property_names() if name != "JMSXDeliveryCount"]
    body = message._body[1] if isinstance(message, ObjectMessage) else message._body
    return {
        "class": type(message),
        "body": bytes(body) if isinstance(message, BytesMessage) else body,
        "properties": {n: (message.property_type(n), message.get_object_property(n)) for n in sorted(names)},
        "correlation": message.jms_correlation_id_as_bytes,
        "reply_to": message.jms_reply_to,
        "type": message.jms_type,
        "priority": message.jms_priority,
        "mode": message.jms_delivery_mode,
        "expiration": message.jms_expiration,
        "id": message.jms_message_id,
        "timestamp": message.jms_timestamp,
    }


@pytest.mark.requirement("NET-152")
def test_each_message_goes_through_spark_and_is_the_same(spark, kjms_factory, kjms_connection, kjms_queue, kjms_topic):
    """What Spark reads and writes again is, to a consumer, the message that was sent."""
    session = kjms_connection.create_session()
    producer = session.create_producer(kjms_queue)
    producer.priority, producer.time_to_live, producer.delivery_mode = 7, 3_600_000, 1
    sent = messages()
    for message in sent:
        producer.send(message)
    frame = read_batch(spark, kjms_factory, kjms_queue)
    rows = {row["messageID"]: row for row in frame.collect()}
    assert [rows[message.jms_message_id]["damage"] for message in sent] == [[]] * len(sent)
    first = rows[sent[0].jms_message_id]
    assert (first["text"], first["messageType"], first["priority"], first["deliveryMode"]) == ("Grüße 😀", "text", 7, 1)
    assert first["replyTo"].asDict() == {"destinationType": "queue", "name": "replies"}
    assert first["destination"].asDict() == {"destinationType": "queue", "name": kjms_queue.queue_name}
    assert first["propertyTypes"] == {n: kind for n, (kind, _) in PROPERTIES.items() if kind != "string"}
    assert first["properties"]["large"] == str(2**63 - 1)
    assert rows[sent[3].jms_message_id]["map"]["f"]["float"] == 0.5
    assert [item["propertyType"] for item in rows[sent[5].jms_message_id]["stream"]] == [
        "byte", "short", "char", "long", "double", "bytes", "null-value",
    ]  # fmt: skip

    consumer = session.create_consumer(kjms_topic)
    write_batch(frame, kjms_factory, kjms_topic)
    received = [consumer.receive(WAIT_MS) for _ in sent]
    assert all(received)
    by_id = {message.jms_message_id: seen(message) for message in received}
    assert by_id == {message.jms_message_id: seen(message) for message in sent}


@pytest.mark.requirement("NET-152")
def test_a_frame_becomes_messages(spark, kjms_factory, kjms_connection, kjms_queue, f):
    """Columns are header fields, bodies and typed properties; the group is the record's key."""
    frame = spark.range(3).select(
        f.concat(f.lit("text "), "id").alias("text"),
        f.lit(9).alias("priority"),
        f.lit("topic://replies").alias("replyTo"),
        f.lit("g").alias("JMSXGroupID"),
        f.col("id").alias("number"),
        f.lit(1.5).alias("price"),
        f.lit(None).cast("string").alias("empty"),
    )
    consumer = kjms_connection.create_session().create_consumer(kjms_queue)
    write_batch(frame, kjms_factory, kjms_queue, query="nightly")
    received = sorted((consumer.receive(WAIT_MS) for _ in range(3)), key=lambda message: message.text)
    assert [message.text for message in received] == ["text 0", "text 1", "text 2"]
    first = received[0]
    assert (first.jms_priority, first.jms_reply_to) == (9, Topic("replies"))
    assert (first.property_type("number"), first.get_long_property("number")) == ("long", 0)
    assert (first.property_type("price"), first.get_double_property("price")) == ("double", 1.5)
    assert first.get_string_property("JMSXGroupID") == "g"
    assert not first.property_exists("empty")
    assert first.jms_message_id.startswith("ID:spark-nightly-0-")
    assert len({message.jms_message_id for message in received}) == 3
    assert abs(first.jms_timestamp - time.time() * 1000) < 600_000
    keys = {bytes(row["key"]) for row in read_batch(spark, kjms_factory, kjms_queue).collect()}
    assert keys == {b"g"}


def test_the_column_of_properties_has_properties_alone(spark):
    """Names of header fields, of the delivery count and of kjms's own headers are not written from it."""
    frame = spark.sql(
        "SELECT 'a' AS text, map('b', 'c', 'n', '5', 'JMSXDeliveryCount', '7', 'JMSPriority', '9', 'kjms-to', 'x')"
        " AS properties, map('n', 'int', 'JMSXDeliveryCount', 'int') AS propertyTypes"
    )
    (row,) = encode(frame).collect()
    headers = {each["key"]: bytes(each["value"]) for each in row["headers"]}
    headers.pop("JMSTimestamp")
    assert headers == {"kjms": b"1;text;n=int", "b": b"c", "n": b"5"}


def test_a_column_key_is_the_records_key(spark, kjms_factory, kjms_connection, kjms_queue):
    """A column `key` is the record's key, as in Spark's own sink; JMSXGroupID wins where a row has one."""
    consumer = kjms_connection.create_session().create_consumer(kjms_queue)
    frame = spark.sql(
        "SELECT 'a' AS text, 'k1' AS key, CAST(NULL AS STRING) AS JMSXGroupID UNION ALL SELECT 'b', 'k2', 'group'"
        " UNION ALL SELECT 'c', NULL, NULL"
    )
    write_batch(frame, kjms_factory, kjms_queue)
    write_batch(spark.sql("SELECT 'd' AS text, X'FF00' AS key"), kjms_factory, kjms_queue)
    assert sorted(consumer.receive(WAIT_MS).text for _ in range(4)) == ["a", "b", "c", "d"]
    rows = read_batch(spark, kjms_factory, kjms_queue).select("text", "key", "properties").collect()
    keys = {row["text"]: row["key"] and bytes(row["key"]) for row in rows}
    assert keys == {"a": b"k1", "b": b"group", "c": None, "d": b"\xff\x00"}
    assert not any("key" in row["properties"] for row in rows)
    with pytest.raises(MessageFormatException, match="key: string or binary is needed, not int"):
        encode(spark.sql("SELECT 'a' AS text, 1 AS key"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topic", "'audit'"),
        ("partition", "1"),
        ("offset", "5L"),
        ("destination", "'queue://audit'"),
        ("damage", "'dented'"),
        ("deliveryCount", "'many'"),
    ],
)
def test_a_column_that_would_be_dropped_is_refused(spark, name, value):
    """A program's own column with the name of one that `decode` makes is not dropped in silence."""
    with pytest.raises(MessageFormatException, match=f"{name}: it would not be sent, .* rename it"):
        encode(spark.sql(f"SELECT 'a' AS text, {value} AS {name}"))


def test_bodies_of_plain_columns(spark, kjms_factory, kjms_connection, kjms_queue):
    """Maps, structs, arrays and plain values become map, stream and object bodies with their types."""
    map_frame = spark.sql("SELECT named_struct('a', 1, 'b', 2L, 'c', 'x', 'd', X'01', 'e', CAST(NULL AS INT)) AS map")
    stream_frame = spark.sql("SELECT array(1, NULL, 3) AS stream")
    object_frame = spark.sql(
        "SELECT named_struct('a', array(1, 2), 'b', map('k', 0.5D), 'c', CAST(NULL AS STRING)) AS object"
    )
    consumer = kjms_connection.create_session().create_consumer(kjms_queue)
    for frame in (map_frame, stream_frame, object_frame):
        write_batch(frame, kjms_factory, kjms_queue)
    received = {type(message): message for message in (consumer.receive(WAIT_MS) for _ in range(3))}
    assert received[MapMessage]._body == {
        "a": ("int", 1), "b": ("long", 2), "c": ("string", "x"), "d": ("bytes", b"\1"), "e": ("string", None),
    }  # fmt: skip
    assert received[StreamMessage]._body == [("int", 1), ("string", None), ("int", 3)]
    assert received[ObjectMessage].object == {"a": [1, 2], "b": {"k": 0.5}, "c": None}


def test_columns_that_do_not_fit_are_named_before_anything_is_written(spark, kjms_factory, kjms_broker, kjms_queue):
    """The error names each column that cannot be part of a message, and what would be needed."""
    frame = spark.sql(
        "SELECT 'x' AS text, 'high' AS priority, INTERVAL '1' DAY AS pause, 1 AS `no name`, 2 AS JMSXGroupID,"
        " array(named_struct('n', 1)) AS lines, map('a', 1) AS counts, '12:30' AS sentAt, array('g') AS JMSXGroupSeq"
    )
    with pytest.raises(MessageFormatException) as failure:
        write_batch(frame, kjms_factory, kjms_queue)
    text = str(failure.value)
    assert "8 columns do not fit" in text
    for part in (
        "priority: int is needed, not string", "pause: interval day is no type", "no name:", "JMSXGroupID: string",
        "lines: array<struct<n:int>> is no type", "counts: map<string,int> is no type",
        "sentAt: timestamp is needed, not string", "JMSXGroupSeq: array<string> is no type",
    ):  # fmt: skip
        assert part in text
    assert not partitions(kjms_broker.bootstrap_servers, kjms_queue.queue_name)


FORMS = {  # column, its type, its text as a property
    "DATE'2026-11-23'": ("date", "2026-11-23"),
    "TIMESTAMP'2026-11-23 17:46:00.5+01:00'": ("timestamp", "2026-11-23T16:46:00.5Z"),
    "TIMESTAMP'2026-11-01 01:30:00-05:00'": ("timestamp", "2026-11-01T06:30:00Z"),  # the second 1:30 in New York
    "TIMESTAMP_NTZ'2026-11-23 17:46:00'": ("timestamp_ntz", "2026-11-23T17:46:00"),
    "CAST(-12.5 AS DECIMAL(10,2))": ("decimal(10,2)", "-12.50"),
    "CAST(-0.0000000012 AS DECIMAL(38,10))": ("decimal(38,10)", "-0.0000000012"),
    "CAST(0 AS DECIMAL(38,38))": ("decimal(38,38)", f"0.{'0' * 38}"),
    "array(1, NULL, 3)": ("array<int>", "[1,null,3]"),
    "array(array(DATE'2026-11-23'), array())": ("array<array<date>>", '[["2026-11-23"],[]]'),
    "array('a\"b')": ("array<string>", '["a\\"b"]'),
    "array(TIMESTAMP'2026-11-23 17:46:00+00:00')": ("array<timestamp>", '["2026-11-23T17:46:00.000000Z"]'),
}


@pytest.mark.parametrize("is_ansi", [True, False])
def test_columns_of_types_that_jms_lacks_have_a_text_form(spark, kjms_factory, kjms_connection, kjms_queue, is_ansi):
    """Dates, timestamps, decimals and arrays are string properties, read back as they were, in any time zone."""
    columns = {f"c{number}": sql for number, sql in enumerate(FORMS)}
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        spark.conf.set("spark.sql.ansi.enabled", is_ansi)
        frame = spark.range(1).selectExpr(*(f"{sql} AS {name}" for name, sql in columns.items()), "42 AS n")
        consumer = kjms_connection.create_session().create_consumer(kjms_queue)
        write_batch(frame, kjms_factory, kjms_queue)
        read = read_batch(spark, kjms_factory, kjms_queue)
        typed = read.select(*(get_property(name, FORMS[sql][0]) for name, sql in columns.items()))
        assert typed.collect() == frame.drop("n").collect()
        assert typed.dtypes == frame.drop("n").dtypes
        wrong = read.select(*(get_property("c0", kind) for kind in ("timestamp", "decimal(10,2)", "array<int>")))
        assert tuple(wrong.first()) == (None, None, None)
        assert str(read.select(get_property("n", "decimal(10, 2)")).first()[0]) == "42.00"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.unset("spark.sql.ansi.enabled")
    message = consumer.receive(WAIT_MS)
    assert {sql: message.get_string_property(name) for name, sql in columns.items()} == {
        sql: text for sql, (_, text) in FORMS.items()
    }
    assert {message.property_type(name) for name in columns} == {"string"}


@pytest.mark.parametrize(
    "kind", ["struct<a:int>", "array<binary>", "decimal(39,1)", "decimal(2,3)", "day", 7, "array<"]
)
def test_a_type_that_no_property_has_is_refused(kind):
    """What `get_property` cannot read, it names."""
    with pytest.raises(ValueError, match=r"kind is boolean, .* not"):
        get_property("amount", kind)


def test_times_are_timestamps_too(spark, kjms_factory, kjms_connection, kjms_queue, f):
    """A time has a timestamp beside its milliseconds, null for none; written, it counts where they are missing."""
    frame = spark.sql(
        "SELECT 'given' AS text, TIMESTAMP'2026-01-02 03:04:05.678999Z' AS sentAt,"
        " TIMESTAMP'9000-01-01 00:00:00Z' AS expiresAt, CAST(NULL AS BIGINT) AS expiration"
        " UNION ALL SELECT 'long wins', TIMESTAMP'2026-01-02 03:04:05Z', TIMESTAMP'9000-01-01 00:00:00Z',"
        " 9223372036854775807"
    )
    consumer = kjms_connection.create_session().create_consumer(kjms_queue)
    write_batch(frame, kjms_factory, kjms_queue)
    received = {message.text: message for message in (consumer.receive(WAIT_MS) for _ in range(2))}
    assert received["given"].jms_timestamp == 1_767_323_045_678
    assert received["given"].jms_expiration == 221_845_392_000_000
    assert received["long wins"].jms_expiration == 2**63 - 1
    rows = {row["text"]: row for row in read_batch(spark, kjms_factory, kjms_queue).collect()}
    given = rows["given"]
    assert [given[name].timestamp() * 1000 for name in ("sentAt", "expiresAt", "deliverAt")] == [
        given[name] for name in ("timestamp", "expiration", "deliveryTime")
    ]
    assert rows["long wins"]["expiresAt"] is None  # no time that Python has
    plain = spark.sql("SELECT 'x' AS text, 0L AS timestamp")
    read = encode(plain).selectExpr(
        "key",
        "value",
        "'t' AS topic",
        "0 AS `partition`",
        "0L AS `offset`",
        "current_timestamp() AS timestamp",
        "headers",
    )
    assert read.transform(decode).select("sentAt", "expiresAt", "deliverAt").first() == (None, None, None)


def test_a_timestamp_delays_a_message(spark, kjms_factory, kjms_connection, kjms_queue):
    """A message whose deliverAt is ahead waits with those that are not due."""
    frame = spark.sql("SELECT 'later' AS text, current_timestamp() + INTERVAL '3' SECOND AS deliverAt")
    due = frame.first()["deliverAt"]
    consumer = kjms_connection.create_session().create_consumer(kjms_queue)
    write_batch(frame.selectExpr("text", f"TIMESTAMP'{due}' AS deliverAt"), kjms_factory, kjms_queue)
    message = consumer.receive(WAIT_MS)
    assert message.jms_delivery_time == int(due.timestamp() * 1000)
    assert time.time() >= due.timestamp()


def test_ids_of_a_batch_that_is_written_again_are_the_same(spark, f):
    """Whatever the order of rows, a row has the id that it had; equal rows have two."""
    from kjms.spark._writing import _with_ids

    def ids(frame, batch="q-1"):
        return sorted(row["messageID"] for row in _with_ids(frame, batch, None).collect())

    frame = spark.createDataFrame([("a", 1), ("b", 2), ("a", 1)], "text string, n int")
    assert ids(frame) == ids(frame.orderBy(f.desc("text")).repartition(3))
    assert len(set(ids(frame))) == 3
    assert not set(ids(frame)) & set(ids(frame, "q-2"))


def test_selectors_places_and_patterns(spark, kjms_factory, kjms_connection, kjms_destination_name):
    """A batch has what the selector wants, of all destinations, from a place on."""
    session = kjms_connection.create_session()
    topics = [Topic(f"{kjms_destination_name}.{letter}") for letter in "ab"]
    consumer = session.create_shared_durable_consumer(topics[0], kjms_destination_name)
    for topic, number in itertools.product(topics, range(4)):
        message = session.create_text_message(f"{topic.topic_name[-1]}{number}")
        message.set_int_property("number", number)
        session.create_producer(topic).send(message)

    def texts(destinations, **settings):
        return sorted(row["text"] for row in read_batch(spark, kjms_factory, destinations, **settings).collect())

    assert texts(topics, selector="number BETWEEN 1 AND 2") == ["a1", "a2", "b1", "b2"]
    assert texts(Pattern(Topic, f"{kjms_destination_name}[.].*"), selector="number = 3") == ["a3", "b3"]
    assert texts(topics[0], starting={(topics[0], 0): 2}) == ["a2", "a3"]
    assert texts(topics[0], ending={(topics[0], 0): 1}) == ["a0"]
    third = read_batch(spark, kjms_factory, topics[0], selector="number = 2").first()
    assert texts(topics[0], starting=int(third["kafkaTimestamp"].timestamp() * 1000))[-2:] == ["a2", "a3"]
    assert consumer.receive(WAIT_MS).text == "a0"
    consumer.close()
    standing = Subscription(kjms_destination_name)
    assert texts(topics[0], starting=standing) == ["a1", "a2", "a3"]
    session.unsubscribe(kjms_destination_name)
    with pytest.raises(InvalidDestinationException, match="there is no subscription"):
        texts(topics[0], starting=standing)


def test_a_pattern_reads_whole_names_and_nothing_that_is_of_kjms(
    spark, kjms_factory, kjms_broker, kjms_destination_name
):
    """What a pattern fits a part of is not read, and neither are topics where kjms keeps copies of messages."""
    name, servers = kjms_destination_name, kjms_broker.bootstrap_servers
    kept = [f"kjms.{name}", f"{name}.kjms.overflow", f"{name}.kjms.delayed.1"]
    names = [name, f"{name}-2", f"old-{name}", *kept]
    admin, producer = AdminClient({"bootstrap.servers": servers}), Producer({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(each, 1, 1) for each in names]).values():
        made.result(WAIT_SECONDS)
    for each in names:
        producer.produce(each, each.encode())
    producer.flush(WAIT_SECONDS)

    def read(expression):
        return {row["topic"] for row in read_batch(spark, kjms_factory, Pattern(Queue, expression)).collect()}

    try:
        assert read(name) == {name}
        assert read(f"none|{name}") == {name}
        assert read(f"{name}.*") == {name, f"{name}-2"}
        assert read(f".*{name}.*") == set(names) - set(kept)
    finally:
        admin.delete_topics(names)


def test_an_archive_knows_the_topics_that_a_pattern_reads():
    """An archive is registered for them before Spark reads them; a pattern that only Java understands is refused."""
    from kjms.spark._reading import topics_among

    there = ["orders", "orders-2", "old-orders", "kjms.orders", "orders.kjms.overflow"]
    factory = ConnectionFactory("localhost:1")
    assert topics_among(factory, Pattern(Queue, "orders.*"), there) == ["orders", "orders-2"]
    assert topics_among(factory, Pattern(Queue, "none|orders"), there) == ["orders"]
    for wrong, why in ((r"\Qorders\E", "bad escape"), ("a|(?i)orders", "[fF]lags not at the start")):
        with pytest.raises(ValueError, match=f"{re.escape(repr(wrong))} only by Java: .*{why}"):
            topics_among(factory, Pattern(Queue, wrong), there)


@pytest.mark.parametrize("read", [read_batch, read_stream])
def test_a_destination_that_is_not_there_is_named(spark, kjms_factory, kjms_queue, read):
    """What cannot be read says so when it is asked for, and which it is: Spark would say neither."""
    nowhere = Queue(f"{kjms_queue.queue_name}-nowhere")
    with pytest.raises(InvalidDestinationException, match=f"there is no {nowhere}: no Kafka topic"):
        read(spark, kjms_factory, nowhere)


def test_a_stream_goes_on_from_its_checkpoint(spark, kjms_factory, kjms_connection, kjms_queue, kjms_topic, tmp_path):
    """A query that is started again sends what came since, and each message once."""
    session = kjms_connection.create_session()
    consumer, producer = session.create_consumer(kjms_topic), session.create_producer(kjms_queue)
    for part in range(2):
        for number in range(3):
            producer.send(session.create_text_message(f"{part}{number}"))
        frame = read_stream(spark, kjms_factory, kjms_queue, starting="earliest").drop("messageID")
        query = write_stream(frame, kjms_factory, kjms_topic, checkpoint=str(tmp_path), trigger={"availableNow": True})
        query.awaitTermination(60)
        received = [consumer.receive(WAIT_MS) for _ in range(3)]
        assert sorted(message.text for message in received) == [f"{part}{number}" for number in range(3)]
        assert all(message.jms_message_id.startswith(f"ID:spark-{query.id}-{part}-") for message in received)
