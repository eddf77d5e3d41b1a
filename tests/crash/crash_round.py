"""One round of the crash test: a broker, a queue, processes that use it, and what is done to them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from crash_journal import Journal, Kind, journals, now
from crash_plan import CONSUMERS, PRODUCERS, Disturbance, Plan
from crash_process import Task
from crash_record import CLIENT, INDIVIDUAL, Round, Stop, history
from crash_standstill import standstill

from kjms import JMSException
from kjms.broker import LocalBroker
from tests.history.checker import Index
from tests.history.history import History
from tests.history.report import counts

PROGRAM: Final = Path(__file__).with_name("crash_process.py")
QUEUE: Final = "crash"
MAX_DELIVERIES: Final = 3
RATE: Final = 60.0  # messages per second and producer
FATAL_FROM: Final = 40  # which message of the first producer is the first that kills
FATAL_STEP: Final = 40
NUMBERS: Final = 100_000  # for each producer process
LOOK_SECONDS: Final = 0.05
START_SECONDS: Final = 300.0  # how long the start of all processes may take, on a machine that does much else
LEAVE_SECONDS: Final = 20.0  # closing gives Kafka 5 seconds, and there are several things to close
RETURN_SECONDS: Final = 0.3  # the place of a process that was killed stays empty so long
DRAIN_SECONDS: Final = 120.0
STACKS_SECONDS: Final = 5.0  # how long a process may take to write where its threads are
QUIET_SECONDS: Final = 2.0  # the queue is dry when nothing came for so long, and nobody was lost lately


class Child:
    """A process and what was done to it."""

    def __init__(self, role: str, task: Task, program: Path = PROGRAM) -> None:
        self.role = role
        self.task = task
        self.stops: list[Stop] = []
        self.paused_at: float | None = None
        self.leave_at: float | None = None
        self.is_late = False  # it did not leave in order in time
        self.said = Path(task.folder) / f"{task.name}.stderr"
        with open(self.said, "wb") as said:
            command = [sys.executable, str(program), role, json.dumps(asdict(task))]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    @property
    def has_begun(self) -> bool:
        """Whether it has begun to work; before that, it would end by a signal that asks where its threads are."""
        return any(Path(self.task.folder).glob(f"{self.task.name}*.journal"))

    def kill(self) -> None:
        """End it as kill -9 does."""
        began = now()
        self.process.kill()
        self.process.wait()
        if self.paused_at is not None:
            self.stops.append(Stop(self.paused_at, began, is_kill=False))
            self.paused_at = None
        self.stops.append(Stop(began, now(), is_kill=True))

    def pause(self) -> None:
        self.paused_at = now()
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.paused_at is not None:
            self.process.send_signal(signal.SIGCONT)
            self.stops.append(Stop(self.paused_at, now(), is_kill=False))
            self.paused_at = None

    def leave(self) -> None:
        """Ask it to leave in order."""
        if self.leave_at is None:
            self.leave_at = now()
            self.process.terminate()

    def look(self) -> None:
        """Kill it if it does not leave; where its threads were is in its .stderr then."""
        if self.leave_at is not None and self.is_running and now() - self.leave_at > LEAVE_SECONDS:
            self.is_late = True
            if self.has_begun:
                self.process.send_signal(signal.SIGUSR1)
                time.sleep(LOOK_SECONDS)
            self.kill()

    def stacks(self) -> str:
        """Return where its threads are."""
        if not self.has_begun:
            return f"{self.task.name} has not begun"
        begin = size = self.said.stat().st_size
        self.process.send_signal(signal.SIGUSR1)
        deadline = now() + STACKS_SECONDS
        while now() < deadline and (size == begin or self.said.stat().st_size > size):
            size = self.said.stat().st_size
            time.sleep(LOOK_SECONDS)
        return f"{self.task.name}:\n{self.said.read_bytes()[begin:].decode(errors='replace')}"

    def failure(self) -> str | None:
        """Return what it said if it ended by itself, and not in order."""
        code = self.process.poll()
        if code is None or code in {0, -signal.SIGKILL} or (code == -signal.SIGTERM and self.leave_at is not None):
            return None  # SIGTERM: it was asked to leave before it could listen
        said = self.said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"{self.task.name} ended with {code}: {said[-1] if said else 'it said nothing'}"


@dataclass
class Result:
    """What a round was like."""

    history: History
    kills: int  # from outside
    deaths: int  # by messages
    pauses: int
    late: list[str]  # processes that did not leave within the time
    restarts: int
    changes: int  # of consumers, for others with other selectors
    seconds: float
    standstill: str  # what Kafka and the consumers said when the round was given up

    def line(self) -> str:
        messages, deliveries, redeliveries = counts(self.history)
        counted = (
            f"{messages} messages, {deliveries} deliveries, {redeliveries} redeliveries,"
            f" {self.history.dead.total()} dead, {self.kills} kills, {self.deaths} killed by messages,"
            f" {self.pauses} pauses, {self.changes} changes of consumers, {self.restarts} broker restarts"
        )
        late = f", {' '.join(self.late)} had to be killed on leaving" if self.late else ""
        return f"{counted}{late} ({self.seconds:.0f} s)"


@dataclass
class Stage:
    """A round while it runs.

    Args:
        plan: What is done.
        folder: For journals, and what processes say.
        seed: What the processes' own chance begins with.
        seconds: How long the queue is used and disturbed.
        session_timeout: Milliseconds.
        nodes: Of the Kafka.
    """

    plan: Plan
    folder: Path
    seed: str
    seconds: float
    session_timeout: int
    nodes: int = 1
    children: list[Child] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    restarts: int = 0
    last_loss: float = 0.0  # when a member of the group was lost last
    standstill: str = ""
    _repair: threading.Thread | None = None  # starts the broker again
    _broker_error: JMSException | None = None

    def run(self) -> Result:
        """Play the round and return what came of it."""
        began = now()
        with LocalBroker(nodes=self.nodes) as broker:
            self.broker = broker
            try:
                self._use()
                self._calm()
                is_drained = self._drain()
            finally:
                self._end()
            record = self._record()
        record.failures = [failure for child in self.children if (failure := child.failure())]
        record.failures += [] if is_drained else [f"the queue did not run dry within {DRAIN_SECONDS:.0f} s"]
        stops = [stop for child in self.children for stop in child.stops]
        return Result(
            history=history(record),
            kills=sum(stop.is_kill for stop in stops),
            deaths=sum(event.kind is Kind.KILLING for each in record.journals for event in each.events),
            pauses=sum(not stop.is_kill for stop in stops),
            late=[child.task.name for child in self.children if child.is_late],
            restarts=self.restarts,
            changes=changes(record.journals),
            seconds=now() - began,
            standstill=self.standstill,
        )

    # The queue is used, and everybody disturbed.

    def _use(self) -> None:
        self._modes = iter(self.plan.modes)
        self._consumers: list[Child | None] = [None] * CONSUMERS
        self._senders: list[Child | None] = [None] * PRODUCERS
        self._empty_until: dict[int, float] = defaultdict(float)
        self._fill()
        self._wait_until_used()
        begin = now()
        waiting = list(self.plan.disturbances)
        resumes: list[tuple[float, Child]] = []
        while waiting or now() - begin < self.seconds:
            self._fill()
            while waiting and now() - begin >= waiting[0].at:
                self._disturb(waiting.pop(0), resumes)
            for when, child in [due for due in resumes if due[0] <= now()]:
                resumes.remove((when, child))
                if child.is_running:
                    child.resume()
            for child in self.children:
                child.look()
            time.sleep(LOOK_SECONDS)
        for when, child in sorted(resumes, key=lambda due: due[0]):  # a pause is never cut short
            time.sleep(max(0.0, when - now()))
            if child.is_running:
                child.resume()

    def _wait_until_used(self) -> None:
        """Wait until each process is at work and one got a message: before that it cannot be disturbed."""
        deadline = now() + START_SECONDS
        while now() < deadline:
            if all(any(self.folder.glob(f"{child.task.name}*.journal")) for child in self.children) and any(
                event.kind is Kind.DELIVERED for journal in journals(self.folder) for event in journal.events
            ):
                return
            time.sleep(LOOK_SECONDS)

    def _fill(self) -> None:
        """Start a process in each empty place."""
        for slot, child in enumerate(self._consumers):
            if child is not None and not child.is_running:
                self._lost(slot)  # a message killed it
                self._consumers[slot] = None
            if self._consumers[slot] is None and now() >= self._empty_until[slot]:
                self._consumers[slot] = self._consumer(next(self._modes))
        for slot, sender in enumerate(self._senders):
            if sender is None or not sender.is_running:
                self._senders[slot] = self._sender()

    def _lost(self, slot: int) -> None:
        self.last_loss = now()
        self._empty_until[slot] = now() + RETURN_SECONDS

    def _disturb(self, disturbance: Disturbance, resumes: list[tuple[float, Child]]) -> None:
        what, slot = disturbance.what, disturbance.slot
        if what in {"stop broker", "kill broker"}:
            self._disturb_broker(slot, at_once=what == "kill broker", seconds=disturbance.seconds)
            return
        if what == "join":
            self._consumer(next(self._modes))
            return
        child = (self._senders if what == "kill producer" else self._consumers)[slot]
        if child is None or not child.is_running:
            return
        if what == "pause":
            child.pause()
            resumes.append((now() + disturbance.seconds, child))
        elif what == "leave":
            child.resume()
            child.leave()
            self._consumers[slot] = None
            self._empty_until[slot] = now() + disturbance.seconds
        else:
            child.kill()
            if what == "kill":
                self.last_loss = now()
                self._consumers[slot] = None
                self._empty_until[slot] = now() + disturbance.seconds

    def _disturb_broker(self, slot: int, *, at_once: bool, seconds: float) -> None:
        """End the broker, or one of its nodes, and start it again after *seconds*."""
        node = None if self.nodes == 1 else self.broker.nodes[slot % self.nodes]

        def restart() -> None:
            began = now()
            self.broker.kill(node) if at_once else self.broker.stop(node)
            time.sleep(seconds)
            try:
                self.broker.start(node)
            except JMSException as error:
                self._broker_error = error
            self.outages.append((began, now()))

        if self._repair is not None and self._repair.is_alive():
            return
        self.restarts += 1
        self._repair = threading.Thread(target=restart, name="crash-broker")
        self._repair.start()

    # The end.

    def _calm(self) -> None:
        """End every disturbance, and let all processes leave in order."""
        if self._repair is not None:
            self._repair.join()
        if self._broker_error is not None:
            raise self._broker_error
        for child in self.children:
            if child.is_running:
                child.resume()
                child.leave()
        self._wait_for_leaving()

    def _wait_for_leaving(self) -> None:
        while any(child.is_running for child in self.children):
            for child in self.children:
                child.look()
            time.sleep(LOOK_SECONDS)

    def _drain(self) -> bool:
        """Let fresh consumers take what is left; tell whether the queue ran dry."""
        begin = now()
        modes = [(CLIENT,), (INDIVIDUAL,)]
        drainers = [self._consumer(mode, is_calm=True) for mode in modes]
        # What a killed process had waits until its lease is over, and its next owner may be killed by the same message.
        while now() < max(begin, self.last_loss) + DRAIN_SECONDS:
            time.sleep(0.5)
            for place, child in enumerate(drainers):
                if not child.is_running:
                    if child.process.returncode == -signal.SIGKILL:
                        self.last_loss = now()
                    drainers[place] = self._consumer(modes[place], is_calm=True)
            lately = max(self.last_loss + self.session_timeout / 1000, *self._ends_of_disturbances())
            record = self._record()
            lately = max([lately, *(each.events[-1].at for each in record.journals if each.mode and each.events)])
            if now() - lately > QUIET_SECONDS and not Index(history(record)).unaccounted:
                break
        else:
            self._note_standstill(QUEUE, drainers)
            return False
        for child in drainers:
            child.leave()
        self._wait_for_leaving()
        return True

    def _note_standstill(self, queue: str, drainers: list[Child]) -> None:
        """Note what Kafka and the consumers say of *queue*, which does not run dry."""
        found = standstill(self.broker.bootstrap_servers, queue)
        self.standstill = "\n".join([found, *map(Child.stacks, drainers)])

    def _ends_of_disturbances(self) -> list[float]:
        return [0.0, *(ended for _, ended in self.outages)]

    def _end(self) -> None:
        """Leave no process behind."""
        if self._repair is not None:
            self._repair.join()
        for child in self.children:
            if child.is_running:
                child.kill()

    # Processes and what they wrote.

    def _task(self, name: str, **more: object) -> Task:
        return Task(
            name=name,
            folder=str(self.folder),
            servers=self.broker.bootstrap_servers,
            queue=QUEUE,
            partitions=self.plan.partitions,
            prefetch=self.plan.prefetch,
            session_timeout=self.session_timeout,
            max_deliveries=MAX_DELIVERIES,
            seed=self.seed,
            **more,  # type: ignore[arg-type]
        )

    def _consumer(self, modes: tuple[str, ...], *, is_calm: bool = False) -> Child:
        number = sum(child.role == "consume" for child in self.children) + 1
        name = f"{'drain' if is_calm else 'consumer'}-{number:02}"
        return self._started("consume", self._task(name, modes=modes, is_calm=is_calm))

    def _sender(self) -> Child:
        number = sum(child.role == "produce" for child in self.children)
        fatal = tuple(FATAL_FROM + FATAL_STEP * each for each in range(self.plan.fatal)) if number == 0 else ()
        return self._started(
            "produce", self._task(f"producer-{number + 1:02}", first=number * NUMBERS, fatal=fatal, rate=RATE)
        )

    def _started(self, role: str, task: Task) -> Child:
        child = Child(role, task)
        self.children.append(child)
        return child

    def _record(self) -> Round:
        dead = dead_letters(self.broker.bootstrap_servers, f"{QUEUE}.dlq")
        return Round(
            journals=journals(self.folder),
            stops={child.task.name: tuple(child.stops) for child in self.children if child.stops},
            outages=tuple(self.outages),
            dead=dead,
            max_deliveries=MAX_DELIVERIES,
        )


def changes(found: Iterable[Journal]) -> int:
    """Return how often sessions closed their consumers and made others."""
    made = [sum(event.kind is Kind.CHANGED for event in journal.events) for journal in found]
    return sum(count - 1 for count in made if count)


def dead_letters(servers: str, topic: str) -> list[tuple[int, str]]:
    """Return number and cause of the messages that a Kafka topic holds: read by plain Kafka, whatever kjms says."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "crash-dead-letters",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(timeout=10).topics.get(topic)
        found: list[tuple[int, str]] = []
        for partition in known.partitions if known is not None and known.error is None else ():
            found += _read(consumer, topic, partition)
        return found
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, partition: int) -> list[tuple[int, str]]:
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, str]] = []
    until = now() + 10
    while now() < until:
        if consumer.position([TopicPartition(topic, partition)])[0].offset >= end or end == 0:
            return found
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            cause = dict(message.headers() or ()).get("JMS_kjms_Cause") or b""
            found.append((int(message.value().split()[0]), cause.decode()))
    raise KafkaException(f"the dead letters in {topic} could not be read to their end")
