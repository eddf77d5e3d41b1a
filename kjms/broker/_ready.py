"""The proof that a broker works: a transaction, and a group that receives what it wrote."""

from __future__ import annotations

import time
import uuid
from typing import Any

from kjms.errors import JMSException

_NAME = "kjms.ready"
_INTERNAL = ("__consumer_offsets", "__transaction_state")


def prove_ready(bootstrap_servers: str, timeout: float) -> None:
    """Send a record in a transaction and receive it in a consumer group; Kafka's internal topics exist afterwards.

    Args:
        bootstrap_servers: The address of a listener without security.
        timeout: For all of it, in seconds.

    Raises:
        JMSException: Something did not work in that time.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + timeout
    patience = 0.0
    while True:
        try:
            _prove(bootstrap_servers, min(deadline, time.monotonic() + patience))
        except KafkaException as error:
            if time.monotonic() > deadline:
                reason = f"Kafka at {bootstrap_servers} runs but does not work: {error.args[0].str()}"
                raise JMSException(reason) from error
            # The first question to a coordinator makes Kafka create its topic. The client that asked waits long before
            # it asks again; a new client asks at once.
            _await_internal_topics(bootstrap_servers, deadline)
            patience += 0.5
        else:
            return


def _await_internal_topics(bootstrap_servers: str, deadline: float) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    while time.monotonic() < deadline:
        topics = admin.list_topics(timeout=max(0.1, deadline - time.monotonic())).topics
        partitions = [part for name in _INTERNAL if name in topics for part in topics[name].partitions.values()]
        if all(name in topics for name in _INTERNAL) and all(part.leader >= 0 for part in partitions):
            return
        time.sleep(0.02)


def _prove(bootstrap_servers: str, deadline: float) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    def left() -> float:
        return max(0.0, deadline - time.monotonic())

    client: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "allow.auto.create.topics": False}
    admin = AdminClient(client)
    created = admin.create_topics([NewTopic(_NAME, 1, 1)], operation_timeout=5)[_NAME]
    try:
        created.result(5)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    value = uuid.uuid4().bytes
    reading = {"group.id": _NAME, "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer({**client, **reading})
    try:
        consumer.subscribe([_NAME])
        consumer.poll(0)
        producer = Producer({**client, "transactional.id": _NAME, "linger.ms": 0})
        producer.init_transactions(left())
        producer.begin_transaction()
        producer.produce(_NAME, value)
        producer.commit_transaction(left())
        while True:
            message = consumer.poll(min(left(), 0.1))
            if message is not None and message.error() is None and message.value() == value:
                break
            if left() == 0:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a consumer group received nothing"))
    finally:
        consumer.close()
    admin.delete_topics([_NAME], operation_timeout=5)[_NAME].result(5)
