"""The process's side of Kafka: readers, publishers and topics; the only room with threads and Kafka clients."""

from kjms.engine._engine import Engine

__all__ = ["Engine"]
