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
