"""When Kafka does not let us: what counts as a refusal, what the error says, and where it is reported how often."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kjms import JMSException, JMSSecurityException
from kjms.engine.consumer.access_denial import AccessDenial
from kjms.engine.kafka import is_refusal, jms_error


@pytest.mark.parametrize(
    ("code", "text", "is_one"),
    [
        (KafkaError._AUTHENTICATION, "SASL authentication error: Authentication failed", True),
        (KafkaError._AUTHENTICATION, "mechanism handshake failed: Local: Broker transport failure", False),
        (KafkaError._SSL, "SSL handshake failed: certificate verify failed", True),
        (KafkaError._TRANSPORT, "Receive failed: ssl/tls alert certificate unknown: SSL alert number 46", True),
        (KafkaError._TRANSPORT, "Connect to ipv4#127.0.0.1:9 failed: Connection refused", False),
    ],
)
def test_what_another_attempt_would_not_change(code: int, text: str, is_one: bool) -> None:
    """A refusal is raised at once; a connection that broke off is tried again, whatever was being done with it."""
    assert is_refusal(KafkaError(code, text)) is is_one


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Write on the topic 'orders'"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Write on the topic 'orders'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Read on the group 'workers'"),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Write on the transactional id 'kjms-1'"),
    ],
)
def test_the_missing_acl_is_named(code: int, missing: str) -> None:
    """The text ends with the operation and the resource that an administrator has to allow."""
    error = jms_error(
        KafkaError(code), "doing it", to="Write", topic="orders", group="workers", transactional_id="kjms-1"
    )
    assert isinstance(error, JMSSecurityException)
    assert str(error).endswith(f"; the ACL {missing} is missing")


def test_receivers_hear_each_time_and_listeners_once() -> None:
    """While a reader is refused, each check raises; the exception listener gets the same refusal once."""
    heard: list[JMSException] = []
    refusal = AccessDenial(heard.append)
    refusal.check()
    for _ in range(3):
        refusal.note(JMSSecurityException("no", "CODE"))
        with pytest.raises(JMSSecurityException, match="no") as caught:
            refusal.check()
        assert caught.value.error_code == "CODE"
    assert len(heard) == 1
    refusal.note(JMSSecurityException("neither"))
    assert [str(each) for each in heard] == ["no", "neither"]
    refusal.over()
    refusal.check()
