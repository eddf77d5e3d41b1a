"""The process's side of Kafka: readers, publishers and topics; the only room with threads and Kafka clients."""

from kjms.engine.engine import Engine, process_statistics

__all__ = ["Engine", "process_statistics"]
