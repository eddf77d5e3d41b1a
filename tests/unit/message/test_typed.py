"""Bodies of a program's own types: what is sent as JSON, what JSON, maps and objects become, and what errors say."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import math
import sys
import types
import typing
import uuid
from collections.abc import Callable
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import annotated_types
import attrs
import msgspec
import pydantic
import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st

from kjms import BodyConversionException, MessageFormatException, MessageNotWriteableException, Queue
from kjms.client.creating import message_of
from kjms.mapping import encode
from kjms.message import (
    BytesMessage,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    register_codec,
    unregister_codec,
)

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@dataclasses.dataclass
class Line:
    item: str
    count: int = 1


@dataclasses.dataclass
class Everything:
    text: str
    number: int
    real: float
    flag: bool
    data: bytes
    at: datetime.datetime
    day: datetime.date
    hour: datetime.time
    took: datetime.timedelta
    price: decimal.Decimal
    key: uuid.UUID
    colour: Colour
    size: Size
    maybe: int | None
    lines: list[Line]
    stock: dict[str, Line]
    pair: tuple[int, str]
    tags: frozenset[str]
    parent: Everything | None = None


class OrderDict(TypedDict):
    item: str
    count: typing_extensions.NotRequired[int]


class OtherDict(typing_extensions.TypedDict):
    item: str


class OrderTuple(NamedTuple):
    item: str
    count: int = 1


@attrs.define
class OrderAttrs:
    item: str
    count: int = attrs.field(default=1, validator=attrs.validators.gt(0))


class OrderStruct(msgspec.Struct):
    item: str
    count: int = 1


class OrderModel(pydantic.BaseModel):
    item: str
    count: int = pydantic.Field(default=1, alias="number")
    lines: list[Line] = []


@pydantic.dataclasses.dataclass
class OrderPydantic:
    item: str
    count: int = pydantic.Field(default=1, gt=0)


@dataclasses.dataclass
class HoldsModel:
    order: OrderModel


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


@dataclasses.dataclass
class Created:
    item: str
    kind: Literal["created"] = "created"


@attrs.define
class Cancelled:
    reason: str
    kind: Literal["cancelled"] = "cancelled"


class CreatedStruct(msgspec.Struct, tag=True):
    item: str


class CancelledStruct(msgspec.Struct, tag=True):
    reason: str


class CreatedModel(pydantic.BaseModel):
    kind: Literal["created"] = "created"
    item: str


class CancelledModel(pydantic.BaseModel):
    kind: Literal["cancelled"] = "cancelled"
    reason: str


@dataclasses.dataclass
class Checked:
    count: int

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"{self.count} is not enough")


class CheckedModel(pydantic.BaseModel):
    count: int

    @pydantic.field_validator("count")
    @classmethod
    def check(cls, count: int) -> int:
        if count < 1:
            raise ValueError(f"{count} is not enough")
        return count


class Plain:
    """A class without fields."""


@dataclasses.dataclass
class HoldsPlain:
    plain: Plain


VALUES: list[object] = [
    Line("pen", 3),
    Line("Grüße \u2028 😀"),
    OrderTuple("pen", 3),
    OrderAttrs("pen", 3),
    OrderStruct("pen", 3),
    OrderModel(item="pen", number=3, lines=[Line("ink")]),
    OrderPydantic("pen", 3),
    HoldsModel(OrderModel(item="pen", number=3)),
    Checked(3),
    CreatedStruct("pen"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_an_object_with_fields_is_sent_as_json_and_read_back(value: Any) -> None:
    """The message is a TextMessage, whose content type says what its text is; bytes of the text serve as well."""
    message = message_of(value)
    assert type(message) is TextMessage
    assert message.properties["JMS_kjms_ContentType"] == "application/json"
    assert message.jms_type is None
    assert message.get_body(type(value)) == value
    assert type(message.get_body(type(value))) is type(value)
    text = message.get_body(str)
    assert text is not None
    assert BytesMessage(text.encode()).get_body(type(value)) == value
    assert message.is_body_assignable_to(type(value))
    assert message.is_body_assignable_to(str)
    assert not message.is_body_assignable_to(dict)


def test_the_record_of_an_order() -> None:
    """The value is the JSON, and a header says so: any Kafka client can read it."""
    record = encode(message_of(Line("pen", 3)))
    assert record.value == b'{"item":"pen","count":3}'
    assert record.headers == [("kjms", b"1;text"), ("JMS_kjms_ContentType", b"application/json")]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("pen", TextMessage),
        (b"pen", BytesMessage),
        ({"item": "pen"}, MapMessage),
        ({"items": ["pen"]}, ObjectMessage),
        (["pen"], ObjectMessage),
        (None, Message),
    ],
)
def test_plain_values_are_sent_as_before(value: object, kind: type[Message]) -> None:
    """No content type, and the kinds that the simplified API has for them."""
    message = message_of(value)
    assert type(message) is kind
    assert "JMS_kjms_ContentType" not in message.properties


def test_a_registered_codec_comes_first() -> None:
    """An object whose class has a codec is the body of an ObjectMessage, which gives the object itself."""
    register_codec("line", Line, lambda line: line.item.encode(), lambda data: Line(data.decode(), 7))
    try:
        message = message_of(Line("pen"))
        assert type(message) is ObjectMessage
        assert message.get_body(Line) == Line("pen", 7)
    finally:
        unregister_codec("line")


@pytest.mark.parametrize(
    ("type_", "body", "expected"),
    [
        (Line, {"item": "pen", "count": 3}, Line("pen", 3)),
        (OrderDict, {"item": "pen"}, {"item": "pen"}),
        (OtherDict, {"item": "pen"}, {"item": "pen"}),
        (OrderStruct, {"item": "pen"}, OrderStruct("pen")),
        (OrderAttrs, {"item": "pen"}, OrderAttrs("pen")),
        (OrderModel, {"item": "pen"}, OrderModel(item="pen")),
        (OrderTuple, ["pen", 2], OrderTuple("pen", 2)),
        (Box[Line], {"content": {"item": "pen"}}, Box(Line("pen"))),
        (Created | Cancelled, {"kind": "cancelled", "reason": "late"}, Cancelled("late")),
        (list[Line], [{"item": "pen"}], [Line("pen")]),
        (dict[int, str], {"1": "pen"}, {1: "pen"}),
        (datetime.date, "2026-02-28", datetime.date(2026, 2, 28)),
    ],
)
def test_a_map_and_an_object_become_types_too(type_: Any, body: Any, expected: object) -> None:
    """The entries of a MapMessage, and plain objects, are converted as their JSON would be."""
    message = MapMessage(body) if type_ in {Line, OrderDict, OtherDict} else ObjectMessage(body)
    if isinstance(body, str):
        message = TextMessage(f'"{body}"')
    assert message.get_body(type_) == expected


def test_bytes_of_a_map_are_bytes() -> None:
    """JSON has base64 for them; a MapMessage has bytes."""
    assert MapMessage({"content": b"\xff"}).get_body(Box[bytes]) == Box(b"\xff")
    message = message_of(Box(b"\xff"))
    assert (message.get_body(str), message.get_body(Box[bytes])) == ('{"content":"/w=="}', Box(b"\xff"))


aware = st.datetimes(timezones=st.just(datetime.timezone.utc)) | st.datetimes()
finite = st.floats(allow_nan=False, allow_infinity=False)
lines = st.builds(Line, st.text(), st.integers())
everything: st.SearchStrategy[Everything] = st.deferred(
    lambda: st.builds(
        Everything,
        text=st.text(),
        number=st.integers(-(2**63), 2**64 - 1),
        real=finite,
        flag=st.booleans(),
        data=st.binary(),
        at=aware,
        day=st.dates(),
        hour=st.times(),
        took=st.timedeltas(datetime.timedelta(-10_000), datetime.timedelta(10_000)),
        price=st.decimals(allow_nan=False, allow_infinity=False),
        key=st.uuids(),
        colour=st.sampled_from(Colour),
        size=st.sampled_from(Size),
        maybe=st.none() | st.integers(-5, 5),
        lines=st.lists(lines, max_size=3),
        stock=st.dictionaries(st.text(), lines, max_size=3),
        pair=st.tuples(st.integers(-5, 5), st.text()),
        tags=st.frozensets(st.text(), max_size=3),
        parent=st.none() | everything,
    )
)


@settings(max_examples=30)
@given(everything)
def test_each_value_comes_back_as_it_was(value: Everything) -> None:
    """All types of fields survive JSON, through the record that Kafka keeps."""
    record = encode(message_of(value))
    assert record.value is not None
    assert TextMessage(record.value.decode()).get_body(Everything) == value


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | finite | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_what_is_set_is_what_is_read(value: Any) -> None:
    """`set_body` and `get_body` are inverse; a str is the text itself, and None is no text."""
    message = TextMessage()
    message.set_body(value)
    assert message.get_body(str if isinstance(value, str) else Any) == value
    assert ("JMS_kjms_ContentType" in message.properties) == (value is not None and not isinstance(value, str))


SECRET = "topsecret"  # what a body holds, and no error may show


@given(
    json_values.map(
        lambda value: value if isinstance(value, dict) else {"item": value, "count": SECRET, SECRET: [value]}
    ),
    st.sampled_from(
        [Line, OrderStruct, OrderModel, OrderPydantic, Everything, dict[str, int], dict[int, Line], Created | Cancelled,
         CreatedStruct | CancelledStruct,
         Annotated[CreatedModel | CancelledModel, pydantic.Field(discriminator="kind")]]
    ),
)  # fmt: skip
def test_no_error_shows_the_body(value: Any, type_: Any) -> None:
    """Whatever does not fit: the error names places and rules, and so do those that it is linked with."""
    message = TextMessage()
    message.set_body({**value, "kind": SECRET, "type": SECRET, "item": [SECRET]})
    with pytest.raises(BodyConversionException) as raised:
        message.get_body(type_)
    error: BaseException | None = raised.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    ("type_", "text", "path", "rule"),
    [
        (Line, '{"item": "pen", "count": "many"}', "$.count", "Expected `int`, got `str`"),
        (Line, '{"count": 3}', "$", "Object missing required field `item`"),
        (Line, "pen", "$", "JSON is malformed: invalid character (byte 0)"),
        (Line, "", "$", "Input data was truncated"),
        (list[Line], '[{"item": "a"}, {"item": 5}]', "$[1].item", "Expected `str`, got `int`"),
        (dict[str, Line], '{"secret": {"item": 5}}', "$[...].item", "Expected `str`, got `int`"),
        (dict[int, str], '{"secret": "a"}', "key in $", "Expected `int`, got `str`"),
        (Box[Colour], '{"content": "secret"}', "$.content", "Invalid enum value"),
        (Box[uuid.UUID], '{"content": "secret"}', "$.content", "Invalid UUID"),
        (Checked, '{"count": -77}', "$", "ValueError raised by the type's own code"),
        (OrderAttrs, '{"item": "pen", "count": -77}', "$", "ValueError raised by the type's own code"),
        (Box[Checked], '{"content": {"count": -77}}', "$.content", "ValueError raised by the type's own code"),
        (CreatedStruct | CancelledStruct, '{"type": "secret"}', "$.type", "Invalid value"),
        (Created | Cancelled, '{"kind": "secret"}', "$.kind", "Expected one of 'created', 'cancelled'"),
        (Created | Cancelled, '{"kind": ["secret"]}', "$.kind", "Expected one of 'created', 'cancelled'"),
        (Created | Cancelled, '{"item": "secret"}', "$", "Object missing required field `kind`"),
        (Created | Cancelled, '{"kind": "created", "item": 5}', "$.item", "Expected `str`, got `int`"),
        (OrderModel, '{"item": "pen", "number": "secret"}', "$.number",
         "Input should be a valid integer, unable to parse string as an integer"),
        (OrderModel, '{"item": "pen", "lines": [{"item": 77}]}', "$.lines[0].item", "Input should be a valid string"),
        (OrderModel, "secret", "$", "Invalid JSON: expected value at line 1 column 1"),
        (OrderPydantic, '{"item": "pen", "count": -77}', "$.count", "Input should be greater than 0"),
        (CheckedModel, '{"count": -77}', "$.count", "value_error"),
        (dict[str, OrderModel], '{"secret": {}}', "$[...].item", "Field required"),
        (Annotated[CreatedModel | CancelledModel, pydantic.Field(discriminator="kind")], '{"kind": "secret"}', "$",
         "union_tag_invalid"),
        (Annotated[uuid.UUID, pydantic.Field()], '"secret"', "$", "uuid_parsing"),
        (Annotated[int, annotated_types.Gt(0)], "-77", "$", "Input should be greater than 0"),
        (Any, "[" * 100_000, "$", "It is nested too deep"),
    ],
)  # fmt: skip
def test_an_error_names_the_place_and_the_rule(type_: Any, text: str, path: str, rule: str) -> None:
    """Both are attributes, too, and the value is in none of them."""
    message = TextMessage(text)
    message.jms_message_id = "ID:7"
    with pytest.raises(BodyConversionException) as raised:
        message.get_body(type_)
    error = raised.value
    assert (error.path, error.rule) == (path, rule)
    assert str(error).startswith("message ID:7: the body is no ")
    assert str(error).endswith(f": {path}: {rule}")
    assert error.linked_exception is error.__context__ is None
    assert "77" not in str(error)


def test_an_error_names_three_places_at_most() -> None:
    """Pydantic finds all that is wrong."""
    with pytest.raises(BodyConversionException, match=r"\$\[0\]: [^;]+; \$\[1\]: [^;]+; \$\[2\]: [^;]+; and 4 more$"):
        TextMessage('["a", "b", "c", "d", "e", "f", "g"]').get_body(list[Annotated[int, pydantic.Field(gt=0)]])


@pytest.mark.parametrize("type_", [bytes, dict, list, int, float, bool, tuple, set, Plain, Message, enum.Enum])
def test_nothing_is_converted_to_other_classes(type_: type) -> None:
    """A text is no number and no dict, even where it is JSON (JMS 2.0 §B.5.14)."""
    for text in ("1", "{}", "[]", "true"):
        with pytest.raises(
            MessageFormatException, match=f"body of a TextMessage is a str, no {type_.__name__}"
        ) as error:
            TextMessage(text).get_body(type_)
        assert type(error.value) is MessageFormatException
        assert not TextMessage(text).is_body_assignable_to(type_)


def test_a_message_without_a_body_has_none_of_any_type() -> None:
    """As for any other type: a TextMessage without a text, and a message that has no body; a stream gives none."""
    assert TextMessage().get_body(Line) is None
    assert Message().get_body(Line) is None
    assert ObjectMessage().get_body(list[Line]) is None
    with pytest.raises(MessageFormatException, match="StreamMessage"):
        StreamMessage().get_body(Line)


@pytest.mark.parametrize(
    ("type_", "words"),
    [
        ("Line", "no message body can become Line: "),
        (5, "no message body can become 5: "),
        (None, "no message body can become None: it is no type"),
        ((str, bytes), "no message body can become "),
        (list[Plain], r"no message body can become list\[.*Plain\]: Plain has no JSON form"),
        (HoldsPlain, "no message body can become HoldsPlain: Plain has no JSON form"),
        (Callable[[], Line], "no message body can become .*: Callable has no JSON form"),
        (Line | OrderStruct, 'no field tells Line from OrderStruct; give each one such as kind: Literal."a".'),
        (list[Created | Cancelled], "Type unions may not contain more than one dataclass or attrs type"),
        (list[Annotated[Plain, pydantic.Field()]], "no message body can become .*: Unable to generate"),
    ],
)
def test_what_is_no_type_of_a_body(type_: Any, words: str) -> None:
    """It is a mistake of the program, whatever the body is."""
    with pytest.raises(TypeError, match=words):
        TextMessage("{}").get_body(type_)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Box(Plain()), "this Box: Plain has no JSON form"),
        (Box("\ud800"), r"this Box: a text holds a lone surrogate \(at index 0\)"),
        (Box([{"a": math.nan}, None]), r"this Box: \$.content\[0\].a is not finite"),
        (Box([2**80, -math.inf]), r"this Box: \$.content\[1\] is not finite"),
        (Box(math.inf), r"this Box: \$.content is not finite"),
        (Box({(1, 2): 3}), "this Box: tuple has no JSON form"),
    ],
)
def test_what_json_cannot_carry_is_refused(value: object, words: str) -> None:
    """It never leaves as something else, such as NaN as null."""
    with pytest.raises(MessageFormatException, match=f"JSON cannot carry {words}"):
        message_of(value)


def test_null_is_no_unbounded_number() -> None:
    """A field of None is sent, also beside whole numbers of any size, and bytes that look like NaN in MessagePack."""
    for value in (Box([None, 2**80, 1.5]), Box([None, "\u02ff\u7ff0", b"\xcb\x7f\xf8"])):
        text = message_of(value).get_body(str)
        assert text is not None
        assert "null" in text


def test_a_value_that_contains_itself_is_refused() -> None:
    """As any that is nested too deep."""
    box: Box[Any] = Box(None)
    box.content = [box]
    with pytest.raises(MessageFormatException, match="this Box: it contains itself, or is nested too deep"):
        message_of(box)


def test_an_error_of_a_serializer_is_linked() -> None:
    """The text does not repeat what the program's own code says."""

    class Odd(pydantic.BaseModel):
        count: int

        @pydantic.field_serializer("count")
        def write(self, count: int) -> int:
            raise ValueError(f"secret {count}")

    with pytest.raises(MessageFormatException, match=r"this .*Odd: .* raised by the type's own code") as raised:
        message_of(Odd(count=7))
    assert "secret" not in str(raised.value)
    assert raised.value.linked_exception is not None


def test_models_where_no_type_names_them() -> None:
    """A pydantic model in a list, or in a field of any type, is written by pydantic."""
    message = TextMessage()
    message.set_body([OrderModel(item="pen", number=2), Box(OrderModel(item="ink"))])
    assert message.get_body(Any) == [
        {"item": "pen", "number": 2, "lines": []},
        {"content": {"item": "ink", "number": 1, "lines": []}},
    ]
    assert message.get_body(tuple[OrderModel, Box[OrderModel]]) == (
        OrderModel(item="pen", number=2),
        Box(OrderModel(item="ink")),
    )


def test_a_text_that_replaces_json_is_no_json() -> None:
    """The content type goes with the JSON, and comes with it: also on a received message that is reused."""
    message = TextMessage()
    message.set_body(Line("pen"))
    message.set_body("pen")
    assert "JMS_kjms_ContentType" not in message.properties
    message._body_read_only = message._properties_read_only = True
    with pytest.raises(MessageNotWriteableException):
        message.set_body(Line("pen"))
    message.clear_body()
    message.set_body(Line("pen"))
    assert message.properties["JMS_kjms_ContentType"] == "application/json"


def test_types_of_functions_and_forward_references() -> None:
    """A type that names one which is not defined yet can be asked for later."""

    @dataclasses.dataclass
    class Unfinished:
        other: Missing  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(NameError, match="Missing"):
        TextMessage("{}").get_body(Unfinished)
    assert message_of(Unfinished(1)).get_body(str) == '{"other":1}'


def test_rules_of_pydantic_hold_where_they_stand() -> None:
    """A dataclass that has a rule of pydantic in it is checked by pydantic, at any depth."""

    class Rules(NamedTuple):
        lines: list[Annotated[int, pydantic.Field(gt=0)]]

    Rules.__annotations__["lines"] = list[Annotated[int, pydantic.Field(gt=0)]]
    assert TextMessage("[[1, 2]]").get_body(Rules) == Rules([1, 2])
    with pytest.raises(BodyConversionException, match="greater than 0"):
        TextMessage("[[1, 0]]").get_body(Rules)


def test_pydantic_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that only pydantic checks is not left unchecked."""
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ModuleNotFoundError, match=r"makes .*Gt.* of message bodies, and is not installed: pip install"):
        TextMessage("1").get_body(Annotated[int, annotated_types.Gt(77)])
    assert TextMessage('{"item": "pen"}').get_body(Line) == Line("pen")


def test_generic_aliases_are_no_classes() -> None:
    """In Python 3.10, ``list[int]`` is an instance of type, and no value can be asked for being one of it."""
    assert TextMessage("[1]").get_body(list[int]) == [1]
    assert ObjectMessage([1]).get_body(list[int]) == [1]
    assert typing.get_origin(types.GenericAlias(list, (int,))) is list


def test_destinations_are_not_bodies() -> None:
    """A class of the program's own that has no fields is refused as before."""
    with pytest.raises(MessageFormatException, match="an ObjectMessage carries None"):
        message_of(Queue("orders"))
