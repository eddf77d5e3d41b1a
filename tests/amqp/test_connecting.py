"""Which clients are admitted, under which name, and what becomes of clients that leave or break the rules."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from amqp_peer import Peer
from java_remote import Java, JavaError, JavaObject, Typed

from kjms import ConnectionFactory, Queue, Session, TextMessage
from kjms.gateway._pool import WorkerPool
from tests.helpers import Eventually, pause

if TYPE_CHECKING:
    from kjms.broker import Broker

WAIT = Typed("long", 10_000)
SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"


# ---------------------------------------------------------------------------------------------------------- names


@pytest.mark.requirement("AMQP-2.1-3", "AMQP-2.1-9", "AMQP-8.2-2")
def test_a_client_id_in_use_is_refused(
    connect: Callable[..., JavaObject], kjms_factory: ConnectionFactory, kjms_destination_name: str
) -> None:
    """A client id is that of one connection, among Java and Python programs alike, and free when that has closed."""
    first = connect(client_id=kjms_destination_name)
    with pytest.raises(JavaError) as raised:
        connect(client_id=kjms_destination_name)
    assert raised.value.name == "InvalidClientIDException"
    with kjms_factory.create_connection() as ours, pytest.raises(ValueError, match="in use"):
        ours.client_id = kjms_destination_name
    first.close()
    connect(client_id=kjms_destination_name).close()
    with kjms_factory.create_connection() as ours:
        ours.client_id = kjms_destination_name
        with pytest.raises(JavaError) as raised:
            connect(client_id=kjms_destination_name)
    assert raised.value.name == "InvalidClientIDException"


@pytest.mark.requirement("AMQP-6.2-6", "AMQP-9-5", "AMQP-9-8", "AMQP-2.1-1", "AMQP-2.1-8", "AMQP-8.1-1")
def test_what_the_gateway_offers(gateway: Any) -> None:
    """Its open frame names every capability that JMS clients ask for, and its product."""
    from proton.utils import BlockingConnection

    connection = BlockingConnection(gateway.url, allowed_mechs="ANONYMOUS")
    offered = {str(name) for name in connection.conn.remote_offered_capabilities}
    assert offered == {"sole-connection-for-container", "DELAYED_DELIVERY", "ANONYMOUS-RELAY", "SHARED-SUBS"}
    assert connection.conn.remote_properties["product"] == "kjms"
    assert connection.conn.remote_container.startswith("kjms-gateway-")
    connection.close()


@pytest.fixture(scope="module")
def guarded(start_gateway: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A gateway that admits the users of a file only."""
    from kjms.gateway import hashed

    users = tmp_path_factory.mktemp("gateway") / "users.txt"
    users.write_text(f"# people\n\n{hashed('ann', 'secret: ü')}\n", "utf-8")
    return start_gateway(users=users, anonymous=False)


def test_users_come_in_with_their_passwords(java: Java, guarded: Any) -> None:
    """A name with its password comes in, another password, another name and no name do not."""
    factory = java.new("org.apache.qpid.jms.JmsConnectionFactory", guarded.url)
    connection = factory.createConnection("ann", "secret: ü")
    connection.start()
    connection.close()
    for user, password in (("ann", "wrong"), ("bob", "secret: ü"), (None, None)):
        with pytest.raises(JavaError) as raised:
            factory.createConnection(user, password).start()
        assert raised.value.name == "JMSSecuritySaslException"


def test_without_sasl_only_where_anybody_may_come(guarded: Any) -> None:
    """A client that begins without SASL gets the supported header, and is cut off."""
    with socket.create_connection(("localhost", guarded.port)) as client:
        client.sendall(AMQP)
        assert _all(client) == SASL


def _all(client: socket.socket) -> bytes:
    client.settimeout(10)
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(65_536):
            data += part
    return data


# ------------------------------------------------------------------------------------------------ bad neighbours


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"AMQP\x00\x00\x09\x01",
        SASL + b"\x00\x00\x00\x07\x02\x01\x00\x00",
        SASL + b"\xff\xff\xff\xff\x02\x01\x00\x00",
        SASL + b"\x00\x00\x00\x10\x02\x01\x00\x00\x00\x53\x41\xc0\x01\x00\x00\x00",
        SASL + b"\x00\x00\x00\x18\x02\x01\x00\x00\x00\x53\x41\xc0\x0b\x01\xa3\x08KERBEROS",
        AMQP + b"\x00\x00\x00\x07\x02\x00\x00\x00",
        AMQP + b"\x7f\xff\xff\xff\x02\x00\x00\x00",
        AMQP + b"\x00\x00\x00\x10\x02\x00\x00\x00\x00\x53\x14\xc0\x03\x01\x41\x41",
        AMQP + b"\x00\x00\x00\x02" * 1000,
    ],
)
def test_nonsense_ends_that_connection_alone(gateway: Any, there: JavaObject, data: bytes) -> None:
    """A client that does not keep to the protocol is cut off; the others stay connected."""
    with socket.create_connection(("localhost", gateway.port)) as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
        _all(client)
    assert there.createTemporaryQueue() is not None


def test_a_client_that_does_not_open_its_connection_is_cut_off(start_gateway: Callable[..., Any]) -> None:
    """A client that connects and sends nothing has a time limit."""
    gateway = start_gateway(handshake_timeout=100)
    for beginning in (b"", SASL, b"AM"):
        with socket.create_connection(("localhost", gateway.port)) as client:
            client.sendall(beginning)
            assert not _all(client).endswith(AMQP)


def test_a_client_that_waits_for_its_client_id_is_not_cut_off(
    start_gateway: Callable[..., Any], kjms_broker: Any, kjms_destination_name: str
) -> None:
    """The gateway waits until a program that does not answer counts as gone, and the client waits with it."""
    program = (
        "import sys; from kjms import ConnectionFactory\n"
        "connection = ConnectionFactory(sys.argv[1], client_id=sys.argv[2]).create_connection()\n"
        "print(flush=True); input()"
    )
    command = [sys.executable, "-c", program, kjms_broker.bootstrap_servers, kjms_destination_name]
    gateway = start_gateway(handshake_timeout=500)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline()
            pause(holder.pid)
            with Peer(gateway.port, kjms_destination_name, "sole-connection-for-container") as peer:
                peer.socket.settimeout(60)
                peer.wait(lambda: peer.connection.state & peer.connection.REMOTE_ACTIVE)
                assert peer.connection.remote_condition is None
        finally:
            holder.kill()


def test_a_silent_client_counts_as_gone(start_gateway: Callable[..., Any]) -> None:
    """A client that sends no frame for longer than the idle time-out is cut off; one that sends empty ones is not."""
    gateway = start_gateway(idle_timeout=400)
    with Peer(gateway.port, "silent") as silent:
        silent.write()
        assert b"resource-limit-exceeded" in _all(silent.socket)
    for _ in range(20):
        is_kept, longest_pause = talk(gateway.port)
        if is_kept or longest_pause < 0.2:  # else the client was not heard for a while itself, on a busy machine
            break
    assert is_kept, "the gateway has closed the connection"


def talk(port: int) -> tuple[bool, float]:
    """Send empty frames for a second; return whether the gateway keeps the connection, and the longest pause."""
    longest, before = 0.0, time.monotonic()
    with Peer(port, "talking") as talking:
        talking.wait(lambda: talking.session.state & talking.session.REMOTE_ACTIVE)
        talking.socket.settimeout(0.05)
        until = time.monotonic() + 1
        while before < until:
            now = time.monotonic()
            longest, before = max(longest, now - before), now
            talking.transport.tick(now)
            talking.write()
            with contextlib.suppress(TimeoutError):
                if not talking.socket.recv(65_536):
                    return False, max(longest, time.monotonic() - before)
    return True, longest


def test_limits(start_gateway: Callable[..., Any], java: Java, kjms_destination_name: str) -> None:
    """More links than allowed are refused, and messages that are too large; the connection stays open."""
    gateway = start_gateway(max_links=3, max_message_size=10_000)
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", gateway.url).createConnection()
    connection.start()
    session = connection.createSession(False, 1)
    queue = session.createQueue(kjms_destination_name)
    producers = [session.createProducer(queue) for _ in range(3)]
    with pytest.raises(JavaError) as raised:
        session.createProducer(queue)
    assert "3 links" in raised.value.text
    with pytest.raises(JavaError):
        producers[0].send(session.createTextMessage("x" * 20_000))
    producers[1].send(session.createTextMessage("x" * 5_000))
    connection.close()


def test_a_client_that_does_not_read_harms_nobody(
    gateway: Any, there: JavaObject, here: Session, kjms_destination_name: str
) -> None:
    """Messages for a client that does not read stay in Kafka, but for some; others are served meanwhile."""
    producer = here.create_producer(Queue(kjms_destination_name))
    for _ in range(60):
        producer.send(TextMessage("x" * 100_000), delivery_mode=1)
    with Peer(gateway.port, "deaf") as deaf:
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.receiver(kjms_destination_name, 1000)
        deaf.write()
        own = there.createTemporaryQueue()
        consumer = there.createConsumer(own)
        answers = there.createProducer(own)
        for number in range(20):
            answers.send(there.createTextMessage(str(number)))
            assert consumer.receive(WAIT).getText() == str(number)
    left = there.createConsumer(there.createQueue(kjms_destination_name))
    assert [len(left.receive(WAIT).getText()) for _ in range(60)] == [100_000] * 60


@pytest.mark.requirement("AMQP-3.2.1-20")
def test_messages_of_a_client_that_died_go_to_others(
    gateway: Any, there: JavaObject, here: Session, kjms_destination_name: str
) -> None:
    """What a client had and did not answer for comes again; the first counts as delivered, for it may have killed."""
    producer = here.create_producer(Queue(kjms_destination_name))
    for number in range(5):
        producer.send(TextMessage(str(number)))
    with Peer(gateway.port, "dying") as dying:
        receiver = dying.receiver(kjms_destination_name, 3)
        dying.wait(lambda: receiver.queued == 3)
        assert not receiver.current.settled  # the gateway waits for the answer
    consumer = there.createConsumer(there.createQueue(kjms_destination_name))
    received = [consumer.receive(WAIT) for _ in range(5)]
    assert [message.getText() for message in received] == [str(number) for number in range(5)]
    assert received[0].getJMSRedelivered()
    assert not received[4].getJMSRedelivered()


# ------------------------------------------------------------------------------------------- other AMQP programs


@pytest.mark.requirement("AMQP-5.2-2")
def test_programs_without_jms(gateway: Any, here: Session, kjms_destination_name: str) -> None:
    """A plain AMQP program sends and receives by address alone, and asks with a dynamic source."""
    from proton import Message
    from proton.utils import BlockingConnection

    connection = BlockingConnection(gateway.url, allowed_mechs="ANONYMOUS", timeout=10)
    sender = connection.create_sender(kjms_destination_name)
    sender.send(Message(body={"a": [1, 2]}, properties={"my-key": 5}, content_type=None))
    received = here.create_consumer(Queue(kjms_destination_name)).receive(10_000)
    assert received is not None
    assert received.get_object_property("my-key") == 5
    echo = here.create_consumer(Queue(kjms_destination_name + "-echo"))
    own = connection.create_receiver(None, dynamic=True)
    sender = connection.create_sender(kjms_destination_name + "-echo")
    sender.send(Message(body="hello", reply_to=own.link.remote_source.address, correlation_id="1"))
    asked = echo.receive(10_000)
    assert isinstance(asked, TextMessage)
    assert asked.jms_reply_to is not None
    reply = TextMessage("HELLO")
    reply.jms_correlation_id = asked.jms_correlation_id
    here.create_producer(asked.jms_reply_to).send(reply)
    assert own.receive(10).body == "HELLO"
    connection.close()


@pytest.mark.requirement("AMQP-6.2-4")
@pytest.mark.parametrize("address", [None, "kjms.registry", ""])
def test_the_relay_rejects_what_it_cannot_relay(
    gateway: Any, here: Session, kjms_destination_name: str, address: str | None
) -> None:
    """A message without an address, or to what is no destination, is rejected; the link takes the next one."""
    from proton import Delivery, Message
    from proton.utils import BlockingConnection, SendException

    connection = BlockingConnection(gateway.url, allowed_mechs="ANONYMOUS", timeout=10)
    relay = connection.create_sender(None, name="relay")
    with pytest.raises(SendException) as raised:
        relay.send(Message(address=address, body="nowhere"))
    assert raised.value.state == Delivery.REJECTED
    relay.send(Message(address=kjms_destination_name, body="here"))
    assert [message.get_body(str) for message in here.create_browser(Queue(kjms_destination_name))] == ["here"]
    connection.close()


def test_a_selector_that_is_none_is_refused(gateway: Any, kjms_destination_name: str) -> None:
    """A selector that cannot be read is refused with an error of the link."""
    from proton import Described, symbol, ulong
    from proton.reactor import Filter
    from proton.utils import BlockingConnection, LinkDetached

    connection = BlockingConnection(gateway.url, allowed_mechs="ANONYMOUS", timeout=10)
    wrong = Filter({symbol("jms-selector"): Described(ulong(0x0000468C00000004), "word = = 'x'")})
    with pytest.raises(LinkDetached, match="amqp:invalid-field"):
        connection.create_receiver(kjms_destination_name, options=wrong)
    connection.close()


# ------------------------------------------------------------------------------------------------------- the end


@pytest.fixture
def command(kjms_broker: Broker, tmp_path: Path, proton: None) -> Iterator[Callable[..., tuple[Any, int]]]:
    """Starts ``kjms gateway`` as a process, and returns it with its port."""
    started: list[subprocess.Popen[str]] = []
    own = {name: value for name, value in os.environ.items() if not name.startswith("KJMS_")}

    def start(*arguments: str) -> tuple[Any, int]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kjms.cli", "gateway", "--listen", "localhost:0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**own, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers},
            cwd=tmp_path,
        )
        started.append(process)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "listening at localhost:" in line, line
        return process, int(line.rpartition(":")[2])

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_two_gateways_and_a_client_that_fails_over(
    command: Callable[..., tuple[Any, int]],
    java: Java,
    kjms_destination_name: str,
    here: Session,
    eventually: Eventually,
) -> None:
    """SIGTERM ends a gateway with code 0, one line for each event; its client continues with another gateway."""
    process, port = command("--anonymous")
    _, other = command("--anonymous")
    url = f"failover:(amqp://localhost:{port},amqp://localhost:{other})?failover.reconnectDelay=20"
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", url).createConnection()
    connection.setClientID(kjms_destination_name)
    connection.start()
    session = connection.createSession(False, 1)
    queue = session.createQueue(kjms_destination_name)
    producer, consumer = session.createProducer(queue), session.createConsumer(queue)
    producer.send(session.createTextMessage("before"))
    assert consumer.receive(WAIT).getText() == "before"
    # Qpid does not wait for the answer to its acknowledgement: what the first gateway has not read comes again.
    eventually(lambda: not list(here.create_browser(Queue(kjms_destination_name))))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    producer.send(session.createTextMessage("after"))
    assert consumer.receive(WAIT).getText() == "after"
    connection.close()
    lines = process.stderr.read().splitlines()
    assert len([line for line in lines if "opened by" in line]) == 1
    assert len([line for line in lines if "closed" in line]) == 1
    assert all(" kjms.gateway: " in line for line in lines)


def test_the_command_says_what_is_wrong(kjms_broker: Broker, tmp_path: Path, proton: None) -> None:
    """Options that admit no client are wrong use; a port that is in use is one clear line."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KJMS_")}
    environment = {**own, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kjms.cli", "gateway", *arguments],
            capture_output=True, text=True, env=environment, cwd=tmp_path, check=False, timeout=60,
        )  # fmt: skip

    assert run().returncode == 2
    assert run("--anonymous", "--user", "ann").returncode == 2
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        done = run("--anonymous", "--listen", f"localhost:{taken.getsockname()[1]}")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    environment["KJMS_PASSWORD"] = "secret"
    done = run("--add-user", "ann")
    assert done.returncode == 0
    assert done.stdout.startswith("ann:")
    assert "secret" not in done.stdout


# ------------------------------------------------------------------------------------------------ TLS and metrics


def test_tls_and_client_certificates(
    start_gateway: Callable[..., Any], java: Java, certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Over TLS a client comes in under its certificate's name; one without certificate, or without TLS, does not."""
    gateway = start_gateway(
        anonymous=False,
        tls_certificate=certificates / "localhost.pem",
        tls_key=certificates / "localhost.key",
        tls_clients=certificates / "root.pem",
    )
    trusted = (
        f"amqps://localhost:{gateway.port}?transport.trustStoreLocation={certificates}/root.p12"
        "&transport.trustStorePassword=secret"
    )
    own = f"&transport.keyStoreLocation={certificates}/billing.p12&transport.keyStorePassword=secret"
    with caplog.at_level("INFO", "kjms.gateway"):
        connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", trusted + own).createConnection()
        connection.start()
    assert "user 'billing'" in caplog.text
    connection.close()
    for url in (trusted, f"amqp://localhost:{gateway.port}"):
        with pytest.raises(JavaError):
            java.new("org.apache.qpid.jms.JmsConnectionFactory", url).createConnection().start()


def test_metrics(start_gateway: Callable[..., Any], java: Java, kjms_destination_name: str) -> None:
    """Prometheus reads how many connections and messages there were."""
    gateway = start_gateway(metrics_port=0)
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", gateway.url).createConnection()
    connection.start()
    session = connection.createSession(False, 1)
    queue = session.createQueue(kjms_destination_name)
    producer = session.createProducer(queue)
    for _ in range(3):
        producer.send(session.createTextMessage("x"))
    assert session.createConsumer(queue).receive(WAIT) is not None
    with urllib.request.urlopen(f"http://localhost:{gateway.gateway.metrics_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    assert "# TYPE kjms_gateway_opened_total counter" in lines
    assert {
        "kjms_gateway_connections 1.0",
        "kjms_gateway_opened_total 1.0",
        "kjms_gateway_messages_received_total 3.0",
    } <= set(lines)
    connection.close()


def test_what_a_transaction_sends_needs_no_thread(
    start_gateway: Callable[..., Any], java: Java, kjms_destination_name: str, eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The event loop takes the messages of a transaction; only the commit, which waits for Kafka, needs a thread."""
    calls: list[Callable[[], None]] = []
    submit = WorkerPool.submit

    def counted(pool: WorkerPool, call: Callable[[], None]) -> None:
        calls.append(call)
        submit(pool, call)

    monkeypatch.setattr(WorkerPool, "submit", counted)
    gateway = start_gateway()
    connection = java.new("org.apache.qpid.jms.JmsConnectionFactory", gateway.url).createConnection()
    session = connection.createSession(True, 0)
    producer = session.createProducer(session.createQueue(kjms_destination_name))
    taken = gateway.gateway.metrics

    def needs_none() -> bool:
        """Send messages; return whether threads were called before the gateway had them."""
        before, whole = len(calls), taken.messages_received_total + 20
        for _ in range(20):
            producer.send(session.createTextMessage("x"))
        eventually(lambda: taken.messages_received_total == whole)
        return len(calls) == before

    eventually(needs_none)  # once the thread that made the producer has let the session go
    count, before = taken.messages_received_total, len(calls)
    session.commit()
    assert len(calls) > before
    eventually(needs_none)
    session.rollback()
    producer.send(session.createTextMessage("last"))
    session.commit()
    connection.start()
    consumer = connection.createSession(False, 1).createConsumer(session.createQueue(kjms_destination_name))
    assert [consumer.receive(WAIT).getText() for _ in range(count + 1)] == ["x"] * count + ["last"]
    connection.close()


def test_few_threads_serve_all_sessions(
    start_gateway: Callable[..., Any], here: Session, kjms_destination_name: str,
    eventually: Callable[[Callable[[], object]], None], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """However many clients there are, few threads serve them; each gets its messages, and can close."""
    from proton import Message

    monkeypatch.setattr("kjms.gateway._pool.LINGER_SECONDS", 0.05)
    monkeypatch.setattr("kjms.gateway._pool.MOST_THREADS", 3)
    running = start_gateway()
    producer = here.create_producer(Queue(kjms_destination_name))
    taken: set[str] = set()
    others = set(threading.enumerate())  # of other gateways

    def threads() -> list[str]:
        mine = [thread.name for thread in threading.enumerate() if thread not in others]
        found = [name for name in mine if name.startswith("kjms-gateway-worker-")]
        assert len(found) <= 3
        return found

    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(running.port, f"{kjms_destination_name}-{number}")) for number in range(30)]
        receivers = [peer.receiver(kjms_destination_name, 1) for peer in peers]
        for peer, receiver in zip(peers, receivers, strict=True):
            peer.wait(lambda receiver=receiver: receiver.remote_source.address)  # type: ignore[misc]
        eventually(lambda: not threads())
        for number in range(len(peers)):
            producer.send(TextMessage(str(number)))
        for peer, receiver in zip(peers, receivers, strict=True):
            peer.wait(lambda receiver=receiver: receiver.queued)  # type: ignore[misc]
            message = Message()
            message.decode(receiver.recv(receiver.current.pending))
            taken.add(message.body)
            receiver.current.update(receiver.current.ACCEPTED)
            receiver.current.settle()
            peer.write()
        assert taken == {str(number) for number in range(len(peers))}
        eventually(lambda: not threads())
        for round_ in range(20):  # threads that end and begin at the same time lose no wake-up
            receiver = receivers[round_]
            receiver.flow(1)
            peers[round_].write()
            time.sleep(0.045 + 0.001 * (round_ % 10))
            producer.send(TextMessage("again"))
            peers[round_].wait(lambda receiver=receiver: receiver.queued)  # type: ignore[misc]
        for peer in peers:
            peer.connection.close()
            peer.wait(lambda peer=peer: peer.connection.state & peer.connection.REMOTE_CLOSED)  # type: ignore[misc]
        eventually(lambda: not running.gateway.clients.connections)
    eventually(lambda: not threads())
