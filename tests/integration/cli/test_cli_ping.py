"""``kjms ping`` on a real Kafka, with and without rights, and where something else listens."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kjms.broker import Broker, LocalBroker
from kjms.cli import main
from tests.helpers import WAIT_MS, Kjms, topics


def test_a_cluster_answers(kjms: Kjms, kjms_broker: Broker) -> None:
    """Print one line with the release, the brokers and the time of an answer; create nothing."""
    before = topics(kjms_broker.bootstrap_servers)
    (line,) = kjms("ping").stdout.decode().splitlines()
    assert "like Kafka 4." in line
    assert f"1 broker ({kjms_broker.bootstrap_servers})" in line
    found = json.loads(kjms("ping", "--json").stdout)
    assert found["brokers"] == [kjms_broker.bootstrap_servers]
    assert found["milliseconds"] > 0
    assert "compatibility" not in found
    assert not {each for each in topics(kjms_broker.bootstrap_servers) - before if each.startswith("kjms-ping-")}


def test_this_kafka_has_all_that_kjms_needs(kjms: Kjms, kjms_broker: Broker) -> None:
    """Find each need met by the Kafka that the tests run on, and leave nothing there."""
    found = json.loads(kjms("ping", "--compatibility", "--json").stdout)["compatibility"]
    assert {each["name"]: (each["state"], each["detail"]) for each in found} == {
        each["name"]: ("ok", "") for each in found
    }
    assert len(found) > 10
    assert not {each for each in topics(kjms_broker.bootstrap_servers) if each.startswith("kjms-ping-")}


def test_what_a_user_may_not_do_is_unknown(
    users_broker: LocalBroker, bob: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Say which right is missing, and not that the cluster cannot do it; exit with 1."""
    settings = "\n".join(f'"{name}" = "{value}"' for name, value in bob.items())
    file = tmp_path / "bob.toml"
    file.write_text(f"[kafka]\n{settings}\n", encoding="utf-8")
    address = users_broker.listeners["SASL_PLAINTEXT"]
    assert main(["ping", "--compatibility", "--json", "--bootstrap", address, "--config", str(file)]) == 1
    found = json.loads(capsys.readouterr().out)["compatibility"]
    states = {each["name"]: each["state"] for each in found}
    assert set(states.values()) == {"unknown", "ok"}
    assert states["create topics"] == states["transactions"] == "unknown"
    details = {each["name"]: each["detail"] for each in found}
    assert "the ACL Create on the topic 'kjms-ping-" in details["create topics"]
    assert details["transactions"] == "not tried, since the trial could not create a topic"


def test_a_server_of_another_make(kjms: Kjms) -> None:
    """Say what librdkafka's own small Kafka lacks: it takes few requests, and creates no topics when asked."""
    producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (mock,) = producer.list_topics(timeout=WAIT_MS / 1000).brokers.values()
    done = kjms("ping", "--compatibility", "--bootstrap", f"{mock.host}:{mock.port}", expected=1)
    out = done.stdout.decode()
    assert "missing  create topics" in out
    assert "! create topics: missing: the broker does not take the requests CreateTopics 4" in out
    assert "! transactions: unknown: not tried, since the trial could not create a topic" in out
    assert "things that kjms cannot work without.\n" in out


@pytest.fixture
def web_server() -> Iterator[str]:
    """The address of a server that speaks HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(4_096)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("options", [(), ("--compatibility",)])
def test_something_else_is_no_kafka(kjms: Kjms, web_server: str, options: tuple[str, ...]) -> None:
    """Say in one line that no broker answers there; exit with 1."""
    done = kjms("ping", *options, "--bootstrap", web_server, "--timeout", "2", expected=1)
    assert not done.stdout
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith(f"kjms ping: no Kafka broker answers at {web_server}")
