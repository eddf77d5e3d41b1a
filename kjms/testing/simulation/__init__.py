"""Simulated programs that crash: for tests whether handlers are idempotent; see ``docs/testing.md``."""

from kjms.testing.simulation._choices import Fault
from kjms.testing.simulation._programs import Program
from kjms.testing.simulation._world import World, simulated

__all__ = ["Fault", "Program", "World", "simulated"]
