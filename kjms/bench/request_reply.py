"""Requests on a queue and their replies on a temporary queue, one after the other.

The service is a thread of the same process on both sides. It acknowledges each request after its reply was sent.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from kjms import Message, Queue, Session
from kjms.bench._payload import TEXT, text_message
from kjms.bench._stage import Stage
from kjms.bench._workload import Unit, workload

WARM = 20  # round trips before the first that counts
POLL_SECONDS = 0.1

request_reply = workload(
    "request-reply",
    "request on a queue, reply on a temporary queue (median)",
    Unit.MILLISECONDS,
    share=1 / 125,
)


def _median(ask: Callable[[], None], times: int) -> float:
    """Return the median of the milliseconds that *ask* takes."""
    taken = []
    for _ in range(WARM + times):
        started = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[WARM:]) * 1e3


@request_reply.side("kjms")
def _(stage: Stage) -> float:
    requests = Queue(stage.topic())
    with stage.connect() as connection:
        session, service = connection.create_session(), connection.create_session()
        answers = service.create_producer()

        def serve(message: Message) -> None:
            answers.send(text_message(), message.jms_reply_to)

        service.create_consumer(requests).message_listener = serve
        producer = session.create_producer(requests)
        replies = session.create_temporary_queue()
        consumer = session.create_consumer(replies)
        connection.start()

        def ask() -> None:
            request = text_message()
            request.jms_reply_to = replies
            producer.send(request)
            reply = consumer.receive()
            if reply is None or reply.text != TEXT:  # type: ignore[attr-defined]
                raise RuntimeError("a reply is not what was sent")

        return _median(ask, stage.count)


@request_reply.side("kjms, a shared queue and a consumer with a selector for each request", is_baseline=False)
def _(stage: Stage) -> float:
    requests, replies = Queue(stage.topic()), Queue(stage.topic())
    with stage.connect() as connection:
        session, service = connection.create_session(), connection.create_session(Session.AUTO_ACKNOWLEDGE)
        answers = service.create_producer()

        def serve(message: Message) -> None:
            answer = text_message()
            answer.jms_correlation_id = message.jms_message_id
            answers.send(answer, message.jms_reply_to)

        service.create_consumer(requests).message_listener = serve
        producer = session.create_producer(requests)
        connection.start()

        def ask() -> None:
            request = text_message()
            request.jms_reply_to = replies
            producer.send(request)
            with session.create_consumer(replies, f"JMSCorrelationID = '{request.jms_message_id}'") as consumer:
                reply = consumer.receive()
            if reply is None or reply.text != TEXT:  # type: ignore[attr-defined]
                raise RuntimeError("a reply is not what was sent")

        return _median(ask, stage.count)


@request_reply.side("raw, produce, consume, produce, consume")
def _(stage: Stage) -> float:
    requests, replies = stage.topic(), stage.topic()
    value, headers = stage.sample()
    is_over = threading.Event()
    waiting = Consumer(stage.consumer_settings(replies))
    waiting.assign([TopicPartition(replies, 0, 0)])
    asking = Producer(stage.producer_settings(linger_ms=0))

    def serve() -> None:
        consumer = Consumer(stage.consumer_settings(requests))
        consumer.subscribe([requests])
        answering = Producer(stage.producer_settings(linger_ms=0))
        while not is_over.is_set():
            record = consumer.poll(POLL_SECONDS)
            if record is not None and record.error() is None:
                answering.produce(replies, record.value(), headers=headers, partition=0)
                answering.flush()
                consumer.commit(record, asynchronous=False)
        consumer.close()

    def ask() -> None:
        asking.produce(requests, value, headers=headers, partition=0)
        asking.flush()
        while True:
            record = waiting.poll(POLL_SECONDS)
            if record is not None and record.error() is None:
                break
        if (record.value() or b"").decode() != TEXT:
            raise RuntimeError("a reply is not what was sent")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        return _median(ask, stage.count)
    finally:
        is_over.set()
        thread.join()
        waiting.close()
