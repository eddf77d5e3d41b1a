"""The names of properties: which an application may set (JMS 2.0 §3.5.1, §3.5.9)."""

from __future__ import annotations

from typing import Final

from kjms.errors import MessageFormatException, shown
from kjms.identifiers import is_identifier
from kjms.message._jmsx import JMSX

__all__ = ["CLIENT_PROPERTIES", "CONTENT_TYPE", "DELIVERY_COUNT", "check_name", "good_names", "is_providers"]

DELIVERY_COUNT: Final = JMSX.DELIVERY_COUNT
"""What each delivery says of itself. No record has it: where one has a header of that name, it is no property."""
CONTENT_TYPE: Final = "JMS_kjms_ContentType"
"""The property with the content type of the body, as AMQP has it, such as ``application/json``."""
CLIENT_PROPERTIES: Final = {JMSX.GROUP_ID: "string", JMSX.GROUP_SEQ: "int"}
"""The JMSX properties that applications may set, with their types (JMS 2.0 §3.5.9)."""

good_names: set[str] = set()  # names of properties that were looked at and found good, to look once


def is_providers(name: str) -> bool:
    """Return whether *name* is that of a property which only a provider sets (JMS 2.0 §3.5.9, §3.5.10).

    They stay with a message that is received and passed on. No application sets them, and none comes in with a message
    that is described otherwise: by JSON, or by an object of another implementation.

    >>> [is_providers(name) for name in ("JMSXUserID", "JMSXGroupID", "JMS_kjms_Cause", "JMS_IBM_Format", "JMSType")]
    [True, False, True, False, False]
    """
    return (name.startswith("JMSX") and name not in CLIENT_PROPERTIES) or name.startswith("JMS_kjms")


def check_name(name: str, kind: str | None) -> None:
    """Raise what is wrong with *name* as the name of a property that an application sets to a value of type *kind*."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a property name must not be empty or None, and is {shown(name)} (JMS 2.0 §B.4.5.2)")
    if not is_identifier(name):
        raise MessageFormatException(
            f"property name {shown(name)} is not an identifier, or selectors reserve it (JMS 2.0 §3.5.1)"
        )
    if name.startswith("JMS"):
        wanted = CLIENT_PROPERTIES.get(name)
        if wanted:
            if kind not in {wanted, None}:
                raise MessageFormatException(
                    f"property {name!r} is {wanted} by definition, not {kind} (JMS 2.0 §3.5.9)"
                )
            return
        if not name.startswith("JMS_") or name.startswith("JMS_kjms"):
            raise MessageFormatException(
                f"property name {name!r} is reserved: names that begin with JMS belong to JMS, those with JMS_kjms to"
                " the provider (JMS 2.0 §3.5.9, §3.5.10)"
            )
    if len(good_names) >= 4096:  # a program that makes up names must not make this grow
        good_names.clear()
    good_names.add(name)
