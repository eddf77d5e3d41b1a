"""Decoding: records that no JMS program wrote, damage, other versions, and how little is read."""

from __future__ import annotations

import pytest

from kjms import MessageFormatException, Queue, Topic
from kjms.mapping import KafkaRecord, decode, encode
from kjms.message import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from kjms.message._reading import OWN_VALUE

NOW = 1_750_000_000_000


class TestForeignRecords:
    """Records without a kjms header."""

    @pytest.mark.requirement("JMS-3.11.4-3", "JMS-3.11.4-4", "NET-152", "NEV-18", "NEV-135", "NEV-136")
    @pytest.mark.parametrize(
        ("value", "kind", "body"),
        [
            (b"hello", TextMessage, "hello"),
            (b"", TextMessage, ""),
            ('{"name": "Größe"}\r\n\t'.encode(), TextMessage, '{"name": "Größe"}\r\n\t'),
            (None, TextMessage, None),
            (b"\x00\x00\x00\x00\x05ab", BytesMessage, b"\x00\x00\x00\x00\x05ab"),  # a schema registry's framing
            (b"gr\xfcn", BytesMessage, b"gr\xfcn"),
            (b"\x08\x96\x01", BytesMessage, b"\x08\x96\x01"),
            (b"\x1b[0m", BytesMessage, b"\x1b[0m"),
        ],
    )
    def test_the_value_is_text_or_bytes(self, value: bytes, kind: type[Message], body: object, read) -> None:
        """UTF-8 without control characters is text, all else bytes; no value is a text message without text."""
        message = read(value)
        assert type(message) is kind
        assert message.get_body(object) == body
        assert message.damage == ()

    def test_the_fields_come_from_the_record(self, read) -> None:
        """The id from its coordinates, the timestamp from its own, the group from its key."""
        message = read(b"x", None, b"customer-7", NOW)
        assert message.jms_message_id == "ID:kafka-orders-3-7"
        assert message.jms_timestamp == message.jms_delivery_time == NOW
        assert message.get_string_property("JMSXGroupID") == "customer-7"
        assert (message.jms_delivery_mode, message.jms_priority, message.jms_expiration) == (2, 4, 0)
        assert message.jms_destination == Queue("orders")
        assert message.property_names() == ["JMSXGroupID", "JMSXDeliveryCount"]

    def test_headers_are_string_properties_whatever_they_are_called(self, read) -> None:
        """Names that no JMS program could set can be read, are listed, and survive being sent on."""
        message = read(b"x", [("content-type", b"text/plain"), ("region", b"EU"), ("none", None), ("raw", b"\xff")])
        assert message.get_string_property("content-type") == "text/plain"
        assert message.selector_value("region") == "EU"
        assert message.property_exists("none")
        assert message.get_string_property("raw") == "\ufffd"
        assert message.property_names()[:4] == ["content-type", "region", "none", "raw"]
        assert ("content-type", b"text/plain") in encode(message).headers
        assert message.damage == (r"property 'raw' reads as a string: b'\xff' (bytes) is no UTF-8 text",)

    def test_jms_headers_count_without_the_kjms_header(self, read) -> None:
        """Any Kafka program can write JMS header fields by name."""
        message = read(
            b"x", [("JMSCorrelationID", b"42"), ("JMSReplyTo", b"topic://replies"), ("JMSTimestamp", b"5")], None, NOW
        )
        assert message.jms_correlation_id == "42"
        assert message.jms_reply_to == Topic("replies")
        assert message.jms_timestamp == 5
        assert message.property_names() == ["JMSXDeliveryCount"]

    @pytest.mark.requirement("NET-210")
    def test_jmsx_properties_of_later_versions_can_be_read(self, read) -> None:
        """A name that JMS has not defined yet is read like any other."""
        message = read(b"x", [("JMSXNew", b"1"), ("JMSXGroupSeq", b"3")])
        assert message.get_string_property("JMSXNew") == "1"
        assert message.properties["JMSXGroupSeq"] == 3

    def test_a_key_that_is_no_text_is_no_group(self, read) -> None:
        """And a JMSXGroupID header wins over the key."""
        assert read(b"x", None, b"\xff").property_names() == ["JMSXDeliveryCount"]
        assert read(b"x", [("JMSXGroupID", b"header")], b"key").properties["JMSXGroupID"] == "header"

    def test_a_record_without_a_timestamp_has_none(self, read) -> None:
        """It is -1 in Kafka."""
        assert read(b"x", None, None, -1).jms_timestamp == 0


class TestDamage:
    """What cannot be read is reported, and the rest is read."""

    @pytest.mark.parametrize(
        ("headers", "field", "value"),
        [
            ([("JMSPriority", b"high")], "jms_priority", 4),
            ([("JMSPriority", b"10")], "jms_priority", 4),
            ([("JMSDeliveryMode", b"3")], "jms_delivery_mode", 2),
            ([("JMSExpiration", b"soon")], "jms_expiration", 0),
            ([("JMSExpiration", b"9" * 30)], "jms_expiration", 0),
            ([("JMSTimestamp", b"1_0")], "jms_timestamp", 0),
            ([("JMSTimestamp", b"7"), ("JMSDeliveryTime", b"")], "jms_delivery_time", 7),
            ([("JMSReplyTo", b"orders")], "jms_reply_to", None),
            ([("JMSReplyTo", b"queue://")], "jms_reply_to", None),
            ([("JMSDestination", b"nowhere")], "jms_destination", Queue("orders")),
            ([("JMSType", b"gr\xfcn")], "jms_type", "gr\ufffdn"),
            ([("JMSMessageID", b"ID:\xff")], "jms_message_id", "ID:\ufffd"),
            ([("JMSCorrelationID", b"\xff")], "jms_correlation_id", "\ufffd"),
        ],
    )
    def test_a_damaged_field_has_its_default(self, headers: list, field: str, value: object, read) -> None:
        """Numbers and destinations read as if they were not there, text with U+FFFD for what is no UTF-8."""
        for first in (True, False):
            message = read(b"x", [("kjms", b"1;text"), *headers])
            if first:
                assert getattr(message, field) == value
            (note,) = message.damage
            assert headers[-1][0] in note
            assert getattr(message, field) == value

    @pytest.mark.parametrize(
        ("kind", "text"),
        [("int", "1.5"), ("int", "2147483648"), ("byte", "200"), ("long", "1_0"), ("double", "1,5"), ("float", ""),
         ("boolean", "TRUE"), ("short", " 1"), ("double", "--1"), ("double", "1_0.5"), ("double", "infinity"),
         ("long", "9223372036854775808"), ("long", "-9223372036854775809"), ("short", "-32769"), ("byte", "128")],
    )  # fmt: skip
    def test_a_property_that_is_not_of_its_type_is_a_string(self, kind: str, text: str, read) -> None:
        """Its text can be read; other properties are not touched."""
        message = read(b"x", [("kjms", f"1;text;p={kind},q=int".encode()), ("p", text.encode()), ("q", b"1")])
        assert message.selector_value("p") == text
        assert (message.property_type("p"), message.property_type("q")) == ("string", "int")
        assert message.get_string_property("p") == text
        assert message.get_int_property("q") == 1
        assert len(message.damage) == 1
        assert encode(message).headers[0] == ("kjms", b"1;text;q=int")
        fresh = read(b"x", [("kjms", f"1;text;p={kind},q=int".encode()), ("p", b"1"), ("q", b"1")])
        assert fresh.property_type("p") == (kind if kind != "boolean" else "string")

    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [("int", "+5", 5), ("int", "005", 5), ("double", "1e3", 1000.0), ("double", " 1", 1.0), ("float", "0.10", 0.1),
         ("long", "-0", 0)],
    )  # fmt: skip
    def test_numbers_of_other_writers_are_read_as_java_reads_them(self, kind, text, value, read) -> None:
        """A form that kjms does not write but Java reads is no damage."""
        message = read(b"x", [("kjms", f"1;text;p={kind}".encode()), ("p", text.encode())])
        assert message.get_object_property("p") == pytest.approx(value)
        assert message.property_type("p") == kind
        assert message.damage == ()

    @pytest.mark.parametrize(("kind", "bits"), [("byte", 8), ("short", 16), ("int", 32), ("long", 64)])
    def test_the_least_and_the_largest_number_of_a_type(self, kind: str, bits: int, read) -> None:
        """Both are of the type."""
        least, largest = -(1 << bits - 1), (1 << bits - 1) - 1
        headers = [("kjms", f"1;text;p={kind},q={kind}".encode()), ("p", b"%d" % least), ("q", b"%d" % largest)]
        message = read(b"x", headers)
        assert (message.get_object_property("p"), message.get_object_property("q")) == (least, largest)
        assert (message.property_type("p"), message.damage) == (kind, ())

    @pytest.mark.parametrize(
        ("layout", "kind", "note"),
        [
            (b"2;text", TextMessage, "version 2"),
            (b"1;text;p=decimal", TextMessage, "'p=decimal'"),
            (b"1;text;p=bytes,=int,p", TextMessage, "'p=bytes'"),
            (b"1;weird", BytesMessage, "'weird'"),
            (b"1;", BytesMessage, "''"),
            (b"", TextMessage, "'kjms'"),
            (b"1", TextMessage, "'kjms'"),
            (b"one;text", TextMessage, "'kjms'"),
            (b"\xff;text", TextMessage, "'kjms'"),
        ],
    )
    def test_a_layout_header_of_another_kind(self, layout: bytes, kind: type, note: str, read) -> None:
        """A newer version is read as far as it is known; what is no layout header makes a record a foreign one."""
        message = read(b"x", [("kjms", layout), ("p", b"1")])
        assert type(message) is kind
        assert message.get_string_property("p") == "1"
        assert note in message.damage[0]
        assert message.get_body(object) == ("x" if kind is TextMessage else b"x")

    def test_more_fields_in_the_layout_header_are_for_later_versions(self, read) -> None:
        """What follows the types is left alone."""
        message = read(b"x", [("kjms", b"1;text;p=int;more;and more"), ("p", b"1")])
        assert message.properties["p"] == 1
        assert message.damage == ()

    @pytest.mark.parametrize("kind", ["map", "stream", "object"])
    @pytest.mark.parametrize("value", [b"\x02", b"\xff" * 20, b"\x02\x02a\x00", b"\x00\x00", b"\x30"])
    def test_a_body_that_cannot_be_read_raises_when_it_is_read(self, kind: str, value: bytes, read) -> None:
        """Header fields and properties can be read; the body raises each time; clear_body helps."""
        message = read(value, [("kjms", f"1;{kind}".encode()), ("p", b"1")])
        assert message.get_string_property("p") == "1"
        reading = {
            "map": MapMessage.names,
            "stream": StreamMessage.read_object,
            "object": lambda message: message.object,
        }[kind]
        for _ in range(2):
            with pytest.raises(MessageFormatException, match=r"wire-format\.md"):
                reading(message)
        assert len(message.damage) == 1
        assert encode(message).value == value
        message.clear_body()
        assert message.damage == ()

    def test_text_that_is_not_utf_8_is_read_with_marks(self, read) -> None:
        """U+FFFD stands for what is none, and the bytes stay unchanged."""
        message = read(b"gr\xfcn", [("kjms", b"1;text")])
        assert message.text == "gr\ufffdn"
        assert message.damage == ("the text is not UTF-8 throughout; U+FFFD stands for what is not",)
        assert encode(message).value == b"gr\xfcn"

    @pytest.mark.parametrize(
        ("kind", "body"), [("map", {}), ("bytes", b""), ("text", None), ("object", None), ("message", None)]
    )
    def test_a_record_without_a_value_has_an_empty_body(self, kind: str, body: object, read) -> None:
        """Such as a tombstone."""
        assert read(None, [("kjms", f"1;{kind}".encode())]).get_body(object) == body

    def test_of_headers_with_one_name_the_last_counts(self, read) -> None:
        """As in Kafka's lastHeader; each such name is reported once."""
        message = read(b"x", [("kjms", b"1;text;p=int"), ("p", b"1"), ("p", b"2"), ("p", b"3"), ("q", b"x")])
        assert message.get_int_property("p") == 3
        assert message.damage == ("header 'p' stands in the record more than once; the last one counts",)

    @pytest.mark.timeout(30)  # in time that grows with the square it would take many minutes
    def test_as_many_headers_as_fit_into_a_record(self, read) -> None:
        """They are read in time that grows as they do, though one stands there twice."""
        names = [f"a{number}" for number in range(200_000)]
        message = read(b"x", [(name, b"1") for name in (*names, "a0")])
        assert message.damage == ("header 'a0' stands in the record more than once; the last one counts",)

    @pytest.mark.timeout(30)
    def test_as_many_damaged_properties_as_fit_into_a_record(self, read) -> None:
        """They are read in time that grows as they do."""
        names = [f"a{number}" for number in range(100_000)]
        layout = b"1;text;" + ",".join(f"{name}=int" for name in names).encode()
        message = read(b"x", [("kjms", layout), *((name, b"x") for name in names)])
        assert len(dict(message.properties)) == len(names) + 1
        assert message.property_type(names[-1]) == "string"

    @pytest.mark.timeout(30)
    @pytest.mark.parametrize("kind", ["int", "long", "float", "double"])
    def test_as_many_digits_as_fit_into_a_record(self, kind: str, read) -> None:
        """What is no number is found to be none in time that grows with its length."""
        for data in (b"1" * 1_000_000 + b"x", b"." + b"1" * 1_000_000 + b"x", b"0x" + b"a" * 1_000_000):
            message = read(b"x", [("kjms", b"1;text;p=" + kind.encode()), ("p", data)])
            assert message.property_type("p") == "string"

    def test_the_account_of_the_damage_is_bounded(self, read) -> None:
        """A record of nothing but damage does not make a log line of a megabyte."""
        many = [f"a{number}" for number in range(3_000)]
        for headers in (
            [("kjms", b"1;text;" + b"?," * 3_000)],
            [(name, b"1") for name in many * 2],
            [("kjms", b"1;text;" + ",".join(f"{name}=int" for name in many).encode()), *((n, b"x") for n in many)],
        ):
            assert 50 < len(read(b"x", headers).damage) <= 200

    def test_headers_that_the_client_cannot_read(self) -> None:
        """confluent-kafka raises UnicodeDecodeError for a name that is no UTF-8: the body is still delivered."""

        class Broken:
            def headers(self):
                return [(b"\xff".decode(), b"x")]

            def value(self) -> bytes:
                return b"hello"

            def key(self) -> None:
                return None

            def timestamp(self) -> tuple[int, int]:
                return 0, -1

            topic = partition = offset = key

        message = decode(Broken(), Queue("orders"))  # type: ignore[arg-type]
        assert message.get_body(str) == "hello"
        assert "UnicodeDecodeError" in message.damage[0]

    def test_damage_shows_no_body(self, read) -> None:
        """It is for logs."""
        message = read(b"secret\xff", [("kjms", b"1;map")])
        assert "secret" not in "".join(message.damage)


class TestLayout:
    """What `encode` writes, where the round trip does not show it."""

    def test_nothing_is_written_that_is_a_default(self) -> None:
        """A message as a send leaves it: id and time."""
        message = TextMessage("x")
        message._stamp("ID:1", NOW, Queue("q"), 2, 4, 0, NOW)
        assert encode(message) == KafkaRecord(
            None, b"x", [("kjms", b"1;text"), ("JMSMessageID", b"ID:1"), ("JMSTimestamp", b"%d" % NOW)], NOW
        )

    def test_the_group_is_the_key(self) -> None:
        """Kafka then keeps a message group in one partition."""
        message = Message()
        message.set_string_property("JMSXGroupID", "größe")
        assert encode(message).key == "größe".encode()
        message.set_string_property("JMSXGroupID", None)
        assert encode(message).key is None

    @pytest.mark.parametrize("is_read", [False, True])
    def test_a_group_of_another_type_is_a_key_all_the_same(self, is_read: bool, read) -> None:
        """A record may call its group an int; sent on, its key is bytes, whether the group was looked at or not."""
        message = read(b"x", [("kjms", b"1;text;JMSXGroupID=int"), ("JMSXGroupID", b"7")])
        if is_read:
            assert message.get_string_property("JMSXGroupID") == "7"
        assert encode(message).key == b"7"

    def test_a_property_called_kjms_is_no_layout(self, read) -> None:
        """The first kjms header is the layout, the second the property, also where the property was set first."""
        message = TextMessage("x")
        message.set_int_property("kjms", 5)
        record = encode(message)
        assert record.headers == [("kjms", b"1;text;kjms=int"), ("kjms", b"5")]
        arrived = read(record.value, record.headers)
        assert arrived.get_int_property("kjms") == 5
        assert arrived.damage == ()
        again = read(b"x", [*record.headers, ("kjms", b"6")])
        assert again.get_int_property("kjms") == 6
        assert again.damage == ("header 'kjms' stands in the record more than once; the last one counts",)

    def test_what_addresses_a_temporary_destination_is_no_property(self, read) -> None:
        """Nor is what a delayed message carries."""
        headers = [("kjms", b"1;text"), ("kjms-to", b"5"), ("kjms-delayed", b"1;0;0"), ("a", b"1")]
        assert read(b"x", headers).property_names() == ["a", "JMSXDeliveryCount"]

    def test_a_moved_message_names_its_destination(self, read) -> None:
        """A JMSDestination header is honoured where there is one."""
        assert read(b"x", [("kjms", b"1;text"), ("JMSDestination", b"topic://first")]).jms_destination == Topic("first")

    def test_an_applications_subclass_is_written_as_its_base(self, read) -> None:
        """The record says what JMS type it is."""

        class Mine(MapMessage):
            pass

        message = Mine({"a": 1})
        record = encode(message)
        assert record.headers == [("kjms", b"1;map")]
        assert read(record.value, record.headers).get_body(dict) == {"a": 1}


def test_what_the_kafka_client_gives_is_a_record() -> None:
    """confluent_kafka's own Message has all that `decode` asks for."""
    client = pytest.importorskip("confluent_kafka")
    given = {"topic": "t", "partition": 2, "offset": 9, "value": b"x", "timestamp": (1, NOW)}
    kjms = client.Message(**given, key=b"g", headers=[("kjms", b"1;text;p=int"), ("p", b"1"), ("none", None)])
    message = decode(kjms, Queue("orders"))
    assert message.get_body(str) == "x"
    assert dict(message.properties) == {"p": 1, "none": None, "JMSXDeliveryCount": 1}
    foreign = decode(client.Message(**given, key=b"g", headers=None), Queue("orders"))
    assert (foreign.jms_message_id, foreign.jms_timestamp) == ("ID:kafka-t-2-9", NOW)
    assert foreign.get_string_property("JMSXGroupID") == "g"


class TestLaziness:
    """A consumer that looks at one thing pays for one."""

    def test_one_property(self, read) -> None:
        """Others stay as they came."""
        message = read(b"x", [("kjms", b"1;text;a=int,b=int"), ("a", b"1"), ("b", b"2")])
        assert message.selector_value("a") == 1
        assert message._properties == {"a": 1, "b": b"2"}

    def test_the_body(self, read) -> None:
        """Neither properties nor a send that passes the message on read it."""
        message = read(b"\xff", [("kjms", b"1;map")])
        message.property_names()
        encode(message)
        assert message._value is not OWN_VALUE
        assert isinstance(message, MapMessage)

    def test_messages_of_one_program_share_their_layout(self, read) -> None:
        """And reading a damaged property of one does not change the others' types."""
        one, two = (read(b"x", [("kjms", b"1;text;shared=int"), ("shared", data)]) for data in (b"x", b"1"))
        assert one._reader is two._reader
        assert (one.property_type("shared"), two.property_type("shared")) == ("string", "int")

    def test_the_memory_for_layouts_is_bounded(self, read) -> None:
        """A program that makes up property names does not fill that of its consumers, nor its own."""
        from kjms.mapping import _decode, _encode

        for number in range(3_000):
            message = TextMessage()
            message.set_int_property(f"p{number}", 1)
            read(None, encode(message).headers).property_names()
        assert len(_decode._layouts) <= 1024
        assert len(_encode._layout_headers) <= 1024
        huge = b"1;text;" + b",".join(b"p%d=int" % number for number in range(100_000))
        assert read(b"x", [("kjms", huge), ("p7", b"7")]).get_int_property("p7") == 7
        assert max(len(data or b"") for data in _decode._layouts) < len(huge)


def test_empty_streams_and_objects_are_as_new_ones(read) -> None:
    """A null value under any body type is an empty body."""
    assert read(None, [("kjms", b"1;stream")])._body == []
    assert isinstance(read(None, [("kjms", b"1;object/java")]), ObjectMessage)
    assert isinstance(read(None, [("kjms", b"1;stream")]), StreamMessage)


@pytest.mark.parametrize(
    "layout", [None, b"1;text", b"1;text;JMSXDeliveryCount=int", b"1;text;JMSXDeliveryCount=double"]
)
@pytest.mark.parametrize("values", [[b"7"], [b"7", b"8"], [None]])
def test_the_delivery_count_is_the_deliverys(layout: bytes | None, values: list[bytes | None], read) -> None:
    """A header of that name is no property, however the message is read, and goes nowhere with it."""
    headers = [*([] if layout is None else [("kjms", layout)]), ("a", b"b")]
    headers += [("JMSXDeliveryCount", value) for value in values]
    message = read(b"x", headers)
    assert [message.properties["JMSXDeliveryCount"], message.get_object_property("JMSXDeliveryCount")] == [1, 1]
    assert dict(message.properties) == {"a": "b", "JMSXDeliveryCount": 1}
    assert message.property_names().count("JMSXDeliveryCount") == 1
    assert message.get_string_property("JMSXDeliveryCount") == "1"
    assert message.selector_value("JMSXDeliveryCount") == 1
    assert message.property_type("JMSXDeliveryCount") == "int"
    assert "JMSXDeliveryCount" not in dict(encode(message).headers)
    message.clear_properties()
    assert not message.property_exists("JMSXDeliveryCount")
    assert "JMSXDeliveryCount" not in dict(encode(message).headers)
