"""A Kafka in memory, for tests of programs that use kjms: it needs no Java and starts at once."""

from kjms.testing._controls import MemoryClock, MemoryFaults
from kjms.testing._faults import Operation, Right
from kjms.testing._memory_kafka import MemoryKafka

__all__ = ["MemoryClock", "MemoryFaults", "MemoryKafka", "Operation", "Right"]
