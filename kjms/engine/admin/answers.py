"""The answers that an admin client owes: each comes, or fails when the client is let go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from kjms.engine.kafka import AdminPort, KafkaError, KafkaException, jms_error, open_admin
from kjms.errors import JMSException

__all__ = ["AnsweringClient", "closed", "open_answering"]

Answer = TypeVar("Answer")


class AnsweringClient:
    """An admin client whose futures end when it is let go, and which is called as `AdminPort` is.

    Where a broker does not answer, librdkafka may destroy a client and leave its futures open, whatever their timeouts
    are. A thread that waits for one of them would never end.

    Args:
        client: The client; only this object refers to it.
    """

    def __init__(self, client: AdminPort) -> None:
        self._client = client
        self._owed = _Owed()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name)

        def ask(*arguments: Any, **options: Any) -> Any:
            given = call(*arguments, **options)
            if isinstance(given, Future):
                return self._owed.promise(given)
            if isinstance(given, dict):
                return {asked: self._owed.promise(answer) for asked, answer in given.items()}
            return given

        return ask

    def give_up(self, why: KafkaError | None = None) -> None:
        """Fail what is owed; the caller lets the client go.

        Args:
            why: The error; None: that the client was closed, with the code ``_DESTROY``.
        """
        self._owed.give_up(why or KafkaError(KafkaError._DESTROY, "the client was closed before the broker answered"))


def open_answering(config: Mapping[str, Any]) -> AnsweringClient:
    """Return a new client with librdkafka's settings *config*.

    Raises:
        JMSException: There can be none; the text names the address.
    """
    try:
        return AnsweringClient(open_admin(dict(config)))
    except KafkaException as error:
        raise jms_error(error, f"connect to {config['bootstrap.servers']}") from error


def closed(config: Mapping[str, Any]) -> JMSException:
    """Return the error of a thread that asks after the client with the settings *config* was let go."""
    return JMSException(f"the connections to {config['bootstrap.servers']} were closed", "_DESTROY")


class _Owed:
    """The futures without an answer.

    It does not refer to the client, as the client's futures refer to it: their last reference may go in a thread of
    librdkafka, which must not destroy the client.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._promised: set[Future[Any]] = set()
        self._ended: KafkaError | None = None

    def promise(self, given: Future[Answer]) -> Future[Answer]:
        """Return a future with the result of *given*, or with an error when `give_up` comes first."""
        promised: Future[Answer] = Future()
        promised.set_running_or_notify_cancel()
        with self._lock:
            ended = self._ended
            if ended is None:
                self._promised.add(promised)
        if ended is not None:
            promised.set_exception(KafkaException(ended))
        else:
            given.add_done_callback(partial(self._keep, promised))
        return promised

    def _keep(self, promised: Future[Answer], given: Future[Answer]) -> None:
        with self._lock:
            if promised not in self._promised:
                return
            self._promised.remove(promised)
        error = given.exception()
        if error is None:
            promised.set_result(given.result())
        else:
            promised.set_exception(error)

    def give_up(self, why: KafkaError) -> None:
        with self._lock:
            self._ended = why
            promised, self._promised = self._promised, set()
        for each in promised:
            each.set_exception(KafkaException(why))
