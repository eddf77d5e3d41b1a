"""What an engine reports to its connections, and to what observes them."""

from __future__ import annotations

from kjms import JMSException
from kjms.engine.kafka import KafkaError
from kjms.engine.monitor import ConnectionMonitor
from kjms.engine.tuning import Tuning
from kjms.observe import Observer
from tests.helpers import wait_for
from tests.observing import Recorder


class Connection:
    """A connection with observers."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.failures: list[JMSException] = []

    def _tell(self, failure: JMSException) -> None:
        self.failures.append(failure)

    def _tell_recovery(self, failure: JMSException) -> None:
        self.failures.remove(failure)


def test_an_outage_and_its_end_are_observed_once() -> None:
    """Each observer learns of an outage once, however many connections it observes, and of its end with its length."""
    is_back = False

    def connect(seconds: float) -> None:
        if not is_back:
            raise JMSException("no broker answers")

    recorder, other = Recorder(), Recorder()
    connections = [Connection(recorder), Connection(recorder, other), Connection()]
    monitor = ConnectionMonitor("kafka:9092", "outage", connect, Tuning(outage_seconds=0.01, outage_pause_seconds=0.01))
    monitor.listeners.extend(connections)
    monitor.error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    try:
        wait_for(lambda: all(each.failures for each in connections))
        assert len(recorder["outage"]) == len(other["outage"]) == 1
        assert recorder["recovered"] == []
        is_back = True
        wait_for(lambda: not any(each.failures for each in connections))
    finally:
        monitor.outage.close()
    (begin,), (end,) = recorder["outage"], recorder["recovered"]
    assert begin.bootstrap_servers == end.bootstrap_servers == "kafka:9092"
    assert begin.error is end.error
    assert end.duration_ms >= 10
    assert len(other["recovered"]) == 1


def test_an_outage_is_explained_by_the_attempt_that_failed() -> None:
    """The count of librdkafka, "0/2 brokers are down", explains nothing: it replaces no reason."""
    connection = Connection()
    refused = KafkaError(KafkaError._TRANSPORT, "kafka:9092: Connect failed: Connection refused")
    down = KafkaError(KafkaError._ALL_BROKERS_DOWN, "0/2 brokers are down")
    reports: list[str] = []

    def connect(seconds: float) -> None:
        raise JMSException("no broker answers")

    for errors in ([refused, down], [down]):
        tuning = Tuning(outage_seconds=0.01, outage_pause_seconds=0.01)
        monitor = ConnectionMonitor("kafka:9092", "outage", connect, tuning)
        connection.failures.clear()
        monitor.listeners.append(connection)
        try:
            for error in errors:
                monitor.error(error)
            wait_for(lambda: connection.failures)
            reports.append(str(connection.failures[0]))
        finally:
            monitor.outage.close()
    assert reports == [
        "connection to kafka:9092 lost: kafka:9092: Connect failed: Connection refused (_ALL_BROKERS_DOWN)",
        "connection to kafka:9092 lost: no broker answers (_ALL_BROKERS_DOWN)",
    ]
