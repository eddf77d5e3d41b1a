"""The health of the gateway and the bridge: what probes get while they start, work, lose a side, and end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kjms import ConnectionFactory, Queue
from kjms.health import Answer, HealthServer, ask
from kjms.testing import MemoryKafka
from kjms.testing.engine import tuned
from tests.helpers import WAIT_MS, WAIT_SECONDS, load_module, wait_for

if TYPE_CHECKING:
    from gateway_thread import RunningGateway

HERE = Path(__file__).parent


@pytest.fixture
def memory_gateway(proton: None) -> Iterator[Callable[[MemoryKafka], RunningGateway]]:
    """Starts a gateway on an in-memory Kafka."""
    started: list[RunningGateway] = []

    def start(kafka: MemoryKafka) -> RunningGateway:
        factory = ConnectionFactory(kafka.bootstrap_servers)
        started.append(load_module(HERE / "gateway_thread.py").RunningGateway(factory))
        return started[-1]

    yield start
    for gateway in started:
        gateway.close()


def lines_until(process: subprocess.Popen[str], text: str) -> list[dict[str, Any]]:
    """Return the objects of the process's log up to the one whose message begins with *text*."""
    assert process.stderr is not None
    found: list[dict[str, Any]] = []
    while not found or not found[-1]["message"].startswith(text):
        found.append(json.loads(process.stderr.readline()))
    return found


def test_a_gateway_on_a_real_kafka(proton: None, kjms_broker: Any, tmp_path: Path) -> None:
    """``kjms gateway --health`` is alive and ready, serves its metrics, and logs nothing but JSON objects."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("KJMS_")}
    options = ["--anonymous", "--listen", "localhost:0", "--health", "127.0.0.1:0", "--log-format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "kjms.cli", "gateway", *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**own, "KJMS_BOOTSTRAP": kjms_broker.bootstrap_servers},
        cwd=tmp_path,
    )
    try:
        (health, listening) = lines_until(process, "listening at ")
        assert health["message"].startswith("health at 127.0.0.1:")
        assert (listening["level"], listening["logger"]) == ("INFO", "kjms.gateway")
        port = int(health["message"].rpartition(":")[2])
        assert ask("127.0.0.1", port).failed == {}
        ready = ask("127.0.0.1", port, ready=True)
        assert ready.is_healthy
        assert ready.passed["kafka"] == f"connected to {kjms_broker.bootstrap_servers}"
        assert ready.passed["listener"].startswith("listening at localhost:")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert b"kjms_gateway_connections 0" in answer.read()
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=20)
        assert process.returncode == 0
        assert all(isinstance(json.loads(line), dict) for line in rest.splitlines())
    finally:
        process.kill()
        process.communicate()


def test_a_gateway_that_ends_is_not_ready(
    kjms_memory: MemoryKafka, memory_gateway: Callable[[MemoryKafka], RunningGateway]
) -> None:
    """A gateway that no longer listens is not ready, so that no new client is sent to it."""
    running = memory_gateway(kjms_memory)
    with HealthServer("127.0.0.1", 0, ready={"listener": running.gateway.check_listening}) as server:
        assert ask("127.0.0.1", server.port, ready=True).is_healthy
        running.run(running.gateway.stop())
        assert ask("127.0.0.1", server.port, ready=True).failed == {
            "listener": "the gateway accepts no clients: it starts or ends"
        }


def test_a_bridge(kjms_memory: MemoryKafka, memory_gateway: Callable[[MemoryKafka], RunningGateway]) -> None:
    """A bridge is ready while Kafka and the other broker are there; without one of them it is alive and not ready."""
    from kjms.bridge import BridgeOptions, BridgeOut, PeerOptions

    with MemoryKafka() as other:
        peer = memory_gateway(other)
        with tuned(outage_seconds=0.1, outage_pause_seconds=0.05):
            factory = ConnectionFactory(kjms_memory.bootstrap_servers)
            bridge = BridgeOut(factory, PeerOptions(peer.url), Queue("orders"), options=BridgeOptions(name="to-other"))
            thread = threading.Thread(target=bridge.run, daemon=True)
            server = HealthServer(
                "127.0.0.1", 0, live=bridge.health.live, ready=bridge.health.ready, metrics=bridge.metrics
            )

            def readiness() -> Answer:
                return ask("127.0.0.1", server.port, ready=True)

            def metrics() -> bytes:
                with urllib.request.urlopen(f"http://{server.address}/metrics", timeout=10) as answer:
                    return bytes(answer.read())

            with server:
                assert readiness().failed.keys() == {"kafka", "broker"}
                thread.start()
                wait_for(lambda: readiness().is_healthy)
                with kjms_memory.faults.outage():
                    wait_for(lambda: readiness().failed.keys() == {"kafka"})
                wait_for(lambda: readiness().is_healthy)
                with factory.create_context() as context:
                    context.create_producer().send(Queue("orders"), "ten pens")
                with ConnectionFactory(other.bootstrap_servers).create_context() as context:
                    assert context.create_consumer(Queue("orders")).receive(WAIT_MS) is not None
                wait_for(lambda: b'kjms_bridge_moved_total{bridge="to-other"} 1.0\n' in metrics())
                assert b'kjms_bridge_connected{bridge="to-other"} 1.0\n' in metrics()
                peer.run(peer.gateway.stop())
                wait_for(lambda: readiness().failed.keys() == {"broker"})
                assert ask("127.0.0.1", server.port).is_healthy
                bridge.stop()
                thread.join(WAIT_SECONDS)
                assert readiness().failed.keys() == {"kafka", "broker"}
