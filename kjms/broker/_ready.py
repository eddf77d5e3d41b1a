"""The proof that a broker works: a transaction, and a consumer group that receives what it wrote."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kjms.errors import JMSException

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_NAME = "kjms.ready"  # of the topic, the group and the transactional id; the topic is deleted in the end
# A step takes half of this on an idle machine. Sending is what makes Kafka create its topic, and fails the first time.
_TOPIC_SECONDS = 5.0
_SEND_SECONDS = 0.25
_RECEIVE_SECONDS = 0.5


def prove_ready(bootstrap_servers: str, timeout: float) -> None:
    """Send a record in a transaction and receive it in a consumer group; Kafka's internal topics exist afterwards.

    Args:
        bootstrap_servers: The address of a listener without security.
        timeout: For all of it, in seconds.

    Raises:
        JMSException: Something did not work in that time.
    """
    from confluent_kafka import Consumer, KafkaException
    from confluent_kafka.admin import AdminClient

    deadline = time.monotonic() + timeout
    client = {"bootstrap.servers": bootstrap_servers, "log_level": 0, "allow.auto.create.topics": False}
    value = uuid.uuid4().bytes
    try:
        admin = AdminClient(client)
        _retried(lambda patience: _create_topic(admin, patience), _TOPIC_SECONDS, deadline)
        asking = Consumer({**client, "group.id": _NAME})  # Kafka makes the groups' topic while transactions are tried
        asking.poll(0)
        _retried(lambda patience: _send(client, value, patience), _SEND_SECONDS, deadline)
        asking.close()
        _retried(lambda patience: _receive(client, value, patience), _RECEIVE_SECONDS, deadline)
        _retried(lambda patience: _delete_topic(admin, patience), _TOPIC_SECONDS, deadline)
    except KafkaException as error:
        raise JMSException(f"Kafka at {bootstrap_servers} runs but does not work: {error.args[0].str()}") from error


def _retried(step: Callable[[float], None], patience: float, deadline: float) -> None:
    """Try *step* with a new client each time: the one that asked too early waits half a second before it asks again."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return step(patience)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            patience = min(1.5 * patience, max(0.0, deadline - time.monotonic()))


def _create_topic(admin: AdminClient, patience: float) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    asked = admin.create_topics([NewTopic(_NAME, 1, -1)], operation_timeout=patience, request_timeout=patience)
    try:
        asked[_NAME].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # an attempt before this one was interrupted
            raise


def _delete_topic(admin: AdminClient, patience: float) -> None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        admin.delete_topics([_NAME], operation_timeout=patience, request_timeout=patience)[_NAME].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise


def _send(client: dict[str, Any], value: bytes, patience: float) -> None:
    from confluent_kafka import Producer

    deadline = time.monotonic() + patience
    producer = Producer({**client, "transactional.id": _NAME, "linger.ms": 0})
    producer.init_transactions(patience)
    producer.begin_transaction()
    producer.produce(_NAME, value)
    producer.commit_transaction(max(0.0, deadline - time.monotonic()))


def _receive(client: dict[str, Any], value: bytes, patience: float) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    deadline = time.monotonic() + patience
    reading = {"group.id": _NAME, "auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
    consumer = Consumer({**client, **reading})
    try:
        consumer.subscribe([_NAME])
        while (left := deadline - time.monotonic()) > 0:
            message = consumer.poll(left)
            if message is not None and message.error() is None and message.value() == value:
                return
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a consumer group received nothing"))
    finally:
        consumer.close()
