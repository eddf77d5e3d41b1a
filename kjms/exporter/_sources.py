"""Where a collector gets figures from: from this process, or from a child process that may end at any time.

librdkafka aborts its process when a request to a group's coordinator is answered after its time (its issues 3663 and
4605), which happens when brokers restart. In a child process, that costs one collection.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kjms.admin import Admin, QueueFigures, SubscriptionFigures
from kjms.errors import JMSException

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from kjms.client.connection_factory import ConnectionFactory

__all__ = ["ChildSource", "Figures", "OwnSource", "Request", "Source"]

POLL_SECONDS: Final = 0.2  # how soon closing is noticed
END_SECONDS: Final = 2.0  # for a child that ends in order


class Request(NamedTuple):
    """What is to be asked for, and as whom."""

    factory: ConnectionFactory
    user: str | None
    password: str | None
    estimate: bool


class Figures(NamedTuple):
    """The answer."""

    queues: list[QueueFigures]
    subscriptions: list[SubscriptionFigures]


class Source(Protocol):
    """What answers."""

    def ask(self) -> Figures:
        """Return the figures of now.

        Raises:
            JMSException: The cluster does not answer.
        """

    def close(self) -> None:
        """Disconnect."""


class OwnSource:
    """Asks from this process."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._admin: Admin | None = None

    def ask(self) -> Figures:
        """Return the figures of now."""
        factory, user, password, estimate = self._request
        if self._admin is None:
            self._admin = Admin(factory, user, password)
        return Figures(self._admin.queues(estimate=estimate), self._admin.subscriptions(estimate=estimate))

    def close(self) -> None:
        """Disconnect."""
        if self._admin is not None:
            self._admin.close()


class ChildSource:
    """Asks from a child process, which is started when it is needed, and again when it has ended.

    Args:
        request: What to ask; the factory must be one that can be pickled.
        is_over: Set when no more is wanted.
    """

    def __init__(self, request: Request, is_over: threading.Event) -> None:
        self._request = request
        self._is_over = is_over
        self._child: SpawnProcess | None = None
        self._pipe: Connection[Any, Any] | None = None

    def ask(self) -> Figures:
        """Return the figures of now."""
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send(True)
            while not self._pipe.poll(POLL_SECONDS):
                if self._is_over.is_set():
                    raise JMSException("the exporter ends")
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            code = self._end()
            raise JMSException(
                f"the process that asks the cluster has ended with exit code {code}; it is started again"
            ) from error
        if isinstance(answer, Figures):
            return answer
        raise JMSException(str(answer))

    def close(self) -> None:
        """End the child."""
        self._end()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit clients and locks
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_serve, args=(theirs, self._request), name="kjms-exporter", daemon=True)
        self._child.start()
        theirs.close()

    def _end(self) -> int | None:
        pipe, child = self._pipe, self._child
        self._pipe = self._child = None
        if pipe is None or child is None:
            return None
        pipe.close()
        child.join(END_SECONDS)
        if child.is_alive():
            child.kill()
            child.join()
        return child.exitcode


def _serve(pipe: Connection[Any, Any], request: Request) -> None:
    """Answer until the parent has closed the other end, or has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    logging.getLogger("kjms").addHandler(logging.NullHandler())  # the parent logs the answers
    source = OwnSource(request)
    try:
        while pipe.recv():
            try:
                answer: Figures | str = source.ask()
            except Exception as error:
                answer = str(error) if isinstance(error, JMSException) else f"{type(error).__name__}: {error}"
            pipe.send(answer)
    except (EOFError, OSError):
        pass
    finally:
        source.close()
