"""The check of the cluster, on an in-memory Kafka that goes away."""

from __future__ import annotations

from kjms import ConnectionFactory
from kjms.health import Check, Unhealthy, cluster
from kjms.testing import MemoryKafka
from kjms.testing.engine import tuned
from tests.helpers import wait_for


def test_an_outage(kafka: MemoryKafka) -> None:
    """The check passes while the cluster is there, fails during an outage, and passes again after it."""
    with tuned(outage_seconds=0.1, outage_pause_seconds=0.05):
        connection = ConnectionFactory(kafka.bootstrap_servers).create_connection()
    with connection:
        check = cluster(connection)
        assert check() == f"connected to {kafka.bootstrap_servers}"
        with kafka.faults.outage():
            wait_for(lambda: is_lost(check))
        wait_for(lambda: not is_lost(check))


def is_lost(check: Check) -> bool:
    try:
        check()
    except Unhealthy as reason:
        return str(reason).startswith("no broker of memory")
    return False
