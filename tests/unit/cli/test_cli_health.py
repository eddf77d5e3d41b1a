"""``kjms health``: its line, its exit code, and whom it asks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from kjms.cli import main
from kjms.health import HealthServer, Unhealthy


class Kafka:
    """A check that fails until `answers`."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answers = False

    def __call__(self) -> str:
        self.asked.set()
        if not self.answers:
            raise Unhealthy("no broker of kafka:9092 answers")
        return "connected to kafka:9092"


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment that says where to ask."""
    monkeypatch.delenv("KJMS_HEALTH", raising=False)


@pytest.fixture
def kafka() -> Kafka:
    """The check of readiness."""
    return Kafka()


@pytest.fixture
def server(kafka: Kafka) -> Iterator[HealthServer]:
    """A program that is alive, and ready when Kafka is there."""
    with HealthServer("127.0.0.1", 0, live={"loop": lambda: "it turns"}, ready={"kafka": kafka}) as server:
        yield server


def test_alive_and_not_ready(server: HealthServer, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    """The answer is a line with the checks that matter; exit code 0 is healthy, 1 is not."""
    assert main(["health", server.address]) == 0
    assert capsys.readouterr() == ("alive; loop: it turns\n", "")
    assert main(["health", "--ready", f"http://{server.address}/"]) == 1
    assert capsys.readouterr() == ("", "kjms health: not ready; kafka: no broker of kafka:9092 answers\n")
    kafka.answers = True
    assert main(["health", str(server.port), "--ready"]) == 0
    assert capsys.readouterr() == ("ready; loop: it turns; kafka: connected to kafka:9092\n", "")


def test_json(server: HealthServer, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints an object; the exit code is the same."""
    assert main(["health", server.address, "--ready", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {
        "ready": False,
        "checks": [
            {"name": "kafka", "healthy": False, "message": "no broker of kafka:9092 answers"},
            {"name": "loop", "healthy": True, "message": "it turns"},
        ],
    }


def test_the_environment_says_where(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address, the one in KJMS_HEALTH is asked, also when the server listens at every address."""
    for address in (server.address, f"0.0.0.0:{server.port}", str(server.port)):
        monkeypatch.setenv("KJMS_HEALTH", address)
        assert main(["health"]) == 0


def test_waiting(server: HealthServer, kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    """--wait returns as soon as the program is healthy."""

    def answer() -> None:
        kafka.asked.wait()
        kafka.answers = True

    thread = threading.Thread(target=answer)
    thread.start()
    assert main(["health", server.address, "--ready", "--wait", "20"]) == 0
    thread.join()
    assert capsys.readouterr().out.startswith("ready; ")


def test_no_answer(server: HealthServer, capsys: pytest.CaptureFixture[str]) -> None:
    """A program that is not there is not healthy; the line says where it was looked for."""
    server.close()
    assert main(["health", server.address, "--wait", "0.01"]) == 1
    assert f"no answer from {server.address}: " in capsys.readouterr().err


@pytest.mark.parametrize("address", ["kafka", "localhost:", ":8080", "localhost:70000", "https://localhost:1"])
def test_no_address(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no address is wrong use, as an argument and in the environment."""
    assert main(["health", address]) == 2
    assert repr(address)[1:-1] in capsys.readouterr().err
    monkeypatch.setenv("KJMS_HEALTH", address)
    assert main(["health"]) == 2
    assert "KJMS_HEALTH" in capsys.readouterr().err
