"""Where a frame becomes Kafka records that every consumer of kjms reads as if kjms had sent them.

The columns of `kjms.spark.decode` are understood, all of them optional; what is none of those is a property, typed as
its column is. What does not fit is reported by name before anything is written. Text of Spark SQL, as in
`kjms.spark._sql`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kjms.errors import MessageFormatException
from kjms.identifiers import is_identifier
from kjms.message._fields import FIELDS
from kjms.message._property_names import CLIENT_PROPERTIES, is_providers
from kjms.spark._decode import INTERNAL
from kjms.spark._require import require_avro, require_pyspark
from kjms.spark._sql import case, quoted
from kjms.spark._text_forms import written_form
from kjms.spark._times import TIMES, millis

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

__all__ = ["KEY", "encode", "encoded"]

_PLACE: Final = {"topic": "string", "partition": "int", "offset": "bigint"}
"""Columns of `decode`, with their types, that say together where a row was read from."""

_PROPERTY_TYPES: Final = {
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
}
"""By the types of Spark's columns."""

_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_DESTINATION: Final = "a destination: text such as queue://NAME, or a struct of destinationType and name"
_BRANCHES: Final = {
    # How a value of a Spark type stands in the unions of map.avsc and stream.avsc: number of the branch, Avro's type.
    "boolean": ("02", "boolean"),
    "tinyint": ("04", "int"),
    "smallint": ("06", "int"),
    "int": ("0a", "int"),
    "bigint": ("0c", "long"),
    "float": ("0e", "float"),
    "double": ("10", "double"),
    "string": ("12", "string"),
    "binary": ("14", "bytes"),
}
_PLAIN_BRANCHES: Final = {
    "boolean": ("02", "boolean"),
    "tinyint": ("04", "long"),
    "smallint": ("04", "long"),
    "int": ("04", "long"),
    "bigint": ("04", "long"),
    "float": ("06", "double"),
    "double": ("06", "double"),
    "string": ("08", "string"),
    "binary": ("0a", "bytes"),
}
_TYPED_FIELDS: Final = {
    "boolean": "boolean", "byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "float": "float",
    "double": "double", "string": "string", "bytes": "binary",
}  # fmt: skip
KEY: Final = "__kjms_key"


def encode(frame: DataFrame) -> DataFrame:
    """Return the Kafka records for the messages in *frame*: the columns ``key``, ``value`` and ``headers``.

    Made of Spark's own expressions: executors need nothing of kjms. A row whose value is out of its range, such as a
    priority of 10, stops the job with an error that names column and value.

    Args:
        frame: The messages: columns as `kjms.spark.decode` gives them, and properties.

    Raises:
        MessageFormatException: Columns do not fit; the text names each, and what would.
        JMSException: The session has no spark-avro.

    Spec: JMS 2.0 §3.4, §3.5, §3.11; the columns are in docs/spark.md.
    """
    require_pyspark()
    return encoded(frame)


def encoded(frame: DataFrame, **more: Column) -> DataFrame:
    """Return the records of *frame*, as `encode` does, with *more* columns, which may speak of the record's `KEY`."""
    require_avro(frame.sparkSession)
    encoding = _Encoding(frame)
    with_key = frame.selectExpr("*", f"{encoding.key()} AS `{KEY}`")
    return with_key.select(*encoding.columns(), *(column.alias(name) for name, column in more.items()))


class _Encoding:
    """The columns of one frame, and what becomes of them."""

    def __init__(self, frame: DataFrame) -> None:
        self._types = {field.name: field.dataType for field in frame.schema.fields}
        self._wrong: list[str] = []
        self._properties = [name for name in self._types if name not in _COLUMNS and name not in _LEFT_OUT]
        was_read = all(name in self._types for name in _PLACE)
        repeated = sorted({name for name in frame.columns if frame.columns.count(name) > 1})
        self._wrong += [f"{name}: there is more than one column of that name" for name in repeated]
        for name, (fits, wanted) in _COLUMNS.items():
            if name in self._types and not fits(self._types[name]):
                self._wrong.append(f"{name}: {wanted} is needed, not {self._types[name].simpleString()}")
        for name, fits in _LEFT_OUT.items():
            if name in self._types and not (fits(self._types[name]) and (was_read or name not in _PLACE)):
                self._wrong.append(
                    f"{name}: it would not be sent, because `kjms.spark.decode` calls so {_MEANINGS.get(name, _FATE)};"
                    " rename it to send it as a property, or drop it"
                )
        for name in self._properties:
            self._check_property(name)
        if self._wrong:
            raise MessageFormatException(
                f"{len(self._wrong)} columns do not fit a JMS message: {'; '.join(self._wrong)}"
                " (columns beside the message's own are properties; JMS 2.0 §3.5)"
            )

    def _kind_of(self, name: str) -> str | None:
        """Return the type of the property that column *name* becomes; None if it can be none."""
        kind = self._types[name]
        form = None if name in CLIENT_PROPERTIES else written_form(name, kind)
        return _PROPERTY_TYPES.get(kind.simpleString(), None if form is None else "string")

    def _check_property(self, name: str) -> None:
        kind = self._kind_of(name)
        wanted = CLIENT_PROPERTIES.get(name)
        reserved = is_providers(name) or (name.startswith("JMS") and not name.startswith("JMS_"))
        if not is_identifier(name) or (reserved and wanted is None):
            self._wrong.append(f"{name}: no property can be called so")
        elif kind is None:
            self._wrong.append(f"{name}: {self._types[name].simpleString()} is no type that a property has")
        elif wanted is not None and kind != wanted:
            self._wrong.append(f"{name}: {wanted} is needed, not {kind}")

    def _has(self, name: str) -> bool:
        return name in self._types

    def _column(self, name: str, default: str = "NULL") -> str:
        return f"`{name}`" if self._has(name) else default

    def _millis(self, name: str) -> str:
        """Return a time in milliseconds: the column *name*, and where it is null or missing the timestamp beside it."""
        return millis(name, self._types)

    def columns(self) -> list[Column]:
        """Return the columns of the records."""
        from pyspark.sql import functions as f

        return [
            f.col(f"`{KEY}`").alias("key"),
            f.expr(self._value()).alias("value"),
            f.expr(self._headers()).alias("headers"),
        ]

    def key(self) -> str:
        """Return the message group, which is the key, else the column of that name."""
        own = f"`{_GROUP}`" if _GROUP in self._properties else "NULL"
        held = f"try_element_at(properties, '{_GROUP}')" if self._has("properties") else "NULL"
        return (
            f"coalesce(CAST(CAST(coalesce({own}, {held}) AS STRING) AS BINARY), CAST({self._column('key')} AS BINARY))"
        )

    def _headers(self) -> str:
        timestamp = f"coalesce({self._millis('timestamp')}, unix_millis(current_timestamp()))"
        delivery = self._millis("deliveryTime")
        fields = {
            "JMSMessageID": self._column("messageID"),
            "JMSTimestamp": f"nullif({timestamp}, 0L)",
            "JMSCorrelationID": f"coalesce({self._column('correlationIDBytes')}, CAST({self._column('correlationID')}"
            " AS BINARY))",
            "JMSReplyTo": self._destination("replyTo"),
            "JMSType": self._column("type"),
            "JMSDeliveryMode": f"nullif({self._checked('deliveryMode', '1 AND 2')}, 2)",
            "JMSPriority": f"nullif({self._checked('priority', '0 AND 9')}, 4)",
            "JMSExpiration": f"nullif({self._millis('expiration')}, 0L)",
            "JMSDeliveryTime": f"nullif(nullif({delivery}, 0L), {timestamp})",
        }
        written = [
            _entry(quoted(name), f"CAST({_text(sql)} AS BINARY)", f"{sql} IS NOT NULL") for name, sql in fields.items()
        ]
        written += [
            _entry(quoted(name), f"CAST({self._property_text(name)} AS BINARY)", f"`{name}` IS NOT NULL")
            for name in self._properties
        ]
        first = f"named_struct('key', 'kjms', 'value', CAST({self._layout()} AS BINARY))"
        headers = f"concat(array({first}), array_compact(array({', '.join(written)})))"
        if not self._has("properties"):
            return headers
        own = ", ".join(map(quoted, [*self._properties, *NO_PROPERTIES]))
        others = f"filter(map_entries(coalesce(properties, map())), p -> p.key NOT IN ({own}))"
        named = "named_struct('key', p.key, 'value', CAST(p.value AS BINARY))"
        return f"concat({headers}, transform({others}, p -> {named}))"

    def _property_text(self, name: str) -> str:
        column = f"`{name}`"
        return written_form(column, self._types[name]) or _text(column)

    def _layout(self) -> str:
        """Return the header kjms: version, body type, and the types of the properties that are no strings."""
        types = [
            (f"`{name}` IS NOT NULL", f"'{name}={kind}'")
            for name in self._properties
            if (kind := self._kind_of(name)) != "string"
        ]
        if self._has("correlationIDBytes"):
            types.insert(0, ("correlationIDBytes IS NOT NULL", "'JMSCorrelationID=bytes'"))
        listed = f"array_compact(array({', '.join(case(each) for each in types)}))" if types else "array()"
        listed = f"CAST({listed} AS ARRAY<STRING>)"
        if self._has("properties") and self._has("propertyTypes"):
            own = ", ".join(map(quoted, [*self._properties, *NO_PROPERTIES]))
            kept = f"p -> p.key NOT IN ({own}) AND map_contains_key(properties, p.key) AND p.value <> 'string'"
            entries = f"filter(map_entries(coalesce(propertyTypes, map())), {kept})"
            listed = f"concat({listed}, transform({entries}, p -> concat(p.key, '=', p.value)))"
        types_text = f"array_join({listed}, ',')"
        start = f"concat('1;', {self._kind()})"
        return f"CASE WHEN {types_text} = '' THEN {start} ELSE concat({start}, ';', {types_text}) END"

    def _kind(self) -> str:
        """Return the body type."""
        guessed = (
            case(
                *((f"`{name}` IS NOT NULL", f"'{name}'") for name in _BODY_COLUMNS if self._has(name)),
                otherwise="'text'" if self._has("text") else "'message'",
            )
            if any(map(self._has, _BODY_COLUMNS))
            else "'message'"
        )
        if not self._has("messageType"):
            return guessed
        known = "messageType RLIKE '^(message|text|bytes|map|stream|object(/[A-Za-z0-9._+-]+)?)$'"
        wrong = "raise_error(concat('column messageType: there is no body type ', messageType))"
        return f"CASE WHEN messageType IS NULL THEN {guessed} WHEN {known} THEN messageType ELSE {wrong} END"

    def _value(self) -> str:
        """Return the record's value: the body's own column, unless the frame has the bytes of the Kafka record."""
        kind = self._kind()
        branches = [(f"{kind} = 'message'", "NULL")]
        bodies: dict[str, Callable[[], str]] = {
            "bytes": lambda: "`bytes`",
            "text": lambda: "CAST(`text` AS BINARY)",
            "map": lambda: _avro_map("`map`", self._types["map"]),
            "stream": lambda: _avro_stream("`stream`", self._types["stream"]),
            "object": lambda: _avro_plain("`object`", self._types["object"]),
        }
        if self._has("bytes"):
            branches.append(("`bytes` IS NOT NULL", "`bytes`"))
        branches += [(f"{kind} = '{name}'", body()) for name, body in bodies.items() if self._has(name)]
        empty = (f"{kind} IN ('map', 'stream')", "X'00'"), (f"{kind} = 'bytes'", "X''")
        written = case(*branches)
        return f"coalesce({written}, {case(*empty)})"

    def _destination(self, name: str) -> str:
        if not self._has(name):
            return "NULL"
        if self._types[name].simpleString() == "string":
            return f"`{name}`"
        return f"concat(`{name}`.destinationType, '://', `{name}`.name)"

    def _checked(self, name: str, bounds: str) -> str:
        if not self._has(name):
            return "CAST(NULL AS INT)"
        wrong = f"raise_error(concat('column {name}: ', `{name}`, ' is not between {bounds.lower()}'))"
        return f"CASE WHEN `{name}` NOT BETWEEN {bounds} THEN {wrong} ELSE CAST(`{name}` AS INT) END"


NO_PROPERTIES: Final = (*FIELDS, *INTERNAL)
"""Names in the column *properties* that `kjms.spark.decode` leaves out, because they are no properties."""
_GROUP: Final = "JMSXGroupID"
_BODY_COLUMNS: Final = ("text", "map", "stream", "object", "bytes")


def _entry(name: str, value: str, condition: str) -> str:
    return f"CASE WHEN {condition} THEN named_struct('key', {name}, 'value', {value}) END"


def _text(value: str) -> str:
    """Return *value* as the text that Java's ``String.valueOf`` gives; bytes stay what they are."""
    return f"CAST({value} AS STRING)"


# Avro, as kjms writes it: docs/wire-format.md.


def _primitive(sql: str, avro: str) -> str:
    return f"to_avro({sql}, '\"{avro}\"')"


def _union(sql: str, kind: str, branches: dict[str, tuple[str, str]]) -> str:
    branch, avro = branches[kind]
    cast = {"int": "INT", "long": "BIGINT", "double": "DOUBLE"}.get(avro)
    value = f"CAST({sql} AS {cast})" if cast else sql
    return f"concat(X'{branch}', {_primitive(value, avro)})"


def _typed_value(value: str, kind: Any) -> str:
    """Return a value of a map or stream in Avro; a struct of `TYPED` says its type itself."""
    if _is_typed(kind):
        branches = [
            (f"{value}.{name} IS NOT NULL", _union(f"{value}.{name}", sql, _BRANCHES))
            for name, sql in _TYPED_FIELDS.items()
            if name in kind.names
        ]
        if "char" in kind.names:
            unit = f"CAST(conv(hex(encode({value}.char, 'UTF-16BE')), 16, 10) AS INT)"
            branches.append((f"{value}.char IS NOT NULL", f"concat(X'08', {_primitive(unit, 'int')})"))
        return case(*branches, otherwise="X'00'")
    if kind.simpleString() == "void":
        return "X'00'"
    return f"coalesce({_union(value, kind.simpleString(), _BRANCHES)}, X'00')"


def _joined(parts: str) -> str:
    """Return an array of bytes put together."""
    return f"unhex(array_join(transform({parts}, part -> hex(part)), ''))"


def _concat(parts: list[str]) -> str:
    listed = ", ".join(parts)
    return f"concat({listed})"


def _counted(count: str, parts: str) -> str:
    """Return an array or map in Avro, which is one block of *count* items and the end."""
    number = _primitive(f"CAST({count} AS BIGINT)", "long")
    return f"CASE WHEN {count} = 0 THEN X'00' ELSE concat({number}, {parts}, X'00') END"


def _named(name: str, value: str) -> str:
    return f"concat({_primitive(quoted(name), 'string')}, {value})"


def _avro_map(column: str, kind: Any) -> str:
    if kind.typeName() == "struct":
        parts = [_named(field.name, _typed_value(f"{column}.`{field.name}`", field.dataType)) for field in kind.fields]
        return f"CASE WHEN {column} IS NOT NULL THEN {_counted(str(len(parts)), _concat(parts))} END"
    entry = f"concat({_primitive('e.key', 'string')}, {_typed_value('e.value', kind.valueType)})"
    return _counted(f"cardinality({column})", _joined(f"transform(map_entries({column}), e -> {entry})"))


def _avro_stream(column: str, kind: Any) -> str:
    if kind.typeName() == "struct":
        parts = [_typed_value(f"{column}.`{field.name}`", field.dataType) for field in kind.fields]
        return f"CASE WHEN {column} IS NOT NULL THEN {_counted(str(len(parts)), _concat(parts))} END"
    item = _typed_value("e", kind.elementType)
    return _counted(f"cardinality({column})", _joined(f"transform({column}, e -> {item})"))


def _avro_plain(value: str, kind: Any, depth: int = 0) -> str:
    """Return a value of an ObjectMessage in Avro, null for null at the top."""
    name = kind.typeName()
    if name == "struct":
        parts = [_named(field.name, _inner(f"{value}.`{field.name}`", field.dataType, depth)) for field in kind.fields]
        body = f"concat(X'10', {_counted(str(len(parts)), _concat(parts))})"
    elif name == "array":
        item = f"e{depth}"
        inner = _joined(f"transform({value}, {item} -> {_inner(item, kind.elementType, depth)})")
        body = f"concat(X'0e', {_counted(f'cardinality({value})', inner)})"
    elif name == "map":
        item = f"e{depth}"
        entry = f"concat({_primitive(f'{item}.key', 'string')}, {_inner(f'{item}.value', kind.valueType, depth)})"
        entries = _joined(f"transform(map_entries({value}), {item} -> {entry})")
        body = f"concat(X'10', {_counted(f'cardinality({value})', entries)})"
    elif name == "void":
        return "X'00'"
    else:
        body = _union(value, kind.simpleString(), _PLAIN_BRANCHES)
    return f"CASE WHEN {value} IS NOT NULL THEN {body} END"


def _inner(value: str, kind: DataType, depth: int) -> str:
    return f"coalesce({_avro_plain(value, kind, depth + 1)}, X'00')"


# Which columns fit.


def _is(*names: str) -> Callable[[DataType], bool]:
    return lambda kind: kind.simpleString() in {*names, "void"}


def _is_destination(kind: Any) -> bool:
    return kind.simpleString() in {"string", "void"} or (
        kind.typeName() == "struct" and {"destinationType", "name"} <= set(kind.names)
    )


def _is_typed(kind: Any) -> bool:
    return kind.typeName() == "struct" and "propertyType" in kind.names


def _is_value(kind: Any) -> bool:
    return _is_typed(kind) or kind.simpleString() in {*_BRANCHES, "void"}


def _is_map(kind: Any) -> bool:
    if kind.typeName() == "struct":
        return not _is_typed(kind) and all(_is_value(field.dataType) for field in kind.fields)
    return kind.typeName() == "map" and kind.keyType.simpleString() == "string" and _is_value(kind.valueType)


def _is_stream(kind: Any) -> bool:
    if kind.typeName() == "struct":
        return not _is_typed(kind) and all(_is_value(field.dataType) for field in kind.fields)
    return kind.typeName() == "array" and _is_value(kind.elementType)


def _is_plain(kind: Any) -> bool:
    match kind.typeName():
        case "struct":
            return all(_is_plain(field.dataType) for field in kind.fields)
        case "array":
            return _is_plain(kind.elementType)
        case "map":
            return kind.keyType.simpleString() == "string" and _is_plain(kind.valueType)
    return kind.simpleString() in {*_PLAIN_BRANCHES, "void"}


_LEFT_OUT: Final[dict[str, Callable[[Any], bool]]] = {
    **{name: _is(kind) for name, kind in _PLACE.items()},
    "kafkaTimestamp": _is("timestamp"),
    "damage": _is("array<string>"),
    "redelivered": _is("boolean"),
    "deliveryCount": _is("int"),
    "destination": lambda kind: kind.typeName() == "struct" and {"destinationType", "name"} <= set(kind.names),
}
"""Columns of `decode` that say where a message was, and its outcome there: they are not sent."""

_MEANINGS: Final = {
    **dict.fromkeys(_PLACE, "a part of where a message was read from (topic, partition and offset together)"),
    "destination": "a struct of where a message was sent",
}
_FATE: Final = "what became of a message where it was read"

_COLUMNS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    **{beside: (_is("timestamp"), "timestamp") for beside in TIMES.values()},
    "key": (_is("string", "binary"), "string or binary"),
    "messageID": (_is("string"), "string"),
    "messageType": (_is("string"), "string"),
    "timestamp": (_is("bigint"), "bigint (milliseconds)"),
    "deliveryMode": (_is(*_WHOLE), "int"),
    "correlationID": (_is("string"), "string"),
    "correlationIDBytes": (_is("binary"), "binary"),
    "replyTo": (_is_destination, _DESTINATION),
    "type": (_is("string"), "string"),
    "expiration": (_is("bigint"), "bigint (milliseconds)"),
    "deliveryTime": (_is("bigint"), "bigint (milliseconds)"),
    "priority": (_is(*_WHOLE), "int"),
    "properties": (_is("map<string,string>"), "map<string,string>"),
    "propertyTypes": (_is("map<string,string>"), "map<string,string>"),
    "text": (_is("string"), "string"),
    "bytes": (_is("binary"), "binary"),
    "map": (_is_map, "a map of strings to plain values, or a struct of such"),
    "stream": (_is_stream, "an array or struct of plain values"),
    "object": (_is_plain, "plain values, and arrays, maps and structs of such"),
}
