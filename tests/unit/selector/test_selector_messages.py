"""Selectors on the messages of kjms: as they were set, and as they come back from a record."""

from __future__ import annotations

import pytest
from selector_cases import RULES, jms_type

from kjms import Queue
from kjms.identifiers import is_identifier
from kjms.mapping import decode, encode
from kjms.message import BytesMessage, MapMessage, StreamMessage, TextMessage
from kjms.selector import parse_selector


class Record:
    """What a Kafka consumer hands over, of what was produced."""

    def __init__(self, produced):
        self._produced = produced

    def headers(self):
        return self._produced.headers

    def value(self):
        return self._produced.value

    def key(self):
        return self._produced.key

    def timestamp(self):
        return 1, self._produced.timestamp

    def topic(self):
        return "orders"

    def partition(self):
        return 0

    def offset(self):
        return 0


def received(message):
    return decode(Record(encode(message)), Queue("orders"))


def can_be_set(name, value):
    """Whether an application may set the property."""
    return is_identifier(name) and not name.startswith("JMS") and value is not None


CASES = [
    pytest.param(*case, id=f"{rule.requirements[0]}-{number}")
    for rule in RULES
    for number, case in enumerate(rule.cases, 1)
    if all(can_be_set(*item) for item in case[1].items())
]


@pytest.mark.parametrize(("text", "properties", "expected"), CASES)
@pytest.mark.requirement("JMS-3.8.1.1-18", "NET-252")
def test_a_selector_says_the_same_of_a_message_before_and_after_its_journey(text, properties, expected):
    """What a property was set as is what a selector sees, at the sender's and at the receiver's."""
    message = TextMessage("body")
    for name, value in properties.items():
        plain = value[1] if isinstance(value, tuple) else value
        getattr(message, f"set_{jms_type(value)}_property")(name, plain)
    selector = parse_selector(text)
    assert selector.evaluate(message) is expected
    assert selector.evaluate(received(message)) is expected
    assert selector.matches(received(message)) is (expected is True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("JMSDeliveryMode = 'PERSISTENT'", False),
        ("JMSDeliveryMode = 'NON_PERSISTENT'", True),
        ("JMSPriority = 7", True),
        ("JMSPriority * 2 = 14", True),
        ("JMSTimestamp = 1700000000000", True),
        ("JMSTimestamp + 9223372036854775807 < 0", True),
        ("JMSMessageID = 'ID:1'", True),
        ("JMSCorrelationID LIKE 'c%'", True),
        ("JMSType = 'car'", True),
        ("jmsType = 'car'", None),
    ],
)
@pytest.mark.requirement("JMS-3.8.1.1-22", "JMS-3.8.1.3-1", "NET-256", "NET-303")
def test_the_header_fields_of_a_message(text, expected):
    """A selector sees the six header fields, JMSDeliveryMode as a word."""
    message = TextMessage("body")
    message.jms_delivery_mode = 1
    message.jms_priority = 7
    message.jms_timestamp = 1_700_000_000_000
    message.jms_message_id = "ID:1"
    message.jms_correlation_id = "c-1"
    message.jms_type = "car"
    assert parse_selector(text).evaluate(message) is expected
    assert parse_selector(text).evaluate(received(message)) is expected


@pytest.mark.parametrize("name", ["JMSCorrelationID", "JMSType", "JMSMessageID"])
@pytest.mark.requirement("JMS-3.8.1.1-23", "NET-257")
def test_a_header_field_without_a_value_is_null(name):
    """JMSMessageID, JMSCorrelationID and JMSType are NULL where they are null."""
    message = TextMessage("body")
    assert parse_selector(f"{name} IS NULL").matches(message)
    assert parse_selector(f"{name} = 'x'").evaluate(message) is None


@pytest.mark.requirement("JMS-3.8.1-2", "NET-228")
def test_a_selector_cannot_see_the_body():
    """No name leads to a value in the body of a message, whatever its kind."""
    text, data, entries, stream = TextMessage("text"), BytesMessage(), MapMessage(), StreamMessage()
    data.write_utf("text")
    entries.set_string("text", "text")
    entries.set_int("n", 1)
    stream.write_string("text")
    selector = parse_selector("text IS NULL AND n IS NULL AND body IS NULL AND value IS NULL AND _body IS NULL")
    for message in (text, data, entries, stream):
        assert selector.matches(message)
        assert selector.matches(received(message))


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("a > 3", ("a",)),
        ("3 = a", ("a",)),
        ("a = b", ()),
        ("a + 1 = b", ("b", "a")),
        ("-a < b", ("b", "a")),
        ("a BETWEEN 1 AND b", ("a", "b")),
        ("a = '3' AND b IN ('4') AND c LIKE '5' AND d IS NULL AND e", ()),
    ],
)
def test_the_names_that_a_selector_takes_for_numbers(selector, names):
    """They are compared with a number or with the result of a calculation, or calculated with."""
    assert parse_selector(selector).numeric == names


@pytest.mark.parametrize(
    ("value", "found"),
    [("3", "a"), ("-3.5e10", "a"), (".5", "a"), ("7.", "a"), ("", None), ("3 kg", None), ("nan", None), (3, None)],
)
def test_a_number_that_is_a_string(value, found):
    """It is found where the selector takes it for a number; all other values, and no value, are none."""
    message = TextMessage()
    message.set_object_property("a", value)
    message.set_string_property("b", "3")
    assert parse_selector("a > 3 AND b = '3'").number_as_text(message) == found
    assert parse_selector("missing > 3").number_as_text(message) is None
