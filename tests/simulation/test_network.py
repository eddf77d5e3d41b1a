"""The network before a MemoryKafka: requests take time, transactions end late, leaders move, clocks differ.

Each test runs its program in a Python of its own, since kjms is imported into the simulated world there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from tests.simulation import world
world.install()
from confluent_kafka import TopicPartition
from kjms.testing import MemoryKafka
from tests.simulation import threads
from tests.simulation.network import networked
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.threads import sleep

def main():
    kafka = MemoryKafka()
    network = networked(kafka, {latency}, {markers})
    clients = network.clients
    kafka._cluster.make("orders", 2, 1, {{}})
    times, now = [], lambda: threads.sched.now
    address = {{"bootstrap.servers": kafka.bootstrap_servers}}
    producer = lambda **more: clients.producer({{**address, "linger.ms": 0, **more}})
    consumer = clients.consumer({{**address, "group.id": "g", "auto.offset.reset": "earliest"}})
    consumer.assign([TopicPartition("orders", 0, 0)])
{body}

for seed in range(6):
    scheduler = Scheduler(seed)
    scheduler.run(main, threads.enter(scheduler))
    assert not scheduler.errors() and scheduler.failure is None, (scheduler.errors(), scheduler.failure)
print("done")
import os, sys
sys.stdout.flush()
os._exit(0)
"""


def run(body: str, latency: float = 0.0, markers: float = 0.0) -> None:
    """Run *body* under some schedules, with a network."""
    code = PROGRAM.format(body="\n".join(f"    {line}" for line in body.splitlines()), latency=latency, markers=markers)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "done\n", done.stdout + done.stderr


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="greenlets are tested on Linux")


def test_requests_and_reports_take_time() -> None:
    """A record is not in its log when `produce` returns, its report comes later, and so do answers of requests."""
    run(
        """
reports = []
sending = producer()
for number in range(20):
    sending.produce("orders", b"x", partition=0, on_delivery=lambda error, message: reports.append(now()))
log = kafka._cluster.log(("orders", 0))
written = now()
while len(log.records) < 20:
    sending.poll(0.001)
assert sending.flush(60) == 0
assert len(reports) == 20
assert 0.01 < reports[-1] - written < 60.0
begin = now()
for number in range(20):
    consumer.commit(offsets=[TopicPartition("orders", 0, number)], asynchronous=False)
assert 1.0 < now() - begin < 80.0
assert kafka._cluster.group("g").offsets["orders", 0].offset == 19
""",
        latency=1.0,
    )


def test_transactions_end_late_and_in_order() -> None:
    """Markers come after the answer, and the producer's next transaction after the markers."""
    run(
        """
sending = producer(**{"transactional.id": "t"})
sending.init_transactions(9)
gaps = []
for number in range(8):
    sending.begin_transaction()
    sending.produce("orders", b"%d" % number, partition=0)
    sending.produce("orders", b"other", partition=1)
    sending.commit_transaction(30)
    gaps.append(network.transactions.ending_until(sending._transaction) - kafka._cluster.clock.monotonic())
found = []
while len(found) < 8:
    message = consumer.poll(30)
    assert message is not None
    found.append(int(message.value()))
assert found == [*range(8)]
assert any(gap > 0.1 for gap in gaps)
sleep(5)
consumer.poll(0)
assert kafka._cluster.log(("orders", 1)).stable_end == 16
""",
        markers=4.0,
    )


def test_a_partition_without_a_leader_takes_and_gives_nothing() -> None:
    """Records of other topics pass; what waited comes when the partition has a leader again."""
    run(
        """
kafka._cluster.make("bills", 1, 1, {})
network.move("orders", 3.0)
sending = producer()
sending.produce("orders", b"x", partition=0)
sending.produce("bills", b"y", partition=0)
sending.poll(1)
assert (len(kafka._cluster.log(("orders", 0)).records), len(kafka._cluster.log(("bills", 0)).records)) == (0, 1)
assert consumer.poll(0.5) is None
begin = now()
consumer.get_watermark_offsets(TopicPartition("orders", 0), 30)
assert 1.0 < now() - begin < 3.0
assert sending.flush(9) == 0
assert consumer.poll(9).value() == b"x"
network.move("orders", 1.0)
sending.produce("orders", b"z", partition=0)
assert sending.flush(9) == 0
network.moved()
assert consumer.poll(9).value() == b"z"
"""
    )


def test_processes_have_clocks_of_their_own() -> None:
    """The Kafka's time is one, and each process has another."""
    run(
        """
clocks = {}
def look():
    clocks[threads.sched.current.process.name] = clients.wall_clock() - kafka._cluster.clock.time()
for name, ahead in (("p0", 2.0), ("p1", -1.0)):
    process = Process(name, threads.sched)
    process.ahead = ahead
    thread = threads.Thread(target=look)
    thread.process = process
    thread.start()
    thread.join()
assert {name: round(each, 3) for name, each in clocks.items()} == {"p0": 2.0, "p1": -1.0}
"""
    )
