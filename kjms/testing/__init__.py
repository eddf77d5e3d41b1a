"""A Kafka in memory, for tests of programs that use kjms: it needs no Java and starts at once."""

from kjms.testing._controls import MemoryClock, MemoryFaults
from kjms.testing._faults import LateRequest, Operation, Repeated, Right
from kjms.testing._memory_kafka import MemoryKafka

__all__ = ["LateRequest", "MemoryClock", "MemoryFaults", "MemoryKafka", "Operation", "Repeated", "Right"]
