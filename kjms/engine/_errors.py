"""The one seam where Kafka's errors become JMS errors."""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from kjms.errors import (
    InvalidDestinationException,
    JMSException,
    JMSSecurityException,
    ResourceAllocationException,
)

__all__ = ["IN_USE", "is_refusal", "is_shortage", "jms_error", "kafka_error", "level_of"]

IN_USE: Final = "IN_USE"
"""The error code where a subscription or temporary destination has a consumer, or is of another kind."""

_SECURITY: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# An idempotent producer needs a right to write to some topic; brokers call it a right on the cluster.
_OF_TOPICS: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_DESTINATION: Final = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_RESOURCES: Final = frozenset(
    {
        KafkaError._QUEUE_FULL,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError._CRIT_SYS_RESOURCE,
    }
)


_ALERT: Final = "SSL alert number"  # how the TLS library says that the broker refused, after the handshake in TLS 1.3

_NO_SOCKET: Final = "Failed to create socket"
_BROKEN_OFF: Final = (
    "Local: Broker transport failure"  # librdkafka calls it an authentication error where one was tried
)


def is_refusal(error: KafkaError) -> bool:
    """Tell whether *error* says that one side does not trust the other: another attempt would not change that."""
    if _BROKEN_OFF in error.str():
        return False
    return error.code() in {KafkaError._AUTHENTICATION, KafkaError._SSL} or _ALERT in error.str()


def level_of(failure: JMSException, level: int) -> int:
    """Return the level to log *failure* at: *level*, or DEBUG where a connection is lost; the engine reports outages.

    >>> level_of(JMSException("look up the Kafka topic 'orders'", "_TRANSPORT"), logging.WARNING) == logging.DEBUG
    True
    """
    return logging.DEBUG if failure.error_code == "_TRANSPORT" else level


def is_shortage(error: KafkaError) -> bool:
    """Tell whether *error* says that this process may open no more sockets."""
    return error.code() == KafkaError._TRANSPORT and _NO_SOCKET in error.str()


def _explained(error: KafkaError) -> str:
    """Return what *error* says, and what it does not say about certificates."""
    said: str = error.str()
    if _ALERT in said:
        return f"the broker refused the certificate of ssl.certificate.location, or that there is none: {said}"
    if error.code() == KafkaError._SSL and "verify failed" in said:
        return (
            "the broker's certificate is not valid: it has expired, is for another name, or comes from an authority"
            f" that ssl.ca.location does not hold: {said}"
        )
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return f"{said}: larger than the topic's max.message.bytes allows"
    return said


def kafka_error(error: KafkaError | KafkaException) -> KafkaError:
    """Return the `KafkaError` inside *error*."""
    return error.args[0] if isinstance(error, KafkaException) else error


def jms_error(
    error: KafkaError | KafkaException,
    doing: str,
    *,
    to: str = "",
    topic: str = "",
    group: str = "",
    transactional_id: str = "",
) -> JMSException:
    """Return the JMS exception for *error*, which came while *doing* (a sentence's beginning, with its names).

    The error code is Kafka's name for it and the linked exception is Kafka's own (JMS 2.0 §7.2). If Kafka did not allow
    it, the text says what is missing: an ACL *to* do something with *topic*, or one for the group or transactional id.

    >>> jms_error(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "send to 'orders'").error_code
    'UNKNOWN_TOPIC_OR_PART'
    >>> error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    >>> str(jms_error(error, "send to 'orders'", to="Write", topic="orders")).partition("; ")[2]
    "the ACL Write on the topic 'orders' is missing"
    """
    inner = kafka_error(error)
    code = inner.code()
    kind = JMSException
    if code in _SECURITY or is_refusal(inner):
        kind = JMSSecurityException
    elif code in _DESTINATION:
        kind = InvalidDestinationException
    elif code in _RESOURCES or is_shortage(inner):
        kind = ResourceAllocationException
    linked = error if isinstance(error, KafkaException) else KafkaException(error)
    missing = ""
    if code == KafkaError.GROUP_AUTHORIZATION_FAILED and group:
        missing = f"Read on the group {group!r}"
    elif code == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and transactional_id:
        missing = f"Write on the transactional id {transactional_id!r}"
    elif code in _OF_TOPICS and topic:
        missing = f"{to} on the topic {topic!r}"
    words = f"; the ACL {missing} is missing" if missing else ""
    return kind(f"{doing}: {_explained(inner)} ({inner.name()}){words}", inner.name(), linked)
