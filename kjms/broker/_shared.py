"""Share one Kafka among the worker processes of pytest-xdist: their controller starts it when a worker first asks."""

from __future__ import annotations

import contextlib
import json
import socket
import threading

from kjms.broker._find import Broker, find_broker
from kjms.errors import JMSException

_HOST = "127.0.0.1"


class SharedBroker:
    """Answer each connection to a port with the address of a Kafka: start it for the first, end it in `close`."""

    def __init__(self) -> None:
        self._server = socket.create_server((_HOST, 0))
        self._stack = contextlib.ExitStack()
        self._answer: bytes | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        threading.Thread(target=self._serve, name="kjms-shared-broker", daemon=True).start()

    @property
    def port(self) -> int:
        """The port on the loopback address, for `ask`."""
        return int(self._server.getsockname()[1])

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # it is closed
                return
            with connection:
                answer = self._found()
                with contextlib.suppress(OSError):  # the process that asked has ended
                    connection.sendall(answer)

    def _found(self) -> bytes:
        with self._lock:
            if self._answer is None:
                try:
                    if self._is_closed:
                        raise JMSException("the test run has ended")
                    broker = self._stack.enter_context(find_broker())
                    answer: dict[str, str] = {"bootstrap_servers": broker.bootstrap_servers, "kind": broker.kind}
                except (JMSException, ValueError) as error:
                    answer = {"error": str(error)}
                self._answer = json.dumps(answer).encode()
            return self._answer

    def close(self) -> None:
        """End the Kafka, if one was started."""
        with contextlib.suppress(OSError):  # it wakes the thread, where the system lets it
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            self._is_closed = True
            self._stack.close()


def ask(port: int) -> Broker:
    """Return the Kafka of the `SharedBroker` at *port*; wait until it works.

    Raises:
        JMSException: No Kafka can be started.
        OSError: The `SharedBroker` is closed.
    """
    with socket.create_connection((_HOST, port)) as connection, connection.makefile("rb") as answer:
        said = json.loads(answer.read())
    if "error" in said:
        raise JMSException(said["error"])
    return Broker(**said)
