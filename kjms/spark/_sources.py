"""Where header fields and properties are found in a frame: a Kafka record's headers, or the columns that were decoded.

Text of Spark SQL, as in `kjms.spark._sql`. What a record's headers mean is docs/wire-format.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kjms.mapping.dead_letters import CAUSE, NUMBERS
from kjms.spark._sql import case, is_whole, quoted

__all__ = ["FIELDS", "HELPERS", "Decoded", "Record", "Source", "found", "long_of", "text_of"]

FIELDS: Final = (
    "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSReplyTo", "JMSDestination", "JMSDeliveryMode", "JMSType",
    "JMSExpiration", "JMSDeliveryTime", "JMSPriority", "JMSRedelivered",
)  # fmt: skip
"""Headers of these names are header fields, and never properties."""

NAMES: Final = "`__kjms_names`"
VALUES: Final = "`__kjms_values`"
LAYOUT: Final = "`__kjms_layout`"
TYPES: Final = "`__kjms_types`"

_KEYS: Final = "`__kjms_keys`"
_GIVEN: Final = "`__kjms_given`"
# Layout 1 is what there is; the regular expression costs more.
_IS_VALID: Final = f"startswith({_GIVEN}, '1;') OR {_GIVEN} RLIKE '^[0-9]{{1,9}};'"
_THIRD: Final = f"substring_index(substring_index(concat({_GIVEN}, ';;'), ';', 3), ';', -1)"

HELPERS: Final = (
    {_KEYS: "headers.key", VALUES: "headers.value"},
    {
        # The last header of a name counts: from the end, it is the first.
        NAMES: f"reverse({_KEYS})",
        # But the first one called kjms is the layout; an application may call a property so.
        _GIVEN: f"try_validate_utf8(CAST(get({VALUES}, array_position({_KEYS}, 'kjms') - 1) AS STRING))",
    },
    {
        LAYOUT: f"CASE WHEN {_IS_VALID} THEN {_GIVEN} END",
        TYPES: f"CASE WHEN {_IS_VALID} THEN concat(',', {_THIRD}) END",
    },
)
"""Columns that are added to Kafka's, one step after the other, so that no record is searched more often than needed."""

IS_LAYOUT: Final = f"({LAYOUT} IS NOT NULL)"
IS_DEAD_LETTER: Final = f"array_contains({NAMES}, {quoted(CAUSE)})"


class Source(Protocol):
    """Gives what a selector asks for, as text of SQL."""

    def text(self, name: str) -> str:
        """Return the text of the property *name*; null where there is none."""

    def kind(self, name: str) -> str:
        """Return the type that the property *name* is said to have; null for a string, and then another word may do."""

    def field(self, name: str) -> tuple[str, str] | None:
        """Return the type of the header field *name* and its value; None where selectors see nothing of that name."""


Of: TypeAlias = "Callable[[str], str]"
"""Gives the bytes of the header of a name, as text of SQL."""


def found(name: str) -> str:
    """Return the bytes of the last header called *name*; null where there is none."""
    return f"get({VALUES}, cardinality({NAMES}) - array_position({NAMES}, {quoted(name)}))"


def text_of(name: str, of: Of = found) -> str:
    """Return the text of the last header called *name*; what is no UTF-8 in it is U+FFFD."""
    return f"make_valid_utf8(CAST({of(name)} AS STRING))"


def long_of(name: str, default: str, between: str = "", of: Of = found) -> str:
    """Return the whole number in the header *name*, *default* where there is none or it cannot be read.

    Args:
        name: The header.
        default: An expression.
        between: What it must lie between, as in ``1 AND 2``.
        of: Gives the bytes of the header.
    """
    text = f"CAST({of(name)} AS STRING)"
    number = f"TRY_CAST({text} AS BIGINT)"
    fits = is_whole(text) + (f" AND {number} BETWEEN {between}" if between else "")
    return f"coalesce(CASE WHEN {fits} THEN {number} END, {default})"


@dataclass(frozen=True)
class Record:
    """The headers of a Kafka record, in a frame that has the columns of Spark's Kafka source and `HELPERS`.

    Args:
        count: The text of JMSXDeliveryCount.
    """

    count: str = "'1'"

    def text(self, name: str) -> str:
        """Return the text of the property *name*."""
        if name == "JMSXDeliveryCount":
            return self.count
        if name == "kjms":
            return f"CASE WHEN size(filter(headers.key, name -> name = 'kjms')) > 1 THEN {text_of(name)} END"
        if name == "JMSXGroupID":
            return case((f"{is_foreign_group()}", KEY_TEXT), otherwise=text_of(name))
        return text_of(name)

    def kind(self, name: str) -> str:
        """Return the type that the layout gives the property *name*."""
        if name == "JMSXDeliveryCount":
            return "'int'"
        start = quoted(f",{name}=")
        declared = f"substring_index(substring_index({TYPES}, {start}, -1), ',', 1)"
        branches = [(f"contains({TYPES}, {start})", declared)]
        if name == "JMSXGroupSeq":
            branches.insert(0, (f"NOT {IS_LAYOUT}", "'int'"))
        if name in NUMBERS:
            branches.insert(0, (IS_DEAD_LETTER, quoted(NUMBERS[name])))
        return case(*branches)

    def field(self, name: str) -> tuple[str, str] | None:
        """Return the type of the header field *name* and its value."""
        fields = {
            "JMSMessageID": ("string", message_id()),
            "JMSTimestamp": ("long", timestamp()),
            "JMSCorrelationID": ("string", text_of("JMSCorrelationID")),
            "JMSType": ("string", text_of("JMSType")),
            "JMSPriority": ("int", long_of("JMSPriority", "4", "0 AND 9")),
            "JMSDeliveryMode": ("string", mode_text(long_of("JMSDeliveryMode", "2", "1 AND 2"))),
        }
        return fields.get(name)


@dataclass(frozen=True)
class Decoded:
    """The columns that `kjms.spark.decode` makes, such as those of an archive.

    Args:
        counts: Whether the frame says how often messages were delivered.
    """

    counts: bool = False

    def text(self, name: str) -> str:
        """Return the text of the property *name*."""
        if name == "JMSXDeliveryCount":
            return "CAST(deliveryCount AS STRING)" if self.counts else "'1'"
        return f"try_element_at(properties, {quoted(name)})"

    def kind(self, name: str) -> str:
        """Return the type of the property *name*."""
        return "'int'" if name == "JMSXDeliveryCount" else f"try_element_at(propertyTypes, {quoted(name)})"

    def field(self, name: str) -> tuple[str, str] | None:
        """Return the type of the header field *name* and its value."""
        fields = {
            "JMSMessageID": ("string", "messageID"),
            "JMSTimestamp": ("long", "`timestamp`"),
            "JMSCorrelationID": ("string", "correlationID"),
            "JMSType": ("string", "`type`"),
            "JMSPriority": ("int", "CAST(priority AS BIGINT)"),
            "JMSDeliveryMode": ("string", mode_text("deliveryMode")),
        }
        return fields.get(name)


KEY_TEXT: Final = "try_validate_utf8(CAST(`key` AS STRING))"


def is_foreign_group() -> str:
    """Return whether the record's key is its message group: no JMS program wrote it, and no header says another."""
    return f"NOT {IS_LAYOUT} AND coalesce(array_position({NAMES}, 'JMSXGroupID'), 0) = 0"


def message_id(of: Of = found) -> str:
    """Return the message's id; a record that no JMS program wrote has one of its coordinates."""
    made = "concat('ID:kafka-', topic, '-', `partition`, '-', `offset`)"
    return f"coalesce({text_of('JMSMessageID', of)}, CASE WHEN NOT {IS_LAYOUT} THEN {made} END)"


def timestamp(of: Of = found) -> str:
    """Return when the message was sent; of a record that no JMS program wrote, when it was written."""
    default = f"CASE WHEN {IS_LAYOUT} THEN 0 ELSE greatest(unix_millis(`timestamp`), 0) END"
    return long_of("JMSTimestamp", default, of=of)


def mode_text(mode: str) -> str:
    """Return the delivery mode as selectors see it."""
    return f"CASE WHEN {mode} = 1 THEN 'NON_PERSISTENT' ELSE 'PERSISTENT' END"
