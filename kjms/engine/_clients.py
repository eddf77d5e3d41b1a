"""librdkafka's clients, which do not outlive a fork: a child process neither uses nor destroys those of its parent.

Their threads do not exist in the child, so a call would wait for them without end, and so would the destructor. In the
child each client becomes an object that refuses every call and is never destroyed. Its sockets close with the process.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import confluent_kafka
import confluent_kafka.admin

from kjms.errors import IllegalStateException

__all__ = ["AdminClient", "Consumer", "Producer", "inherited"]

_clients: weakref.WeakSet[Any] = weakref.WeakSet()


def inherited(doing: str, process: int | None = None) -> IllegalStateException:
    """Return the error for *doing* something, in a forked child, with what its parent *process* connected.

    >>> str(inherited("send", 17))
    'send: it belongs to process 17, from which this one was forked; create a connection in this process'
    """
    return IllegalStateException(
        f"{doing}: it belongs to process {process or os.getppid()}, from which this one was forked;"
        " create a connection in this process"
    )


class Consumer(confluent_kafka.Consumer):  # type: ignore[misc]
    """A consumer that a forked child does not inherit."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        _clients.add(self)


class Producer(confluent_kafka.Producer):  # type: ignore[misc]
    """A producer that a forked child does not inherit."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        _clients.add(self)


class AdminClient(confluent_kafka.admin.AdminClient):  # type: ignore[misc]
    """An admin client that a forked child does not inherit."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        _clients.add(self)


class _Inherited:
    def __getattribute__(self, name: str) -> Any:
        if name == "close":
            return lambda: None  # as if it were closed
        raise inherited(name)

    def __len__(self) -> int:
        return 0


class _InheritedConsumer(_Inherited, confluent_kafka.Consumer):  # type: ignore[misc]
    pass


class _InheritedProducer(_Inherited, confluent_kafka.Producer):  # type: ignore[misc]
    pass


class _InheritedAdminClient(_Inherited, confluent_kafka.admin.AdminClient):  # type: ignore[misc]
    pass


_REFUSING = {Consumer: _InheritedConsumer, Producer: _InheritedProducer, AdminClient: _InheritedAdminClient}


def _disown() -> None:
    for client in list(_clients):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))  # no end of the interpreter destroys it, either
        client.__class__ = _REFUSING[type(client)]
    _clients.clear()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_disown)
