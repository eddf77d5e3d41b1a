"""What became of messages, as frames: settlement, redeliveries, dead letters; and single values of messages."""

from __future__ import annotations

import json
import math
import time

import pytest
from spark_records import Source

from kjms import ConnectionFactory, ObjectMessage, Queue, RedeliveryPolicy, Session
from kjms.errors import MessageFormatException
from kjms.mapping import KafkaRecord, decode
from kjms.mapping import encode as encode_record
from kjms.message import TextMessage
from kjms.spark import dead_letters, get_property, object_body, read_batch, redeliveries, settlement
from kjms.spark import decode as spark_decode
from tests.helpers import WAIT_MS

KINDS = ("boolean", "byte", "short", "int", "long", "float", "double", "string")


def test_settlement_and_what_befell_messages(spark, kjms_broker, kjms_queue, kjms_topic):
    """Frames tell what is settled, what came again, and which messages are dead letters and why."""
    letters = Queue(f"{kjms_queue.queue_name}.dlq")
    factory = ConnectionFactory(
        kjms_broker.bootstrap_servers, redelivery=RedeliveryPolicy(max_deliveries=2), kafka={"client.id": "analysis"}
    )
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        with session.create_producer(kjms_queue) as producer:
            sent = [session.create_text_message(str(number)) for number in range(6)]
            for message in sent:
                producer.send(message)
        name = kjms_topic.topic_name
        session.create_shared_durable_consumer(kjms_topic, name).close()
        consumer = session.create_consumer(kjms_queue)
        received = [consumer.receive(WAIT_MS) for _ in range(4)]
        for message in received[1:]:
            message.acknowledge()
        session.recover()
        assert consumer.receive(WAIT_MS).text == "0"
        session.recover()
        looker = connection.create_session().create_browser(letters)
        assert consumer.receive(WAIT_MS).text == "4"
        deadline = time.monotonic() + WAIT_MS / 1000
        while [message.text for message in looker] != ["0"]:
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.01)
        consumer.close()
    rows = {row["group"]: row for row in settlement(spark, factory, [kjms_queue, kjms_topic]).collect()}
    own = rows.pop(f"kjms.queue.{kjms_queue.queue_name}")
    assert own["destination"].asDict() == {"destinationType": "queue", "name": kjms_queue.queue_name}
    assert (own["place"], own["partition"], own["committedOffset"], own["end"] - own["unsettledUpTo"]) == (
        "destination",
        0,
        4,
        4,
    )
    assert (own["subscription"], own["redelivered"], own["overflowUpTo"]) == (None, 1, 0)  # 4 was delivered
    (daily,) = rows.values()
    assert (daily["subscription"], daily["destination"]["destinationType"]) == (name, "topic")
    assert {row["group"] for row in settlement(spark, factory).select("group").collect()} >= {
        own["group"],
        daily["group"],
    }
    events = redeliveries(spark, factory, since=sent[0].jms_timestamp).where(
        f"destination.name = '{kjms_queue.queue_name}'"
    )
    told = [(row["event"], row["offset"], row["delivery"]) for row in events.orderBy("time", "event").collect()]
    assert [each for each in told if each[0] == "dead letter"] == [("dead letter", 0, 2)]
    assert ("redelivery", 0, 2) in told
    assert {row["messageID"] for row in events.collect()} <= {message.jms_message_id for message in sent}
    (letter,) = read_batch(spark, factory, letters, pending=True).transform(dead_letters).collect()
    assert (letter["text"], letter["deliveries"], letter["originalOffset"]) == ("0", 2, 0)
    assert letter["originalDestination"].asDict() == {"destinationType": "queue", "name": kjms_queue.queue_name}
    assert letter["cause"].startswith("delivered 2 times")


@pytest.mark.slow
def test_properties_are_read_by_the_conversion_table(records):
    """A property read as a type is what the getter of that type gives, and null where that raises."""
    values = {
        "boolean": [True, False],
        "byte": [-128],
        "short": [300],
        "int": [2**31 - 1],
        "long": [-(2**63)],
        "float": [0.1, math.inf, math.nan],
        "double": [1e300, -0.5],
        "string": ["12", "-129", "0.5", "TRUE", "x", "", "NaN", "9223372036854775808"],
    }
    message = TextMessage("")
    for kind, held in values.items():
        for number, value in enumerate(held):
            getattr(message, f"set_{kind}_property")(f"{kind}{number}", value)
    record = encode_record(message)
    frame = spark_decode(records([record]), "queue")
    names = [*message.property_names(), "missing"]
    asked = [(name, kind) for name in names for kind in KINDS]
    (row,) = frame.select(*(get_property(*each).alias("_".join(each)) for each in asked)).collect()
    own = decode(Source(record), Queue("orders"))
    for name, kind in asked:
        try:
            wanted = getattr(own, f"get_{kind}_property")(name) if name != "missing" else None
        except MessageFormatException:
            wanted = None
        assert repr(row[f"{name}_{kind}"]) == repr(wanted), (name, kind)
    with pytest.raises(ValueError, match="kind is"):
        get_property("n", "integer")


@pytest.mark.slow  # Spark compiles a plan for each kind of body
def test_object_bodies_are_json(records, f):
    """Plain values of any type, nested as deep as was asked for; what cannot be read so is null."""
    bodies = [
        {"a": [1, None, {"deep": 2.5, "x": [True, "ü\"\n"]}], "b": 2**63 - 1, "c": {}, "d": []},
        5, "text", False, [[[["four"]]]], [[[[["five"]]]]], {"raw": b"\1\2", "big": 2**70, "nan": math.nan},
    ]  # fmt: skip
    given = [encode_record(ObjectMessage(body)) for body in bodies]
    given.append(KafkaRecord(None, b"\xff\xff\xff", [("kjms", b"1;object")], 0))
    given.append(KafkaRecord(None, b"\x02", [("kjms", b"1;object/java")], 0))
    frame = spark_decode(records(given), "queue").select("offset", object_body().alias("body"))
    found = [row["body"] for row in sorted(frame.collect())]
    assert [body and json.loads(body) for body in found] == [
        *bodies[:5], None, {"raw": "AQI=", "big": f"{2**70:x}", "nan": "NaN"}, None, None,
    ]  # fmt: skip
    for wrong in (-1, 9):
        with pytest.raises(ValueError, match="depth is 0 to 8"):
            object_body(wrong)
    with pytest.raises(TypeError, match="depth is a whole number, not True"):
        object_body(True)


def test_single_values_are_columns_of_their_name(records):
    """`get_property` is a column of the property's name, `object_body` one of its own name."""
    frame = spark_decode(records([]), "queue")
    assert frame.select(get_property("amount", "long"), get_property("JMSXGroupID"), object_body()).columns == [
        "amount", "JMSXGroupID", "object_body",
    ]  # fmt: skip
