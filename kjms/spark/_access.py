"""Single values of messages in frames, as columns: properties by JMS's conversions, and object bodies as JSON."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

from kjms.checking import checked
from kjms.errors import shown
from kjms.mapping import body_schema
from kjms.message._values import READABLE_AS
from kjms.spark._require import require_pyspark
from kjms.spark._sql import EXACT_KINDS, KINDS, case, quoted, read_real, read_whole
from kjms.spark._text_forms import is_form, read_form

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

__all__ = ["get_property", "object_body"]

_SQL_TYPES: Final = {
    "byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE",
}  # fmt: skip
_KINDS_OF: Final = {"tinyint": "byte", "smallint": "short", "bigint": "long"}
"""Types of JMS that Spark calls otherwise."""
DEEPEST: Final = 8  # each level doubles the expression


@checked
def get_property(name: str, kind: str | DataType = "string") -> Column:
    """Return the property *name* as a column of that name and of type *kind*, for frames of `kjms.spark.decode`.

    Args:
        name: The property.
        kind: A type of JMS: ``boolean``, ``byte``, ``short``, ``int``, ``long``, ``float``, ``double`` or ``string``.
            Or a type of Spark that a string property has the text of: ``date``, ``timestamp``, ``timestamp_ntz``,
            ``decimal(10,2)``, ``array<string>``, as text or as one of ``pyspark.sql.types``. A decimal is read from
            whole numbers, too, and rounded to its scale.

    Returns:
        What the getter of that type gives: an int can be read as long and as string, a string as any type whose value
        it says, and so on. Null where there is no such property, where it is null, and where the getter would raise.

    Raises:
        ValueError: *kind* is none of these.
        JMSException: There is no pyspark.

    Spec: JMS 2.0 §3.5.4; the text forms are in docs/spark.md.
    """
    given = kind if isinstance(kind, str) else kind.simpleString() if hasattr(kind, "simpleString") else ""
    wanted = given.replace(" ", "").lower()
    wanted = _KINDS_OF.get(wanted, wanted)
    if wanted not in {*KINDS, "string"} and not is_form(wanted):
        raise ValueError(
            f"kind is {', '.join(KINDS)}, string, date, timestamp, timestamp_ntz, decimal(p,s) or an array of such, not"
            f" {shown(kind)}"
        )
    require_pyspark()
    from pyspark.sql import functions as f

    return f.expr(_property(name, wanted)).alias(name)


def _property(name: str, kind: str) -> str:
    """Return the property *name* as a value of type *kind*, as text of SQL."""
    text = f"try_element_at(properties, {quoted(name)})"
    held = f"coalesce(try_element_at(propertyTypes, {quoted(name)}), 'string')"
    if is_form(kind):
        kinds = ", ".join(map(quoted, ("string", *EXACT_KINDS) if kind.startswith("decimal") else ("string",)))
        return f"CASE WHEN {held} IN ({kinds}) THEN {read_form(text, kind)} END"
    known = ", ".join(map(quoted, sorted(each for each, others in READABLE_AS.items() if kind in others)))
    if kind == "boolean":
        value = f"lower({text}) = 'true'"
    elif kind == "string":
        exact = ", ".join(map(quoted, EXACT_KINDS))
        value = case(
            (f"{held} IN ({exact})", f"CAST({read_whole(held, text)} AS STRING)"),
            (f"{held} = 'float'", f"CAST(CAST({read_real(held, text)} AS FLOAT) AS STRING)"),
            (f"{held} = 'double'", f"CAST({read_real(held, text)} AS STRING)"),
            otherwise=text,
        )
    elif kind in EXACT_KINDS:
        value = f"CAST({read_whole(quoted(kind), text)} AS {_SQL_TYPES[kind]})"
    else:
        # A float that is read as a double has the value that it has as a float.
        own = f"CASE WHEN {held} = 'float' THEN 'float' ELSE {quoted(kind)} END"
        value = f"CAST({read_real(own, text)} AS {_SQL_TYPES[kind]})"
    return f"CASE WHEN {held} IN ({known}) THEN {value} END"


@checked
def object_body(depth: int = 4) -> Column:
    """Return the body of ObjectMessages as JSON, the column ``object_body``, for frames of `kjms.spark.decode`.

    That of objects that are plain values: ``messageType`` is ``object``. Others can be read with their codec only, and
    are in the column ``bytes``. Bytes become base64, whole numbers beyond 64 bits hexadecimal digits, and what JSON has
    no number for ``NaN``, ``Infinity`` and ``-Infinity``, each as a string. ``from_json`` and ``parse_json`` make
    typed values of it.

    Args:
        depth: How deep lists and dicts may be nested, up to 8; deeper objects are null.

    Raises:
        ValueError: *depth* is out of range.
        JMSException: There is no pyspark, or the session has no spark-avro.
    """
    if isinstance(depth, bool) or not 0 <= depth <= DEEPEST:
        raise ValueError(f"depth is 0 to {DEEPEST}, not {shown(depth)}")
    require_pyspark()
    from pyspark.sql import functions as f
    from pyspark.sql.avro.functions import from_avro

    is_plain = f.expr("messageType = 'object' AND length(bytes) > 0")
    schema = json.dumps(_nested(json.loads(body_schema("object")), depth))
    held = from_avro(f.when(is_plain, f.col("bytes")), schema, {"mode": "PERMISSIVE"})
    return f.transform(f.array(held), lambda value: _json(value["value"], depth))[0].alias("object_body")


def _nested(schema: dict[str, Any], depth: int) -> dict[str, Any]:
    """Return the schema of an object without recursion: Spark's Avro reader has none. Deeper objects cannot be read."""
    nested: dict[str, Any] | None = None
    for level in range(depth + 1):
        made = copy.deepcopy(schema)
        made["name"] = f"Object{level}"
        union = made["fields"][0]["type"]
        for branch in union:
            if isinstance(branch, dict) and branch["type"] == "record":
                branch["name"] = f"Integer{level}"
        union[:] = [each for each in union if not _is_container(each)]
        if nested is not None:
            union += [{"type": "array", "items": nested}, {"type": "map", "values": nested["name"]}]
        nested = made
    assert nested is not None
    return nested


def _is_container(branch: object) -> bool:
    return isinstance(branch, dict) and branch["type"] in {"array", "map"}


def _json(value: Column, depth: int) -> Column:
    """Return the JSON of a value: the union of object.avsc as Spark names its branches, null left out."""
    from pyspark.sql import functions as f

    def text(of: Column) -> Column:
        """A string in JSON: Spark writes those of an array so."""
        written = f.to_json(f.array(of))
        return f.substring(written, f.lit(2), f.length(written) - 2)

    def inner(of: Column) -> Column:
        return f.coalesce(_json(of, depth - 1), f.lit("null"))

    def joined(begin: str, items: Column, end: str) -> Column:
        return f.concat(f.lit(begin), f.array_join(items, ","), f.lit(end))

    real = value["member2"]
    is_number = ~(f.isnan(real) | (f.abs(real) == f.lit(float("inf"))))
    made = (
        f.when(value["member0"].isNotNull(), value["member0"].cast("string"))
        .when(value["member1"].isNotNull(), value["member1"].cast("string"))
        .when(real.isNotNull(), f.when(is_number, real.cast("string")).otherwise(text(real.cast("string"))))
        .when(value["member3"].isNotNull(), text(value["member3"]))
        .when(value["member4"].isNotNull(), text(f.base64(value["member4"])))
        .when(value["member5"].isNotNull(), text(value["member5"]["hexadecimal"]))
    )
    if depth:
        items = f.transform(value["member6"], lambda item: inner(item["value"]))
        entries = f.transform(
            f.map_entries(value["member7"]),
            lambda entry: f.concat(text(entry["key"]), f.lit(":"), inner(entry["value"]["value"])),
        )
        made = made.when(value["member6"].isNotNull(), joined("[", items, "]"))
        made = made.when(value["member7"].isNotNull(), joined("{", entries, "}"))
    return made
