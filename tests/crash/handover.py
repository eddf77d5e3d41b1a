"""What is measured of messages that go from process to process: selectors under fire, and work that is shared."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from kjms import ConnectionFactory, Queue, Session
from kjms.broker import LocalBroker

PROGRAM: Final = Path(__file__).with_name("handover_process.py")
QUEUE: Final = "handed"
DONE: Final = "done"
SELECTORS: Final = {"one": "kind = 'a'", "two": "kind = 'b'", "three": "kind IN ('a', 'c')", "four": "kind = 'd'"}
KINDS: Final = {"one": "a", "two": "b", "three": "ac", "four": "d"}
LEFT: Final = "z"
KILLS: Final = 12
BETWEEN_KILLS: Final = (2.0, 5.0)  # seconds
DEADLINE_SECONDS: Final = 600.0
MOST_TRAFFIC: Final = 3.0
WORKERS: Final = 8
LEAST_SPEEDUP: Final = 6.0
WARM_SECONDS: Final = 8.0
MEASURED_SECONDS: Final = 10.0
BACKLOG: Final = 60_000


class Tail:
    """Reads the committed records of a topic with one partition, in a thread of its own."""

    def __init__(self, broker: LocalBroker, topic: str) -> None:
        self.records: list[dict[str, Any]] = []
        self._consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "tail", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.is_set():
            for record in self._consumer.consume(1_000, 0.2):
                if record.error() is None:
                    self.records.append(json.loads(record.value() or b""))
        self._consumer.close()

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()


def selectors(figures: Any, start: Any, messages: int, seed: int = 1) -> None:
    """Four processes with disjoint and overlapping selectors on one queue, killed at random."""
    chance = random.Random(seed)
    with LocalBroker() as broker:
        with ConnectionFactory(broker.bootstrap_servers).create_context() as context:
            context.create_producer().send(Queue(DONE), "{}")
        tail = Tail(broker, DONE)

        def begin(name: str) -> Any:
            return start("take", broker, queue=QUEUE, done=DONE, selector=SELECTORS[name], name=name)

        try:
            filling = start("fill", broker, queue=QUEUE, count=messages)
            running = {name: begin(name) for name in SELECTORS}
            wanted = messages - len(range(4, messages, 5))
            kills = 0
            begun = time.monotonic()
            due = begun + 5
            while len(tail.records) - 1 < wanted and time.monotonic() - begun < DEADLINE_SECONDS:
                time.sleep(0.2)
                if kills < KILLS and time.monotonic() > due:
                    name = chance.choice(list(running))
                    running[name].process.kill()
                    running[name].process.wait()
                    kills += 1
                    due = time.monotonic() + chance.uniform(*BETWEEN_KILLS)
                    running[name] = begin(name)
            filling.process.wait()
            seconds = time.monotonic() - begun
            time.sleep(2)  # for what comes twice
            for child in running.values():
                child.process.kill()
                child.process.wait()
        finally:
            tail.close()
        got = Counter(record["number"] for record in tail.records[1:])
        expected = {number for number in range(messages) if number % 5 != 4}
        wrong = sum(record["kind"] not in KINDS[record["by"]] for record in tail.records[1:])
        figures.fact(f"{kills} processes killed in {seconds:.0f} s, {wanted / seconds:,.0f} messages/s")
        figures.fact(f"by process: {dict(Counter(record['by'] for record in tail.records[1:]))}")
        figures.judge(f"lost: {len(expected - got.keys())}", expected <= got.keys())
        figures.judge(f"consumed twice: {sum(count > 1 for count in got.values())}", max(got.values(), default=0) <= 1)
        figures.judge(f"not wanted: {wrong + len(got.keys() - expected)}", not wrong and got.keys() <= expected)
        own = bytes_of(broker, QUEUE)
        beside = {what: bytes_of(broker, f"{QUEUE}.kjms.{what}") / own for what in ("handover", "overflow", "interest")}
        figures.fact("logs, in parts of the queue's own: " + ", ".join(f"{k} {v:.2f}" for k, v in beside.items()))
        traffic = 1 + sum(beside.values())
        figures.judge(f"traffic: {traffic:.2f} times the queue's own (<= {MOST_TRAFFIC})", traffic <= MOST_TRAFFIC)
        left = late(broker)
        expected_left = set(range(4, messages, 5))
        figures.judge(
            f"found by a late consumer without a selector: {len(left)} of {len(expected_left)}",
            set(left) == expected_left and len(left) == len(expected_left),
        )


def late(broker: LocalBroker) -> list[int]:
    """Return the numbers of the messages that a consumer without a selector still finds."""
    found = []
    with ConnectionFactory(broker.bootstrap_servers).create_context() as context:
        consumer = context.create_consumer(Queue(QUEUE))
        patience = 60_000  # those who were killed are still in the group, and their boxes theirs
        while (body := consumer.receive_body(str, patience)) is not None:
            found.append(int(body.rstrip(".")))
            patience = 20_000
    return found


def bytes_of(broker: LocalBroker, topic: str) -> int:
    """Return how large the log of *topic* is on the disk."""
    return sum(file.stat().st_size for file in broker.data_dir.rglob(f"{topic}-*/*.log"))


def sharing(figures: Any, start: Any, _: int) -> None:
    """One partition, and eight processes that take 5 ms for each message."""
    for mode in (Session.DUPS_OK_ACKNOWLEDGE, Session.AUTO_ACKNOWLEDGE):
        one, many = (rate_of(figures, start, count, mode) for count in (1, WORKERS))
        ratio = many / one
        if mode == Session.DUPS_OK_ACKNOWLEDGE:
            figures.judge(f"{mode.name}: ratio {ratio:.2f} (>= {LEAST_SPEEDUP})", ratio >= LEAST_SPEEDUP)
        else:  # a commit for each message: with two processors for all, it is the broker that sets the pace
            figures.fact(f"{mode.name}: ratio {ratio:.2f}")


def rate_of(figures: Any, start: Any, count: int, mode: int) -> float:
    """Return how many messages per second *count* processes get through."""
    with LocalBroker() as broker:
        start("fill", broker, queue=QUEUE, count=BACKLOG).last()
        workers = [start("work", broker, queue=QUEUE, mode=int(mode)) for _ in range(count)]
        said: list[dict[str, float]] = [{} for _ in workers]

        def listen(number: int, worker: Any) -> None:
            for line in worker.process.stdout:
                said[number] = json.loads(line)

        for number, worker in enumerate(workers):
            threading.Thread(target=listen, args=(number, worker), daemon=True).start()
        while not all(said):
            time.sleep(0.1)
        time.sleep(WARM_SECONDS)
        before = [dict(each) for each in said]
        time.sleep(MEASURED_SECONDS)
        each = [(b["count"] - a["count"]) / (b["at"] - a["at"]) for a, b in zip(before, said, strict=True)]
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
    figures.fact(f"{count} processes: {sum(each):,.0f} messages/s ({', '.join(f'{rate:.0f}' for rate in each)})")
    return sum(each)
