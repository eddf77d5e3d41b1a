"""Workloads of whole processes: two that share a queue by handover, one that starts again, one that is idle."""

from __future__ import annotations

import uuid
from typing import Final

from benchmarks._process import Process
from kjms import Queue, Session
from kjms.bench._reading import taken
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Clock, Unit, workload

SELECTORS: Final = ("region = 'EU'", "region = 'US'")
REGIONS: Final = ({"region": b"EU"}, {"region": b"US"})

# ------------------------------------------------------------------------------------------------------- handover

handover = workload(
    "processes-handover",
    "two processes with complementary selectors on one partition, beside one process",
    Unit.MESSAGES_PER_SECOND,
    aim=Aim(0.3),
    set="processes",
)


def _shared(stage: Stage, selectors: tuple[str, ...]) -> float:
    """Return the messages per second of a process for each of *selectors*, together."""
    topic = stage.topic()
    each = stage.count // 2 * 2 // len(selectors)
    processes = [Process("share", stage.bootstrap_servers, topic, selector, each) for selector in selectors]
    return shared(stage, topic, each * len(selectors), *processes)


def shared(stage: Stage, topic: str, count: int, *processes: Process) -> float:
    """Return how many of *count* messages per second *processes* receive from *topic* together.

    Each prints a line when it has received its first message, and another one when it has received its last.
    """
    stage.fill([topic], len(processes), headers=REGIONS)
    for process in processes:
        process.line()
    with Clock() as clock:
        stage.fill([topic], count, headers=REGIONS)
        for process in processes:
            process.line()
    for process in processes:
        process.end()
    return count / clock.seconds


@handover.side("kjms, two processes")
def _(stage: Stage) -> float:
    return _shared(stage, SELECTORS)


@handover.side("kjms, one process")
def _(stage: Stage) -> float:
    return _shared(stage, ("",))


# -------------------------------------------------------------------------------------------------------- restart

SETTLED: Final = (1_000, 100_000, 1_000_000)
restart = workload(
    "processes-restart",
    "start again: the next message, behind one that is unsettled and so many that are settled",
    Unit.MILLISECONDS,
    share=0,
    aim=(Aim(500, is_ratio=False),),
    set="processes",
    grows=True,
)


def _restarted(stage: Stage, size: int) -> float:
    """Return the milliseconds from the start of a connection to the message after those that are settled."""

    def settled() -> str:
        topic = stage.topic(is_kept=True)
        stage.fill([topic], 1, headers=REGIONS[1:])
        for first in range(0, size, 100_000):
            stage.fill([topic], min(size - first, 100_000))
        with stage.connect() as connection:
            session = connection.create_session(Session.DUPS_OK_ACKNOWLEDGE)
            consumer = session.create_consumer(Queue(topic), SELECTORS[0])
            connection.start()
            for _ in range(size):
                taken(consumer)
        return topic

    topic = stage.kept(("settled", size), settled)
    stage.fill([topic], 1)
    with stage.connect(kafka={"client.id": f"restart-{uuid.uuid4().hex[:8]}"}) as connection:
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(topic))
        with Clock() as clock:
            connection.start()
            taken(consumer)
            following = taken(consumer)
        following.acknowledge()
    return clock.seconds * 1_000


for _size in SETTLED:

    @restart.side(f"kjms, {_size:,} messages")
    def _(stage: Stage, size: int = _size) -> float:
        return _restarted(stage, size)


# ----------------------------------------------------------------------------------------------------------- idle

QUEUES: Final = 100
idle_time = workload(
    "processes-idle",
    f"processor time of a process with consumers of {QUEUES} queues that are empty",
    Unit.PERCENT,
    share=0,
    aim=Aim(5, is_ratio=False),
    set="processes",
    rounds=3,
)
idle_threads = workload(
    "processes-idle-threads",
    "the threads of that process",
    Unit.THREADS,
    share=0,
    aim=Aim(520, is_ratio=False),
    set="processes",
    rounds=1,
)


def _idle(stage: Stage, what: str) -> tuple[float, float]:
    """Return the processor time of an idle process in percent of one processor, and its threads."""
    topics = stage.kept("idle", lambda: stage.topics(QUEUES, is_kept=True))
    prefix = topics[0].removesuffix(topics[0].rpartition("-")[2])
    first = int(topics[0].rpartition("-")[2])
    process = Process(what, stage.bootstrap_servers, prefix, first, QUEUES)
    percent, threads = map(float, process.line().split())
    process.end()
    return percent, threads


@idle_time.side("kjms")
def _(stage: Stage) -> float:
    return _idle(stage, "idle")[0]


@idle_time.side("kjms, one session for all", is_baseline=False)
def _(stage: Stage) -> float:
    return _idle(stage, "idle_together")[0]


@idle_time.side("raw, librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _idle(stage, "idle_raw")[0]


@idle_time.side("raw, kjms's settings, a thread for each", is_baseline=False)
def _(stage: Stage) -> float:
    return _idle(stage, "idle_alike")[0]


@idle_threads.side("kjms")
def _(stage: Stage) -> float:
    return _idle(stage, "idle")[1]


@idle_threads.side("kjms, one session for all", is_baseline=False)
def _(stage: Stage) -> float:
    return _idle(stage, "idle_together")[1]


@idle_threads.side("raw, librdkafka's defaults", is_baseline=False)
def _(stage: Stage) -> float:
    return _idle(stage, "idle_raw")[1]


@idle_threads.side("raw, kjms's settings, a thread for each", is_baseline=False)
def _(stage: Stage) -> float:
    return _idle(stage, "idle_alike")[1]
