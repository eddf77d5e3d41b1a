"""The Spark test: a query of Spark, a Python and a Java program share one queue, each killed and started again.

    python3 chores.py crash --spark [--messages N] [--kills K] [--seed S] [--pace MS] [--keep]

The Java program, with Apache Qpid JMS, is a client of ``kjms gateway``. The exit code is 0, or 1 if a promise was not
kept; see docs/crash-test.md. `spark_record` makes the history that the
checker judges.
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
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "amqp"), str(ROOT)]

import java_remote  # noqa: E402 - beside the tests of the gateway
from crash_rounds import show_report  # noqa: E402 - beside this file
from spark_record import KINDS, Lines, Row, figures, history  # noqa: E402

from kjms import ConnectionFactory, DestinationOptions, JMSException, Queue, Session  # noqa: E402
from kjms.broker import find_broker  # noqa: E402
from tests.history.report import Void, judged  # noqa: E402

PARTITIONS: Final = 6
START_SECONDS: Final = (
    900.0  # until a consumer that was started has processed messages, on a machine that does much else
)
STALL_SECONDS: Final = 600.0  # without any event, until the test gives up
END_SECONDS: Final = 120.0
LOOK_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 10.0  # in which a killed consumer's messages reach another one
COMMIT_EVERY: Final = 1_000
MOST_OF_FIRST: Final = 5_000  # lines before the first acknowledgement, or the end of the first batch
DONE: Final = frozenset({"stored", "acknowledging", "acknowledged"})


class Program:
    """A program that runs, and is started again after each kill, and where it ended by itself.

    Args:
        kind: What it is.
        command: Starts it.
        folder: Where its log is.
    """

    def __init__(self, kind: str, command: Sequence[str], folder: Path) -> None:
        self.kind = kind
        self.killed: dict[int, float] = {}  # when
        self.crashed: dict[int, float] = {}
        self.log = folder / f"{kind}.log"
        self._command = command
        self.start()

    def start(self) -> None:
        """Start it, as the leader of a group of processes."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=environment, start_new_session=True, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """Kill it, and what it has started."""
        self.killed[self.process.pid] = time.time()
        self._kill()
        self.start()

    def revive(self) -> None:
        """Start it again if it has ended by itself, as a service manager does."""
        if self.process.poll() is not None:
            print(f"{self.kind} ended by itself with exit code {self.process.returncode}; see {self.log}", flush=True)
            self.crashed[self.process.pid] = time.time()
            self._kill()
            self.start()

    def end(self) -> list[str]:
        """End it in order; return what is wrong with its end."""
        self.process.terminate()
        try:
            code = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return [f"{self.kind} did not end after SIGTERM"]
        finally:
            self._kill()
        is_orderly = code in {0, 128 + signal.SIGTERM}  # the latter is Java's
        return [] if is_orderly else [f"{self.kind} ended with exit code {code} after SIGTERM; see {self.log}"]

    def close(self) -> None:
        """Kill it for good."""
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Histories:
    """What the consumers have noted so far.

    Attributes:
        done: The messages that are processed.
        changed_at: When something was noted last.
    """

    def __init__(self, folder: Path) -> None:
        self.done: set[int] = set()
        self.changed_at = time.monotonic()
        self._folder = folder
        self._lines: dict[Path, list[dict[str, Any]]] = {}
        self._read: Counter[Path] = Counter()
        self._held: dict[Path, list[int]] = {}

    def look(self) -> None:
        """Read what is new, but for a last line that a killed process has not completed."""
        for path in self._folder.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read[path])
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            if whole:
                self._read[path] += len(whole)
                self.changed_at = time.monotonic()
                self._add(path, [json.loads(line) for line in whole.splitlines()])

    def _add(self, path: Path, lines: Sequence[dict[str, Any]]) -> None:
        self._lines.setdefault(path, []).extend(lines)
        held = self._held.setdefault(path, [])
        for line in lines:
            if line["event"] == "delivered":
                held.append(line["id"])
                continue
            if line["event"] in DONE:
                self.done.update(held)
            held.clear()

    def has(self, program: Program) -> bool:
        """Return whether *program*, as it runs now, has processed messages."""
        self.look()
        mine = f"{program.kind}-{program.process.pid}-"
        return any(
            line["event"] in DONE
            for path, lines in self._lines.items()
            if path.name.startswith(mine)
            for line in lines[:MOST_OF_FIRST]
        )

    def sessions(self) -> list[Lines]:
        """Return all that is there, by session."""
        self.look()
        names = {path: path.stem.split("-") for path in self._lines}
        return [(names[path][0], int(names[path][1]), lines) for path, lines in self._lines.items()]


class Sender:
    """Sends messages, whose texts are their numbers.

    Args:
        factory: Says which cluster.
        queue: Where they go.
        count: How many there are in all.
    """

    def __init__(self, factory: ConnectionFactory, queue: Queue, count: int) -> None:
        self.left = count
        self._count = count
        self._connection = factory.create_connection()
        self._session = self._connection.create_session(Session.SESSION_TRANSACTED)
        self._producer = self._session.create_producer(queue)

    def send(self, count: int) -> None:
        """Send the next *count*, or those that are left."""
        for number in range(min(count, self.left)):
            self._producer.send(self._session.create_text_message(str(self._count - self.left)))
            self.left -= 1
            if number % COMMIT_EVERY == COMMIT_EVERY - 1:
                self._session.commit()
        self._session.commit()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> None:
    """Return when *condition* holds.

    Raises:
        TimeoutError: It takes longer than *seconds*.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s: {what}")
        time.sleep(LOOK_SECONDS)


def left(factory: ConnectionFactory, queue: Queue) -> list[int]:
    """Return the numbers of the messages that are still in *queue*."""
    found: list[int] = []
    with (
        factory.create_context() as context,
        contextlib.suppress(JMSException),  # there is no dead-letter queue
        context.create_browser(queue) as browser,
    ):
        found += [int(message.get_body(str) or "") for message in browser]
    return found


def sink(folder: Path) -> list[Row]:
    """Return what Spark has stored."""
    return [
        Row(row["id"], row["batch"], row["marked"])
        for file in folder.glob("sink/batch=*/part-*.json")
        for row in map(json.loads, file.read_text("utf-8").splitlines())
    ]


@contextlib.contextmanager
def gateway(servers: str, folder: Path, session_timeout: int) -> Iterator[str]:
    """Run ``kjms gateway``, and give its URL."""
    config = folder / "kjms.toml"
    settings = {"session.timeout.ms": session_timeout, "heartbeat.interval.ms": session_timeout // 5}
    lines = [f'"{name}" = {value}' for name, value in settings.items()]
    config.write_text(f'bootstrap_servers = "{servers}"\n[kafka]\n' + "\n".join(lines) + "\n", "utf-8")
    options = ["--listen", "127.0.0.1:0", "--anonymous", "--config", str(config)]
    program = Program("gateway", [sys.executable, "-m", "kjms.cli", "gateway", *options], folder)
    try:

        def port() -> str | None:
            found = re.search(r"listening at 127\.0\.0\.1:(\d+)", program.log.read_text("utf-8", "replace"))
            return None if found is None else found[1]

        wait_until(port, START_SECONDS, "the gateway does not listen")
        yield f"amqp://127.0.0.1:{port()}"
    finally:
        program.close()


def disturb(programs: dict[str, Program], histories: Histories, sender: Sender, options: argparse.Namespace) -> None:
    """Kill the programs as often as is said, in an order and at moments that the seed gives.

    Before each kill, a portion of the messages is sent while all programs process messages.
    """
    chance = random.Random(options.seed)
    kinds = [kind for kind in KINDS for _ in range(options.kills)]
    chance.shuffle(kinds)

    def all_serve() -> bool:
        for program in programs.values():
            program.revive()
        waiting = [program for program in programs.values() if not histories.has(program)]
        if waiting:
            sender.send(PARTITIONS)
        return not waiting

    for number, kind in enumerate(kinds):
        program, pause = programs[kind], chance.uniform(0, options.pause)
        wait_until(all_serve, START_SECONDS, "not all consumers process messages")
        sender.send(sender.left // (len(kinds) + 1 - number))
        time.sleep(pause)
        program.kill()
        histories.look()
        print(f"{kind} killed, {len(histories.done)} messages done, {sender.left} to be sent", flush=True)
    wait_until(all_serve, START_SECONDS, "not all consumers process messages")
    sender.send(sender.left)


def play(servers: str, folder: Path, options: argparse.Namespace) -> int:
    """Play the test on the brokers at *servers*; return the exit code."""
    queue = Queue(f"spark-{uuid.uuid4().hex[:8]}")
    factory = ConnectionFactory(
        servers,
        destinations={queue.queue_name: DestinationOptions(partitions=PARTITIONS)},
        ordering="none",  # the sender has one session, whose messages would all be in one partition
        kafka={"client.id": "sender"},
    )
    task = {
        "servers": servers, "queue": queue.queue_name, "folder": str(folder),
        "pace": options.pace / 1000, "most": options.most, "batch": options.batch, "quiet": 0,
        "session_timeout": options.session_timeout,
    }  # fmt: skip
    process = str(HERE / "spark_process.py")
    histories = Histories(folder)
    began = time.monotonic()
    programs: dict[str, Program] = {}
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(gateway(servers, folder, options.session_timeout))
        java = ["java", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", java_remote.build(), "kjms.Consume", url]
        commands = {
            "spark": [sys.executable, process, "spark", json.dumps(task)],
            "python": [sys.executable, process, "python", json.dumps(task)],
            "java": [*java, queue.queue_name, str(folder), str(options.pace), str(options.most)],
        }
        for kind, command in commands.items():
            programs[kind] = Program(kind, command, folder)
            stack.callback(programs[kind].close)
        sender = Sender(factory, queue, options.messages)
        stack.callback(sender.close)
        disturb(programs, histories, sender, options)

        def is_over() -> bool:
            histories.look()
            is_done = len(histories.done) == options.messages
            quiet = time.monotonic() - histories.changed_at
            for program in programs.values():
                program.revive()
            if quiet > STALL_SECONDS:
                raise TimeoutError(f"nothing happened for {quiet:.0f} s; see {folder}")
            return is_done and quiet > QUIET_SECONDS

        wait_until(is_over, float("inf"), "")
        seconds = time.monotonic() - began - QUIET_SECONDS
        failures = [wrong for program in programs.values() for wrong in program.end()]
    last = {**task, "quiet": QUIET_SECONDS, "pace": 0}
    subprocess.run([sys.executable, process, "python", json.dumps(last)], check=True)  # what a killed one had, if any
    seen = histories.sessions()
    killed = {process: at for each in programs.values() for process, at in {**each.killed, **each.crashed}.items()}
    # The gateway ends the link of a Java consumer where Kafka does not answer in time, and the program then ends.
    failures += [f"{kind} ended by itself" for kind, each in programs.items() if each.crashed and kind != "java"]
    record = history(
        range(options.messages),
        seen,
        sink(folder),
        killed,
        left=left(factory, queue),
        dead=left(factory, Queue(f"{queue.queue_name}.dlq")),
    )
    record.failures += failures
    shown = figures(record, seen)
    print(f"{options.messages} messages, {PARTITIONS} partitions, {seconds:.0f} s, seed {options.seed}")
    print("killed: " + ", ".join(f"{kind} {len(program.killed)} times" for kind, program in programs.items()))
    print("ended by themselves: " + ", ".join(f"{kind} {len(each.crashed)}" for kind, each in programs.items()))
    print("processed: " + ", ".join(f"{kind} {count}" for kind, count in shown.processed.items()))
    print(f"{shown.deliveries} deliveries; {shown.marked} messages marked, {shown.repeated} processed more than once")
    print(f"{shown.batches} batches of Spark, {shown.again} run again")
    found = judged(record, least=options.messages)
    print(f"{len(found)} violations")
    again = f"python3 chores.py crash --spark --seed {options.seed} --messages {options.messages}"
    show_report(record, found, f"{again} --kills {options.kills}", folder)
    return 1 if found else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="chores.py crash --spark", description="Kill consumers of three kinds that share a queue."
    )
    parser.add_argument("--messages", type=int, default=200_000, help="how many are in the queue (200000)")
    parser.add_argument("--kills", type=int, default=10, help="how often each consumer is killed (10)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of the kills' order and moments")
    parser.add_argument("--pause", type=float, default=4.0, help="the longest time a consumer gets before a kill (4)")
    parser.add_argument("--pace", type=int, default=2, help="milliseconds that Python and Java take for each (2)")
    parser.add_argument("--most", type=int, default=50, help="messages that they acknowledge at once, at most (50)")
    parser.add_argument("--batch", type=int, default=2_000, help="messages of a batch of Spark, at most (2000)")
    parser.add_argument("--session-timeout", type=int, default=6_000, help="of the consumers' groups, in ms (6000)")
    parser.add_argument("--keep", action="store_true", help="keep the histories")
    parser.add_argument("--bootstrap", help="a Kafka that runs already")
    options = parser.parse_args()
    missing = java_remote.missing_tool()
    if missing is not None:
        print(missing)
        return 1
    folder = Path(tempfile.mkdtemp(prefix="kjms-spark-"))
    with contextlib.ExitStack() as stack:
        servers = options.bootstrap or stack.enter_context(find_broker()).bootstrap_servers
        try:
            code = play(servers, folder, options)
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
