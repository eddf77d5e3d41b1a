"""The gateway's users: the file that names them, passwords in clear text, and what belongs to each."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from amqp_peer import Peer
from java_remote import Java, JavaError, JavaObject, Typed

from kjms import ConnectionFactory, Session, TextMessage, Topic

WAIT = Typed("long", 20_000)
PASSWORDS = {"ann": "secret: ü", "bob": "other"}


@pytest.fixture
def users(proton: None, tmp_path: Path) -> Path:
    """A file with two users."""
    from kjms.gateway import add_user

    path = tmp_path / "users.txt"
    for user, password in PASSWORDS.items():
        add_user(path, user, password)
    return path


def connect(java: Java, url: str, user: str | None, client_id: str | None = None) -> JavaObject:
    factory = java.new("org.apache.qpid.jms.JmsConnectionFactory", url)
    connection = factory.createConnection(user, PASSWORDS[user]) if user else factory.createConnection()
    try:
        if client_id is not None:
            connection.setClientID(client_id)
        connection.start()
    except JavaError:
        connection.close()
        raise
    return connection


# ------------------------------------------------------------------------------------------------------ the file


def command(*arguments: str, password: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KJMS_PASSWORD": password, "KJMS_BOOTSTRAP": "localhost:1"}
    return subprocess.run(
        [sys.executable, "-m", "kjms.cli", "gateway", *arguments],
        capture_output=True, text=True, env=environment, check=False, timeout=60,
    )  # fmt: skip


def test_add_user_writes_the_file(proton: None, tmp_path: Path) -> None:
    """``--add-user NAME --users FILE`` adds a user or changes its password, and only the owner can read the file."""
    from kjms.users import Users

    path = tmp_path / "users.txt"
    for user, password in (("ann", "one"), ("bob", "two"), ("ann", "three")):
        done = command("--add-user", user, "--users", str(path), password=password)
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
        assert password not in done.stderr
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.write_text("# people\n" + path.read_text("utf-8").replace("# people\n", ""), "utf-8")
        path.chmod(0o644)
    lines = path.read_text("utf-8").splitlines()
    assert [line.partition(":")[0] for line in lines] == ["# people", "bob", "ann"]
    known = Users(path)
    assert known.accept("ann", "three")
    assert known.accept("bob", "two")
    assert not known.accept("ann", "one")
    assert list(tmp_path.iterdir()) == [path]
    path.write_text("ann:12:34\n", "utf-8")
    done = command("--add-user", "bob", "--users", str(path), password="two")
    assert done.returncode == 2
    assert "line 1" in done.stderr
    assert path.read_text("utf-8") == "ann:12:34\n"


@pytest.mark.parametrize("damage", ["ann", "ann:00", "ann:zz:zz", "half", "directory", "missing", "bytes"])
def test_a_damaged_file_refuses_logins(
    start_gateway: Callable[..., Any], users: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """While the file of users is damaged every login fails, and a line says why; when it is repaired, users log in."""
    from proton import ConnectionException
    from proton.utils import BlockingConnection

    def log_in(user: str) -> None:
        BlockingConnection(
            gateway.url, timeout=20, user=user, password=PASSWORDS[user], allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
        ).close()  # fmt: skip

    gateway = start_gateway(users=users, anonymous=False)
    whole = users.read_text("utf-8")
    log_in("bob")
    users.unlink()
    if damage == "directory":
        users.mkdir()
    elif damage == "bytes":
        users.write_bytes(whole.encode("utf-16"))
    elif damage != "missing":
        users.write_text(whole + ("ann:" + whole.split(":", 1)[1][:60] if damage == "half" else damage) + "\n", "utf-8")
    with caplog.at_level("INFO", "kjms.users"):
        for _ in range(2):
            with pytest.raises(ConnectionException, match=r"sys|temp|Auth"):
                log_in("bob")
        (line,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
        assert str(users) in line
        assert "every login is refused" in line
        if damage == "directory":
            users.rmdir()
        users.write_text(whole, "utf-8")
        log_in("bob")
    assert "Traceback" not in caplog.text
    assert "logins are accepted again" in caplog.text


# --------------------------------------------------------------------------------------------------- clear text


@pytest.mark.parametrize("option", [{"users": Path("users.txt")}, {"pass_credentials": True}])
def test_passwords_in_clear_text_are_refused(proton: None, option: dict[str, Any], certificates: Path) -> None:
    """Where passwords would cross a network without TLS, that has to be said."""
    from kjms.gateway import GatewayOptions

    for host in ("0.0.0.0", "::", "10.0.0.1", "gateway.example.com", "localhost.example.com"):
        with pytest.raises(ValueError, match="clear text"):
            GatewayOptions(host=host, **option)
        GatewayOptions(host=host, allow_cleartext_passwords=True, **option)
        GatewayOptions(host=host, tls_certificate=certificates / "localhost.pem", **option)
        GatewayOptions(host=host, anonymous=True)
    for host in ("localhost", "127.0.0.1", "127.1.2.3", "::1"):
        GatewayOptions(host=host, **option)


def test_the_command_says_how_to_allow_clear_text(users: Path) -> None:
    """The error names the options that help."""
    done = command("--users", str(users), "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "--tls-certificate" in done.stderr
    assert "--allow-cleartext-passwords" in done.stderr


# ------------------------------------------------------------------------------------------- what belongs to whom


def test_client_ids_and_durable_subscriptions_belong_to_a_user(
    start_gateway: Callable[..., Any],
    kjms_factory: ConnectionFactory,
    java: Java,
    here: Session,
    users: Path,
    kjms_destination_name: str,
) -> None:
    """A client id under which a user has durable subscriptions is no other user's, at any gateway, until they end."""
    client_id = f"client-{kjms_destination_name}"
    gateways = [start_gateway(users=users, anonymous=True) for _ in range(2)]
    with kjms_factory.create_connection():
        anns = connect(java, gateways[0].url, "ann", client_id)
        session = anns.createSession(False, 1)
        topic = session.createTopic(kjms_destination_name)
        session.createDurableSubscriber(topic, "news").close()
        anns.close()
        for gateway in gateways:
            for user in ("bob", None):
                with pytest.raises(JavaError) as raised:
                    connect(java, gateway.url, user, client_id)
                assert raised.value.name == "InvalidClientIDException"
                assert "another user" in raised.value.text
            with Peer(gateway.port, client_id) as peer:  # does not ask to be the only one of its name
                link = link_of_subscription(peer, kjms_destination_name)
                peer.wait(lambda: link.remote_condition is not None)  # noqa: B023 - called at once
                assert link.remote_condition.name == "amqp:not-allowed"
                assert "another user" in link.remote_condition.description
        here.create_producer(Topic(kjms_destination_name)).send(TextMessage("for ann"))
        anns = connect(java, gateways[1].url, "ann", client_id)
        session = anns.createSession(False, 1)
        consumer = session.createDurableSubscriber(session.createTopic(kjms_destination_name), "news")
        assert consumer.receive(WAIT).getText() == "for ann"
        consumer.close()
        session.unsubscribe("news")
        anns.close()
        connect(java, gateways[0].url, "bob", client_id).close()


def test_a_python_program_may_have_any_client_id(
    start_gateway: Callable[..., Any],
    kjms_factory: ConnectionFactory,
    java: Java,
    users: Path,
    kjms_destination_name: str,
) -> None:
    """A program that connects to the cluster uses a user's subscription, which stays the user's."""
    client_id = f"client-{kjms_destination_name}"
    gateway = start_gateway(users=users, anonymous=False)
    anns = connect(java, gateway.url, "ann", client_id)
    session = anns.createSession(False, 1)
    session.createDurableSubscriber(session.createTopic(kjms_destination_name), "news").close()
    anns.close()
    with kjms_factory.create_connection() as connection:
        connection.client_id = client_id
        connection.create_session().create_durable_consumer(Topic(kjms_destination_name), "news", "a = 1").close()
    with pytest.raises(JavaError):
        connect(java, gateway.url, "bob", client_id)
    connect(java, gateway.url, "ann", client_id).close()


def link_of_subscription(peer: Peer, topic: str) -> Any:
    from proton import Terminus, symbol

    link = peer.session.receiver("news")
    link.source.address = topic
    link.source.durability = Terminus.DELIVERIES
    link.source.expiry_policy = Terminus.EXPIRE_NEVER
    link.source.capabilities.put_object(symbol("topic"))
    link.open()
    return link
