"""What JMS asks of a send and of a receive, in Python and without anything else, beside the workloads of kjms."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks._least_receive import LeastReceiver
from benchmarks._least_send import LeastMessage, LeastSender, least_message
from kjms.bench._reading import filled_consumer, read_message
from kjms.bench._stage import Stage
from kjms.bench._workload import Clock
from kjms.bench.receiving import receive_auto
from kjms.bench.sending import BULK_LINGER_MS, Completed, _warm_producer, send_async, send_made


@send_async.side("raw, with what JMS asks of a send", is_baseline=False)
def _(stage: Stage) -> float:
    messages = [least_message() for _ in range(stage.count)]
    return _send(stage, messages.pop)


@send_made.side("raw, with what JMS asks of a message and a send", is_baseline=False)
def _(stage: Stage) -> float:
    return _send(stage, least_message)


def _send(stage: Stage, make: Callable[[], LeastMessage]) -> float:
    topic, completed = stage.topic(), Completed(stage.count)
    producer = _warm_producer(stage, topic, stage.producer_settings(linger_ms=BULK_LINGER_MS))
    sender = LeastSender(producer, topic, completed.on_completion)
    with Clock() as clock:
        for _ in range(stage.count):
            sender.send(make())
        sender.close()
    if completed.left:
        raise RuntimeError(f"{completed.left} messages were not reported")
    return stage.count / clock.seconds


@receive_auto.side("raw, with what JMS asks of a receive", is_baseline=False)
def _(stage: Stage) -> float:
    consumer = filled_consumer(stage)
    receiver = LeastReceiver(consumer)
    with Clock() as clock:
        for _ in range(stage.count):
            read_message(receiver.receive())
    consumer.close()
    return stage.count / clock.seconds
