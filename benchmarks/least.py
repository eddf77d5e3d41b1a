"""What JMS asks of some work, in Python and without anything else, beside the workloads of kjms."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from confluent_kafka import Consumer

from benchmarks._least_receive import LeastReceiver
from benchmarks._least_select import LeastSelecting
from benchmarks._least_send import LeastMessage, LeastPublisher, LeastSender, least_message
from benchmarks._least_tasks import LeastTaskSender
from benchmarks._least_transact import LeastTransacted, transactional_producer
from benchmarks._process import Process
from benchmarks.growth import CONNECTED, add_sides, connections
from benchmarks.processes import SELECTORS, handover, shared
from kjms.bench._reading import filled_consumer, raw_consumer, read_message
from kjms.bench._stage import Stage
from kjms.bench._workload import Clock
from kjms.bench.receiving import SELECTOR, half_filled, listen_selector, receive_auto
from kjms.bench.sending import (
    BULK_LINGER_MS,
    Completed,
    by_tasks,
    send_async,
    send_asyncio,
    send_made,
    warm_producer,
)
from kjms.bench.transactions import EACH, WARM, batches


@send_async.side("raw, with what JMS asks of a send", is_baseline=False)
def _(stage: Stage) -> float:
    messages = [least_message() for _ in range(stage.count)]
    return _send(stage, messages.pop)


@send_made.side("raw, with what JMS asks of a message and a send", is_baseline=False)
def _(stage: Stage) -> float:
    return _send(stage, least_message)


def _send(stage: Stage, make: Callable[[], LeastMessage], senders: int = 1) -> float:
    """Return the messages per second of so many senders, in turn, that share a producer."""
    topic, completed = stage.topic(), Completed(stage.count)
    publisher = LeastPublisher(warm_producer(stage, topic, stage.producer_settings(linger_ms=BULK_LINGER_MS)))
    in_turn = itertools.cycle([LeastSender(publisher, topic, completed.on_completion) for _ in range(senders)])
    with Clock() as clock:
        for _, sender in zip(range(stage.count), in_turn, strict=False):
            sender.send(make())
        publisher.close()
    if completed.left:
        raise RuntimeError(f"{completed.left} messages were not reported")
    return stage.count / clock.seconds


@send_asyncio.side("raw, as many tasks, with what JMS asks of a send", is_baseline=False)
def _(stage: Stage) -> float:
    return asyncio.run(_send_in_tasks(stage))


async def _send_in_tasks(stage: Stage) -> float:
    topic = stage.topic()
    producer = warm_producer(stage, topic, stage.producer_settings(linger_ms=BULK_LINGER_MS))
    messages = iter([least_message() for _ in range(stage.count)])
    with LeastTaskSender(producer, topic) as sender:

        async def work() -> None:
            for message in messages:
                await sender.send(message)

        return await by_tasks(stage, work)


def _send_by(stage: Stage, size: int) -> float:
    messages = [least_message() for _ in range(stage.count)]
    return 1e6 / _send(stage, messages.pop, size)


add_sides(connections, "sender", CONNECTED, _send_by, "raw, with what JMS asks")


@receive_auto.side("raw, with what JMS asks of a receive", is_baseline=False)
def _(stage: Stage) -> float:
    consumer = filled_consumer(stage)
    receiver = LeastReceiver(consumer)
    with Clock() as clock:
        for _ in range(stage.count):
            read_message(receiver.receive())
    consumer.close()
    return stage.count / clock.seconds


@listen_selector.side("raw, with what JMS asks of a listener with a selector", is_baseline=False)
def _(stage: Stage) -> float:
    topic, target = half_filled(stage), stage.topic()
    consumer = raw_consumer(stage, topic)
    producer = transactional_producer(stage, topic)
    selecting = LeastSelecting(consumer, topic, producer, target, SELECTOR, read_message)
    with Clock() as clock:
        selecting.run(stage.count)
    consumer.close()
    if len(selecting.waiting) != stage.count // 2:
        raise RuntimeError(f"{len(selecting.waiting)} messages were moved, and not every second one")
    return stage.count / clock.seconds


@handover.side("raw, two processes, with what JMS asks of them", is_baseline=False)
def _(stage: Stage) -> float:
    topic, target = stage.topic(), stage.topic()
    count = stage.count // 2 * 2
    return shared(
        stage,
        topic,
        count,
        Process("least_owner", stage.bootstrap_servers, topic, target, SELECTORS[0], count),
        Process("least_peer", stage.bootstrap_servers, target, count // 2),
    )


@batches.side("raw, with what JMS asks of a transacted session", is_baseline=False)
def _(stage: Stage) -> float:
    transactions = max(stage.count // EACH, 1)
    source, target = stage.topic(filled=(transactions + WARM) * EACH), stage.topic()
    consumer = Consumer(stage.consumer_settings(source))
    consumer.subscribe([source])
    session = LeastTransacted(consumer, source, transactional_producer(stage, source), target)

    def move(count: int) -> None:
        for _ in range(count):
            for _ in range(EACH):
                read_message(session.receive())
                session.send(least_message())
            session.commit()

    move(WARM)
    with Clock() as clock:
        move(transactions)
    consumer.close()
    return transactions * EACH / clock.seconds
