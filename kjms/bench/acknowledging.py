"""Workloads that acknowledge in no order: of a hundred messages that were received, now this one, now that one.

Kafka itself knows no such thing: the raw sides commit as often, in order.
"""

from __future__ import annotations

import random
from typing import Final

from kjms import Queue, Session
from kjms.bench._reading import consume, filled_consumer, poll, read_message, taken
from kjms.bench._stage import Stage
from kjms.bench._workload import Aim, Clock, Unit, workload

WINDOW: Final = 100  # messages that are held


def _acknowledge(stage: Stage, mode: int) -> float:
    """Return the messages per second of a loop that acknowledges each of a window, or one that stands for all."""
    windows = max(stage.count // WINDOW, 1)
    chance = random.Random(4711)
    topic = stage.topic(filled=windows * WINDOW + 1)
    with stage.connect() as connection, connection.create_session(mode) as session:
        consumer = session.create_consumer(Queue(topic))
        connection.start()
        taken(consumer).acknowledge()
        with Clock() as clock:
            for _ in range(windows):
                held = [taken(consumer) for _ in range(WINDOW)]
                for message in held:
                    read_message(message)
                chance.shuffle(held)
                for message in held if mode == Session.INDIVIDUAL_ACKNOWLEDGE else held[:1]:
                    message.acknowledge()
        return windows * WINDOW / clock.seconds


individual = workload(
    "acknowledge-individual",
    f"INDIVIDUAL_ACKNOWLEDGE of each of {WINDOW} held messages, in random order",
    Unit.MESSAGES_PER_SECOND,
    share=1 / 10,
    aim=Aim(0.5),
)


@individual.side("kjms")
def _(stage: Stage) -> float:
    return _acknowledge(stage, Session.INDIVIDUAL_ACKNOWLEDGE)


@individual.side("raw, consume 500, commit each, in order")
def _(stage: Stage) -> float:
    return consume(filled_consumer(stage), stage.count, 1, wait=True)


@individual.side("raw, poll, commit each, in order")
def _(stage: Stage) -> float:
    return poll(filled_consumer(stage), stage.count, 1, wait=True)


client = workload(
    "acknowledge-client",
    f"CLIENT_ACKNOWLEDGE of {WINDOW} held messages by a random one of them",
    Unit.MESSAGES_PER_SECOND,
    aim=Aim(0.5),
)


@client.side("kjms")
def _(stage: Stage) -> float:
    return _acknowledge(stage, Session.CLIENT_ACKNOWLEDGE)


@client.side("raw, consume 500, commit every 100")
def _(stage: Stage) -> float:
    return consume(filled_consumer(stage), stage.count, WINDOW, wait=True)


@client.side("raw, poll, commit every 100")
def _(stage: Stage) -> float:
    return poll(filled_consumer(stage), stage.count, WINDOW, wait=True)
