"""The health server: what it answers, to whom, and what hostile clients cost it."""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kjms.health import Check, HealthServer, Heartbeat, Unhealthy, _checks, _server, ask, event_loop
from kjms.health._rounds import Shared
from tests.helpers import WAIT_SECONDS, kjms_threads, wait_for


@contextlib.contextmanager
def serving(**what: Any) -> Iterator[HealthServer]:
    with HealthServer("127.0.0.1", 0, **what) as server:
        yield server


def get(server: HealthServer, path: str, method: str = "GET") -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        connection.close()


def sent(server: HealthServer, data: bytes) -> bytes:
    """Send *data* as it is, and return all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as client:
        answer = b""
        with contextlib.suppress(ConnectionError):
            client.sendall(data)
            while part := client.recv(1 << 16):
                answer += part
    return answer


def failing(reason: str = "no broker answers") -> str:
    raise Unhealthy(reason)


def test_a_healthy_program() -> None:
    """Each path answers 200 with each check's message; readiness includes the checks of liveness."""
    with serving(live={"loop": lambda: "turns"}, ready={"kafka": lambda: "connected"}) as server:
        status, headers, body = get(server, "/livez")
        assert (status, headers["Content-Type"], headers["Cache-Control"]) == (200, "application/json", "no-store")
        assert json.loads(body) == {"status": "ok", "checks": {"loop": {"status": "ok", "message": "turns"}}}
        status, _, body = get(server, "/readyz?verbose")
        assert status == 200
        assert json.loads(body)["checks"] == {
            "loop": {"status": "ok", "message": "turns"},
            "kafka": {"status": "ok", "message": "connected"},
        }


def test_a_failing_check() -> None:
    """A check that raises makes the answer 503 with the reason, and leaves the others and liveness alone."""
    ready: dict[str, Check] = {"kafka": failing, "table": lambda: str({}["x"]), "port": lambda: "listening"}
    with serving(ready=ready) as server:
        status, _, body = get(server, "/readyz")
        assert status == 503
        assert json.loads(body) == {
            "status": "failing",
            "checks": {
                "kafka": {"status": "failing", "message": "no broker answers"},
                "table": {"status": "failing", "message": "KeyError: 'x'"},
                "port": {"status": "ok", "message": "listening"},
            },
        }
        assert get(server, "/livez")[0] == 200


def test_a_check_may_recover() -> None:
    """Each request asks anew."""
    answers = iter(["503", "200"])

    def check() -> str:
        return "fine" if next(answers) == "200" else failing()

    with serving(ready={"kafka": check}) as server:
        assert [get(server, "/readyz")[0] for _ in range(2)] == [503, 200]


def test_a_check_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that hangs fails in time, is not begun again while it runs, and does not hold up other answers."""
    monkeypatch.setattr(_server, "CHECK_SECONDS", 0.1)
    end, begun = threading.Event(), []

    def hang() -> str:
        begun.append(1)
        end.wait(WAIT_SECONDS)
        return "late"

    with serving(live={"loop": lambda: "turns"}, ready={"lock": hang}) as server:
        for _ in range(3):
            status, _, body = get(server, "/readyz")
            assert status == 503
            assert "the check has not answered for" in json.loads(body)["checks"]["lock"]["message"]
        assert begun == [1]
        assert get(server, "/livez")[0] == 200
        end.set()
        wait_for(lambda: get(server, "/readyz")[0] == 200)


def test_metrics() -> None:
    """/metrics serves what the function returns; its failure is 500; without a function there is no such path."""
    answers = iter([("text/plain; version=0.0.4", b"up 1\n")])
    with serving(metrics=lambda: next(answers)) as server:
        status, headers, body = get(server, "/metrics")
        assert (status, headers["Content-Type"], body) == (200, "text/plain; version=0.0.4", b"up 1\n")
        assert get(server, "/metrics")[0] == 500
    with serving() as server:
        status, _, body = get(server, "/metrics")
        assert (status, json.loads(body)) == (404, {"error": "served are /livez, /readyz"})


@pytest.mark.parametrize(
    ("method", "status", "has_body"), [("GET", 200, True), ("HEAD", 200, False), ("POST", 405, True)]
)
def test_methods(method: str, status: int, has_body: bool) -> None:
    """GET and HEAD are served, HEAD without a body; nothing can be changed over HTTP."""
    with serving() as server:
        found, headers, body = get(server, "/livez", method)
        assert (found, bool(body)) == (status, has_body)
        assert int(headers["Content-Length"]) > 0
        assert ("Allow" in headers) == (status == 405)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /livez SPDY/3\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"\r\n\r\n",
        b"GET /" + b"a" * 1_000_000,
        b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
    ],
    ids=["TLS", "no path", "other protocol", "no ASCII", "empty", "long path", "many headers"],
)
def test_no_request_of_http(data: bytes) -> None:
    """What is no request, or too long, is answered by the end of the connection, and the server serves on."""
    with serving() as server:
        assert sent(server, data) == b""
        assert get(server, "/livez")[0] == 200


def test_a_slow_client_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends no whole request in time is disconnected, however often it sends a byte."""
    monkeypatch.setattr(_server, "REQUEST_SECONDS", 0.2)
    with serving() as server, socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as client:
        client.settimeout(0.02)

        def is_cut_off() -> bool:
            try:
                client.send(b"G")
                return client.recv(1) == b""
            except TimeoutError:
                return False
            except ConnectionError:
                return True

        wait_for(is_cut_off)


def test_many_idle_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """More clients than allowed are refused; they need no threads, and probes are served when others have gone."""
    monkeypatch.setattr(_server, "MOST_CLIENTS", 10)
    monkeypatch.setattr(_server, "REQUEST_SECONDS", 0.3)
    with serving() as server:
        before = threading.active_count()
        clients = [socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) for _ in range(50)]

        def is_served() -> bool:
            try:
                return get(server, "/livez")[0] == 200
            except (ConnectionError, http.client.HTTPException):
                return False

        assert threading.active_count() == before
        wait_for(is_served)
        for client in clients:
            client.close()


def test_requests_at_the_same_time_share_a_check() -> None:
    """Requests that come while a check runs get its result; the next request has it run again."""
    begun: list[int] = []
    end = threading.Event()

    def check() -> str:
        begun.append(1)
        end.wait(WAIT_SECONDS)
        return f"call {len(begun)}"

    async def ask_often() -> list[str]:
        shared = Shared("slow", check)
        asked = [asyncio.ensure_future(shared.result(WAIT_SECONDS)) for _ in range(8)]
        asyncio.get_running_loop().call_later(0.01, end.set)
        return [*await asyncio.gather(*asked), await shared.result(WAIT_SECONDS)]

    assert asyncio.run(ask_often()) == ["call 1"] * 8 + ["call 2"]


def test_close(caplog: pytest.LogCaptureFixture) -> None:
    """After close nothing answers, no thread is left, and closing twice is no error; a client's request is cut off."""
    server = HealthServer("127.0.0.1", 0).start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_SECONDS) as idle:
        wait_for(lambda: get(server, "/livez")[0] == 200)
        server.close()
        with contextlib.suppress(ConnectionError):
            assert idle.recv(1) == b""
    assert caplog.messages == []
    server.close()
    with pytest.raises(ConnectionRefusedError):
        ask("127.0.0.1", server.port)
    assert "kjms-health" not in kjms_threads()
    with pytest.raises(RuntimeError, match="make a new one"):
        server.start()
    HealthServer("127.0.0.1", 0).close()


def test_a_port_in_use() -> None:
    """A port that is in use is an error of start() that names the address."""
    with serving() as server:
        with pytest.raises(OSError, match=f"cannot listen at 127.0.0.1:{server.port}: Address already in use$") as told:
            HealthServer("127.0.0.1", server.port).start()
        assert str(told.value).count(str(server.port)) == 1


def test_ask() -> None:
    """ask() separates the checks that pass from those that fail; what is no health server is a ValueError."""
    with serving(live={"loop": lambda: "turns"}, ready={"kafka": failing}) as server:
        alive = ask("127.0.0.1", server.port)
        assert (alive.is_healthy, alive.passed, alive.failed) == (True, {"loop": "turns"}, {})
        ready = ask("127.0.0.1", server.port, ready=True)
        assert (ready.is_healthy, ready.passed, ready.failed) == (
            False,
            {"loop": "turns"},
            {"kafka": "no broker answers"},
        )
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def answer() -> None:
            client, _ = other.accept()
            with client:
                client.recv(1 << 16)
                client.sendall(b"220 mail.example.com\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(ValueError, match="is no health server"):
            ask("127.0.0.1", port)
        thread.join(WAIT_SECONDS)


def test_an_event_loop_that_hangs() -> None:
    """The check of an event loop passes while it turns, and fails while a callback blocks it and when it is closed."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    assert event_loop(loop)().startswith("the event loop answers in ")
    end = threading.Event()
    loop.call_soon_threadsafe(end.wait, WAIT_SECONDS)
    with pytest.raises(Unhealthy, match=r"has not answered for 0\.1 s"):
        event_loop(loop, 0.1)()
    end.set()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(WAIT_SECONDS)
    loop.close()
    with pytest.raises(Unhealthy, match="closed"):
        event_loop(loop)()


def test_a_heartbeat_recovers() -> None:
    """A loop that was stuck is alive again with its next round."""
    now = [0.0]
    heart = Heartbeat(10, clock=lambda: now[0])
    now[0] = 10.5
    with pytest.raises(Unhealthy):
        heart()
    heart.beat()
    assert heart() == "last round 0.0 s ago"


def test_the_examples() -> None:
    """The examples of the docstrings are true."""
    assert doctest.testmod(_checks, optionflags=doctest.IGNORE_EXCEPTION_DETAIL).failed == 0


def test_it_loads_neither_kafka_nor_a_metrics_library() -> None:
    """Importing kjms.health is cheap, for health checks that run every few seconds."""
    code = "import sys, kjms.health; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"confluent_kafka", "proton", "prometheus_client", "kjms.client.connection"} & set(run.stdout.split())
