"""The HTTP server that probes ask: one event loop in a daemon thread, whatever the number of clients.

It reads a request's first kilobytes and nothing else, answers once and closes, so a client costs little, however slow.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kjms.checking import checked
from kjms.health._checks import Check, Unhealthy
from kjms.health._rounds import Shared, TooSlowError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["HealthServer", "Metrics"]

_log = logging.getLogger("kjms.health")

REQUEST_BYTES: Final = 8 << 10
REQUEST_SECONDS: Final = 5.0  # for the whole request, and again for taking the answer
CHECK_SECONDS: Final = 2.0
METRICS_SECONDS: Final = 30.0  # Prometheus waits 10 s by default
MOST_CLIENTS: Final = 100
CLOSE_SECONDS: Final = 2.0
JSON: Final = "application/json"

Metrics: TypeAlias = Callable[[], tuple[str, bytes]]
"""A function that returns the content type and the body of ``/metrics``, as prometheus_client's CONTENT_TYPE_LATEST and
``generate_latest(registry)``."""


class _Reply(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: bytes


class HealthServer:
    """Serves ``/livez``, ``/readyz`` and, with *metrics*, ``/metrics``; usable as a context manager.

    ``/livez`` and ``/readyz`` answer 200 if all checks pass, else 503, with a JSON object: ``status`` (``"ok"`` or
    ``"failing"``) and ``checks``, an object with ``status`` and ``message`` for each. Liveness means that the process
    makes progress; a supervisor kills a process without it. Readiness means that it can do its work now: its cluster
    and peers are there.

    Checks run in threads of their own, and requests at the same time share a run. A check that takes more than 2 s
    fails. After `close`, and before `start`, connections are refused.

    Args:
        host: The address to listen at.
        port: The port; 0 takes a free one.
        live: The checks of liveness by name; none: the process is alive if the server answers.
        ready: The checks of readiness by name. Those of liveness count, too.
        metrics: What ``/metrics`` serves.
    """

    @checked
    def __init__(
        self,
        host: str,
        port: int,
        *,
        live: Mapping[str, Check] | None = None,
        ready: Mapping[str, Check] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._host = host
        self._wanted_port = port
        live = dict(live or {})
        self._live = {name: Shared(name, check) for name, check in live.items()}
        self._ready = self._live | {name: Shared(name, check) for name, check in dict(ready or {}).items()}
        self._metrics = None if metrics is None else Shared("metrics", metrics)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over: asyncio.Event | None = None
        self._port = 0
        self._clients = 0

    def __repr__(self) -> str:
        state = f"at {self.address}" if self._thread is not None else "not started"
        return f"<HealthServer {state}: {', '.join(self._ready) or 'no checks'}>"

    @property
    def port(self) -> int:
        """The port that it listens at; 0 before `start`."""
        return self._port

    @property
    def address(self) -> str:
        """Where it listens, as ``HOST:PORT``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._port}"

    def start(self) -> Self:
        """Begin to listen, and return the server.

        Raises:
            OSError: The port is in use, or the address is not one of this machine.
            RuntimeError: The server has been started before.
        """
        if self._thread is not None:
            raise RuntimeError("this health server has been started before: make a new one")
        started = _Started()
        self._thread = threading.Thread(target=self._run, args=(started,), name="kjms-health", daemon=True)
        self._thread.start()
        started.wait()
        return self

    def close(self) -> None:
        """Listen no more; checks that run are left to their threads."""
        loop, is_over = self._loop, self._is_over
        if self._thread is None or loop is None or is_over is None:
            return
        try:
            loop.call_soon_threadsafe(is_over.set)
        except RuntimeError:  # it has been closed before
            return
        self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Self:
        """Start the server, unless it has been started."""
        return self if self._thread is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the server."""
        self.close()

    # In the server's thread.

    def _run(self, started: _Started) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as failure:
            started.failed(failure)

    async def _serve(self, started: _Started) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        try:
            server = await asyncio.start_server(self._client, self._host, self._wanted_port, limit=REQUEST_BYTES)
        except OSError as error:
            place = f"{self._host}:{self._wanted_port}"
            reason = os.strerror(error.errno) if error.errno else error  # Python's text names the place, too
            raise OSError(error.errno, f"the health server cannot listen at {place}: {reason}") from error
        self._port = int(server.sockets[0].getsockname()[1])
        started.done()
        await self._is_over.wait()
        server.close()  # the end of the loop cuts off those that are connected

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._clients >= MOST_CLIENTS:
            writer.transport.abort()
            return
        self._clients += 1
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)
            method, path = _request(request)
            reply = await self._reply(method, path)
            writer.write(_encoded(reply, with_body=method != "HEAD"))
            await asyncio.wait_for(writer.drain(), REQUEST_SECONDS)
            writer.close()
            await asyncio.wait_for(writer.wait_closed(), REQUEST_SECONDS)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError, ValueError):
            pass  # the client has gone, was too slow, or sent no request
        except asyncio.CancelledError:
            pass  # the server closes; asyncio before 3.12 logs the exception of a stream's task
        finally:
            self._clients -= 1
            writer.transport.abort()

    async def _reply(self, method: str, path: str) -> _Reply:
        if method not in {"GET", "HEAD"}:
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are served")
        if path == "/livez":
            return await self._checked(self._live)
        if path == "/readyz":
            return await self._checked(self._ready)
        if path == "/metrics" and self._metrics is not None:
            return await self._measured(self._metrics)
        served = ["/livez", "/readyz", *(["/metrics"] if self._metrics is not None else [])]
        return _error(HTTPStatus.NOT_FOUND, f"served are {', '.join(served)}")

    async def _checked(self, checks: Mapping[str, Shared[str]]) -> _Reply:
        results = await asyncio.gather(*(_outcome(each) for each in checks.values()))
        is_healthy = all(is_passed for is_passed, _ in results)
        value = {
            "status": _status(is_healthy),
            "checks": {
                name: {"status": _status(is_passed), "message": message}
                for name, (is_passed, message) in zip(checks, results, strict=True)
            },
        }
        return _Reply(HTTPStatus.OK if is_healthy else HTTPStatus.SERVICE_UNAVAILABLE, JSON, _json(value))

    async def _measured(self, metrics: Shared[tuple[str, bytes]]) -> _Reply:
        try:
            content_type, body = await metrics.result(METRICS_SECONDS)
        except TooSlowError:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, f"the metrics took longer than {METRICS_SECONDS:g} s")
        except Exception:
            _log.exception("collecting the metrics failed")
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "collecting the metrics failed; the log says why")
        return _Reply(HTTPStatus.OK, content_type, body)


class _Started:
    """What `HealthServer.start` waits for."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._failure: BaseException | None = None

    def done(self) -> None:
        self._event.set()

    def failed(self, failure: BaseException) -> None:
        if not self._event.is_set():
            self._failure = failure
            self._event.set()
        else:
            _log.error("the health server has ended", exc_info=failure)

    def wait(self) -> None:
        self._event.wait()
        if self._failure is not None:
            raise self._failure


async def _outcome(check: Shared[str]) -> tuple[bool, str]:
    """Return whether a check passes, and its message."""
    try:
        return True, str(await check.result(CHECK_SECONDS))
    except TooSlowError as failure:
        return False, f"the check has not answered for {failure.seconds:.1f} s"
    except Unhealthy as reason:
        return False, str(reason)
    except Exception as failure:
        return False, f"{type(failure).__name__}: {failure}"


def _status(is_healthy: bool) -> str:
    return "ok" if is_healthy else "failing"


def _request(data: bytes) -> tuple[str, str]:
    """Return method and path of a request's first line.

    Raises:
        ValueError: It is no HTTP request.
    """
    method, target, version = data.split(b"\r\n", 1)[0].decode("ascii").split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError(f"{version!r} is not spoken here")
    return method, target.partition("?")[0]


def _error(status: HTTPStatus, reason: str) -> _Reply:
    return _Reply(status, JSON, _json({"error": reason}))


def _json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _encoded(reply: _Reply, *, with_body: bool) -> bytes:
    head = [
        f"HTTP/1.1 {reply.status.value} {reply.status.phrase}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Cache-Control: no-store",
        "Connection: close",
        "X-Content-Type-Options: nosniff",
    ]
    if reply.status is HTTPStatus.METHOD_NOT_ALLOWED:
        head.append("Allow: GET, HEAD")
    return "\r\n".join([*head, "", ""]).encode() + (reply.body if with_body else b"")
