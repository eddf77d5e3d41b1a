"""Whether kjms is about as fast beside the Kafka client as it was: ratios within one run, with generous bounds."""

from __future__ import annotations

import pytest

import kjms.bench
from benchmarks._ratios import kept, measure, slower
from kjms.bench._stage import Stage
from kjms.bench._workload import load_workloads
from kjms.broker import Broker

pytestmark = pytest.mark.slow


def test_kjms_has_not_become_much_slower(kjms_broker: Broker) -> None:
    """No checked workload is, in each of several attempts, less than half as fast beside raw Kafka as what is kept."""
    with Stage(kjms_broker.bootstrap_servers, kafka={"client.id": "kjms-speed"}) as stage:
        assert slower(measure(load_workloads(kjms.bench), stage), kept()) == {}
