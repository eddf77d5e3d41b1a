"""Show that librdkafka may write a confirmed message twice: an idempotent producer, a broker that stands still.

    python3 chores.py cluster doubled [--rounds N]

Nothing of kjms is involved. Each of 30 threads produces one message after the other to a topic of its own, while the
broker stands still for a little longer than ``message.timeout.ms``. When a message that was under way times out,
librdkafka takes a new epoch for the whole producer. What was under way in other partitions, and has not timed out yet,
is written again in that epoch, in which the broker cannot know it as a repetition. The exit code is 0.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kjms.broker import LocalBroker
from tests.helpers import WAIT_SECONDS, stored_records

TIMEOUT_MS: Final = 4_000
PAUSE_SECONDS: Final = 4.8
REST_SECONDS: Final = 6.0
MOST_SECONDS: Final = 2.5  # between two messages of a thread
TOPICS: Final = tuple(f"doubled-{number}" for number in range(30))


def produce(producer: Producer, topic: str, confirmed: set[int], is_over: threading.Event) -> None:
    """Produce one numbered message after the other, each once, and note those that are confirmed."""
    number, chance = 0, random.Random(topic)
    while not is_over.is_set():
        done = threading.Event()

        def report(error: object, _message: object, number: int = number, done: threading.Event = done) -> None:
            if error is None:
                confirmed.add(number)
            done.set()

        producer.produce(topic, str(number).encode(), on_delivery=report)
        done.wait()
        number += 1
        time.sleep(chance.uniform(0, MOST_SECONDS))


def main() -> int:
    """Run as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="chores.py cluster doubled", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often the broker stands still (5)")
    chosen = parser.parse_args()
    confirmed: dict[str, set[int]] = {topic: set() for topic in TOPICS}
    is_over = threading.Event()
    with LocalBroker(startup_timeout=180) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in TOPICS]).values():
            made.result(WAIT_SECONDS)
        settings = {"bootstrap.servers": servers, "message.timeout.ms": TIMEOUT_MS, "linger.ms": 0, "log_level": 0}
        producer = Producer({**settings, "enable.idempotence": True})
        threads = [
            threading.Thread(target=produce, args=(producer, topic, confirmed[topic], is_over)) for topic in TOPICS
        ]
        for thread in threads:
            thread.start()
        for _ in range(chosen.rounds):
            end = time.monotonic() + REST_SECONDS
            while time.monotonic() < end:
                producer.poll(0.1)
            broker.pause()
            time.sleep(PAUSE_SECONDS)
            broker.resume()
        is_over.set()
        while any(thread.is_alive() for thread in threads):
            producer.poll(0.1)
        counts = {
            topic: Counter(int(each.value() or b"") for each in stored_records(servers, topic)) for topic in TOPICS
        }
    doubled = [(topic, number) for topic in TOPICS for number, count in counts[topic].items() if count > 1]
    print(f"{sum(map(len, confirmed.values()))} messages were confirmed; {len(doubled)} are there more than once:")
    for topic, number in doubled:
        print(f"    {topic}: {number}, {'confirmed' if number in confirmed[topic] else 'timed out'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
