"""What the tests on a real Kafka share: a Kafka with users, and other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kjms.broker import LocalBroker
from tests.helpers import Program


@pytest.fixture(scope="session")
def users_broker() -> Iterator[LocalBroker]:
    """A Kafka with the users ann (pa55word), who may do everything, and bob (s3cret), who may do nothing."""
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pa55word" user_bob="s3cret";'
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": users,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",  # clients without a name are the broker itself, and the test
    }
    with LocalBroker(config=config) as broker:
        yield broker


@pytest.fixture
def bob(users_broker: LocalBroker) -> dict[str, str]:
    """Kafka's settings for bob."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "s3cret",
    }


@pytest.fixture
def programs(kjms_broker: Any, request: pytest.FixtureRequest) -> Iterator[Callable[[], Program]]:
    """Start other processes."""
    started: list[Program] = []

    def start() -> Program:
        started.append(Program(request.path.parent / "other_program.py", kjms_broker.bootstrap_servers))
        return started[-1]

    yield start
    for program in started:
        program.end()
