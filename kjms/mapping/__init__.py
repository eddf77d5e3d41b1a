"""Where a JMS message becomes a Kafka record and back: pure, no clock, no I/O. docs/wire-format.md is the layout."""

from __future__ import annotations

from importlib.resources import files

from kjms.mapping._decode import decode
from kjms.mapping._encode import encode
from kjms.mapping._record import ANY_PARTITION, KafkaRecord, SourceRecord, compact
from kjms.mapping._sender import client_sender, connection_sender, sign

__all__ = [
    "ANY_PARTITION",
    "KafkaRecord",
    "SourceRecord",
    "body_schema",
    "client_sender",
    "compact",
    "connection_sender",
    "decode",
    "encode",
    "sign",
]


def body_schema(body_type: str) -> str:
    """Return the Avro schema, as JSON, of the bodies of type ``map``, ``stream`` or ``object``.

    Raises:
        ValueError: Bodies of that type are not Avro.
    """
    if body_type not in {"map", "stream", "object"}:
        raise ValueError(f"the schemas are those of map, stream and object, not of {body_type!r}")
    return (files(__name__) / "schemas" / f"{body_type}.avsc").read_text("utf-8")
