"""An AMQP gateway that passes its clients' names and passwords on to a secured Kafka, whose ACLs decide."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from secured_roles import acls

from kjms import ConnectionFactory, Queue
from tests.helpers import WAIT_SECONDS

pytestmark = pytest.mark.xdist_group("secured")

SECONDS = 10  # within which a client hears that it may not come in


@pytest.fixture(scope="module")
def gateway(secured: Any, amqp: Callable[[str], Any]) -> Iterator[Any]:
    """A gateway whose clients are Kafka's users."""
    factory = ConnectionFactory(secured.addresses["SASL"], kafka=secured.settings())
    gateway = amqp("gateway_thread").RunningGateway(factory, anonymous=False, pass_credentials=True)
    yield gateway
    gateway.close()


@pytest.fixture
def dial(gateway: Any) -> Iterator[Callable[[str, str], Any]]:
    """Connects as that user, by an AMQP client without JMS."""
    from proton.utils import BlockingConnection

    opened: list[Any] = []

    def dial(user: str, password: str) -> Any:
        opened.append(
            BlockingConnection(
                gateway.url, timeout=WAIT_SECONDS, user=user, password=password, allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            )
        )  # fmt: skip
        return opened[-1]

    yield dial
    for connection in opened:
        connection.close()


def test_a_user_of_kafka_comes_in(secured: Any, dial: Callable[..., Any], kjms_destination_name: str) -> None:
    """With Kafka's name and password a client sends, and what it sends is its user's in Kafka."""
    from proton import Message

    name = kjms_destination_name
    secured.make(name)
    user = secured.user(f"Write topic {name}")
    connection = dial(user, secured.users[user])
    connection.create_sender(name).send(Message(body="hello"))
    with ConnectionFactory(secured.addresses["PLAINTEXT"]).create_context() as context:
        assert context.create_consumer(Queue(name)).receive_body(str, 20_000) == "hello"
    assert not secured.refused(user)


def test_a_wrong_password_is_told_within_seconds(secured: Any, gateway: Any, java: Any, amqp: Any) -> None:
    """A wrong password, and a name that Kafka does not know, fail in SASL, at once, for Java programs and others."""
    from proton import ConnectionException
    from proton.utils import BlockingConnection

    user = secured.user(*acls("own", ""))
    for who, password in ((user, "wr0ng-pa55"), ("nobody", "wr0ng-pa55")):
        begin = time.monotonic()
        with pytest.raises(ConnectionException, match=r"(?i)auth"):
            BlockingConnection(
                gateway.url, timeout=WAIT_SECONDS, user=who, password=password, allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            )  # fmt: skip
        factory = java.new("org.apache.qpid.jms.JmsConnectionFactory", gateway.url)
        with pytest.raises(amqp("java_remote").JavaError) as raised:
            factory.createConnection(who, password).start()
        assert raised.value.name == "JMSSecuritySaslException"
        assert time.monotonic() - begin < 2 * SECONDS
    connection = factory.createConnection(user, secured.users[user])
    connection.start()
    connection.close()


@pytest.fixture
def refused(
    secured: Any, dial: Callable[..., Any], java: Any, gateway: Any, kjms_destination_name: str
) -> Iterator[tuple[Any, Any]]:
    """A plain connection and a Java session of a user who may see the test's Kafka topic, and no more."""
    secured.make(kjms_destination_name)
    user = secured.user(*acls("own", ""), f"Describe topic {kjms_destination_name}")
    theirs = java.new("org.apache.qpid.jms.JmsConnectionFactory", gateway.url).createConnection(
        user, secured.users[user]
    )
    theirs.start()
    yield dial(user, secured.users[user]), theirs.createSession(False, 1)
    theirs.close()


def test_a_missing_right_to_send_is_named(refused: tuple[Any, Any], amqp: Any, kjms_destination_name: str) -> None:
    """A client that may not send gets amqp:unauthorized-access and the missing ACL, in Java as JMSSecurityException."""
    from proton import Message

    connection, session = refused
    missing = rf"the ACL Write on the topic '{kjms_destination_name}' is missing"
    sender = connection.create_sender(kjms_destination_name)
    delivery = sender.link.send(Message(body="x"))
    connection.wait(lambda: delivery.remote_state)
    condition = delivery.remote.condition
    print(delivery.remote_state, delivery.settled, condition)
    assert condition.name == "amqp:unauthorized-access"
    assert re.search(missing, condition.description)
    producer = session.createProducer(session.createQueue(kjms_destination_name))
    with pytest.raises(amqp("java_remote").JavaError, match=missing) as raised:
        producer.send(session.createTextMessage("x"))
    assert raised.value.name == "JMSSecurityException"


@pytest.mark.parametrize("kind", ["Queue", "Topic"])
def test_a_missing_right_to_receive_is_named(
    refused: tuple[Any, Any], amqp: Any, kjms_destination_name: str, kind: str
) -> None:
    """A client that may not receive gets amqp:unauthorized-access and the missing ACL, when it attaches or later."""
    from proton.utils import LinkDetached

    connection, session = refused
    missing = r"the ACL \w+ on the (topic|group) '[^']+' is missing"

    def receive() -> None:
        connection.create_receiver(f"{kind.lower()}://{kjms_destination_name}").receive(WAIT_SECONDS)

    with pytest.raises(LinkDetached, match=missing) as caught:
        receive()
    assert "amqp:unauthorized-access" in str(caught.value)

    error_class = amqp("java_remote").JavaError

    def receive_there() -> None:
        destination = getattr(session, f"create{kind}")(kjms_destination_name)
        while True:
            try:
                session.createConsumer(destination).receive(amqp("java_remote").Typed("long", 20_000))
            except error_class as error:
                # Qpid JMS hides the reason where the link ended before `receive` began to wait.
                if error.name != "IllegalStateException":
                    raise

    with pytest.raises(error_class, match=missing) as raised:
        receive_there()
    assert raised.value.name == "JMSSecurityException"


def test_the_command_needs_no_name_of_its_own(secured: Any, tmp_path: Path, kjms_destination_name: str) -> None:
    """``kjms gateway --pass-credentials`` starts without a user of Kafka of its own."""
    from proton.utils import BlockingConnection

    settings = "".join(f'"{name}" = "{value}"\n' for name, value in secured.settings().items())
    (tmp_path / "kjms.toml").write_text(f"[kafka]\n{settings}")
    user = secured.user()
    with subprocess.Popen(
        [sys.executable, "-m", "kjms.cli", "gateway", "--listen", "localhost:0", "--pass-credentials",
         "--bootstrap", secured.addresses["SASL"], "--config", "kjms.toml"],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("KJMS_")},
    ) as process:  # fmt: skip
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert "listening at" in line, line
            url = f"amqp://localhost:{line.strip().rpartition(':')[2]}"
            BlockingConnection(
                url, timeout=WAIT_SECONDS, user=user, password=secured.users[user], allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            ).close()  # fmt: skip
        finally:
            process.terminate()
        assert secured.users[user] not in process.stderr.read()
    assert process.returncode == 0
