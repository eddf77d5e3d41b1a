"""Contexts: how they are made and configured, what they share, and what ends them."""

from __future__ import annotations

import threading

import pytest

from kjms import (
    ConnectionFactory,
    IllegalStateException,
    JMSContext,
    JMSException,
    JMSSecurityException,
    Queue,
)
from kjms.broker import LocalBroker


def is_open(context: JMSContext) -> bool:
    try:
        context.meta_data  # noqa: B018
    except IllegalStateException:
        return False
    return True


# Making contexts.


@pytest.mark.requirement("JMS-11.2.1-2", "JMS-7.3-5")
def test_a_context_is_made_with_or_without_a_mode_and_an_identity(
    users_broker: LocalBroker, bob: dict[str, str], queue: Queue
) -> None:
    """The mode is AUTO_ACKNOWLEDGE unless given; the identity is the factory's unless given, and is checked at once."""
    client = JMSContext.CLIENT_ACKNOWLEDGE
    factory = ConnectionFactory(users_broker.bootstrap_servers, kafka=bob, send_timeout=2_000)
    for arguments, mode in (((), JMSContext.AUTO_ACKNOWLEDGE), ((client,), client)):
        with factory.create_context(*arguments) as context:
            assert context.session_mode is mode
            with pytest.raises(JMSSecurityException):
                context.create_browser(queue)  # bob is known, and may not
        with factory.create_context(*arguments, user="ann", password="pa55word") as context:
            assert context.session_mode is mode
            context.create_browser(queue)
        with pytest.raises(JMSSecurityException, match="uthentication"):
            factory.create_context(*arguments, user="ann", password="wrong")


# What belongs to the connection.


@pytest.mark.requirement("JMS-B.5.17-1")
def test_closing_waits_for_no_exception_listener(kjms_factory: ConnectionFactory) -> None:
    """An exception listener may stop and close its context: these do not wait for it to return."""
    context = kjms_factory.create_context()
    done = threading.Event()

    def listener(exception: JMSException) -> None:
        context.stop()
        context.close()
        done.set()

    context.exception_listener = listener
    context._connection._tell(JMSException("the cluster is lost"))  # as its engine does
    assert done.wait(20)
    assert not is_open(context)


# Exceptions.
