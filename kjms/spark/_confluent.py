"""Where records with the struct of Confluent's JMS connectors become messages: the columns of `kjms.spark.decode`.

What `kjms.mapping.confluent` reads record by record, in Spark's own expressions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kjms.mapping.confluent import value_schema
from kjms.spark._decode import TYPED, decoded, inlined, with_helpers
from kjms.spark._require import require_avro
from kjms.spark._sql import case, quoted
from kjms.spark._times import timestamp_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["confluent_decoded"]

_VALUES: Final = {
    "boolean": "BOOLEAN", "byte": "TINYINT", "short": "SMALLINT", "integer": "INT", "long": "BIGINT", "float": "FLOAT",
    "double": "DOUBLE", "string": "STRING",
}  # fmt: skip
_FIELDS: Final = {
    "messageID": "STRING", "messageType": "STRING", "timestamp": "BIGINT", "deliveryMode": "INT",
    "correlationID": "STRING", "replyTo": "STRUCT<destinationType: STRING, name: STRING>", "type": "STRING",
    "expiration": "BIGINT", "priority": "INT",
}  # fmt: skip
_HELD: Final = ", ".join(
    f"{name}: {kind}" for name, kind in {"propertyType": "STRING", **_VALUES, "bytes": "STRING"}.items()
)
_IN_JSON: Final = {
    **_FIELDS,
    "properties": f"MAP<STRING, STRUCT<{_HELD}>>",
    "bytes": "STRING",
    "map": f"MAP<STRING, STRUCT<{_HELD}>>",
    "text": "STRING",
}
_JSON_FIELDS: Final = ", ".join(f"{name}: {kind}" for name, kind in _IN_JSON.items())
_JSON_SCHEMA: Final = f"STRUCT<{_JSON_FIELDS}, payload: STRUCT<{_JSON_FIELDS}>>"
_TIMES: Final = {"sentAt": "timestamp", "expiresAt": "expiration", "deliverAt": "timestamp"}
_KNOWN: Final = "('text', 'bytes', 'map', 'message')"
_VALUE: Final = "`__kjms_value`"
_FIRST: Final = f"hex(substring({_VALUE}, 1, 1))"
_AVRO: Final = "`__kjms_avro`"
_JSON: Final = "`__kjms_json`"
_ONE: Final = "`__kjms_struct`"
_NO_STRUCT: Final = "'the value is no io.confluent.connect.jms.Value'"


def confluent_decoded(frame: DataFrame, destination: str, schema: str | None = None) -> DataFrame:
    """Return the messages in *frame*, whose records hold the struct ``io.confluent.connect.jms.Value``.

    As Connect's converters write it: Avro with the number of a schema before it, or JSON, with the schema beside it or
    not. Other records are read as by `kjms.spark.decode`.

    Args:
        frame: What Spark's Kafka source gives, with headers.
        destination: The struct of the destination where a record was read.
        schema: The Avro schema that the records were written with; None: the connectors' present one.

    Raises:
        JMSException: The session has no spark-avro.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    require_avro(frame.sparkSession)
    plain = decoded(with_helpers(frame), destination, more=(f"value AS {_VALUE}",))
    framed = f.expr(f"CASE WHEN {_FIRST} = '00' THEN substring({_VALUE}, 6) END")
    text = f"CASE WHEN {_FIRST} = '7B' THEN CAST({_VALUE} AS STRING) END"
    avro = from_avro(framed, schema or value_schema(), {"mode": "PERMISSIVE"})
    read = plain.withColumn(_AVRO.strip("`"), avro)
    read = inlined(read, {_JSON: f"from_json({text}, {quoted(_JSON_SCHEMA)})"})
    in_json = case(
        (f"{_JSON}.payload.messageType IN {_KNOWN}", _struct(f"{_JSON}.payload", is_json=True)),
        (f"{_JSON}.messageType IN {_KNOWN}", _struct(_JSON, is_json=True)),
    )
    one = inlined(read, {_ONE: case((f"{_AVRO}.messageType IN {_KNOWN}", _struct(_AVRO)), otherwise=in_json)})
    columns = _columns()
    looks_so = f"{_FIRST} IN ('00', '7B')"
    others = {"damage": case((looks_so, f"array_append(damage, {_NO_STRUCT})"), otherwise="damage")}
    return one.selectExpr(
        *(
            f"{case((f'{_ONE} IS NOT NULL', columns[name]), otherwise=others.get(name, f'`{name}`'))} AS `{name}`"
            if name in columns
            else f"`{name}`"
            for name in plain.columns
            if name != _VALUE.strip("`")
        )
    )


def _struct(struct: str, *, is_json: bool = False) -> str:
    """Return the struct in one form, whatever it was read from: bytes are base64 in JSON."""

    def raw(value: str) -> str:
        return f"try_to_binary({value}, 'base64')" if is_json else value

    def held(value: str) -> str:
        values = ", ".join(f"'{name}', TRY_CAST({value}.{name} AS {kind})" for name, kind in _VALUES.items())
        return (
            f"CAST(named_struct('propertyType', {value}.propertyType, {values}, 'bytes', {raw(f'{value}.bytes')},"
            f" 'char', NULL) AS {TYPED})"
        )

    def typed(entries: str) -> str:
        return f"transform_values({entries}, (n, v) -> {held('v')})"

    fields = ", ".join(f"'{name}', CAST({struct}.{name} AS {kind})" for name, kind in _FIELDS.items())
    body = f"'bytes', {raw(f'{struct}.bytes')}, 'map', {typed(f'{struct}.map')}, 'text', {struct}.text"
    return f"named_struct({fields}, 'properties', {typed(f'{struct}.properties')}, {body})"


def _columns() -> dict[str, str]:
    """Return the columns of a message that the struct holds."""

    def field(name: str) -> str:
        return f"{_ONE}.{name}"

    kind = field("messageType")
    # Bytes are no type that a property has, and the count is the delivery's.
    is_property = "v.propertyType <> 'bytes' AND n <> 'JMSXDeliveryCount'"
    properties = f"map_filter(coalesce({field('properties')}, map()), (n, v) -> {is_property})"
    name = "CASE v.propertyType WHEN 'integer' THEN 'int' ELSE v.propertyType END"
    others = f"map_filter({properties}, (n, v) -> v.propertyType NOT IN ('string', 'null-value'))"
    text = f"coalesce({', '.join(f'CAST(v.{name} AS STRING)' for name in _VALUES)})"
    scheme = case((f"contains({field('replyTo')}.destinationType, 'topic')", "'topic'"), otherwise="'queue'")
    reply_to = f"named_struct('destinationType', {scheme}, 'name', {field('replyTo')}.name)"
    return {
        "messageID": f"nullif({field('messageID')}, '')",
        "messageType": kind,
        "timestamp": f"coalesce({field('timestamp')}, 0L)",
        "deliveryMode": case((f"{field('deliveryMode')} = 1", "1"), otherwise="2"),
        "correlationID": field("correlationID"),
        "correlationIDBytes": "CAST(NULL AS BINARY)",
        "replyTo": case((f"{field('replyTo')}.name IS NOT NULL", reply_to)),
        "type": field("type"),
        "expiration": f"coalesce({field('expiration')}, 0L)",
        "deliveryTime": f"coalesce({field('timestamp')}, 0L)",
        **{beside: timestamp_of(field(name)) for beside, name in _TIMES.items()},
        "priority": case((f"{field('priority')} BETWEEN 0 AND 9", field("priority")), otherwise="4"),
        "properties": f"transform_values({properties}, (n, v) -> {text})",
        "propertyTypes": f"transform_values({others}, (n, v) -> {name})",
        "text": case((f"{kind} = 'text'", field("text"))),
        "bytes": case((f"{kind} = 'bytes'", f"coalesce({field('bytes')}, X'')")),
        "map": case((f"{kind} = 'map'", f"coalesce({field('map')}, CAST(map() AS MAP<STRING, {TYPED}>))")),
        "stream": f"CAST(NULL AS ARRAY<{TYPED}>)",
        "damage": "CAST(array() AS ARRAY<STRING>)",
    }
