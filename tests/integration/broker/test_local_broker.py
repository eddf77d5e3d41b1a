"""The embedded broker on a real Kafka: its start, its ends, its data and its errors."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import ConfigResource

from kjms import IllegalStateException, JMSException
from kjms.broker import LocalBroker
from kjms.broker._jars import cache_directory, locked_jars
from kjms.broker._java import find_java


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with LocalBroker(config={"message.max.bytes": "1234567"}) as broker:
        yield broker


def alive(pid: int | None) -> bool:
    return pid is not None and psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_started_broker_works(broker: LocalBroker, plain_kafka: Any) -> None:
    """When start() returns, records flow, Kafka's internal topics exist, and no probe is left behind."""
    plain = plain_kafka(broker.bootstrap_servers)
    plain.write("first", b"hello")
    assert plain.read("first") == b"hello"
    assert {"__consumer_offsets", "__transaction_state"} <= plain.topics()
    assert "kjms.ready" not in plain.topics()
    assert broker.bootstrap_servers in repr(broker)
    assert "running" in repr(broker)


def test_it_listens_on_the_loopback_address_only(broker: LocalBroker) -> None:
    """No port of the broker can be reached from another machine."""
    listening = {
        connection.laddr.ip.removeprefix("::ffff:")
        for connection in psutil.Process(broker.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_config_wins_over_the_defaults(broker: LocalBroker, plain_kafka: Any) -> None:
    """An entry of config is what Kafka runs with."""
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    plain = plain_kafka(broker.bootstrap_servers)
    described = plain.admin.describe_configs([resource])[resource].result(10)
    assert described["message.max.bytes"].value == "1234567"
    assert described["auto.create.topics.enable"].value == "false"


def test_its_settings_file_is_for_the_owner_only(broker: LocalBroker) -> None:
    """The file that may hold passwords cannot be read by others."""
    assert stat.S_IMODE((broker.data_dir / "server.properties").stat().st_mode) == 0o600


def test_starting_a_running_broker_changes_nothing(broker: LocalBroker) -> None:
    """start() returns the broker that runs."""
    before = broker.pid
    assert broker.start() is broker
    assert broker.pid == before


@pytest.mark.slow
def test_two_brokers_run_beside_each_other(broker: LocalBroker, plain_kafka: Any) -> None:
    """Each has ports, data and a cluster id of its own; a temporary one leaves no process and no directory.

    The second one has a listener with security: it comes first, and gets a free port for 0.
    """
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pa55word";'
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    credentials = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    with LocalBroker(config=config) as second:
        assert list(second.listeners) == ["SASL_PLAINTEXT", "PLAINTEXT"]
        plain = plain_kafka(second.bootstrap_servers, **credentials, **{"sasl.password": "pa55word"})
        plain.write("guarded", b"value")
        assert plain.read("guarded") == b"value"
        assert plain.cluster_id != plain_kafka(broker.bootstrap_servers).cluster_id
        assert "pa55word" not in repr(second)
        assert "pa55word" not in second.log_file.read_text("utf-8")
        pid, directory = second.pid, second.data_dir
        assert alive(pid)
        assert directory.is_dir()
    assert not alive(pid)
    assert not directory.exists()
    assert alive(broker.pid)
    second.close()
    assert "stopped" in repr(second)


def test_a_forked_child_cannot_end_its_parents_broker(broker: LocalBroker) -> None:
    """A copy of the broker object in a forked process ends nothing."""
    child = os.fork()
    if child == 0:
        broker.kill()
        broker.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert broker.is_running()


@pytest.mark.slow
def test_data_survive_kill_and_stop(plain_kafka: Any) -> None:
    """After kill() and after stop(), start() has the same port, cluster id and records, even of a temporary broker."""
    with LocalBroker() as broker:
        plain = plain_kafka(broker.bootstrap_servers)
        plain.write("kept", b"value")
        before = (broker.bootstrap_servers, plain.cluster_id)
        settings = broker.data_dir / "server.properties"
        assert "broker.session.timeout.ms=60000" in settings.read_text()  # a machine may stand still
        for end, patience in ((broker.kill, 2_000), (broker.stop, 60_000)):
            pid = broker.pid
            end()
            end()
            assert not alive(pid)
            assert not broker.is_running()
            broker.start()
            assert f"broker.session.timeout.ms={patience}" in settings.read_text()
            again = plain_kafka(broker.bootstrap_servers)
            assert (broker.bootstrap_servers, again.cluster_id) == before
            assert again.read("kept") == b"value"


@pytest.fixture
def _cache_with_blanks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cache_directory(locked_jars())
    (tmp_path / "my cache").mkdir()
    (tmp_path / "my cache" / here.name).symlink_to(here)
    monkeypatch.setenv("KJMS_CACHE_DIR", str(tmp_path / "my cache"))


@pytest.mark.slow
@pytest.mark.usefixtures("_cache_with_blanks")
def test_a_named_directory_is_started_again(tmp_path: Path, plain_kafka: Any) -> None:
    """Another LocalBroker on the same directory, blanks and all, has the cluster id and the records; it stays."""
    directory = tmp_path / "my höme" / "kafka data"
    with LocalBroker(data_dir=directory) as broker:
        plain = plain_kafka(broker.bootstrap_servers)
        plain.write("kept", b"value")
        cluster_id = plain.cluster_id
        with pytest.raises(JMSException, match=r"kafka data is in use by another broker"):
            LocalBroker(data_dir=directory).start()
        assert plain.cluster_id == cluster_id
    broker = LocalBroker(data_dir=directory).start()
    try:
        again = plain_kafka(broker.bootstrap_servers)
        assert again.cluster_id == cluster_id
        assert again.read("kept") == b"value"
    finally:
        broker.stop()
    assert broker.log_file.is_file()


def test_a_port_in_use_is_named() -> None:
    """The error names the port, and nothing is left behind."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        broker = LocalBroker(port=port)
        with pytest.raises(JMSException, match=f"port {port} on 127.0.0.1 is in use"), broker:
            pass
    with pytest.raises(IllegalStateException):
        broker.data_dir  # noqa: B018


@pytest.mark.parametrize(
    ("heap", "config", "reason"),
    [("1k", {}, "heap"), ("256m", {"log.retention.hours": "soon"}, r"log\.retention\.hours")],
)
def test_a_start_that_fails_quotes_what_kafka_said(
    tmp_path: Path, heap: str, config: dict[str, str], reason: str
) -> None:
    """The error names the log and what it says, whether Java or Kafka gave up."""
    broker = LocalBroker(data_dir=tmp_path, heap=heap, config=config)
    with pytest.raises(JMSException, match=rf"broker\.log says: .*{reason}"):
        broker.start()
    assert not broker.is_running()


SAID_ABOUT_NEWER_DATA = """\
2026-11-26 05:39:25.139 ERROR [SharedServer id=1] Got exception while starting SharedServer (kafka.server.SharedServer)
org.apache.kafka.server.common.serialization.MetadataParseException: Failed to deserialize record with type 0
Caused by: org.apache.kafka.common.errors.UnsupportedVersionException: Can't read version 4 of BrokerEndpoint
"""
"""What Kafka 4.2.2 says about a directory of Kafka 4.3.0."""


def test_data_of_a_newer_kafka_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is wrong with the directory before it quotes the log."""
    fake = tmp_path / "java" / "bin" / "java"
    fake.parent.mkdir(parents=True)
    (tmp_path / "said").write_text(SAID_ABOUT_NEWER_DATA)
    fails = f'case "$*" in *kafka.Kafka*) cat "{tmp_path}/said"; exit 1;; esac'
    fake.write_text(f'#!/bin/sh\n{fails}\nexec "{find_java().executable}" "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    with pytest.raises(JMSException, match=f"cannot read the data of a newer version in {tmp_path}/data"):
        LocalBroker(data_dir=tmp_path / "data").start()


def test_a_start_takes_no_longer_than_allowed(tmp_path: Path) -> None:
    """A Kafka that is too late is ended, and the error says how long it had."""
    broker = LocalBroker(data_dir=tmp_path, startup_timeout=0.2)
    with pytest.raises(JMSException, match=r"did not start within 0\.2 s"):
        broker.start()
    assert broker.pid is None


def test_a_data_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file where the directory should be is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(JMSException, match=f"data directory {tmp_path}/file"):
        LocalBroker(data_dir=tmp_path / "file").start()


def test_an_address_needs_a_start() -> None:
    """Before start() there is no address and no data directory, and stop() has nothing to do."""
    broker = LocalBroker()
    with pytest.raises(IllegalStateException, match=r"before start\(\)"):
        broker.bootstrap_servers  # noqa: B018
    broker.stop()
    broker.kill()
    broker.close()
    assert "stopped" in repr(broker)


def test_java_speaks_english_to_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the language of the machine, Java's is the one whose rules Kafka's names follow."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr -Duser.country=TR")
    command = [*find_java().command, "-XshowSettings:properties", "-version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "user.language = en" in run.stderr
    assert "user.language = tr" not in run.stderr


@pytest.mark.slow
def test_it_starts_where_people_speak_turkish(monkeypatch: pytest.MonkeyPatch, plain_kafka: Any) -> None:
    """There the capital of an i has a dot, and Kafka looked for the group type CLASSİC."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr -Duser.country=TR")
    with LocalBroker() as broker:
        plain = plain_kafka(broker.bootstrap_servers)
        plain.write("first", b"hello")
        assert plain.read("first") == b"hello"
