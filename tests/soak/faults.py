"""What goes wrong in a soak, and when: the seed decides."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psutil

from kjms.broker import LocalBroker

if TYPE_CHECKING:
    from tests.soak.programs import Programs

AWAY_SECONDS: Final = 3.0  # of a broker that is restarted
PAUSED_SECONDS: Final = 12.0  # of a program: longer than the brokers wait for a member that takes over (10 s)
BROKER_PAUSED_SECONDS: Final = 12.0  # longer than its cluster waits for it (9 s)
EARLIEST, LATEST = 0.1, 0.9  # of the run: before that everything starts, and after that everything drains


@dataclass(frozen=True)
class Fault:
    """One fault: seconds since the begin, its kind, and a number that chooses its victim."""

    at: float
    kind: str
    victim: int


class Faults:
    """Carries out faults.

    Args:
        broker: The cluster.
        programs: The programs that may be killed.
    """

    def __init__(self, broker: LocalBroker, programs: Programs) -> None:
        self._broker, self._programs = broker, programs

    def carry_out(self, fault: Fault) -> None:
        """Do it, and return when it is over."""
        KINDS[fault.kind](self, fault.victim)

    def kill_mover(self, victim: int) -> None:
        """Kill a program in the middle of its transactions, and start another one."""
        self._programs.replace(f"mover {victim % self._programs.movers}", signal.SIGKILL)

    def end_mover(self, victim: int) -> None:
        """End a program in order, and start another one."""
        self._programs.replace(f"mover {victim % self._programs.movers}", signal.SIGTERM)

    def pause_mover(self, victim: int) -> None:
        """Have a program stand still until its group has put it out."""
        process = psutil.Process(self._programs.process_id(f"mover {victim % self._programs.movers}"))
        process.suspend()
        time.sleep(PAUSED_SECONDS)
        process.resume()

    def kill_worker(self, _victim: int) -> None:
        """Kill the process that runs listeners; its supervisor starts another one."""
        for each in psutil.Process(self._programs.process_id("workers")).children():
            each.kill()

    def restart_gateway(self, _victim: int) -> None:
        """End the gateway in order, and start another one."""
        self._programs.replace("gateway", signal.SIGTERM)

    def kill_gateway(self, _victim: int) -> None:
        """Kill the gateway, and start another one."""
        self._programs.replace("gateway", signal.SIGKILL)

    def restart_broker(self, victim: int) -> None:
        """Stop a broker in order, and start it again."""
        self._end_broker(victim, self._broker.stop)

    def kill_broker(self, victim: int) -> None:
        """Kill a broker, and start it again."""
        self._end_broker(victim, self._broker.kill)

    def _end_broker(self, victim: int, end: Callable[[int], None]) -> None:
        node = self._node(victim)
        end(node)
        time.sleep(AWAY_SECONDS)
        self._broker.start(node)

    def pause_broker(self, victim: int) -> None:
        """Have a broker stand still until another one takes over, or until it continues."""
        node = self._node(victim)
        self._broker.pause(node)
        time.sleep(BROKER_PAUSED_SECONDS)
        self._broker.resume(node)

    def _node(self, victim: int) -> int:
        return self._broker.nodes[victim % len(self._broker.nodes)]


KINDS: Final[Mapping[str, Callable[[Faults, int], None]]] = {
    "kill a mover": Faults.kill_mover,
    "end a mover": Faults.end_mover,
    "pause a mover": Faults.pause_mover,
    "kill a worker": Faults.kill_worker,
    "restart the gateway": Faults.restart_gateway,
    "kill the gateway": Faults.kill_gateway,
    "restart a broker": Faults.restart_broker,
    "kill a broker": Faults.kill_broker,
    "pause a broker": Faults.pause_broker,
}


def plan(seed: int, seconds: float, every: float) -> list[Fault]:
    """Return the faults of a run of so many *seconds*, one *every* so many of them on average.

    All kinds come once before one of them comes again.

    >>> plan(1, 600, 30) == plan(1, 600, 30)
    True
    """
    return list(_planned(random.Random(seed), seconds, every)) if every else []


def _planned(chance: random.Random, seconds: float, every: float) -> Iterator[Fault]:
    at, kinds = seconds * EARLIEST, list[str]()
    while at < seconds * LATEST:
        if not kinds:
            kinds = chance.sample([*KINDS], len(KINDS))
        yield Fault(at, kinds.pop(), chance.randrange(1_000))
        at += every * chance.uniform(0.6, 1.4)
