"""One idempotent Kafka producer and the thread that hears what became of its records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from kjms.engine._errors import jms_error
from kjms.errors import JMSException, ResourceAllocationException
from kjms.mapping import KafkaRecord

__all__ = ["Publisher"]

OnDelivery = Callable[[JMSException | None], None]

POLL_SECONDS: Final = 0.05  # how soon a closing publisher is noticed; deliveries wake the thread at once


class Publisher:
    """Sends records and tells what became of them.

    Args:
        config: librdkafka's settings of the producer.
        thread_name: The name of the thread that serves delivery reports.
        send_timeout: Milliseconds after which a record that no broker has confirmed is given up.
    """

    def __init__(self, config: Mapping[str, Any], thread_name: str, send_timeout: int) -> None:
        self._send_timeout = send_timeout
        self._servers = config["bootstrap.servers"]
        self._producer = Producer(
            {
                **config,
                "enable.idempotence": True,
                "message.timeout.ms": send_timeout,
                # Java, Spark and Python must agree where a key goes; librdkafka's own default does not.
                "partitioner": "murmur2_random",
            }
        )
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name=thread_name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        poll = self._producer.poll
        while not self._closing:
            poll(POLL_SECONDS)

    def send(self, topic: str, partition: int, record: KafkaRecord, on_delivery: OnDelivery) -> None:
        """Hand *record* to Kafka; *on_delivery* is called once, from the publisher's thread, with None or the error.

        Waits while librdkafka's buffer is full.

        Raises:
            ResourceAllocationException: The buffer stayed full for the send timeout, or the record is too large.
            JMSException: Kafka refused it at once.
        """

        def reported(error: KafkaError | None, _message: object) -> None:
            on_delivery(None if error is None else self._failure(error, topic))

        deadline = 0.0
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    partition,
                    headers=record.headers,
                    timestamp=record.timestamp,
                    on_delivery=reported,
                )
            except BufferError as error:
                now = time.monotonic()
                deadline = deadline or now + self._send_timeout / 1000
                if now > deadline:
                    raise ResourceAllocationException(
                        f"send to {topic!r}: the send buffer was full for {self._send_timeout} ms", "_QUEUE_FULL", error
                    ) from error
                time.sleep(0.001)  # the publisher's thread is emptying it
            except KafkaException as error:
                raise jms_error(error, f"send to {topic!r}") from error
            else:
                return

    def send_and_wait(self, topic: str, partition: int, record: KafkaRecord) -> None:
        """Hand *record* to Kafka and return when all in-sync replicas have it.

        Raises:
            JMSException: It was not confirmed; the text says why.
        """
        outcome: list[JMSException | None] = []
        answered = threading.Lock()  # lighter than an Event, and this is the hot path of every synchronous send
        answered.acquire()

        def reported(error: JMSException | None) -> None:
            outcome.append(error)
            answered.release()

        self.send(topic, partition, record, reported)
        answered.acquire()
        if outcome[0] is not None:
            raise outcome[0]

    def _failure(self, error: KafkaError, topic: str) -> JMSException:
        if error.code() == KafkaError._MSG_TIMED_OUT:  # noqa: SLF001
            return JMSException(
                f"send to {topic!r}: not confirmed by {self._servers} within {self._send_timeout} ms",
                error.name(),
                KafkaException(error),
            )
        return jms_error(error, f"send to {topic!r}")

    def close(self) -> None:
        """Wait for what is under way, at most for the send timeout, and end the thread."""
        self._producer.flush(self._send_timeout / 1000 + 1)
        self._closing = True
        self._thread.join()
