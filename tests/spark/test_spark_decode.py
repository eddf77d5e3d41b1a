"""Damaged records are rows like the others, and read as Python reads them."""

from __future__ import annotations

import random

import pytest
from fuzz_records import golden_records, made
from spark_records import Source

from kjms import BytesMessage, MapMessage, ObjectMessage, Queue, StreamMessage, TextMessage
from kjms.errors import JMSException, MessageFormatException
from kjms.mapping import KafkaRecord, decode
from kjms.selector import parse_selector
from kjms.spark import decode as spark_decode
from kjms.spark._decode import with_helpers
from kjms.spark._predicates import predicate
from kjms.spark._sources import Record

COUNT = 1_000
COMPILED_BYTES = 8_000  # of bytecode: HotSpot's HugeMethodLimit
HEADER_COLUMNS = [
    "messageID", "messageType", "timestamp", "deliveryMode", "correlationID", "correlationIDBytes", "replyTo",
    "destination", "type", "expiration", "deliveryTime", "priority",
]  # fmt: skip
OTHER_DIGITS = "٣".encode()  # Python's and Java's numbers can be written in the digits of all scripts, Spark's cannot
NAMES = {"int": "integer", "null": "null-value"}


def destination(value):
    return None if value is None else (value.scheme, value._name)


def expected(record: KafkaRecord, offset: int) -> dict[str, object]:
    """What Python makes of the record, in the columns of Spark."""
    message = decode(Source(record, offset), Queue("orders"))
    names = [name for name in message.property_names() if name != "JMSXDeliveryCount"]
    told = {
        "messageID": message.jms_message_id,
        "timestamp": message.jms_timestamp,
        "deliveryMode": message.jms_delivery_mode,
        "correlationID": message.jms_correlation_id,
        "replyTo": destination(message.jms_reply_to),
        "destination": destination(message.jms_destination),
        "type": message.jms_type,
        "expiration": message.jms_expiration,
        "deliveryTime": message.jms_delivery_time,
        "priority": message.jms_priority,
        "names": sorted(names),
        "propertyTypes": {n: t for n in names if (t := message.property_type(n)) != "string"},
        "strings": {n: message.get_string_property(n) for n in names if message.property_type(n) == "string"},
        "text": message.text if isinstance(message, TextMessage) else None,
    }
    try:
        body = message._body
    except JMSException as error:
        if "follow the body" in str(error):
            return told  # Spark does not notice that
        body = None
    if isinstance(message, MapMessage):
        told["map"] = None if body is None else {name: kind_of(held) for name, held in body.items()}
    elif isinstance(message, StreamMessage):
        told["stream"] = None if body is None else [kind_of(held) for held in body]
    elif isinstance(message, BytesMessage):
        told["bytes"] = bytes(body)
    elif isinstance(message, ObjectMessage):
        told["bytes"] = record.value
    return told


def kind_of(held):
    kind, value = held
    name = "null-value" if value is None else NAMES.get(kind, kind)
    return name, repr(value)


def spark_kind(held):
    name = held["propertyType"]
    value = None if name == "null-value" else held[name]
    return name, repr(bytes(value) if isinstance(value, bytearray) else value)


def found(row, wanted) -> dict[str, object]:
    """What Spark makes of it, as far as it is *wanted*."""
    types = row["propertyTypes"]
    told = {
        **{name: row[name] for name in wanted if name in row.__fields__},
        "replyTo": row["replyTo"] and tuple(row["replyTo"]),
        "destination": tuple(row["destination"]),
        "names": sorted(row["properties"]),
        "strings": {name: text for name, text in row["properties"].items() if name not in types},
    }
    if wanted.get("map") is not None:
        told["map"] = None if row["map"] is None else {name: spark_kind(held) for name, held in row["map"].items()}
    if wanted.get("stream") is not None:
        told["stream"] = None if row["stream"] is None else [spark_kind(held) for held in row["stream"]]
    if "bytes" in wanted and row["bytes"] is not None:
        told["bytes"] = bytes(row["bytes"])
    return told


@pytest.mark.requirement("NET-152")
def test_damaged_and_foreign_records_read_in_spark_as_in_python(records):
    """Whatever stands in a record, Spark's row says what the message of kjms says."""
    chance = random.Random(7)
    golden = golden_records()
    given = [made(golden, chance) for _ in range(COUNT)]
    given = [
        r for r in given if r.timestamp < 2**52 and all(OTHER_DIGITS not in (data or b"") for _, data in r.headers)
    ]
    given = [record._replace(timestamp=max(record.timestamp, 0)) for record in given]
    rows = sorted(spark_decode(records(given), "queue").collect(), key=lambda row: row["offset"])
    wrong = []
    for offset, (record, row) in enumerate(zip(given, rows, strict=True)):
        wanted = expected(record, offset)
        told = found(row, wanted)
        different = {name: (wanted[name], told.get(name)) for name in wanted if wanted[name] != told.get(name)}
        if different:
            wrong.append((different, record))
    assert wrong == []


def test_the_numbers_of_dead_letters_are_numbers(records):
    """Their names say so, as to Python: in decoded columns and to selectors."""
    own = [("JMS_kjms_Deliveries", b"3"), ("JMS_kjms_LastFailure", b"1795282324098"), ("JMS_kjms_Host", b"7")]
    dead = KafkaRecord(None, b"x", [("kjms", b"1;text;n=int"), ("n", b"5"), ("JMS_kjms_Cause", b"c"), *own], 0)
    given = [dead, dead._replace(headers=[("JMS_kjms_Cause", b"c"), *own]), dead._replace(headers=own)]
    rows = sorted(spark_decode(records(given)).collect(), key=lambda row: row["offset"])
    numbers = {"JMS_kjms_Deliveries": "int", "JMS_kjms_LastFailure": "long"}
    assert [row["propertyTypes"] for row in rows] == [{"n": "int", **numbers}, numbers, {}]
    chosen = predicate(parse_selector("JMS_kjms_Deliveries >= 3").tree, Record()).expression
    assert [row["offset"] for row in with_helpers(records(given)).where(chosen).collect()] == [0, 1]


def test_damage_is_told(records):
    """A column says what could not be read as it should; of a good record it says nothing."""
    good = KafkaRecord(None, b"x", [("kjms", b"1;text;n=int"), ("n", b"5"), ("JMSPriority", b"7")], 0)
    cases = {
        "header kjms cannot be read": good._replace(headers=[("kjms", b"nonsense")]),
        "layout version 2 is not 1": good._replace(headers=[("kjms", b"2;text")]),
        "body type poem is not known": good._replace(headers=[("kjms", b"1;poem")]),
        "more than once": good._replace(headers=[*good.headers, ("n", b"6")]),
        "header JMSPriority cannot": good._replace(headers=[("kjms", b"1;text"), ("JMSPriority", b"10")]),
        "header JMSReplyTo cannot": good._replace(headers=[("kjms", b"1;text"), ("JMSReplyTo", b"nowhere")]),
        "header JMSType cannot": good._replace(headers=[("kjms", b"1;text"), ("JMSType", b"\xff")]),
        "not of its type": good._replace(headers=[("kjms", b"1;text;n=int"), ("n", b"1.5")]),
        "the text is not UTF-8": good._replace(value=b"\xff"),
        "not a body of type map": good._replace(headers=[("kjms", b"1;map")], value=b"\x07\x07\x07"),
    }
    rows = sorted(spark_decode(records([good, *cases.values()])).collect(), key=lambda row: row["offset"])
    assert rows[0]["damage"] == []
    for part, row in zip(cases, rows[1:], strict=True):
        assert len(row["damage"]) == 1
        assert part in row["damage"][0]


def largest_method(frame) -> int:
    """The size of the largest method, in bytes, that Spark makes Java run for *frame*."""
    stages = frame._jdf.queryExecution().debug().codegenToSeq()
    sizes = [stages.apply(number)._3().maxMethodCodeSize() for number in range(stages.size())]
    assert sizes, "Spark makes no code for it"
    return max(sizes)


@pytest.mark.parametrize("chosen", [["*"], HEADER_COLUMNS, [*HEADER_COLUMNS, "key", "topic", "partition", "offset"]])
def test_java_compiles_what_reads_messages(records, chosen):
    """No method is larger than what Java's virtual machine compiles: it would be interpreted for every record."""
    frame = spark_decode(records([KafkaRecord(None, b"x", [("kjms", b"1;text")], 0)]), "queue").select(*chosen)
    assert 0 < largest_method(frame) < COMPILED_BYTES


def test_a_frame_without_headers_is_refused(spark):
    """Without Spark's headers the error names the missing option."""
    with pytest.raises(MessageFormatException, match="includeHeaders"):
        spark_decode(spark.range(1).selectExpr("CAST(id AS STRING) AS key"))
