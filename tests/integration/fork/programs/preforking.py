"""A parent that is connected forks workers, which consume until they get SIGTERM, as servers that prefork do."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time

from kjms import ConnectionFactory, JMSException, Queue
from kjms.testing.engine import consumer_statistics

WORKERS, MESSAGES = 3, 12
servers, name = sys.argv[1:]
queue, done = Queue(name), Queue(f"{name}-done")
factory = ConnectionFactory(servers)


def work() -> None:
    """Consume until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with factory.create_context() as own:
            sender = own.create_context()
            consumer = own.create_consumer(queue)
            while True:
                try:
                    message = consumer.receive(100)
                except JMSException:  # a rebalance takes long on a busy machine
                    continue
                if message is not None:
                    sender.create_producer().send(done, message.get_body(str))
    except JMSException:  # Kafka did not answer the close in time: what it did not acknowledge is delivered again
        sys.exit(0)


context = factory.create_context()
producer = context.create_producer()
reports = context.create_consumer(done)
producer.send(Queue(f"{name}-else"), "connects")
# A child that is forked while a thread of its parent resolves a name inherits the C library's lock for that, locked.
while not consumer_statistics(reports).numbers:
    time.sleep(0.01)
workers = []
gc.freeze()
for number in range(MESSAGES):
    if number % (MESSAGES // WORKERS) == 0:  # between its own sends
        pid = os.fork()
        if pid == 0:
            work()
        workers.append(pid)
    producer.send(queue, f"message {number}")
texts = set()
while len(texts) < MESSAGES:
    report = reports.receive(30_000)
    assert report is not None
    texts.add(report.get_body(str))
print("consumed", len(texts))
codes = set()
for pid in workers:  # one after the other, as a server that is stopped in good order does
    os.kill(pid, signal.SIGTERM)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("workers ended with", codes)
producer.send(queue, "last")
context.close()
print("parent sends on")
