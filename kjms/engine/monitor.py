"""Report failures that belong to no call, and outages of the cluster, to the connections of an engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kjms.engine.kafka import KafkaError, is_refusal, is_shortage, jms_error
from kjms.engine.outage import OutageDetector
from kjms.engine.tuning import Tuning
from kjms.errors import JMSException
from kjms.observe import Outage, Recovered
from kjms.observe._observers import Observers

if TYPE_CHECKING:
    from kjms.observe import Observer
    from kjms.observe._observers import Told

__all__ = ["ConnectionMonitor", "Listener"]

_log = logging.getLogger("kjms.engine")

OUTAGE: Final = KafkaError._ALL_BROKERS_DOWN


class Listener(Protocol):
    """A connection, which passes failures to its exception listener."""

    @property
    def _observers(self) -> tuple[Observer, ...]:
        """What observes it."""

    def _tell(self, failure: JMSException) -> None:
        """Report *failure*, which no call can raise; from any thread."""

    def _tell_recovery(self, failure: JMSException) -> None:
        """Report that the outage that *failure* reported is over."""


class ConnectionMonitor:
    """Receives the errors of all Kafka clients of an engine.

    Args:
        servers: The cluster's bootstrap servers.
        thread_name: The name of the thread that tries to connect during an outage.
        connect: Returns when a broker has answered; raises a JMSException if none did within so many seconds.
        tuning: Its times and limits.

    Attributes:
        listeners: The connections.
        last_error: The last error that a client reported, or the one that no other attempt would change.
        outage: Finds out whether the cluster is lost.
    """

    def __init__(self, servers: str, thread_name: str, connect: Callable[[float], None], tuning: Tuning) -> None:
        self._servers = servers
        self.listeners: list[Listener] = []
        self.last_error: list[KafkaError] = []
        self.outage = OutageDetector(thread_name, connect, self._lost, self._recovered, tuning)

    def error(self, error: KafkaError) -> None:
        """Record an error that belongs to no call; any client's thread calls it."""
        is_hopeless = any(is_refusal(each) or is_shortage(each) for each in self.last_error)
        says_why = error.code() != OUTAGE  # "0/2 brokers are down" explains nothing
        if is_refusal(error) or (not is_hopeless and (says_why or not self.last_error)):
            self.last_error[:] = [error]
        if error.fatal() or is_refusal(error):
            self.report(jms_error(error, f"connection to {self._servers}"))
        elif error.code() == OUTAGE and self.listeners:  # every attempt to reconnect reports it again
            known = self.last_error[0]  # of the attempt that failed last
            why = "no broker answers" if known.code() == OUTAGE else known.str()
            self.outage.suspect(jms_error(KafkaError(OUTAGE, why), f"connection to {self._servers} lost"))
        else:
            _log.debug("%s", error)

    def report(self, failure: JMSException) -> None:
        """Report *failure* to every connection, which passes it to its exception listener."""
        for listener in list(self.listeners):
            listener._tell(failure)

    def observed(self, method: Told, event: object) -> None:
        """Tell each observer of the connections of *event*, once."""
        Observers(each for listener in list(self.listeners) for each in listener._observers).tell(method, event)

    def _lost(self, failure: JMSException) -> None:
        _log.warning("%s", failure)
        self.observed("outage", Outage(self._servers, failure))
        self.report(failure)

    def _recovered(self, failure: JMSException, seconds: float) -> None:
        _log.info("the connection to %s is back after %.1f s", self._servers, seconds)
        self.observed("recovered", Recovered(self._servers, failure, seconds * 1000))
        for listener in list(self.listeners):
            listener._tell_recovery(failure)
