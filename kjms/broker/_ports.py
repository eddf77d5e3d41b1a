"""Listeners and their ports: which are named, which are free."""

from __future__ import annotations

import contextlib
import errno
import random
import socket
from collections.abc import Collection

from kjms.errors import JMSException, shown

HOST = "127.0.0.1"


def parse_listeners(text: str) -> dict[str, tuple[str, int]]:
    """Return the listeners of Kafka's setting of that name, in their order.

    >>> parse_listeners("SSL://127.0.0.1:0")
    {'SSL': ('127.0.0.1', 0)}
    """
    listeners = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, separator, address = entry.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdigit():
            raise ValueError(f"listener {shown(entry)} is not of the form NAME://HOST:PORT")
        if name == "CONTROLLER":
            raise ValueError("the listener CONTROLLER is LocalBroker's own")
        listeners[name] = (host, int(port))
    return listeners


def check_free(host: str, port: int) -> None:
    """Raise a JMSException that names the port if a server cannot listen there."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            why = "is in use by another program" if taken else f"cannot be used: {error.strerror}"
            raise JMSException(f"port {port} on {host or 'any address'} {why}") from error


def free_port(taken: Collection[int] = ()) -> int:
    """Return a free port below those that the system gives to outgoing connections: it is still free at a restart."""
    for port in random.sample(range(15_000, 32_000), 500):
        if port not in taken:
            with contextlib.suppress(JMSException):
                check_free(HOST, port)
                return port
    raise JMSException("no free port between 15000 and 32000 on 127.0.0.1")
