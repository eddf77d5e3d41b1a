"""Where a frame of Kafka records becomes one of messages: a column for each header field, and the body by type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kjms.checking import checked
from kjms.errors import MessageFormatException
from kjms.mapping import body_schema
from kjms.mapping.dead_letters import NUMBERS
from kjms.selector import parse_selector
from kjms.spark import _sources
from kjms.spark._predicates import BOUND, predicate
from kjms.spark._require import require_avro
from kjms.spark._sources import (
    FIELDS,
    HELPERS,
    IS_DEAD_LETTER,
    IS_LAYOUT,
    KEY_TEXT,
    LAYOUT,
    NAMES,
    TYPES,
    Record,
    found,
    is_foreign_group,
)
from kjms.spark._sql import case, is_valid, quoted, regex
from kjms.spark._times import timestamp_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["COORDINATES", "SOURCE_COLUMNS", "decode", "decoded", "inlined", "selected", "with_helpers"]

SOURCE_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""What Spark's Kafka source gives, with ``includeHeaders``."""

COORDINATES: Final = ("key", "topic", "partition", "offset", "kafkaTimestamp")
"""The columns that say where in Kafka a message stands."""

KIND: Final = "`__kjms_kind`"
SENT: Final = "`__kjms_sent`"
EXPIRES: Final = "`__kjms_expires`"
DUE: Final = "`__kjms_due`"
PLACES: Final = ("JMSReplyTo", "JMSDestination")
MAP: Final = "`__kjms_map`"
STREAM: Final = "`__kjms_stream`"
AVRO: Final = {MAP: "map", STREAM: "stream"}
VALUE_TEXT: Final = "CAST(value AS STRING)"
CONTROL: Final = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
BODIES: Final = ("message", "text", "bytes", "map", "stream", "object")
BODY_TYPE: Final = f"split_part({LAYOUT}, ';', 2)"
INTERNAL: Final = ("kjms-to", "kjms-delayed", "kjms-relocated", "JMSXDeliveryCount")

TYPED: Final = (
    "STRUCT<propertyType: STRING, boolean: BOOLEAN, byte: TINYINT, short: SMALLINT, integer: INT, long: BIGINT,"
    " float: FLOAT, double: DOUBLE, string: STRING, bytes: BINARY, char: STRING>"
)
"""A value with its type: the property value of Confluent's connector, and a char."""

# The branches of the union in map.avsc and stream.avsc as Spark names them, null left out, and what each becomes.
BRANCHES: Final = {
    "boolean": "{}.member0",
    "byte": "CAST({}.member1.value AS TINYINT)",
    "short": "CAST({}.member2.value AS SMALLINT)",
    "integer": "{}.member4",
    "long": "{}.member5",
    "float": "{}.member6",
    "double": "{}.member7",
    "string": "{}.member8",
    "bytes": "{}.member9",
    "char": "decode(unhex(lpad(hex({}.member3.value), 4, '0')), 'UTF-16BE')",
}


def header(name: str) -> str:
    """Return the column that keeps what was found in the header of a header field."""
    return f"`__kjms_{name}`"


def place(name: str) -> str:
    """Return the column that keeps the destination which a header field names."""
    return f"`__kjms_{name}_read`"


text_of = partial(_sources.text_of, of=header)
long_of = partial(_sources.long_of, of=header)
message_id = partial(_sources.message_id, of=header)
timestamp = partial(_sources.timestamp, of=header)


@checked
def decode(frame: DataFrame, destination: str = "topic") -> DataFrame:
    """Return the messages in *frame*, which has the columns of Spark's Kafka source.

    Made of Spark's own expressions: executors need nothing of kjms. A record that no JMS program wrote, or that is
    damaged, is a row like the others (docs/wire-format.md says how it reads), and the column ``damage`` says what could
    not be read as it should.

    Args:
        frame: What ``format("kafka")`` loads with the option ``includeHeaders``.
        destination: ``queue`` or ``topic``: what the Kafka topics are, for the column ``destination``.

    Raises:
        MessageFormatException: *frame* lacks a column of Kafka's source.
        JMSException: The session has no spark-avro.

    Spec: JMS 2.0 §3.4-§3.11; the columns are in docs/spark.md.
    """
    missing = [name for name in SOURCE_COLUMNS if name not in frame.columns]
    if missing:
        raise MessageFormatException(
            f"decode: the frame has no column {', '.join(missing)}: it takes what format('kafka') loads with the"
            " option includeHeaders=true"
        )
    return decoded(with_helpers(frame), f"named_struct('destinationType', {quoted(destination)}, 'name', topic)")


def with_helpers(frame: DataFrame) -> DataFrame:
    """Return *frame* with the columns that the readers of headers look at.

    An array of one element is exploded for them: Spark would otherwise copy what makes them to each place that speaks
    of them, below all conditions, and do the work again there.
    """
    for step in HELPERS:
        frame = inlined(frame, step)
    return frame


def inlined(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return *frame* with *columns*, each computed once however often it is spoken of, see `with_helpers`."""
    fields = ", ".join(f"'{name.strip('`')}', {sql}" for name, sql in columns.items())
    return frame.selectExpr("*", f"inline(array(named_struct({fields})))")


def selected(frame: DataFrame, selector: str | None, source: Record | None = None) -> DataFrame:
    """Return those records of a frame `with_helpers` whose messages *selector* is true for.

    Args:
        frame: The records.
        selector: The selector; None: all.
        source: Where header fields and properties are found; None: as of messages that were never delivered.

    Raises:
        InvalidSelectorException: It is no selector.
    """
    parsed = parse_selector(selector)
    if parsed is None:
        return frame
    wanted = predicate(parsed.tree, source or Record())
    if wanted.properties:
        frame = frame.selectExpr("*", f"explode(array({wanted.properties})) AS `{BOUND}`")
    return frame.where(wanted.condition)


def decoded(frame: DataFrame, destination: str, more: Sequence[str] = ()) -> DataFrame:
    """Return the messages of a frame `with_helpers`.

    Args:
        frame: The records.
        destination: The struct of the destination where a record was read.
        more: Columns of the frame that are kept.
    """
    require_avro(frame.sparkSession)
    with_headers = inlined(frame, {header(name): found(name) for name in FIELDS} | {KIND: _kind()})
    # What is read here is not read in the method that Java is given for the columns: of more than 8,000 bytes, it
    # would never be compiled.
    times = {SENT: timestamp(), EXPIRES: long_of("JMSExpiration", "0")}
    with_fields = inlined(with_headers, times | {place(name): _destination(name) for name in PLACES})
    with_fields = inlined(with_fields, {DUE: long_of("JMSDeliveryTime", SENT)})
    with_bodies = with_fields.withColumns({name.strip("`"): _avro(kind) for name, kind in AVRO.items()})
    selected = {
        "messageID": message_id(),
        "messageType": case(
            (f"{KIND} = 'object'", BODY_TYPE),
            otherwise=KIND,
        ),
        "timestamp": SENT,
        "deliveryMode": f"CAST({long_of('JMSDeliveryMode', '2', '1 AND 2')} AS INT)",
        "correlationID": text_of("JMSCorrelationID"),
        "correlationIDBytes": f"CASE WHEN {_is_binary_id()} THEN {header('JMSCorrelationID')} END",
        "replyTo": place("JMSReplyTo"),
        "destination": f"coalesce({place('JMSDestination')}, {destination})",
        "type": text_of("JMSType"),
        "expiration": EXPIRES,
        "deliveryTime": DUE,
        "sentAt": timestamp_of(SENT),
        "expiresAt": timestamp_of(EXPIRES),
        "deliverAt": timestamp_of(DUE),
        "priority": f"CAST({long_of('JMSPriority', '4', '0 AND 9')} AS INT)",
        "properties": properties(),
        "text": f"CASE WHEN {KIND} = 'text' THEN make_valid_utf8({VALUE_TEXT}) END",
        "bytes": case(
            (f"{KIND} = 'bytes'", "coalesce(value, X'')"),
            (f"{KIND} = 'object'", "value"),
            (f"{KIND} = 'text' AND NOT is_valid_utf8({VALUE_TEXT})", "value"),
            (f"{KIND} = 'map' AND {_map()} IS NULL", "value"),
            (f"{KIND} = 'stream' AND {_stream()} IS NULL", "value"),
        ),
        "map": _map(),
        "stream": _stream(),
        "damage": _damage(),
        "key": "key",
        "topic": "topic",
        "partition": "`partition`",
        "offset": "`offset`",
        "kafkaTimestamp": "`timestamp`",
    }
    columns = [f"{sql} AS `{name}`" for name, sql in selected.items()]
    at = list(selected).index("text")
    columns.insert(at, f"{property_types()} AS propertyTypes")
    return with_bodies.selectExpr(*columns, *more)


def _kind() -> str:
    """Return which of `BODIES` the record's body is."""
    is_text = f"value IS NULL OR (is_valid_utf8({VALUE_TEXT}) AND NOT {VALUE_TEXT} RLIKE {regex(CONTROL)})"
    name = f"substring_index({BODY_TYPE}, '/', 1)"
    known = ", ".join(map(quoted, BODIES))
    return case(
        (IS_LAYOUT, f"CASE WHEN {name} IN ({known}) THEN {name} ELSE 'bytes' END"),
        (is_text, "'text'"),
        otherwise="'bytes'",
    )


def _destination(name: str) -> str:
    text = text_of(name)
    is_one = f"{text} RLIKE '^(queue|topic|temp-queue|temp-topic)://(?s).' AND NOT {_is_no_text(name)}"
    scheme = f"substring_index({text}, '://', 1)"
    rest = f"substring({text}, length({scheme}) + 4)"
    return f"CASE WHEN {is_one} THEN named_struct('destinationType', {scheme}, 'name', {rest}) END"


def _is_binary_id() -> str:
    return f"contains({TYPES} || ',', ',JMSCorrelationID=bytes,')"


def properties() -> str:
    """Return the properties as a map of texts: of the headers of one name the last."""
    reserved = ", ".join(map(quoted, (*FIELDS, *INTERNAL)))
    is_last = f"array_position({NAMES}, h.key) = size(headers) - i"
    is_layout = "h.key = 'kjms' AND array_position(headers.key, 'kjms') = i + 1"
    kept = f"filter(headers, (h, i) -> {is_last} AND h.key NOT IN ({reserved}) AND NOT ({is_layout}))"
    entries = f"transform({kept}, h -> struct(h.key, make_valid_utf8(CAST(h.value AS STRING))))"
    own = f"coalesce(map_from_entries({entries}), CAST(map() AS MAP<STRING, STRING>))"
    group = f"map('JMSXGroupID', {KEY_TEXT})"
    return case((f"{is_foreign_group()} AND {KEY_TEXT} IS NOT NULL", f"map_concat({own}, {group})"), otherwise=own)


def property_types() -> str:
    """Return the types of those properties that are no strings."""
    start = "concat(',', n, '=')"
    said = f"substring_index(substring_index({TYPES}, {start}, -1), ',', 1)"
    longs = ", ".join(quoted(name) for name, kind in NUMBERS.items() if kind == "long")
    numbers = f"CASE WHEN n IN ({longs}) THEN 'long' ELSE 'int' END"
    declared = case(
        (f"n IN ({', '.join(map(quoted, NUMBERS))}) AND {IS_DEAD_LETTER}", numbers),
        (f"contains({TYPES}, {start})", said),
        (f"n = 'JMSXGroupSeq' AND NOT {IS_LAYOUT}", "'int'"),
    )
    kinds = f"transform_values({properties()}, (n, t) -> named_struct('k', {declared}, 't', t))"
    valid = f"map_filter({kinds}, (n, v) -> {is_valid('v.k', 'v.t')})"
    return f"transform_values({valid}, (n, v) -> v.k)"


def _avro(kind: str) -> Column:
    """Return the body as Spark reads it by kjms's schema; null where it is no such body."""
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    is_one = f.expr(f"{KIND} = '{kind}' AND length(value) > 0")
    return from_avro(f.when(is_one, f.col("value")), body_schema(kind), {"mode": "PERMISSIVE"})


def _map() -> str:
    empty = f"CAST(map() AS MAP<STRING, {TYPED}>)"
    is_good = f"NOT exists(map_values({MAP}), v -> {_is_out_of_range('v')}) AND forall(map_keys({MAP}), {_IS_TEXT})"
    return case(
        (f"{KIND} <> 'map'", "NULL"),
        ("coalesce(length(value), 0) = 0", empty),
        (is_good, f"transform_values({MAP}, (n, v) -> {_typed('v')})"),
    )


def _stream() -> str:
    empty = f"CAST(array() AS ARRAY<{TYPED}>)"
    return case(
        (f"{KIND} <> 'stream'", "NULL"),
        ("coalesce(length(value), 0) = 0", empty),
        (f"NOT exists({STREAM}, v -> {_is_out_of_range('v')})", f"transform({STREAM}, v -> {_typed('v')})"),
    )


_IS_TEXT: Final = "n -> is_valid_utf8(n)"


def _is_out_of_range(value: str) -> str:
    """Return whether a value is not of its type, though Avro can write it: byte, short and char are ints there."""
    return (
        f"coalesce({value}.member1.value NOT BETWEEN -128 AND 127, FALSE)"
        f" OR coalesce({value}.member2.value NOT BETWEEN -32768 AND 32767, FALSE)"
        f" OR coalesce({value}.member3.value NOT BETWEEN 0 AND 65535, FALSE)"
        f" OR NOT coalesce(is_valid_utf8({value}.member8), TRUE)"
    )


def _typed(value: str) -> str:
    """Return a value with its type."""
    values = {name: sql.format(value) for name, sql in BRANCHES.items()}
    kinds = [(f"{sql} IS NOT NULL", quoted(name)) for name, sql in values.items()]
    fields = ", ".join(f"'{name}', {sql}" for name, sql in values.items())
    return f"CAST(named_struct('propertyType', {case(*kinds, otherwise=NULL_VALUE)}, {fields}) AS {TYPED})"


NULL_VALUE: Final = "'null-value'"


def _damage() -> str:
    """Return what could not be read as it should, a sentence each."""
    layout_header = "array_position(headers.key, 'kjms') > 0"
    longs = ("JMSTimestamp", "JMSExpiration", "JMSDeliveryTime")
    checks = [
        (f"{layout_header} AND NOT {IS_LAYOUT}", "'header kjms cannot be read'"),
        (
            f"{IS_LAYOUT} AND CAST(substring_index({LAYOUT}, ';', 1) AS INT) <> 1",
            f"concat('layout version ', substring_index({LAYOUT}, ';', 1), ' is not 1; what is known of it was read')",
        ),
        (
            f"{IS_LAYOUT} AND substring_index({BODY_TYPE}, '/', 1) NOT IN ({', '.join(map(quoted, BODIES))})",
            f"concat('body type ', {BODY_TYPE}, ' is not known; the value reads as bytes')",
        ),
        (
            f"size(array_distinct(headers.key)) < size(headers) - CAST({_kjms_count()} > 1 AS INT)",
            "'a header stands in the record more than once; the last one counts'",
        ),
        *((_is_unread(name, long_of(name, "NULL")), _unread(name)) for name in longs),
        (_is_unread("JMSDeliveryMode", long_of("JMSDeliveryMode", "NULL", "1 AND 2")), _unread("JMSDeliveryMode")),
        (_is_unread("JMSPriority", long_of("JMSPriority", "NULL", "0 AND 9")), _unread("JMSPriority")),
        *((_is_unread(name, place(name)), _unread(name)) for name in PLACES),
        *((_is_no_text(name), _unread(name)) for name in ("JMSMessageID", "JMSType")),
        (f"{_is_no_text('JMSCorrelationID')} AND NOT {_is_binary_id()}", _unread("JMSCorrelationID")),
        (
            f"exists(map_entries({properties()}), p -> contains({TYPES}, concat(',', p.key, '=')) AND p.value IS NOT"
            f" NULL AND NOT {is_valid(_declared('p.key'), 'p.value')})",
            "'a property is not of its type; it reads as a string'",
        ),
        (f"exists(headers, h -> {_is_bad_property('h')})", "'a property is not UTF-8 throughout'"),
        (
            f"{KIND} = 'text' AND NOT coalesce(is_valid_utf8({VALUE_TEXT}), TRUE)",
            "'the text is not UTF-8 throughout; U+FFFD stands for what is not'",
        ),
        (f"{KIND} = 'map' AND {_map()} IS NULL", "'the value is not a body of type map'"),
        (f"{KIND} = 'stream' AND {_stream()} IS NULL", "'the value is not a body of type stream'"),
    ]
    return f"array_compact(array({', '.join(f'CASE WHEN {condition} THEN {text} END' for condition, text in checks)}))"


def _kjms_count() -> str:
    return "size(filter(headers.key, name -> name = 'kjms'))"


def _unread(name: str) -> str:
    return f"'header {name} cannot be read'"


def _is_unread(name: str, value: str) -> str:
    return f"{header(name)} IS NOT NULL AND ({value}) IS NULL"


def _is_no_text(name: str) -> str:
    return f"NOT coalesce(is_valid_utf8(CAST({header(name)} AS STRING)), TRUE)"


def _is_bad_property(held: str) -> str:
    reserved = ", ".join(map(quoted, (*FIELDS, *INTERNAL, "kjms")))
    return f"{held}.key NOT IN ({reserved}) AND NOT coalesce(is_valid_utf8(CAST({held}.value AS STRING)), TRUE)"


def _declared(name: str) -> str:
    return f"substring_index(substring_index({TYPES}, concat(',', {name}, '='), -1), ',', 1)"
