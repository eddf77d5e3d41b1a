"""Properties: names, values, read-only state, the mapping view, and those that JMS and kjms define."""

from __future__ import annotations

from collections.abc import MutableMapping

import pytest

from kjms import MessageFormatException, MessageNotWriteableException
from kjms.message import JMSX, BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage

SETTERS = {
    "boolean": True, "byte": 1, "short": 1, "int": 1, "long": 1, "float": 1.5, "double": 1.5, "string": "x",
    "object": "x",
}  # fmt: skip
PROVIDERS = [
    "JMSXUserID", "JMSXAppID", "JMSXDeliveryCount", "JMSXProducerTXID", "JMSXConsumerTXID", "JMSXRcvTimestamp",
    "JMSXState",
]  # fmt: skip


@pytest.mark.requirement("JMS-B.4.5.2-2", "NET-172", "NET-173")
@pytest.mark.parametrize(("kind", "value"), SETTERS.items())
@pytest.mark.parametrize("name", [None, "", 5, ["a"]])
def test_a_property_needs_a_name(kind: str, value: object, name: str) -> None:
    """Each setter raises ValueError, Java's IllegalArgumentException, for a name that is None, empty or no string."""
    with pytest.raises(ValueError, match="property name must not be empty"):
        getattr(Message(), f"set_{kind}_property")(name, value)


@pytest.mark.requirement("JMS-3.5.1-1", "NET-171")
@pytest.mark.parametrize("name", ["2nd", "a-b", "a b", "a.b", "NULL", "true", "Between", "escape", "a=b", "a;b", "a,b"])
def test_a_property_name_is_an_identifier(name: str) -> None:
    """A name that no selector could use is refused, each word that selectors reserve in any case."""
    with pytest.raises(MessageFormatException, match=r"§3\.5\.1"):
        Message().set_int_property(name, 1)


@pytest.mark.requirement("JMS-3.5.1-1", "NET-171")
@pytest.mark.parametrize("name", ["amount", "_x", "$x", "Größe", "nullable", "a2", "kjms"])
def test_any_identifier_is_a_property_name(name: str, received) -> None:
    """An identifier of any script names a property, the name of kjms's own header, too."""
    message = Message()
    message.set_int_property(name, 1)
    message.set_string_property("other", "x")
    assert received(message).get_int_property(name) == 1
    assert sorted(received(message).property_names()) == sorted([name, "other", "JMSXDeliveryCount"])


@pytest.mark.requirement("JMS-3.5.9-1", "NEV-25", "NEV-94", "NEV-97", "NET-209")
@pytest.mark.parametrize("name", [*PROVIDERS, "JMSXUnknown", "jmsxgroupid".upper(), "JMSXgroupid", "JMSFoo", "JMSType"])
def test_names_that_jms_keeps_are_not_the_applications(name: str) -> None:
    """JMSX names other than those that JMS gives to applications, in exactly their spelling, are refused."""
    with pytest.raises(MessageFormatException, match="reserved"):
        Message().set_string_property(name, "x")


@pytest.mark.requirement("JMS-3.5.10-1", "NEV-25", "NEV-99", "NEV-100", "NEV-101", "NET-220")
def test_the_providers_own_prefix_is_refused_and_others_are_not() -> None:
    """JMS_kjms names are kjms's; a message that another provider marked can be passed on."""
    message = Message()
    with pytest.raises(MessageFormatException, match="reserved"):
        message.set_string_property("JMS_kjms_cause", "x")
    message.set_string_property("JMS_IBM_Format", "MQSTR")
    assert message.get_string_property("JMS_IBM_Format") == "MQSTR"
    message._set_provider_property("JMS_kjms_cause", "string", "expired")
    assert message.get_string_property("JMS_kjms_cause") == "expired"


@pytest.mark.requirement("JMS-3.5.9-8", "JMS-3.5.9-9", "NEV-98", "NET-217", "NET-218")
def test_applications_set_the_message_group(received) -> None:
    """JMSXGroupID is a string, JMSXGroupSeq an int; both arrive."""
    message = Message()
    message.set_string_property("JMSXGroupID", "g1")
    message.set_int_property("JMSXGroupSeq", 1)
    arrived = received(message)
    assert arrived.get_string_property("JMSXGroupID") == "g1"
    assert arrived.get_int_property("JMSXGroupSeq") == 1
    for name, kind, value in (("JMSXGroupID", "int", 1), ("JMSXGroupSeq", "string", "1"), ("JMSXGroupSeq", "long", 1)):
        with pytest.raises(MessageFormatException, match="by definition"):
            getattr(message, f"set_{kind}_property")(name, value)
    message.properties["JMSXGroupID"] = None


@pytest.mark.requirement("JMS-3.5.9-14", "JMS-3.5.9-15", "NET-215", "NET-216")
def test_provider_properties_show_where_jms_says(received) -> None:
    """What the provider sets on send is seen by both sides, what it sets on receive by the consumer alone."""
    message = Message()
    message._set_provider_property("JMSXUserID", "string", "alice")
    arrived = received(message)
    arrived._set_provider_property("JMSXRcvTimestamp", "long", 5)
    assert message.get_string_property("JMSXUserID") == arrived.get_string_property("JMSXUserID") == "alice"
    assert arrived.get_long_property("JMSXRcvTimestamp") == 5
    assert not message.property_exists("JMSXRcvTimestamp")
    assert not message.property_exists("JMSXDeliveryCount")
    assert received(message).property_names() == ["JMSXUserID", "JMSXDeliveryCount"]


@pytest.mark.requirement("NET-6")
def test_the_names_that_jms_defines_are_constants() -> None:
    """Spelt as in table 3.3 of the specification."""
    names = {name: value for name, value in vars(JMSX).items() if name.isupper()}
    assert set(names.values()) == {*PROVIDERS, "JMSXGroupID", "JMSXGroupSeq"}
    assert (JMSX.USER_ID, JMSX.GROUP_ID, JMSX.RCV_TIMESTAMP) == ("JMSXUserID", "JMSXGroupID", "JMSXRcvTimestamp")


def test_the_delivery_count_is_the_engines(received) -> None:
    """JMSXDeliveryCount reads as int, long and string, and follows the count; it goes with the other properties."""
    message = received(Message(), 1)
    assert message.get_int_property("JMSXDeliveryCount") == message.get_long_property("JMSXDeliveryCount") == 1
    message._delivery_count = 3
    assert message.get_string_property("JMSXDeliveryCount") == "3"
    assert message.properties["JMSXDeliveryCount"] == message.selector_value("JMSXDeliveryCount") == 3
    assert message.property_type("JMSXDeliveryCount") == "int"
    with pytest.raises(MessageFormatException):
        message.get_short_property("JMSXDeliveryCount")
    message.clear_properties()
    assert message.property_names() == []
    assert message.jms_redelivered


@pytest.mark.requirement("JMS-3.5.2-1", "JMS-3.5.5-2", "NET-35", "NET-174", "NET-202", "NEV-87", "NEV-88", "NET-33")
@pytest.mark.parametrize("value", [b"x", bytearray(b"x"), [1], {"a": 1}, (1,), 1j, object(), 2**63])
def test_other_values_are_refused(value: object) -> None:
    """A value of no property type raises MessageFormatException, through each method."""
    message = Message()
    with pytest.raises(MessageFormatException):
        message.set_object_property("p", value)  # type: ignore[arg-type]
    with pytest.raises(MessageFormatException):
        message.properties["p"] = value  # type: ignore[assignment]
    assert not message.property_exists("p")


@pytest.mark.requirement("JMS-3.5.5-1", "JMS-3.5.5-3", "NET-199", "NET-200", "NET-201", "NEV-87", "NEV-89")
@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "boolean"), (1, "int"), (2**31, "long"), (-(2**31) - 1, "long"), (1.5, "double"), ("x", "string")],
)
def test_values_without_a_type_name_are_typed_by_their_python_type(value: object, kind: str, received) -> None:
    """set_object_property gives the type, and the conversions of that type hold."""
    message = Message()
    message.set_object_property("p", value)  # type: ignore[arg-type]
    same = Message()
    getattr(same, f"set_{kind}_property")("p", value)
    for either in (message, received(message), same):
        assert either.property_type("p") == kind
        assert either.get_object_property("p") == value
        assert type(either.get_object_property("p")) is type(value)
    with pytest.raises(MessageFormatException):
        same.get_byte_property("p")


@pytest.mark.requirement("NET-203")
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        *[("boolean", True), ("byte", -128), ("short", 300), ("int", 7), ("long", 7)],
        *[("float", 0.5), ("double", 0.5), ("string", "x")],
    ],
)
def test_get_object_property_returns_the_eight_types_and_no_other(kind: str, value: object, received) -> None:
    """It returns the value of each property type, None for a name that is not set, and nothing else can be in there."""
    message = Message()
    getattr(message, f"set_{kind}_property")("p", value)
    for either in (message, received(message)):
        found = either.get_object_property("p")
        assert (type(found), found) == (type(value), value)
        assert either.property_type("p") == kind
        assert either.get_object_property("never_set") is None
    for other in (b"x", [value], {"p": value}, 1j, object()):
        with pytest.raises(MessageFormatException):
            message.set_object_property("p", other)  # type: ignore[arg-type]
    assert message.get_object_property("p") == value


def test_each_type_is_kept(received) -> None:
    """A short is no int and a float no double, also after a journey."""
    message = Message()
    for kind, value in SETTERS.items():
        getattr(message, f"set_{kind}_property")(f"{kind}_", value)
    for either in (message, received(message)):
        assert {name: either.property_type(name) for name in message.property_names()} == {
            f"{kind}_": kind if kind != "object" else "string" for kind in SETTERS
        }
        assert either.property_type("never_set") is None


def test_a_property_that_is_set_again_has_its_new_type(received) -> None:
    """The type goes with the value, to and from string."""
    message = Message()
    for kind, value in (("int", 1), ("string", "x"), ("long", 2), ("object", "x"), ("object", None)):
        getattr(message, f"set_{kind}_property")("p", value)
        for either in (message, received(message)):
            assert either.property_type("p") == kind.replace("object", "string")
            assert either.get_object_property("p") == value


@pytest.mark.requirement("JMS-3.5.5-4", "JMS-3.5.8-1", "NET-206", "NET-207", "NEV-90")
def test_a_property_that_was_never_set_is_none() -> None:
    """get_object_property and get_string_property give None for it."""
    assert Message().get_object_property("p") is None
    assert Message().get_string_property("p") is None
    assert not Message().property_exists("p")


@pytest.mark.requirement("JMS-3.12-3")
def test_none_is_a_value(received) -> None:
    """A property that was set to None exists."""
    message = Message()
    message.set_object_property("p", None)
    for either in (message, received(message)):
        assert either.property_exists("p")
        assert either.get_object_property("p") is None
        assert either.properties["p"] is None


@pytest.mark.requirement("JMS-3.5.6-1", "NET-205", "JMS-3.5.6-2")
def test_names_are_those_of_the_properties(received) -> None:
    """property_names has each property and no header field."""
    message = TextMessage("x")
    message.jms_type, message.jms_correlation_id, message.jms_priority = "t", "c", 9
    message.set_int_property("a", 1)
    message.set_string_property("b", "x")
    assert message.property_names() == ["a", "b"]
    arrived = received(message)
    assert arrived.get_object_property("JMSType") is None
    assert arrived.property_type("JMSType") is None
    assert arrived.property_names() == ["a", "b", "JMSXDeliveryCount"]
    assert arrived.get_object_property("JMSType") is None
    assert arrived.jms_type == "t"


@pytest.mark.requirement("JMS-3.5.3-1", "NET-169", "NET-175", "NEV-83")
def test_properties_can_be_set_until_the_message_is_sent_and_travel_with_it(received) -> None:
    """What is set before a send arrives, whatever the body."""
    for message in (Message(), TextMessage("x"), BytesMessage(b"x"), MapMessage(), StreamMessage(), ObjectMessage()):
        message.set_int_property("a", 1)
        message.set_int_property("a", 2)
        assert received(message).get_int_property("a") == 2


@pytest.mark.requirement("JMS-3.5.3-2", "NET-176", "NET-177", "NEV-104", "NEV-84", "NEV-328")
@pytest.mark.parametrize(("kind", "value"), SETTERS.items())
def test_received_properties_are_read_only(kind: str, value: object, received) -> None:
    """Each setter raises MessageNotWriteableException on a received message."""
    with pytest.raises(MessageNotWriteableException, match="'p'"):
        getattr(received(Message()), f"set_{kind}_property")("p", value)


@pytest.mark.requirement("JMS-3.5.7-1", "JMS-3.5.7-3", "NET-179", "NEV-91", "NEV-92")
@pytest.mark.parametrize("is_received", [True, False])
def test_clear_properties_deletes_all_and_nothing_else(received, is_received: bool) -> None:
    """No property is left; body and header fields are what they were, and a received body is still read-only."""
    message = TextMessage("body")
    message.set_int_property("a", 1)
    message.set_string_property("b", "x")
    message.jms_type = "t"
    if is_received:
        message = received(message)
    message.clear_properties()
    assert message.property_names() == []
    assert not message.property_exists("a")
    assert (message.text, message.jms_type) == ("body", "t")
    if is_received:
        with pytest.raises(MessageNotWriteableException):
            message.text = "x"
    else:
        message.text = "x"
        assert message.text == "x"


@pytest.mark.requirement("JMS-3.5.7-2", "NET-178", "NEV-85", "NEV-106")
def test_clear_properties_makes_those_of_a_received_message_writable(received) -> None:
    """After it new properties can be set and read, as on a new message; before it they cannot be set."""
    message = TextMessage("body")
    message.set_int_property("a", 1)
    arrived = received(message)
    with pytest.raises(MessageNotWriteableException):
        arrived.set_string_property("a", "new")
    assert arrived.get_int_property("a") == 1
    for either in (arrived, message):
        either.clear_properties()
        either.set_string_property("a", "new")
        assert either.get_string_property("a") == "new"
    assert received(arrived).get_string_property("a") == "new"


@pytest.mark.requirement("JMS-3.5.7-4", "NEV-93")
def test_jms_has_no_call_to_remove_a_property() -> None:
    """Message has none; the mapping view, which JMS does not know, can delete as mappings do."""
    assert not [name for name in dir(Message) if "remove" in name or "delete" in name]


class TestView:
    """`Message.properties`."""

    def test_it_is_a_mutable_mapping_of_plain_values(self, received) -> None:
        """It reads, sets, counts and deletes like a dict."""
        message = Message()
        assert isinstance(message.properties, MutableMapping)
        message.properties.update({"a": 1, "b": "x", "c": None})
        del message.properties["b"]
        assert dict(message.properties) == {"a": 1, "c": None}
        assert "b" not in message.properties
        assert dict(received(message).properties) == {"a": 1, "c": None, "JMSXDeliveryCount": 1}
        message.properties.clear()
        assert len(message.properties) == 0
        with pytest.raises(KeyError):
            message.properties["a"]

    def test_deleting_a_typed_property_forgets_its_type(self, received) -> None:
        """What is set later is not read with the old type."""
        message = Message()
        message.set_int_property("a", 1)
        del message.properties["a"]
        message.set_string_property("a", "x")
        assert received(message).get_string_property("a") == "x"

    def test_it_is_read_only_where_the_properties_are(self, received) -> None:
        """Setting and deleting raise on a received message; clear() does what clear_properties() does."""
        message = Message()
        message.set_int_property("a", 1)
        view = received(message).properties
        with pytest.raises(MessageNotWriteableException):
            view["b"] = 1
        with pytest.raises(MessageNotWriteableException):
            del view["a"]
        view.clear()
        view["b"] = 1
        assert dict(view) == {"b": 1}

    def test_its_repr_has_names_and_no_values(self) -> None:
        """A property may hold what is not for logs."""
        message = Message()
        message.properties["token"] = "s3cr3t"
        assert "token" in repr(message.properties)
        assert "s3cr3t" not in repr(message.properties)


class TestSelectorValue:
    """`Message.selector_value`."""

    @pytest.fixture(params=["new", "received"])
    def message(self, request: pytest.FixtureRequest, received) -> Message:
        message = TextMessage("x")
        message._stamp("ID:1", 5, None, 1, 7, 0, 0)  # type: ignore[arg-type]
        message.jms_type, message.jms_correlation_id = "t", "c"
        message.set_int_property("n", 1)
        message.set_string_property("s", "x")
        message.set_boolean_property("b", False)
        message.set_float_property("f", 0.5)
        message.set_string_property("none", None)
        return message if request.param == "new" else received(message)

    def test_it_gives_properties_in_their_own_types(self, message: Message) -> None:
        """No conversion takes place; what is None or missing is None."""
        values = {name: message.selector_value(name) for name in ("n", "s", "b", "f", "none", "never_set")}
        assert values == {"n": 1, "s": "x", "b": False, "f": 0.5, "none": None, "never_set": None}
        assert values["b"] is False

    def test_it_gives_the_six_header_fields_that_selectors_may_use(self, message: Message) -> None:
        """JMSDeliveryMode is a word; other header fields are not there."""
        assert message.selector_value("JMSDeliveryMode") == "NON_PERSISTENT"
        assert message.selector_value("JMSPriority") == 7
        assert message.selector_value("JMSMessageID") == "ID:1"
        assert message.selector_value("JMSTimestamp") == 5
        assert message.selector_value("JMSCorrelationID") == "c"
        assert message.selector_value("JMSType") == "t"
        assert message.selector_value("JMSReplyTo") is message.selector_value("JMSDestination") is None
        assert message.selector_value("JMSExpiration") is None

    def test_header_fields_without_a_value_are_none(self, received) -> None:
        """JMSMessageID, JMSCorrelationID and JMSType may be missing; the mode has its default."""
        for message in (Message(), received(Message())):
            assert message.selector_value("JMSDeliveryMode") == "PERSISTENT"
            for name in ("JMSMessageID", "JMSCorrelationID", "JMSType"):
                assert message.selector_value(name) is None


def test_the_memory_for_names_is_bounded() -> None:
    """A program that makes up property names does not fill memory."""
    from kjms.message import _property_names

    for number in range(10_000):
        Message().set_int_property(f"name_{number}", number)
    assert len(_property_names.good_names) <= 4096
