"""What a bridge does at its ends: large messages and those that cannot be moved, TLS, and the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from java_remote import Java, Typed

from kjms import BytesMessage, ConnectionFactory, Queue, Session, TextMessage
from kjms.errors import InvalidSelectorException, JMSException, JMSSecurityException
from tests.helpers import WAIT_MS

if TYPE_CHECKING:
    from artemis_process import Artemis


def session_with(java: Java, url: str) -> Any:
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", url).createConnection()
    connection.start()
    return connection, connection.createSession(False, 1)


def test_what_kafka_cannot_take_stays(
    java: Java, artemis: Artemis, kjms_factory: ConnectionFactory, here: Session, kjms_broker: Any
) -> None:
    """Large messages come in many frames; one that is too large for Kafka is left at the broker, and counted."""
    from kjms.bridge import BridgeIn, BridgeOptions, PeerOptions

    name = f"large-{uuid.uuid4().hex[:8]}"
    new = NewTopic(name, 1, 1, config={"max.message.bytes": "400000"})
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    admin.create_topics([new])[name].result(10)
    connection, session = session_with(java, artemis.url)
    producer = session.createProducer(session.createQueue(name))
    for size in (300_000, 900_000, 5):
        message = session.createBytesMessage()
        message.writeBytes(os.urandom(size))
        producer.send(message)
    bridge = BridgeIn(kjms_factory, PeerOptions(artemis.url), Queue(name), options=BridgeOptions(idle=500))
    assert bridge.run() == (2, 0, 1)
    consumer = here.create_consumer(Queue(name))
    for size in (300_000, 5):
        received = consumer.receive(WAIT_MS)
        assert isinstance(received, BytesMessage)
        assert received.body_length == size
    left = session.createConsumer(session.createQueue(name)).receive(Typed("long", WAIT_MS))
    assert left.getBodyLength() == 900_000
    connection.close()


def test_over_tls(
    start_gateway: Callable[..., Any],
    kjms_factory: ConnectionFactory,
    certificates: Path,
    here: Session,
    kjms_destination_name: str,
) -> None:
    """Over TLS a bridge comes in under its certificate's name; without one, or without trust, it does not."""
    from kjms.bridge import BridgeOptions, BridgeOut, PeerOptions

    gateway = start_gateway(
        anonymous=False,
        tls_certificate=certificates / "localhost.pem",
        tls_key=certificates / "localhost.key",
        tls_clients=certificates / "root.pem",
    )
    url = f"amqps://localhost:{gateway.port}"
    source, target = Queue(kjms_destination_name), Queue(f"{kjms_destination_name}-2")
    root = certificates / "root.pem"
    with pytest.raises(JMSSecurityException, match="certificate of localhost"):
        BridgeOut(kjms_factory, PeerOptions(url), source, target).run()
    with pytest.raises(JMSException, match="no broker at localhost"):
        BridgeOut(kjms_factory, PeerOptions(url, tls_ca=root, connect_timeout=300), source, target).run()
    peer = PeerOptions(
        url, tls_ca=root, tls_certificate=certificates / "billing.pem", tls_key=certificates / "billing.key"
    )
    here.create_producer(source).send(TextMessage("a"))
    assert BridgeOut(kjms_factory, peer, source, target, BridgeOptions(count=1)).run() == (1, 0, 0)
    received = here.create_consumer(target).receive(WAIT_MS)
    assert isinstance(received, TextMessage)
    assert received.text == "a"


def test_the_command(java: Java, artemis: Artemis, kjms_broker: Any, kjms_destination_name: str) -> None:
    """``kjms bridge`` says what it did, ends with 0 when it is asked to, and with a clear line when it cannot work."""

    def command(*arguments: str) -> list[str]:
        return [
            sys.executable, "-m", "kjms.cli", "bridge", "in", *arguments,
            "--bootstrap", kjms_broker.bootstrap_servers, "--json",
        ]  # fmt: skip

    connection, session = session_with(java, artemis.url)
    producer = session.createProducer(session.createQueue(kjms_destination_name))
    for number in range(3):
        producer.send(session.createTextMessage(str(number)))
    run = subprocess.run(command(artemis.url, kjms_destination_name, "--count", "2"), capture_output=True, check=True)
    assert json.loads(run.stdout)["moved"] == 2
    process = subprocess.Popen(
        command(artemis.url, kjms_destination_name, "--progress", "0.05"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    next(line for line in process.stderr if "1 moved" in line)
    process.send_signal(signal.SIGTERM)
    assert json.loads(process.communicate()[0]) == {
        "bridge": f"127.0.0.1:{artemis.port}/{kjms_destination_name}", "moved": 1, "repeats": 0, "left": 0,
    }  # fmt: skip
    assert process.returncode == 0
    wrong = subprocess.run(command("http://old", "a"), capture_output=True, text=True, check=False)
    assert (wrong.returncode, "is not a URL of the form amqp" in wrong.stderr) == (2, True)
    connection.close()


def test_options_that_make_no_sense(proton: None) -> None:
    """URLs, rates and selectors are checked at once, and passwords stay out of what is said."""
    from kjms.bridge import BridgeOptions, PeerOptions

    with pytest.raises(ValueError, match="rate is greater than 0"):
        BridgeOptions(rate=0)
    with pytest.raises(InvalidSelectorException):
        BridgeOptions(selector="a = ")
    with pytest.raises(ValueError, match="certificates are for amqps"):
        PeerOptions("amqp://old", tls_ca=Path("ca.pem"))
    with pytest.raises(ValueError, match="not a URL") as wrong:
        PeerOptions("amqp://mover:hidden@old:port")
    peer = PeerOptions("amqp://mover:hidden@old")
    assert "hidden" not in f"{wrong.value}{peer}"
    assert (peer.login, peer.port) == (("mover", "hidden"), 5672)
