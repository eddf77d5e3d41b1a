"""What a round of the exactly-once test is like, and what is done to whom and when: a pure function of the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from crash_plan import CONSUMERS, Disturbance

RECEIVE: Final = "receive loop"
LISTENER: Final = "listener"
KILL: Final = "kill"
PAUSE: Final = "pause"
PROCESSES: Final = 60  # that a round may start
SETTLING_SECONDS: Final = 3.0  # at the beginning nothing is disturbed


@dataclass(frozen=True)
class Accident:
    """What happens to a process in the middle of a commit.

    Args:
        what: "kill" or "pause".
        transaction: In which transaction of its first session.
        after: How many seconds after the beginning of the commit.
        seconds: How long the pause lasts.
    """

    what: str
    transaction: int
    after: float
    seconds: float = 0.0


@dataclass(frozen=True)
class MovingPlan:
    """One round.

    Args:
        partitions: Of the queue that messages are moved from.
        target_partitions: Of the queue that they are moved to.
        prefetch: Of the consumers.
        modes: How the sessions of each process that is started receive, one process after the other.
        disturbances: In the order of time.
        accidents: Of each process that is started.
    """

    partitions: int
    target_partitions: int
    prefetch: int
    modes: tuple[tuple[str, ...], ...]
    disturbances: tuple[Disturbance, ...]
    accidents: tuple[Accident | None, ...]


def plan(seed: int, number: int, seconds: float, session_timeout: float) -> MovingPlan:
    """Return the plan of round *number*.

    Args:
        seed: What all rounds of a run have in common.
        number: The round, from 1.
        seconds: How long messages are moved and processes disturbed.
        session_timeout: Seconds after which the group gives a silent member up; pauses are longer.
    """
    chance = random.Random(f"once-{seed}-{number}")
    span = max(seconds - SETTLING_SECONDS, 1.0)
    wanted = ["kill", chance.choice(["stop broker", "kill broker"]), "pause", "kill", "leave", "join"]
    count = max(3, round(span / 2))
    chosen = wanted[:count] + chance.choices(["kill", "kill", "pause", "leave"], k=max(0, count - len(wanted)))
    disturbances = []
    for what in chosen:
        length = chance.uniform(0.1, 1.0)
        if what == "pause":
            length = session_timeout + chance.uniform(1.0, 3.0)
        elif what in {"stop broker", "kill broker"}:
            length = chance.uniform(0.0, 2.0)
        at = SETTLING_SECONDS + chance.random() * span
        disturbances.append(Disturbance(round(at, 2), what, chance.randrange(CONSUMERS), round(length, 2)))
    return MovingPlan(
        partitions=chance.choice([1, 4, 4]),
        target_partitions=chance.choice([1, 1, 3]),
        prefetch=chance.choice([10, 100, 1_000]),
        modes=tuple(tuple(chance.choices([RECEIVE, LISTENER], k=chance.choice([1, 2, 3]))) for _ in range(PROCESSES)),
        disturbances=tuple(sorted(disturbances, key=lambda each: each.at)),
        accidents=tuple(_accident(chance, session_timeout) for _ in range(PROCESSES)),
    )


def _accident(chance: random.Random, session_timeout: float) -> Accident | None:
    what = chance.choice([None, KILL, PAUSE])
    if what is None:
        return None
    seconds = session_timeout + chance.uniform(1.0, 3.0) if what == PAUSE else 0.0
    # A commit takes from five milliseconds, to some tens of them where the processors are busy.
    return Accident(what, chance.randrange(2, 20), round(chance.random() ** 2 * 0.03, 4), round(seconds, 2))
