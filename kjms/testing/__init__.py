"""A Kafka in memory, and simulated crashes, for tests of programs that use kjms; both start at once, without Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms._lazy import loader
from kjms.testing._controls import MemoryClock, MemoryFaults
from kjms.testing._faults import LateRequest, Operation, Repeated, Right
from kjms.testing._memory_kafka import MemoryKafka

if TYPE_CHECKING:
    from kjms.testing.simulation import Fault, World, simulated

__all__ = [
    "Fault",
    "LateRequest",
    "MemoryClock",
    "MemoryFaults",
    "MemoryKafka",
    "Operation",
    "Repeated",
    "Right",
    "World",
    "simulated",
]

# The simulation loads workers and asyncio: programs that only want a MemoryKafka do not pay for that.
__getattr__ = loader(__name__, dict.fromkeys(("Fault", "World", "simulated"), "kjms.testing.simulation"))
