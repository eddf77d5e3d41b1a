"""A bridge that gets a signal while it connects."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from kjms import ConnectionFactory, Queue
from kjms.bridge import BridgeOut, PeerOptions
from kjms.broker import Broker
from tests.helpers import wait_for

pytest.importorskip("proton")

WAIT_SECONDS = 60


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed() -> int:
    """A port where no server is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("place", ["silent", "closed", "no kafka"])
@pytest.mark.parametrize("direction", ["in", "out"])
def test_a_signal_ends_a_bridge_that_connects(
    kjms_broker: Broker,
    kjms_destination_name: str,
    silent: int,
    closed: int,
    direction: str,
    place: str,
    number: int,
    code: int,
) -> None:
    """Ctrl-C and SIGTERM end a bridge that connects at once, without output, with the exit code of other commands."""
    kafka = "127.0.0.1:9" if place == "no kafka" else kjms_broker.bootstrap_servers
    port = silent if place == "silent" else closed
    process = subprocess.Popen(
        [
            sys.executable, "-m", "kjms", "bridge", direction, f"amqp://127.0.0.1:{port}", kjms_destination_name,
            "--bootstrap", kafka, "--timeout", str(WAIT_SECONDS),
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for(lambda: process.poll() is not None or psutil.Process(process.pid).num_threads() > 2)  # it connects
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
        begun = time.monotonic()
        output, errors = process.communicate(timeout=WAIT_SECONDS)
        print(f"ended after {time.monotonic() - begun:.2f} s")
        assert errors.decode() == ""
        assert (process.returncode, output) == (code, b"")
        assert time.monotonic() - begun < WAIT_SECONDS / 4
    finally:
        process.kill()
        process.communicate()


def test_stop_ends_a_run_that_connects(
    kjms_factory: ConnectionFactory, silent: int, kjms_destination_name: str
) -> None:
    """`stop` in another thread ends `run` while the broker does not answer, and nothing was moved."""
    from kjms.bridge import BridgeIn, PeerOptions

    peer = PeerOptions(f"amqp://127.0.0.1:{silent}", connect_timeout=WAIT_SECONDS * 1000)
    bridge = BridgeIn(kjms_factory, peer, Queue(kjms_destination_name))
    timer = threading.Timer(3, bridge.stop)
    timer.start()
    begun = time.monotonic()
    assert bridge.run() == (0, 0, 0)
    assert time.monotonic() - begun < WAIT_SECONDS / 2
    assert not bridge.has_begun


def test_a_bridge_that_is_stopped_before_it_connects_does_not_connect(
    kjms_factory: ConnectionFactory, closed: int, kjms_destination_name: str
) -> None:
    """A request to stop that comes while Kafka is asked ends the bridge; it does not look for the broker."""
    peer = PeerOptions(f"amqp://127.0.0.1:{closed}", connect_timeout=300)
    bridge = BridgeOut(kjms_factory, peer, Queue(kjms_destination_name))
    bridge.stop()
    assert bridge.run() == (0, 0, 0)
