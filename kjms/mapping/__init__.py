"""Where a JMS message becomes a Kafka record and back: pure, no clock, no I/O. docs/wire-format.md is the layout."""

from kjms.mapping._decode import decode
from kjms.mapping._encode import encode
from kjms.mapping._record import KafkaRecord, SourceRecord

__all__ = ["KafkaRecord", "SourceRecord", "decode", "encode"]
