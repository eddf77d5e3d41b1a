"""The tree of exceptions, and how errors of Kafka become errors of JMS."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from kjms import ConnectionFactory, MessageFormatException, QueueConnectionFactory, TextMessage, aio, errors
from kjms.engine.kafka import jms_error

CLASSES = [getattr(errors, name) for name in errors.__all__ if name.endswith("Exception")]


@pytest.mark.requirement("JMS-7.2-1", "JMS-7.2-2", "NET-28")
@pytest.mark.parametrize("kind", CLASSES)
def test_each_is_a_jms_exception(kind: type[errors.JMSException]) -> None:
    """All derive from JMSException, which is JMSRuntimeException, and can be caught as either."""
    assert errors.JMSRuntimeException is errors.JMSException
    with pytest.raises(errors.JMSException, match="it broke"):
        raise kind("it broke")


@pytest.mark.requirement("JMS-7.2-3", "JMS-7.2-4", "JMS-7.2-5", "NET-29", "NET-30", "NET-31")
@pytest.mark.parametrize("kind", CLASSES)
def test_each_has_reason_code_and_cause(kind: type[errors.JMSException]) -> None:
    """A JMS exception carries a reason, the provider's error code, and another exception it was caused by."""
    cause = KeyError("below")
    error = kind("it broke", "E42", cause)
    assert (str(error), error.reason, error.error_code, error.linked_exception) == (
        "it broke",
        "it broke",
        "E42",
        cause,
    )
    assert kind("it broke").linked_exception is None


def test_the_cause_of_raise_from_is_the_linked_exception() -> None:
    """``raise ... from`` links, too."""
    cause = KeyError("below")
    with pytest.raises(errors.JMSException) as caught:
        raise errors.JMSException("it broke") from cause
    assert caught.value.linked_exception is cause


@pytest.mark.requirement("NET-32")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, errors.InvalidDestinationException),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, errors.JMSSecurityException),
        (KafkaError._AUTHENTICATION, errors.JMSSecurityException),
        (KafkaError.MSG_SIZE_TOO_LARGE, errors.ResourceAllocationException),
        (KafkaError.REQUEST_TIMED_OUT, errors.JMSException),
    ],
)
def test_kafka_errors_become_the_nearest_jms_error(code: int, kind: type[errors.JMSException]) -> None:
    """One seam turns Kafka's errors into JMS's, with Kafka's name as the error code and its exception linked."""
    error = jms_error(KafkaError(code), "send to 'orders'")
    assert type(error) is kind
    assert "send to 'orders'" in str(error)
    assert error.error_code == KafkaError(code).name()
    assert isinstance(error.linked_exception, KafkaException)


@pytest.mark.parametrize("factory", [ConnectionFactory, QueueConnectionFactory, aio.ConnectionFactory])
def test_a_setting_that_there_is_not_is_named_with_its_class(factory: type) -> None:
    """A factory names a setting that it does not have, and the one that was meant."""
    with pytest.raises(TypeError, match=f"{factory.__name__} has no setting 'prefech'; did you mean 'prefetch'"):
        factory("localhost:9092", prefech=5)
    with pytest.raises(TypeError, match=f"{factory.__name__} has no setting 'xyz'; there are bootstrap_servers"):
        factory("localhost:9092", xyz=5)


def test_values_with_more_digits_than_python_writes_are_shown() -> None:
    """An error about such a value is the error, and not one of writing its text."""
    assert errors.shown(-(10**5_000)) == "-0x31e2080103… (16,610 bits) (int)"
    assert errors.shown([10**5_000]) == "[0x31e2080103… (16,610 bits)] (list)"
    assert errors.shown(10**600).startswith("1000")
    message = TextMessage()
    with pytest.raises(MessageFormatException, match="0x31e2080103"):
        message.set_int_property("n", 10**5_000)
    with pytest.raises(ValueError, match="from 0 to 9"):
        message.jms_priority = 10**5_000
