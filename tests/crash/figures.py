"""The figures that belong to the crash test: what is measured of settlement, and whether it is good enough.

    python3 chores.py crash --figures [NAME ...] [--messages N]

The exit code is 0, or 1 if a figure is worse than it must be; see docs/crash-test.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import figures_delay
import handover
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from kjms import Queue
from kjms.broker import Broker, LocalBroker
from kjms.mapping.names import BOOKKEEPING, queue_group, topic_for

PROGRAM: Final = Path(__file__).with_name("figures_process.py")
QUEUE: Final = "figures"
METADATA_BYTES: Final = 4_096  # Kafka's own limit
RSS_BYTES: Final = 200_000_000
LEAST_RATIO: Final = 0.7
EVERY: Final = 100
POISON: Final = 100_000
POISON_EVERY: Final = 10
MAX_DELIVERIES: Final = 10
FIRST_SECONDS: Final = 2.0
PARTITIONS: Final = 8
STREAM_RATE: Final = 400.0
SHARE_SECONDS: Final = 5.0
LEAST_SHARE: Final = 0.25  # of two, with eight partitions
RETENTION: Final = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "60000"}
FORGETTING_SECONDS: Final = 300.0
CONNECTIONS: Final = 300
MAX_THREADS: Final = 150
MAX_GROWTH: Final = 5_000_000  # bytes: a consumer that is kept, with its selector, takes some thousands

Facts = dict[str, Any]


class Figures:
    """Prints what was measured, and remembers whether all of it was good."""

    def __init__(self) -> None:
        self.is_good = True

    def fact(self, text: str) -> None:
        print(f"  {text}", flush=True)

    def judge(self, text: str, is_good: bool) -> None:
        self.is_good &= is_good
        print(f"  {'pass' if is_good else 'FAIL'}  {text}", flush=True)


class Child:
    """A process that measures."""

    def __init__(self, program: Path, role: str, broker: Broker, **values: object) -> None:
        self.role = role
        self.process = subprocess.Popen(
            [sys.executable, program, role, broker.bootstrap_servers, json.dumps(values)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def facts(self) -> Iterator[Facts]:
        """Return what it says, line by line, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)
        if self.process.wait() != 0:
            raise SystemExit(f"figures: {self.role} ended with {self.process.returncode}; what it said is above")

    def last(self) -> Facts:
        """Return the last thing it says."""
        return list(self.facts())[-1]

    def next(self) -> Facts:
        """Return the next thing it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"figures: {self.role} ended with {self.process.wait()}; what it said is above")
        return dict(json.loads(line))

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> Facts:
        """Close its standard input, and return the last thing it says."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.last()


@contextmanager
def children(program: Path = PROGRAM) -> Iterator[Callable[..., Child]]:
    """Give a way to start processes of *program*, none of which is left at the end."""
    started: list[Child] = []

    def start(role: str, broker: Broker, **values: object) -> Child:
        started.append(Child(program, role, broker, **values))
        return started[-1]

    try:
        yield start
    finally:
        for child in started:
            child.process.kill()
            child.process.wait()
            for pipe in (child.process.stdin, child.process.stdout):
                if pipe is not None:
                    pipe.close()


def committed(broker: LocalBroker, queue: str) -> dict[int, TopicPartition]:
    """Return what Kafka holds for the queue's group, by partition, or nothing if it has forgotten the group."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    asked = ConsumerGroupTopicPartitions(queue_group(topic_for(Queue(queue), "", "")))
    try:
        answer = admin.list_consumer_group_offsets([asked])[asked.group_id].result(10)
    except KafkaException:
        return {}
    return {each.partition: each for each in answer.topic_partitions or () if each.offset >= 0}


def unsettled(figures: Figures, messages: int) -> None:
    """Many messages of which every hundredth stays unsettled."""
    with LocalBroker() as broker, children() as start:
        rates: dict[str, float] = {}
        for name, leave in (("undisturbed", 0), ("disturbed", EVERY)):
            queue = f"{QUEUE}-{name}"
            start("fill", broker, queue=queue, count=messages).last()
            child = start("settle", broker, queue=queue, count=messages, leave_every=leave)
            lengths: list[tuple[int, int]] = []
            memory = 0
            fact: Facts = {}
            for said in child.facts():
                if "received" not in said:
                    continue
                fact = said
                memory = max(memory, said["rss"])
                length = max((len(each.metadata or "") for each in committed(broker, queue).values()), default=0)
                lengths.append((said["received"], length))
            rates[name] = fact["received"] / fact["seconds"]
            figures.fact(f"{name}: {rates[name]:,.0f} messages/s, {memory / 1e6:.0f} MB at most")
            if leave:
                shown = lengths[:: max(1, len(lengths) // 8)]
                over_time = ", ".join(f"{length} at {received:,}" for received, length in shown)
                figures.fact(f"metadata, characters: {over_time}")
                longest = max(length for _, length in lengths)
                figures.judge(f"metadata: {longest} characters at most (< {METADATA_BYTES})", longest < METADATA_BYTES)
                figures.judge(f"memory: {memory / 1e6:.0f} MB (< {RSS_BYTES / 1e6:.0f})", memory < RSS_BYTES)
        ratio = rates["disturbed"] / rates["undisturbed"]
        figures.judge(f"throughput: {ratio:.2f} of the undisturbed case (>= {LEAST_RATIO})", ratio >= LEAST_RATIO)
        left = start("collect", broker, queue=f"{QUEUE}-disturbed").last()
        expected = list(range(0, messages, EVERY))
        judge_left(figures, left, expected)


def judge_left(figures: Figures, left: Facts, expected: list[int]) -> None:
    """Judge what a new process got of a queue of which *expected* was not settled."""
    numbers = left["numbers"]
    missing, extra = set(expected) - set(numbers), set(numbers) - set(expected)
    text = f"left for a new process: {len(numbers)}, of which {len(extra)} had been settled; {len(missing)} are missing"
    figures.judge(f"{text} (expected {len(expected)})", not missing and sorted(numbers) == expected)
    figures.judge(f"{len(left['unmarked'])} of them came unmarked", not set(left["unmarked"]) & set(expected))


def poison(figures: Figures, messages: int) -> None:
    """Poison among good messages: the listener raises each time."""
    with LocalBroker() as broker, children() as start:
        start("fill", broker, queue=QUEUE, count=messages, poison_every=POISON_EVERY).last()
        bad = len(range(0, messages, POISON_EVERY))
        good = messages - bad
        fact = start("poison", broker, queue=QUEUE, good=good).last()
        rate = (fact["taken"] + fact["refusals"]) / fact["seconds"]
        figures.fact(f"{fact['seconds']:.0f} s, {rate:,.0f} deliveries/s, {fact['rss'] / 1e6:.0f} MB")
        figures.judge(
            f"good messages: {fact['different']} of {good} consumed, {fact['taken'] - fact['different']} of them twice",
            fact["taken"] == fact["different"] == good,
        )
        figures.judge(f"poison: {fact['refusals']} deliveries of {bad}", fact["refusals"] == MAX_DELIVERIES * bad)
        dead = dead_letters(broker, f"{QUEUE}.dlq")
        figures.judge(
            f"dead-letter queue: {len(dead)} messages, {len({number for number, _ in dead})} different (of {bad})",
            sorted(number for number, _ in dead) == list(range(0, messages, POISON_EVERY)),
        )
        counted = sum(cause.startswith(f"delivered {MAX_DELIVERIES} times") for _, cause in dead)
        figures.judge(f"with their count: {counted}", counted == len(dead) == bad)


def dead_letters(broker: LocalBroker, topic: str) -> list[tuple[int, str]]:
    """Return the numbers and the causes in a dead-letter queue, read by plain Kafka."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "figures",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
    found: list[tuple[int, str]] = []
    consumer = Consumer(settings)
    try:
        known = consumer.list_topics(timeout=10).topics.get(topic)
        waiting = set(known.partitions) if known is not None and known.error is None else set()
        consumer.assign([TopicPartition(topic, partition, 0) for partition in waiting])
        while waiting:
            message = consumer.poll(10)
            if message is None:
                raise SystemExit(f"figures: {topic} could not be read")
            if message.error() is not None:
                waiting.discard(message.partition())  # its end
                continue
            cause = dict(message.headers() or ()).get("JMS_kjms_Cause", b"")
            found.append((int(message.value().split()[0]), cause.decode()))
    finally:
        consumer.close()
    return found


def joining(figures: Figures, _: int) -> None:
    """A second process joins a queue with several partitions, while messages come."""
    factory = {"partitions": PARTITIONS, "ordering": "none"}
    with LocalBroker() as broker, children() as start:
        sender = start("stream", broker, queue=QUEUE, rate=STREAM_RATE, factory=factory)
        first, second = (start("member", broker, queue=QUEUE, factory=factory) for _ in range(2))
        first.next()
        second.next()
        first.go_on()
        first.next()
        time.sleep(SHARE_SECONDS / 2)
        joined = time.monotonic()
        second.go_on()
        took = second.next()["first"]
        time.sleep(SHARE_SECONDS)
        sender.end()
        time.sleep(1)
        gone = time.monotonic()
        theirs, mine = first.end()["got"], second.end()["got"]
        lately = [at for at, _, _ in theirs if joined + took <= at <= gone]
        share = len(mine) / max(1, len(mine) + len(lately))
        figures.judge(f"first message after {took:.2f} s (< {FIRST_SECONDS:.0f})", took < FIRST_SECONDS)
        figures.judge(f"its share: {share:.0%} (>= {LEAST_SHARE:.0%})", share >= LEAST_SHARE)
        before = {number: at for at, number, _ in theirs}
        twice = sorted(number for _, number, _ in mine if number in before)
        unmarked = sorted(number for _, number, count in mine if number in before and count < 2)
        figures.judge(f"delivered again by it: {len(twice)}, unmarked: {len(unmarked)} {twice[:8]}", not twice)
        repeats = len(mine) - len({number for _, number, _ in mine})
        figures.judge(f"delivered twice by it: {repeats}", not repeats)


def retention(figures: Figures, _: int) -> None:
    """A queue that is idle until Kafka has forgotten its group."""
    count, leave = 100, [7, *range(50, 60), *range(70, 100)]
    with LocalBroker(config=RETENTION) as broker, children() as start:
        start("fill", broker, queue=QUEUE, count=count).last()
        start("settle", broker, queue=QUEUE, count=count, leave=leave).last()
        figures.fact(f"committed when the last consumer left: {sorted(committed(broker, QUEUE).items())}")
        begin = time.monotonic()
        while committed(broker, QUEUE):
            if time.monotonic() - begin > FORGETTING_SECONDS:
                figures.judge("Kafka forgets the group's offsets", is_good=False)
                return
            time.sleep(2)
        figures.fact(f"Kafka had forgotten it after {time.monotonic() - begin:.0f} s")
        judge_left(figures, start("collect", broker, queue=QUEUE).last(), leave)


def connections(figures: Figures, _: int) -> None:
    """Many connections with a consumer each on the same three queues in one process."""
    with LocalBroker() as broker, children() as start:
        per = 2
        fact = start("connections", broker, queue=QUEUE, count=CONNECTIONS, per=per).last()
        figures.fact(f"opened in {fact['opening']:.1f} s")
        figures.judge(f"messages: {fact['received']} of {CONNECTIONS * per}", fact["received"] == CONNECTIONS * per)
        figures.judge(f"threads: {fact['threads']} (< {MAX_THREADS})", fact["threads"] < MAX_THREADS)
        memory = fact["rss"]
        figures.judge(f"memory: {memory / 1e6:.0f} MB (< {RSS_BYTES / 1e6:.0f})", memory < RSS_BYTES)


def selectors(figures: Figures, messages: int) -> None:
    """Four processes with disjoint and overlapping selectors on one queue, killed at random."""
    with children(handover.PROGRAM) as start:
        handover.selectors(figures, start, messages)


def sharing(figures: Figures, messages: int) -> None:
    """One partition, and eight processes that take 5 ms for each message."""
    with children(handover.PROGRAM) as start:
        handover.sharing(figures, start, messages)


def replies(figures: Figures, messages: int) -> None:
    """A consumer with a selector of its own for each reply on one queue, made and closed in one process."""
    with LocalBroker() as broker, children() as start:
        early, late = start("replies", broker, queue=QUEUE, count=messages).facts()
        figures.fact(f"a consumer is made in {late['making'] * 1e3:.2f} ms (median)")
        growth = late["rss"] - early["rss"]
        figures.judge(
            f"memory: {growth / 1e6:.1f} MB more after {late['number']} than after {early['number']}"
            f" (< {MAX_GROWTH / 1e6:.0f})",
            growth < MAX_GROWTH,
        )
        more = late["threads"] - early["threads"]
        figures.judge(f"threads: {more} more after {late['number']} than after {early['number']}", more <= 0)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        topics = sorted(name for name in admin.list_topics(timeout=10).topics if not name.startswith("_"))
        figures.judge(f"topics: {', '.join(topics)}", set(topics) <= {QUEUE, BOOKKEEPING})
        groups = sorted(group.group_id for group in admin.list_consumer_groups().result(10).valid)
        figures.judge(f"groups: {', '.join(groups)}", set(groups) <= {queue_group(QUEUE), "kjms.ready"})  # the broker's


def delay(figures: Figures, messages: int) -> None:
    """Delayed messages, while the process that schedules them is killed."""
    with LocalBroker() as broker, children() as start:
        figures_delay.measure(figures, start, broker, messages)


FIGURES: Final[dict[str, tuple[Callable[[Figures, int], None], int]]] = {
    "unsettled": (unsettled, 1_000_000),
    "poison": (poison, POISON),
    "joining": (joining, 0),
    "retention": (retention, 0),
    "connections": (connections, 0),
    "selectors": (selectors, 100_000),
    "sharing": (sharing, 0),
    "replies": (replies, 10_000),
    "delay": (delay, 50_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="chores.py crash --figures", description="Measure what settlement costs.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(FIGURES)} (all)")
    parser.add_argument("--messages", type=int, help="how many (unsettled: 1000000, poison: 100000, delay: 50000, ...)")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in FIGURES]
    if unknown:
        parser.error(f"there is no {unknown[0]!r}; there are {', '.join(FIGURES)}")
    figures = Figures()
    for name in options.names or FIGURES:
        measure, messages = FIGURES[name]
        count = options.messages or messages
        title = (measure.__doc__ or "").strip()
        print(f"{name}: {title}" + (f" {count:,} messages." if messages else ""), flush=True)
        measure(figures, count)
    return 0 if figures.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
