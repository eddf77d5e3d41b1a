"""Which clients of an in-memory Kafka wake for what: more to read of a partition, or a time."""

from __future__ import annotations

from typing import Protocol

from kjms.engine.kafka import KafkaError
from kjms.testing._groups import Place

__all__ = ["Client", "Wakeups"]


class Client(Protocol):
    """A client, as its cluster sees it."""

    client: str
    """Its ``client.id``."""

    def hear(self, error: KafkaError) -> None:
        """Pass *error* to the error callback, in the next poll; the caller holds the lock."""

    def wake(self) -> None:
        """Return from a wait: there is something to do; the caller holds the lock."""


class Wakeups:
    """What clients of a cluster wait for; the caller holds its lock."""

    def __init__(self) -> None:
        self._readers: dict[Place, dict[Client, None]] = {}
        self._lingering: dict[Client, float] = {}

    def watch(self, place: Place, client: Client) -> None:
        """Wake *client* when there is more to read of a partition."""
        self._readers.setdefault(place, {})[client] = None

    def unwatch(self, place: Place, client: Client) -> None:
        """Wake it no more."""
        readers = self._readers.get(place)
        if readers is not None:
            readers.pop(client, None)
            if not readers:
                del self._readers[place]

    def wake_readers(self, place: Place) -> None:
        """Wake the clients that read a partition."""
        for client in self._readers.get(place, ()):
            client.wake()

    def wake_readers_of(self, topic: str) -> None:
        """Wake the clients that read a partition of *topic*."""
        for place in list(self._readers):
            if place[0] == topic:
                self.wake_readers(place)

    def linger(self, client: Client, ready: float) -> None:
        """Wake *client* at a time of the clock: it has records that wait until then."""
        self._lingering[client] = ready

    def due(self) -> float:
        """Return when the next client wakes by the clock; infinite where none does."""
        return min(self._lingering.values(), default=float("inf"))

    def expire(self, now: float) -> None:
        """Wake clients whose time has come."""
        for client, ready in list(self._lingering.items()):
            if ready <= now:
                del self._lingering[client]
                client.wake()
