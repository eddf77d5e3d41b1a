"""What the tests with Java programs share: a gateway on the tests' Kafka, and a JVM with Apache Qpid JMS."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kjms import Connection, ConnectionFactory, Session
from tests.helpers import load_module

if TYPE_CHECKING:
    from artemis_process import Artemis
    from gateway_thread import RunningGateway
    from java_remote import Java, JavaObject

HERE = Path(__file__).parent


load_module(HERE / "amqp_peer.py")  # for the tests that import them
load_module(HERE / "gateway_thread.py")
load_module(HERE / "java_remote.py")
load_module(HERE / "artemis_process.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of the bridge in one process, which starts one Artemis."""
    for item in items:
        if item.path.parent == HERE and item.path.name.startswith("test_bridge"):
            item.add_marker(pytest.mark.xdist_group("artemis"))


@pytest.fixture(scope="session")
def proton() -> None:
    """The gateway's engine; without it there is no gateway."""
    pytest.importorskip("proton", reason="the extra kjms[amqp] is not installed")


@pytest.fixture(scope="session")
def kjms_factory(kjms_broker: Any) -> ConnectionFactory:
    """A factory whose connections, the gateway's among them, share no engine with the other tests."""
    return ConnectionFactory(kjms_broker.bootstrap_servers, kafka={"client.id": "kjms-amqp-tests"})


@pytest.fixture(scope="session")
def start_gateway(proton: None, kjms_factory: ConnectionFactory) -> Iterator[Callable[..., RunningGateway]]:
    """Starts a gateway with these options, ended with the tests."""
    started: list[RunningGateway] = []

    def start(**options: Any) -> RunningGateway:
        started.append(load_module(HERE / "gateway_thread.py").RunningGateway(kjms_factory, **options))
        return started[-1]

    yield start
    for gateway in started:
        gateway.close()


@pytest.fixture(scope="session")
def gateway(start_gateway: Callable[..., RunningGateway], kjms_factory: ConnectionFactory) -> Iterator[RunningGateway]:
    """A gateway that admits every client; another connection keeps the engine meanwhile."""
    with kjms_factory.create_connection():
        yield start_gateway()


@pytest.fixture(scope="session")
def java(proton: None) -> Iterator[Java]:
    """A JVM with Apache Qpid JMS."""
    remote = load_module(HERE / "java_remote.py")
    missing = remote.missing_tool()
    if missing is not None:
        pytest.skip(missing)
    java = remote.Java()
    yield java
    java.close()


@pytest.fixture(scope="session")
def artemis(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artemis]:
    """An ActiveMQ Artemis that admits every client."""
    broker = load_module(HERE / "artemis_process.py").Artemis(tmp_path_factory.mktemp("artemis"))
    broker.start()
    yield broker
    broker.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a root, and certificates of the gateway and of a client that it vouches for."""
    if shutil.which("keytool") is None or shutil.which("openssl") is None:
        pytest.skip("there is no keytool or openssl")
    place = tmp_path_factory.mktemp("tls")

    def openssl(line: str) -> None:
        subprocess.run(["openssl", *line.split()], cwd=place, check=True, capture_output=True)

    usage = "keyUsage=critical,keyCertSign,cRLSign"  # needed since Python 3.13, as is the key identifier below
    openssl(f"req -x509 -newkey rsa:2048 -nodes -days 2 -keyout root.key -out root.pem -subj /CN=root -addext {usage}")
    for name in ("localhost", "billing"):
        openssl(f"req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}")
        (place / "names").write_text("subjectAltName=DNS:localhost\nauthorityKeyIdentifier=keyid\n")
        openssl(f"x509 -req -in {name}.csr -CA root.pem -CAkey root.key -days 2 -out {name}.pem -extfile names")
    openssl("pkcs12 -export -in billing.pem -inkey billing.key -out billing.p12 -passout pass:secret")
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-file", "root.pem", "-keystore", "root.p12", "-storepass", "secret"],
        cwd=place, check=True, capture_output=True,
    )  # fmt: skip
    return place


@pytest.fixture
def guarded(java: Java, tmp_path: Path) -> Iterator[Artemis]:
    """An ActiveMQ Artemis that lets in the user "mover", whose password is "secret"; a test may end it."""
    broker = load_module(HERE / "artemis_process.py").Artemis(tmp_path, ("mover", "secret"))
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def connect(java: Java, gateway: RunningGateway) -> Iterator[Callable[..., JavaObject]]:
    """Makes Java connections to the gateway, started, and closed after the test."""
    opened: list[JavaObject] = []

    def connect(client_id: str | None = None, options: str = "", url: str | None = None) -> JavaObject:
        factory = java.new("org.apache.qpid.jms.JmsConnectionFactory", (url or gateway.url) + options)
        connection = factory.createConnection()
        opened.append(connection)
        if client_id is not None:
            connection.setClientID(client_id)
        connection.start()
        return connection

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def there(connect: Callable[..., JavaObject]) -> JavaObject:
    """A Java session that acknowledges by itself."""
    return connect().createSession(False, 1)


@pytest.fixture
def here(connection: Connection) -> Session:
    """A Python session that acknowledges by itself."""
    return connection.create_session()
