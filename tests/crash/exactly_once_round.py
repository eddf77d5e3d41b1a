"""One round of the exactly-once test: a broker, two queues, processes that move messages, and what is done to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from crash_journal import Kind, journals, now
from crash_plan import CONSUMERS, Disturbance
from crash_process import part
from crash_record import Arrived, Round, history
from crash_round import LOOK_SECONDS, Child, Stage, changes, dead_letters
from exactly_once_plan import LISTENER, RECEIVE, MovingPlan
from exactly_once_process import MovingTask, factory

from kjms import DestinationOptions, Queue
from kjms.broker import LocalBroker
from tests.history.history import Call, History, Outcome
from tests.history.history import Kind as Act

PROGRAM: Final = Path(__file__).with_name("exactly_once_process.py")
SOURCE: Final = "source"
TARGET: Final = "target"
FILLING: Final = 1_000  # messages in each of the transactions that fill the source
SESSIONS: Final = 8  # that there are at a time, about
DRAIN_SECONDS: Final = 120.0  # what a killed process was writing holds its readers up for half a minute
END_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 2.0  # the source is empty when nothing came for so long
SETTINGS: Final = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}  # and not ten seconds longer


@dataclass
class MovingResult:
    """What a round was like."""

    history: History
    kills: int
    kills_in_commits: int
    pauses: int
    pauses_in_commits: int
    late: list[str]  # processes that did not leave within the time
    restarts: int
    changes: int  # of consumers, for others with other selectors
    seconds: float
    standstill: str  # what Kafka and the consumers said when the round was given up

    def line(self) -> str:
        ends = Counter(fate(call) for call in self.history.calls if call.kind in {Act.SETTLE, Act.GIVE_BACK})
        away = sum(each.end - each.begin for each in self.history.disturbances if not each.process)
        late = f", {' '.join(self.late)} had to be killed on leaving" if self.late else ""
        return (
            f"{len(self.history.sent)} messages, transactions: {ends['committed']} committed,"
            f" {ends['rolled back']} rolled back, {ends['refused']} refused,"
            f" {ends['unknown']} of unknown outcome, {ends['left open']} left open;"
            f" {self.kills} kills and {self.kills_in_commits} in commits,"
            f" {self.pauses} pauses and {self.pauses_in_commits} in commits,"
            f" {self.changes} changes of consumers, {self.restarts} broker restarts ({away:.0f} s){late}"
            f" ({self.seconds:.0f} s)"
        )


def fate(call: Call) -> str:
    """Return in words what became of the transaction that *call* ended."""
    if call.kind is Act.GIVE_BACK:
        return "rolled back" if call.what == "rollback" else "left open"
    return {Outcome.DONE: "committed", Outcome.UNDONE: "refused", Outcome.UNKNOWN: "unknown"}[call.outcome]


@dataclass
class MovingStage(Stage):
    """A round while it runs.

    Args:
        messages: How many are moved.
        has_accidents: Whether processes are killed and paused in the middle of commits, too.
    """

    plan: MovingPlan  # type: ignore[assignment]
    messages: int = 0
    has_accidents: bool = True

    def run(self) -> MovingResult:  # type: ignore[override]
        """Play the round and return what came of it."""
        began = now()
        with LocalBroker(config=SETTINGS, nodes=self.nodes) as broker:
            self.broker = broker
            try:
                sources = self._fill_source()
                self._use()
                self._calm()
                self._drain()
                servers = broker.bootstrap_servers
                records, held_up = everything(servers, TARGET)
                arrived = [Arrived(*_described(record)) for record in records]
                left, complaints = self._left()
                dead = dead_letters(servers, f"{SOURCE}.dlq")
            finally:
                self._end()
        stops = {child.task.name: tuple(child.stops) for child in self.children if child.stops}
        failures = [child.failure() for child in self.children]
        complaints += [f"the target {held_up}"] if held_up else []
        complaints += [failure for failure in failures if failure]
        record = Round(
            journals(self.folder),
            stops,
            self.outages,
            dead,
            complaints,
            max_deliveries=None,
            sources=sources,
            arrived=arrived,
            left=left,
        )
        written = [event.kind for journal in record.journals for event in journal.events]
        return MovingResult(
            history=history(record),
            kills=sum(stop.is_kill for each in stops.values() for stop in each),
            kills_in_commits=written.count(Kind.KILLING),
            pauses=sum(not stop.is_kill for each in stops.values() for stop in each),
            pauses_in_commits=written.count(Kind.STOPPING),
            late=[child.task.name for child in self.children if child.is_late],
            restarts=self.restarts,
            changes=changes(record.journals),
            seconds=now() - began,
            standstill=self.standstill,
        )

    def _fill_source(self) -> dict[int, tuple[int, int]]:
        """Make both queues, fill the source, and return where in it each message is."""
        maker = factory(
            self.broker.bootstrap_servers,
            self.session_timeout,
            destinations={
                SOURCE: DestinationOptions(partitions=self.plan.partitions, ordering="none"),
                TARGET: DestinationOptions(partitions=self.plan.target_partitions),
            },
        )
        with maker.create_connection() as connection, connection.create_session(True) as session:
            session.create_producer(Queue(TARGET))
            producer = session.create_producer(Queue(SOURCE))
            for number in range(self.messages):
                message = session.create_text_message(str(number))
                message.set_int_property("part", part(number))
                producer.send(message)
                if (number + 1) % FILLING == 0 or number + 1 == self.messages:
                    session.commit()
        records, _ = everything(self.broker.bootstrap_servers, SOURCE)
        return {int(value): (partition, offset) for value, _, partition, offset in records}

    # Processes.

    def _fill(self) -> None:
        """Start a process in each empty place."""
        for slot, child in enumerate(self._consumers):
            if child is not None and not child.is_running:
                self._lost(slot)
                self._consumers[slot] = None
            if self._consumers[slot] is None and now() >= self._empty_until[slot]:
                self._consumers[slot] = self._consumer(next(self._modes))

    def _disturb(self, disturbance: Disturbance, resumes: list[tuple[float, Child]]) -> None:
        """Do what is to be done, to another process if that one is not there."""
        slots = [slot for slot, child in enumerate(self._consumers) if child is not None and child.is_running]
        if slots:
            slot = min(slots, key=lambda slot: (slot - disturbance.slot) % CONSUMERS)
            super()._disturb(Disturbance(disturbance.at, disturbance.what, slot, disturbance.seconds), resumes)

    def _consumer(self, modes: tuple[str, ...], *, is_calm: bool = False) -> Child:
        number = len(self.children) + 1
        task = MovingTask(
            name=f"{'drain' if is_calm else 'mover'}-{number:02}",
            folder=str(self.folder),
            servers=self.broker.bootstrap_servers,
            queue=SOURCE,
            target=TARGET,
            partitions=self.plan.partitions,
            prefetch=self.plan.prefetch,
            session_timeout=self.session_timeout,
            max_deliveries=1,
            seed=self.seed,
            modes=modes,
            is_calm=is_calm,
            rate=self.messages / self.seconds / SESSIONS,
            most=max(5, self.messages // 100),
            accident=self.plan.accidents[number - 1] if self.has_accidents and not is_calm else None,
        )
        child = Child("move", task, PROGRAM)
        self.children.append(child)
        return child

    # The end.

    def _drain(self) -> bool:
        """Let fresh processes move what is left; tell whether all is there."""
        deadline = now() + DRAIN_SECONDS
        modes = [(RECEIVE,), (LISTENER,)]
        drainers = [self._consumer(mode, is_calm=True) for mode in modes]
        there: set[int] = set()
        with Tail(self.broker.bootstrap_servers, TARGET) as tail:
            while len(there) < self.messages and now() < deadline:
                there.update(int(value) for value, *_ in tail.read())
                for place, child in enumerate(drainers):
                    if not child.is_running:
                        drainers[place] = self._consumer(modes[place], is_calm=True)
        if len(there) < self.messages:
            self._note_standstill(SOURCE, drainers)
        for child in drainers:
            child.leave()
        self._wait_for_leaving()
        return len(there) == self.messages

    def _left(self) -> tuple[dict[int, int], list[str]]:
        """Return what a fresh consumer finds in the source, besides a message that it finds in each partition.

        Each with its JMSXDeliveryCount; and what is wrong with it, in words.
        """
        last = {-1 - number for number in range(self.plan.partitions)}
        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        for number in last:
            producer.produce(SOURCE, str(number), partition=-1 - number)
        producer.flush(END_SECONDS)
        found: dict[int, int] = {}
        deadline = now() + END_SECONDS
        with factory(self.broker.bootstrap_servers, self.session_timeout).create_connection() as connection:
            connection.start()
            consumer = connection.create_session().create_consumer(Queue(SOURCE))
            while now() < deadline:
                message = consumer.receive(round(QUIET_SECONDS * 1000))
                if message is None and last <= found.keys():
                    break
                if message is not None:
                    found[int(message.get_body(str) or "")] = message.get_int_property("JMSXDeliveryCount")
        missing = sorted(-1 - number for number in last - found.keys())
        return (
            {number: count for number, count in found.items() if number not in last},
            [f"what was put into partition {number} of the source at the end does not come" for number in missing],
        )


Read = tuple[str, dict[str, str], int, int]
"""A record: its value, its headers, its partition and its offset."""


class Tail:
    """Reads a Kafka topic from its start with plain Kafka, committed records only, whatever kjms says.

    Args:
        servers: The broker.
        topic: The topic.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "exactly-once-reader",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        known = self._consumer.list_topics(topic, timeout=10).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in known])
        self.reached = dict.fromkeys(known, 0)  # the next offset of each partition that was read to its end

    def read(self) -> list[Read]:
        """Return what came since the last call, after some waiting."""
        found = []
        for record in self._consumer.consume(1_000, LOOK_SECONDS):
            error = record.error()
            if error is None:
                headers = {name: (value or b"").decode() for name, value in record.headers() or ()}
                found.append((record.value().decode(), headers, record.partition(), record.offset()))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.reached[record.partition()] = record.offset()
        return found

    def __enter__(self) -> Tail:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def everything(servers: str, topic: str) -> tuple[list[Read], str]:
    """Return what a Kafka topic holds, and why it cannot be read to its very end; empty where it can.

    At the end no transaction may be open any more: it would hold up every read-committed reader.
    """
    with Tail(servers, topic) as tail:
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in tail.reached}
        ends = {place.partition: answer.result().offset for place, answer in admin.list_offsets(asked).items()}
        found = []
        until = now() + END_SECONDS
        while any(tail.reached[number] < end for number, end in ends.items()) and now() < until:
            found += tail.read()
        behind = {number: end for number, end in ends.items() if tail.reached[number] < end}
        why = ", ".join(
            f"partition {n} is read to offset {tail.reached[n]} and not to {end}" for n, end in behind.items()
        )
        return sorted(found, key=lambda read: read[2:]), why


def _described(record: Read) -> Iterator[object]:
    value, headers, partition, offset = record
    yield from (int(value), headers.get("transaction", ""), int(headers.get("place", -1)), partition, offset)
