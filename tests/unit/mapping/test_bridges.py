"""Records of other bridges between JMS and Kafka."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest

from kjms import MessageFormatException, MessageNotWriteableException, Queue, Topic
from kjms.mapping import KafkaRecord, confluent, encode
from kjms.mapping.bridges import DECODERS, decoder
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.options import CONVENTIONS

NOW = 1_750_000_000_000
FOREIGN_HEADERS = [name for name in DECODERS if name not in {"kjms", "confluent"}]


@pytest.fixture
def read(source):
    def decoded(
        convention: str, headers: list | None, value: bytes | None = b"hello", key: bytes | None = None
    ) -> Message:
        return decoder(convention)(source(KafkaRecord(key, value, headers, NOW)), Queue("orders"), 2)  # type: ignore[arg-type]

    return decoded


def test_each_convention_that_can_be_chosen_is_read() -> None:
    """Options name the conventions that the mapping knows, in its order."""
    assert tuple(DECODERS) == CONVENTIONS


@pytest.mark.parametrize("convention", DECODERS)
def test_every_convention_reads_kjms_records_and_any_others(convention: str, read) -> None:
    """A topic may hold both; nothing in a record raises."""
    message = TextMessage("x")
    message.set_int_property("p", 1)
    record = encode(message)
    arrived = read(convention, record.headers, record.value)
    assert arrived.get_body(str) == "x"
    assert arrived.get_int_property("p") == 1
    assert read(convention, None).get_body(str) == "hello"
    assert read(convention, None).get_int_property("JMSXDeliveryCount") == 2
    assert read(convention, None, b"\0\xff\xff").get_body(bytes) == b"\0\xff\xff"
    assert read(convention, [("a", None), ("JMSPriority", b"x"), ("spring_json_header_types", b"[1")]).jms_priority == 4


@pytest.mark.parametrize("convention", DECODERS)
def test_every_convention_says_where_a_message_was_read(convention: str, source) -> None:
    """JMSDestination and the delivery count are those of the reader, of foreign records and of kjms's own."""
    own = encode(TextMessage("x"))
    for record in (own, KafkaRecord(None, b"x", [("region", b"EU")], NOW), confluent.encode(TextMessage("x"))):
        message = decoder(convention)(source(record), Topic("read"), 3)
        assert message.jms_destination == Topic("read")
        assert message.get_int_property("JMSXDeliveryCount") == 3
        assert decoder(convention)(source(record), Topic("read")).get_int_property("JMSXDeliveryCount") == 1


@pytest.mark.parametrize("convention", FOREIGN_HEADERS)
def test_a_record_in_kjms_layout_is_not_translated(convention: str, source) -> None:
    """What has the name of a foreign header field is a property there."""
    names = ("CamelHeader_a", "solace_priority", "JMS_IBM_Encoding", "jms_priority")
    message = TextMessage("x")
    for name in names:
        message.set_string_property(name, "7")
    arrived = decoder(convention)(source(encode(message)), Queue("orders"), 1)
    assert {name: arrived.properties[name] for name in names} == dict.fromkeys(names, "7")
    assert arrived.jms_priority == 4


@pytest.mark.parametrize("convention", FOREIGN_HEADERS)
def test_headers_that_cannot_be_read_are_damage(convention: str, source) -> None:
    """The message is there, with its value."""

    class Unreadable:
        def __init__(self) -> None:
            record = source(KafkaRecord(None, b"hello", None, NOW))
            self.value, self.key, self.timestamp = record.value, record.key, record.timestamp
            self.topic, self.partition, self.offset = record.topic, record.partition, record.offset

        def headers(self) -> list[tuple[str, bytes | None]]:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    message = decoder(convention)(Unreadable(), Queue("orders"), 1)
    assert message.get_body(str) == "hello"
    assert any("headers" in damage for damage in message.damage)


def test_an_unknown_convention_is_refused() -> None:
    """The error names those that there are."""
    with pytest.raises(ValueError, match="confluent, ibm-mq, camel"):
        decoder("rabbit")


def test_ibm_mq(read) -> None:
    """Properties are strings but for IBM's own, whose types are known."""
    message = read("ibm-mq", [
        ("region", b"EU"), ("amount", b"100"), ("JMS_IBM_Format", b"MQSTR"), ("JMS_IBM_Encoding", b"546"),
        ("JMS_IBM_Report_Exception", b"0"), ("JMS_IBM_Last_Msg_In_Group", b"true"), ("JMSXGroupSeq", b"3"),
    ])  # fmt: skip
    assert message.get_string_property("region") == "EU"
    assert message.get_int_property("amount") == 100
    assert message.property_type("amount") == "string"
    assert message.properties["JMS_IBM_Encoding"] == 546
    assert message.properties["JMS_IBM_Last_Msg_In_Group"] is True
    assert message.properties["JMSXGroupSeq"] == 3
    assert message.get_string_property("JMS_IBM_Format") == "MQSTR"
    assert message.properties["JMS_IBM_Report_Exception"] == 0
    assert message.damage == ()


@pytest.mark.parametrize("prefix", ["", "CamelHeader."])
def test_camel(prefix: str, read) -> None:
    """Header fields with or without the connectors' prefix, numbers as bytes or as text."""
    headers = [
        ("JMSMessageID", b"ID:1"), ("JMSTimestamp", struct.pack(">q", 5)), ("JMSPriority", struct.pack(">i", 9)),
        ("JMSExpiration", b"77"), ("JMSDestination", b"queue://theirs"), ("JMSReplyTo", b"topic://replies"),
        ("a", b"x"),
    ]  # fmt: skip
    message = read("camel", [(prefix + name, data) for name, data in headers])
    assert (message.jms_message_id, message.jms_timestamp, message.jms_priority) == ("ID:1", 5, 9)
    assert (message.jms_expiration, message.jms_reply_to) == (77, Topic("replies"))
    assert message.jms_destination == Queue("orders")
    assert message.get_string_property("a") == "x"


@pytest.mark.parametrize("packed", [struct.pack(">q", -5), struct.pack(">i", -5), b"-5"])
def test_camel_writes_numbers_with_a_sign(packed: bytes, read) -> None:
    assert read("camel", [("JMSTimestamp", packed)]).jms_timestamp == -5


def test_solace(read) -> None:
    """Solace's header fields become those of JMS; what JMS does not know are string properties."""
    message = read("solace", [
        ("solace_applicationMessageID", b"ID:s"), ("solace_correlationID", b"42"), ("solace_senderTimestamp", b"5"),
        ("solace_applicationMessageType", b"order"), ("solace_deliveryMode", b"DIRECT"), ("solace_priority", b"7"),
        ("solace_replyToDestination", b"a/b"), ("solace_replyToDestinationType", b"topic"), ("region", b"EU"),
        ("solace_senderID", b"me"),
    ])  # fmt: skip
    assert (message.jms_message_id, message.jms_correlation_id, message.jms_timestamp) == ("ID:s", "42", 5)
    assert (message.jms_type, message.jms_delivery_mode, message.jms_priority) == ("order", 1, 7)
    assert message.jms_reply_to == Topic("a/b")
    assert {**message.properties} == {"region": "EU", "solace_senderID": "me", "JMSXDeliveryCount": 2}
    assert read("solace", [("solace_priority", b"200")]).jms_priority == 4


@pytest.mark.parametrize(
    ("mode", "is_persistent"), [(b"PERSISTENT", True), (b"DIRECT", False), (b"NON_PERSISTENT", False)]
)
def test_solace_modes(mode: bytes, is_persistent: bool, read) -> None:
    assert read("solace", [("solace_deliveryMode", mode)]).jms_delivery_mode == (2 if is_persistent else 1)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (b"a/b", b"queue", Queue("a/b")),
        (b"a/b", b"topic", Topic("a/b")),
        (b"a/b", b"other", None),
        (b"a/b", None, None),
        (b"", b"queue", None),
        (None, b"topic", None),
    ],
)
def test_solace_replies(name: bytes | None, kind: bytes | None, expected: Queue | Topic | None, read) -> None:
    """A place that is none of the two kinds, or has no name, is left out without damage."""
    headers = [("solace_replyToDestination", name), ("solace_replyToDestinationType", kind)]
    message = read("solace", [(header, value) for header, value in headers if value is not None])
    assert message.jms_reply_to == expected
    assert message.damage == ()


def test_spring(read) -> None:
    """The types header gives properties their types, and is no property itself."""
    types = {
        "jms_messageId": "java.lang.String", "jms_priority": "java.lang.Integer", "jms_replyTo": "x.y.Queue",
        "n": "java.lang.Long", "f": "java.lang.Float", "b": "java.lang.Boolean", "s": "java.lang.String",
        "old": "java.lang.String", "list": "java.util.ArrayList",
    }  # fmt: skip
    message = read("spring", [
        ("jms_messageId", b"ID:1"), ("jms_priority", b"9"), ("jms_replyTo", b"{}"), ("n", b"5"), ("f", b"0.5"),
        ("b", b"true"), ("s", b"x"), ("old", b'"x\\n"'), ("list", b"[1]"), ("__TypeId__", b"a.B"),
        ("spring_json_header_types", json.dumps(types).encode()),
    ])  # fmt: skip
    assert (message.jms_message_id, message.jms_priority, message.jms_reply_to) == ("ID:1", 9, None)
    kinds = {name: message.property_type(name) for name in message.property_names()}
    assert kinds == {
        "n": "long", "f": "float", "b": "boolean", "s": "string", "old": "string", "list": "string",
        "__TypeId__": "string", "JMSXDeliveryCount": "int",
    }  # fmt: skip
    assert (message.properties["n"], message.properties["b"], message.properties["old"]) == (5, True, "x\n")
    for damaged in (b"\xff", b"[1]", b'"x"', b"", b"{"):
        assert read("spring", [("s", b"x"), ("spring_json_header_types", damaged)]).properties["s"] == "x"


def test_spring_unquotes_strings_only(read) -> None:
    """A header that is no string, or has no type, keeps its quotes."""
    types = json.dumps({"n": "java.util.Date", "s": "java.lang.String"}).encode()
    message = read("spring", [("n", b'"5"'), ("u", b'"x"'), ("s", b'"x"'), ("spring_json_header_types", types)])
    assert [message.properties[name] for name in "nus"] == ['"5"', '"x"', "x"]


def _write_body(message: Message) -> None:
    if isinstance(message, TextMessage):
        message.text = "other"
    elif isinstance(message, BytesMessage):
        message.write_bytes(b"other")
    elif isinstance(message, MapMessage):
        message.set_int("other", 1)
    else:  # a message without a body has none that could be written
        raise MessageNotWriteableException("read-only")


# A value as Confluent's connector for ActiveMQ wrote it, through the JSON converter.
ACTIVEMQ = {
    "bytes": None, "correlationID": None, "deliveryMode": 2,
    "destination": {"destinationType": "queue", "name": "DEV.QUEUE.1"}, "expiration": 0, "map": None,
    "messageID": "ID:activemq-34421-1570550056457-4:2:1:1:1", "messageType": "text", "priority": 5, "properties": {
        "JMSXDeliveryCount": {"propertyType": "integer", "integer": 1, "string": None},
        "JMSXAppID": {"propertyType": "null-value", "string": None},
        "titi": {"propertyType": "string", "string": "toto"},
    }, "redelivered": False, "replyTo": None, "text": "message", "timestamp": 1570550394652, "type": None,
}  # fmt: skip


class TestConfluent:
    """The struct io.confluent.connect.jms.Value."""

    @pytest.mark.parametrize("enveloped", [False, True])
    def test_json(self, enveloped: bool, read) -> None:
        """As Connect's JSON converter writes it, with the schema beside it or not."""
        value = {"schema": {"type": "struct"}, "payload": ACTIVEMQ} if enveloped else ACTIVEMQ
        message = read("confluent", None, json.dumps(value).encode())
        assert isinstance(message, TextMessage)
        assert message.text == "message"
        assert message.jms_message_id == ACTIVEMQ["messageID"]
        assert (message.jms_timestamp, message.jms_priority) == (1570550394652, 5)
        assert message.jms_destination == Queue("orders")
        assert dict(message.properties) == {"JMSXDeliveryCount": 2, "JMSXAppID": None, "titi": "toto"}
        assert message.jms_redelivered

    def test_the_delivery_count_is_not_written(self, read) -> None:
        """It is the delivery's: what is received and passed on says nothing of it, in a struct or in headers."""
        message = read("confluent", None, json.dumps(ACTIVEMQ).encode())
        written = json.loads(confluent.encode(message).value or b"")
        assert sorted(written["properties"]) == ["JMSXAppID", "titi"]
        assert "JMSXDeliveryCount" not in dict(encode(message).headers)

    @staticmethod
    def filled(message: Message) -> Message:
        values = {"boolean": True, "byte": -1, "short": 300, "int": 5, "long": 2**40, "float": 0.5, "double": 0.1}
        for kind, value in {**values, "string": "x"}.items():
            getattr(message, f"set_{kind}_property")(f"a_{kind}", value)
            if isinstance(message, MapMessage):
                getattr(message, f"set_{kind}")(kind, value)
        message.set_string_property("none", None)
        message.set_string_property("JMSXGroupID", "g")
        message._stamp("ID:1", NOW, Queue("theirs"), 1, 9, NOW + 5, NOW)
        message.jms_correlation_id, message.jms_type, message.jms_reply_to = "c", "t", Topic("replies")
        return message

    @pytest.mark.parametrize("schema_id", [None, 7])
    @pytest.mark.parametrize(
        "make",
        [
            lambda: TextMessage("grün"),
            TextMessage,
            lambda: BytesMessage(b"\0\xff"),
            Message,
            lambda: MapMessage({"raw": b"\xff", "none": None}),
        ],
    )
    def test_what_is_written_is_read(self, make, schema_id: int | None, read) -> None:
        """Header fields, typed properties and body, through Avro and through JSON."""
        message = self.filled(make())
        record = confluent.encode(message, schema_id)
        assert (record.key, record.timestamp, record.headers) == (b"g", NOW, [])
        arrived = read("confluent", [], record.value)
        assert type(arrived) is type(message)
        assert arrived.get_body(object) == message.get_body(object)
        names = message.property_names()
        assert [arrived.property_type(name) for name in names] == [message.property_type(name) for name in names]
        assert [arrived.properties[name] for name in names] == [message.properties[name] for name in names]
        for field in ("message_id", "timestamp", "delivery_mode", "priority", "expiration", "correlation_id", "type",
                      "reply_to", "delivery_time"):  # fmt: skip
            assert getattr(arrived, f"jms_{field}") == getattr(message, f"jms_{field}")
        assert arrived.damage == ()
        with pytest.raises(MessageNotWriteableException, match="read-only"):
            arrived.set_int_property("p", 1)
        with pytest.raises(MessageNotWriteableException, match="read-only"):
            _write_body(arrived)

    def test_avro_is_framed_and_an_avro_library_reads_it(self) -> None:
        """A zero byte, the schema's number, and the struct under the published schema."""
        value = confluent.encode(self.filled(MapMessage({"c": 1})), 258).value or b""
        assert value[:5] == b"\0\0\0\x01\x02"
        schema = fastavro.parse_schema(json.loads(confluent.value_schema()))
        struct_ = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        assert struct_["map"]["c"]["integer"] == 1
        assert struct_["properties"]["a_byte"]["byte"] == -1

    def test_records_of_another_schema_version_need_the_registry(self, source) -> None:
        """Earlier versions have no bytes in PropertyValue: the writer's schema is asked for once, by its number."""
        older = json.loads(confluent.value_schema())
        properties = next(field for field in older["fields"] if field["name"] == "properties")
        properties["type"]["values"]["fields"].pop()
        out = io.BytesIO()
        struct_ = {**ACTIVEMQ, "properties": {"titi": {"propertyType": "string", "string": "toto"}}}
        fastavro.schemaless_writer(out, fastavro.parse_schema(older), struct_)
        record = source(KafkaRecord(None, b"\0\0\0\0\x03" + out.getvalue(), None, NOW))
        asked: list[int] = []

        def schema_of(number: int) -> str:
            asked.append(number)
            return json.dumps(older)

        for _ in range(2):
            message = confluent.decode(record, Queue("orders"), schema_of=schema_of)
            assert message.get_string_property("titi") == "toto"
        assert asked == [3]
        assert confluent.decode(record, Queue("orders")).damage

    @pytest.mark.parametrize("reply_to", [Queue("replies"), Topic("replies"), None])
    @pytest.mark.parametrize("schema_id", [None, 0x01020304])
    def test_a_reply_goes_to_a_queue_or_a_topic(
        self, reply_to: Queue | Topic | None, schema_id: int | None, read
    ) -> None:
        message = self.filled(TextMessage("x"))
        message.jms_reply_to = reply_to
        record = confluent.encode(message, schema_id)
        assert read("confluent", None, record.value).jms_reply_to == reply_to
        if schema_id is not None:
            assert record.value is not None
            assert record.value[:5] == b"\0\x01\x02\x03\x04"

    def test_json_is_written_as_utf_8(self) -> None:
        """Not as escapes, which take more room."""
        assert "grün".encode() in (confluent.encode(TextMessage("grün")).value or b"")

    def test_properties_of_bytes_are_left_out(self, read) -> None:
        """JMS has no such properties."""
        value = {**ACTIVEMQ, "properties": {"b": {"propertyType": "bytes", "bytes": "AAE="}}}
        message = read("confluent", None, json.dumps(value).encode())
        assert "b" not in message.properties
        assert message.damage == ()

    @pytest.mark.parametrize(
        "value",
        [b"\0\0\0\0\x01\xff", b"{", b"{}", b'{"messageType": "text"}', b"\0", b'{"payload": null}',
         json.dumps({**ACTIVEMQ, "messageType": "weird"}).encode(), json.dumps({**ACTIVEMQ, "priority": 77}).encode(),
         json.dumps({**ACTIVEMQ, "properties": {"a": {"propertyType": "integer", "integer": "x"}}}).encode()],
    )  # fmt: skip
    def test_what_is_no_struct_is_an_ordinary_record(self, value: bytes, read) -> None:
        """It reads as text or bytes, and the damage tells."""
        message = read("confluent", [("region", b"EU")], value)
        expected = (BytesMessage, value) if value.startswith(b"\0") else (TextMessage, value.decode("utf-8"))
        assert (type(message), message.get_body(object)) == expected
        assert message.get_string_property("region") == "EU"
        assert "io.confluent.connect.jms.Value" in message.damage[-1]

    @pytest.mark.parametrize("message", [StreamMessage(), ObjectMessage([1])])
    def test_streams_and_objects_are_refused(self, message: Message) -> None:
        """The struct has no place for them."""
        with pytest.raises(MessageFormatException, match=type(message).__name__):
            confluent.encode(message)

    @pytest.mark.parametrize("schema_id", [None, 1])
    @pytest.mark.parametrize("place", ["body", "property", "group"])
    def test_half_a_surrogate_pair_is_refused(self, place: str, schema_id: int | None) -> None:
        """As in kjms's own layout: what UTF-8 cannot carry raises MessageFormatException when it is sent."""
        message = TextMessage("\ud800" if place == "body" else "x")
        if place != "body":
            message.set_string_property("p" if place == "property" else "JMSXGroupID", "\ud800")
        with pytest.raises(MessageFormatException, match="lone surrogate"):
            confluent.encode(message, schema_id)

    def test_a_message_from_there_can_be_sent_in_kjms_layout(self, read, source) -> None:
        """As any received message."""
        arrived = read("confluent", None, confluent.encode(self.filled(MapMessage({"a": 1}))).value)
        record = encode(arrived)
        again = decoder("kjms")(source(record), Queue("orders"), 1)
        assert again.get_body(dict)["a"] == 1  # type: ignore[index]
        assert again.property_type("a_short") == "short"
