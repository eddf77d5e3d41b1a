"""The worker test: ``kjms worker`` with four processes under load, killed, stopped and replaced, and what it found.

    python3 chores.py crash --worker [--seconds 600] [--seed S] [--kinds reload,term,...] [--session-timeout MS]

The exit code is 0, or 1 if a promise was not kept; see docs/crash-test.md. `worker_record` makes the history that
the checker judges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Final

import psutil

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from crash_rounds import LEAST, show_report  # noqa: E402 - beside this file
from worker_record import Line, history  # noqa: E402

from kjms import ConnectionFactory, DestinationOptions, Queue  # noqa: E402
from kjms.broker import find_broker  # noqa: E402
from tests.history.checker import Index  # noqa: E402
from tests.history.history import History  # noqa: E402
from tests.history.report import Void, judged  # noqa: E402

KINDS: Final = {
    "kill": "kill -9 of a process",
    "reload": "SIGHUP: all processes are replaced",
    "term": "a storm of SIGTERM, and a new start",
    "stop": "SIGTERM to one process",
    "orphan": "kill -9 of the supervisor, and a new start",
}
PROCESSES: Final = 4
PER_SECOND: Final = 25.0  # messages to each of the two queues: far less than four processes manage
DRAIN_SECONDS: Final = 240.0
START_SECONDS: Final = 240.0


class Worker:
    """The command, which is started again where a disturbance ends it."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.environment = {**os.environ, **environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{HERE}"}
        self.killed: dict[int, float] = {}  # when
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.log = (folder / "worker.log").open("ab")
        self.start()

    def start(self) -> None:
        command = ["worker", "worker_application:app", "--processes", str(PROCESSES), "--grace", "60s"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kjms", *command], cwd=HERE, env=self.environment, stderr=self.log
        )

    def children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children()
        return []

    def serving(self) -> set[int]:
        """Return the processes that have said that they are ready, and run."""
        text = (self.folder / "worker.log").read_text("utf-8", "replace")
        return {each.pid for each in self.children() if f"pid {each.pid} is ready" in text}

    def wait(self, seconds: float = START_SECONDS) -> None:
        """Return when all processes serve."""
        deadline = time.monotonic() + seconds
        while len(self.serving()) < PROCESSES:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise TimeoutError(f"{len(self.serving())} of {PROCESSES} processes serve; see {self.log.name}")
            time.sleep(0.1)

    def disturb(self, kind: str, chance: random.Random) -> None:
        """Do what *kind* says."""
        self.done[kind] += 1
        if kind in {"kill", "stop"}:
            child = chance.choice(self.children())
            if kind == "kill":
                self.killed[child.pid] = time.monotonic()  # even if it has just ended in order: it is not judged then
                child.kill()
            else:
                child.terminate()
        elif kind == "reload":
            before = {each.pid for each in self.children()}
            self.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + START_SECONDS
            while before & {each.pid for each in self.children()}:
                if time.monotonic() > deadline:
                    raise TimeoutError("the processes were not replaced")
                time.sleep(0.1)
        elif kind == "orphan":
            children = self.children()
            self.process.kill()
            self.process.wait()
            _, left = psutil.wait_procs(children, 90)
            self.failures += [f"process {each.pid} outlived its supervisor" for each in left]
            self.start()
        else:
            self.end(storm=10)
            self.start()

    def end(self, storm: int = 1) -> None:
        """Send SIGTERM so many times, to the supervisor and then to its processes, and expect an orderly end."""
        children = self.children()
        for _ in range(storm):
            self.process.terminate()
            time.sleep(0.02)
        try:
            code = self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.failures.append("the worker did not end after SIGTERM")
            self.process.kill()
            return
        if code != 0:
            self.failures.append(f"the worker ended with exit code {code} after SIGTERM")
        left = [each.pid for each in children if each.is_running()]
        self.failures += [f"process {pid} outlived its supervisor" for pid in left]


class Sender(threading.Thread):
    """Sends messages to both queues at a steady rate until it is stopped."""

    def __init__(self, factory: ConnectionFactory, transacted: Queue, auto: Queue) -> None:
        super().__init__(name="sender", daemon=True)
        self.sent: dict[str, list[str]] = {"transacted": [], "auto": []}
        self._queues = {"transacted": transacted, "auto": auto}
        self._factory = factory
        self._over = threading.Event()

    def run(self) -> None:
        with self._factory.create_context() as context:
            producer = context.create_producer()
            began, count = time.monotonic(), 0
            while not self._over.is_set():
                for name, queue in self._queues.items():
                    number = f"{name}-{count}"
                    producer.set_property("number", number).send(queue, "x" * 100)
                    self.sent[name].append(number)
                count += 1
                self._over.wait(max(began + count / PER_SECOND - time.monotonic(), 0))

    def stop(self) -> None:
        self._over.set()
        self.join()


def noted(folder: Path) -> list[Line]:
    """Return the lines of all processes."""
    lines: list[Line] = []
    for path in folder.glob("*.jsonl"):
        lines += [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return lines


def play(servers: str, folder: Path, options: argparse.Namespace) -> int:
    """Play the test on the brokers at *servers*; return the exit code."""
    prefix = f"worker-{uuid.uuid4().hex[:8]}"
    transacted, auto, packed = (Queue(f"{prefix}.{name}") for name in ("transacted", "auto", "packed"))
    kinds: list[str] = options.kinds.split(",")
    chance = random.Random(options.seed)
    own = ConnectionFactory(
        servers,
        destinations={each.queue_name: DestinationOptions(partitions=4) for each in (transacted, auto)},
        replication_factor=1,
        ordering="none",  # the sender has one session, whose messages would all be in one partition
        kafka={"client.id": "sender"},
        send_timeout=60_000,
    )
    environment = {"BOOTSTRAP": servers, "PREFIX": prefix, "HISTORY": str(folder)}
    worker = Worker(folder, {**environment, "SESSION_TIMEOUT": str(options.session_timeout)})
    sender = Sender(own, transacted, auto)
    try:
        worker.wait()
        sender.start()
        began = time.monotonic()
        while time.monotonic() - began < options.seconds:
            for kind in chance.sample(kinds, len(kinds)):
                if time.monotonic() - began < options.seconds:
                    time.sleep(chance.uniform(0.5, options.pause))
                    worker.disturb(kind, chance)
                    if kind in {"term", "orphan"}:
                        worker.wait()
        sender.stop()
        seconds = time.monotonic() - began
        sent = [*sender.sent["transacted"], *sender.sent["auto"]]
        drained = drain(folder, set(sent))
        worker.end()
    finally:
        for each in [*worker.children(), worker.process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    lines = noted(folder)
    got = received(own, packed, len(sender.sent["transacted"]))
    crashed, bereft = logged(folder)
    crashed -= worker.killed.keys()
    killed = {**worker.killed, **dict.fromkeys(crashed, float("inf"))}
    record = history(sent, got, lines, killed, bereft, worker.failures)
    print(
        f"{seconds:.0f} s, seed {options.seed}; {', '.join(f'{count} {kind}' for kind, count in worker.done.items())}"
    )
    print(f"{figures(record)}; {len(got)} packed of {len(sender.sent['transacted'])}")
    print(f"drained in {drained:.1f} s; {len(worker.killed)} processes killed, {len(crashed)} crashed by themselves,")
    print(f"{len(bereft - killed.keys())} lost a partition or waited too long for the broker")
    found = judged(record, least=options.least)
    print(f"{len(found)} violations")
    again = f"python3 chores.py crash --worker --seed {options.seed} --seconds {options.seconds:g}"
    show_report(record, found, f"{again} --kinds {options.kinds}", folder)
    if found:
        log = (folder / "worker.log").read_text("utf-8", "replace").splitlines()
        print("\n".join(line for line in log if not re.search(r" (?:INFO|DEBUG) ", line)))
    return 1 if found else 0


def figures(record: History) -> str:
    """Return in words how many messages and deliveries there were."""
    index = Index(record)
    of = [stays for stays in index.stays.values() if stays]
    handled = sum(any(stay.by is not None for stay in stays) for stays in of)
    marked = sum(stay.call.count > 1 for stays in of for stay in stays)
    return (
        f"{len(index.confirmed)} sent, {handled} handled; {sum(map(len, of))} begun,"
        f" {sum(len(stays) - 1 for stays in of)} repeated, {marked} marked,"
        f" {sum(stays[0].call.count > 1 for stays in of)} of them by inference"
    )


def logged(folder: Path) -> tuple[set[int], set[int]]:
    """Return the processes that a signal ended, and those that have lost a partition or waited too long."""
    log = (folder / "worker.log").read_text("utf-8", "replace")
    killed = {int(number) for number in re.findall(r"pid (\d+)\) has ended by itself: SIG", log)}
    lost = "|".join(
        (
            "lost, to another consumer",
            "partitions that this process lost",
            "lost are the partitions",
            "the broker has not answered",
            "before a rebalance: ",  # the last commit of partitions that it gave up was refused
            "transfer partitions expired",
        )
    )
    bereft, number = set(), 0
    for line in log.splitlines():
        begun = re.match(r"\S+ \S+ [A-Z]+ \[(\d+)\]", line)
        number = int(begun[1]) if begun else number  # a traceback belongs to the line before it
        if re.search(lost, line):
            bereft.add(number)
    return killed, bereft


def drain(folder: Path, sent: set[str]) -> float:
    """Return after how many seconds each message of *sent* was ended, or when it takes too long."""
    began = time.monotonic()
    while time.monotonic() - began < DRAIN_SECONDS:
        if sent <= {line["id"] for line in noted(folder) if line["event"] == "ended"}:
            break
        time.sleep(0.5)
    return time.monotonic() - began


def received(factory: ConnectionFactory, queue: Queue, expected: int) -> list[str]:
    """Return the bodies in *queue*; *expected* is how many there should be."""
    found: list[str] = []
    with factory.create_context() as context, context.create_consumer(queue) as consumer:
        while (body := consumer.receive_body(str, 30_000 if len(found) < expected else 3_000)) is not None:
            found.append(body)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="chores.py crash --worker", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the worker is disturbed (600)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of the disturbances")
    parser.add_argument(
        "--kinds", default=",".join(["kill", *KINDS]), help=f"which disturbances, of {', '.join(KINDS)} (all)"
    )
    parser.add_argument("--pause", type=float, default=8.0, help="the longest time between two of them (8)")
    parser.add_argument("--session-timeout", type=int, default=6_000, help="of the consumers' groups, in ms (6000)")
    parser.add_argument("--least", type=int, default=LEAST, help=f"messages without which it is void ({LEAST})")
    parser.add_argument("--keep", action="store_true", help="keep the histories")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kjms-worker-"))
    with find_broker() as broker:
        try:
            code = play(broker.bootstrap_servers, folder, options)
        except Void as error:
            print(f"the round of seed {options.seed} is {error}")
            code = 1
    if code or options.keep:
        print(f"histories: {folder}")
    else:
        shutil.rmtree(folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
