"""What is done to whom and when in a round of the crash test: a pure function of the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from crash_record import MODES

CONSUMERS: Final = 4  # processes; the machine is small
PRODUCERS: Final = 2
SETTLING_SECONDS: Final = 2.0  # at the beginning nothing is disturbed


@dataclass(frozen=True)
class Disturbance:
    """One thing that is done to a process, or to the broker.

    Args:
        at: Seconds after the beginning.
        what: "kill", "pause", "leave" (a consumer, which is replaced), "join" (a consumer that comes in addition),
            "kill producer", "stop broker" or "kill broker".
        slot: Which process.
        seconds: How long the pause lasts, or the broker is away, or the place of a process stays empty.
    """

    at: float
    what: str
    slot: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """One round.

    Args:
        partitions: Of the queue.
        prefetch: Of the consumers.
        modes: The acknowledge modes of the sessions of each consumer process that is started, one after the other.
        disturbances: In the order of time.
        fatal: How many messages kill their consumers.
    """

    partitions: int
    prefetch: int
    modes: tuple[tuple[str, ...], ...]
    disturbances: tuple[Disturbance, ...]
    fatal: int


def plan(seed: int, number: int, seconds: float, session_timeout: float) -> Plan:
    """Return the plan of round *number*.

    Args:
        seed: What all rounds of a run have in common.
        number: The round, from 1.
        seconds: How long messages are sent and processes disturbed.
        session_timeout: Seconds after which the group gives a silent member up; pauses are longer.
    """
    chance = random.Random(f"{seed}-{number}")
    span = max(seconds - SETTLING_SECONDS, 1.0)
    broker = chance.choice(["stop broker", "kill broker", "pause", "kill"])  # a restart takes up half of a round
    kinds = ["kill", "kill", "pause", "leave", "join", "kill producer", broker]
    count = max(3, round(span / 1.5))
    chosen = chance.sample(kinds, min(count, len(kinds))) + chance.choices(kinds, k=max(0, count - len(kinds)))
    disturbances = []
    paused: set[int] = set()
    broker_is_busy_until = 0.0
    for at, what in sorted((SETTLING_SECONDS + chance.random() * span, what) for what in chosen):
        slot = chance.randrange(PRODUCERS if what == "kill producer" else CONSUMERS)
        length = chance.uniform(0.1, 1.0)
        if what == "pause":
            if slot in paused:
                continue  # a session may be stopped in the middle of a hand-over once
            paused.add(slot)
            length = session_timeout + chance.uniform(1.0, 3.0)
        elif what in {"stop broker", "kill broker"}:
            if at < broker_is_busy_until:
                continue
            length = chance.uniform(0.0, 2.0)
            broker_is_busy_until = at + length + 8.0
        disturbances.append(Disturbance(round(at, 2), what, slot, round(length, 2)))
    modes = [(mode,) for mode in chance.sample(MODES, len(MODES))]  # each comes up; the fifth with the first that joins
    modes += [tuple(chance.sample(MODES, chance.choice([1, 1, 2]))) for _ in range(40)]
    return Plan(
        partitions=chance.choice([1, 2, 4, 4]),
        prefetch=chance.choice([10, 100, 1_000]),
        modes=tuple(modes),
        disturbances=tuple(disturbances),
        fatal=chance.choice([1, 1, 2]),
    )
