"""What JMS leaves to providers in subscriptions, and what kjms makes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kjms import ConnectionFactory, MessageConsumer, Session, Topic
from tests.helpers import WAIT_MS, send

Make = Callable[[Session, Topic, str], MessageConsumer]

MAKERS: dict[str, Make] = {
    "plain": lambda session, topic, _: session.create_consumer(topic),
    "shared": lambda session, topic, name: session.create_shared_consumer(topic, name),
    "durable": lambda session, topic, name: session.create_durable_consumer(topic, name),
    "shared durable": lambda session, topic, name: session.create_shared_durable_consumer(topic, name),
}


@pytest.mark.requirement("JMS-6.2-1")
@pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
def test_a_subscriber_is_known_when_it_was_made(
    make: Make, kjms_factory: ConnectionFactory, kjms_destination_name: str, topic: Topic
) -> None:
    """The steady state is there when the call returns: what is sent after it comes, what was sent before does not."""
    with kjms_factory.create_connection() as connection, kjms_factory.create_connection() as sending:
        connection.client_id = kjms_destination_name
        connection.start()
        session, sender = connection.create_session(), sending.create_session()
        for number in range(3):
            send(sender, topic, f"before {number}")
            with make(session, topic, f"name-{number}") as consumer:
                send(sender, topic, f"after {number}")
                message = consumer.receive(WAIT_MS)
                assert message is not None
                assert message.text == f"after {number}"  # type: ignore[attr-defined]
                assert consumer.receive_no_wait() is None


@pytest.mark.requirement("JMS-6.11.7-3")
@pytest.mark.parametrize("name", ["x" * 2_000, " :/#?%*,= ", "🦀"], ids=["long", "signs", "crab"])
def test_a_name_may_be_anything_that_can_be_printed(
    name: str, kjms_factory: ConnectionFactory, kjms_destination_name: str, topic: Topic
) -> None:
    """Names may be longer than JMS asks for, and have other characters; each is found again."""
    with kjms_factory.create_connection() as connection:
        connection.client_id = kjms_destination_name
        connection.start()
        session = connection.create_session()
        session.create_durable_consumer(topic, name).close()
        session.create_durable_consumer(topic, f"{name}-").close()
        session.unsubscribe(f"{name}-")
        send(session, topic, "kept")
        with session.create_durable_consumer(topic, name) as consumer:
            message = consumer.receive(WAIT_MS)
            assert message is not None
            assert message.text == "kept"  # type: ignore[attr-defined]
        session.unsubscribe(name)
