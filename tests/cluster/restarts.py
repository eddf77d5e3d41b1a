"""How long a queue stands still while each of three brokers is restarted in order, again and again.

    python3 chores.py cluster restarts [--rounds N] [--away S] [--kill]

Four programs move messages in transactions, each from a queue of its own. Each round restarts every broker once. It
prints a line for each restart, and says in the end for how long each queue stood still at most, and whether each
message was moved once. The exit code is 0, or 1 if a promise was not kept.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from kjms import ConnectionFactory, Queue, Session
from kjms.broker import LocalBroker
from tests.helpers import ROOT, committed, program_environment, stored_records

PROGRAMS: Final = 4
PAUSE_SECONDS: Final = 0.04  # of a program after each message
LOADED: Final = 1_000  # messages in one transaction, when the queues are filled
LONGEST_SECONDS: Final = 30.0  # that a queue may stand still
PROGRESS: Final = 10  # transactions of each program, after which a restart is over
END_SECONDS: Final = 60.0


class Mover:
    """One of the programs, and the times of its commits."""

    def __init__(self, servers: str, folder: Path, number: int, messages: int) -> None:
        self.queue, self.target = Queue(f"from-{uuid.uuid4().hex[:8]}"), Queue(f"to-{uuid.uuid4().hex[:8]}")
        self._servers, self._messages = servers, messages
        self.file = folder / f"mover-{number}"
        self.file.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Fill the queue, and start the program."""
        with ConnectionFactory(self._servers).create_connection() as connection:
            session = connection.create_session(Session.SESSION_TRANSACTED)
            producer = session.create_producer(self.queue)
            for number in range(self._messages):
                producer.send(session.create_text_message(str(number)))
                if number % LOADED == LOADED - 1:
                    session.commit()
            session.commit()
        names = self.queue.queue_name, self.target.queue_name
        command = [
            sys.executable,
            "-m",
            "tests.cluster.mover",
            self._servers,
            *names,
            str(self.file),
            str(PAUSE_SECONDS),
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, env=program_environment())

    def times(self) -> list[float]:
        """Return when commits returned."""
        return [float(line) for line in self.file.read_text().splitlines() if not line.startswith("refused")]

    def refusals(self) -> list[str]:
        """Return what other commits raised."""
        return [line for line in self.file.read_text().splitlines() if line.startswith("refused")]

    def end(self) -> float:
        """End the program in order; return how many seconds that took."""
        assert self.process is not None
        begin = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        return time.monotonic() - begin

    def problems(self) -> list[str]:
        """Return what became of the messages, other than that each was moved once, in order."""
        name = self.queue.queue_name
        moved = [int(record.value() or b"") for record in stored_records(self._servers, self.target.queue_name)]
        found = []
        if moved != list(range(len(moved))):
            found.append(f"{name}: {len(moved)} messages were moved, {len({*moved})} different ones")
        if len(moved) < len(self.times()):
            found.append(f"{name}: {len(self.times())} commits returned, but {len(moved)} messages were moved")
        if len(moved) == self._messages:
            found.append(f"{name}: the run is void: the queue was empty before its end")
        transactions = 1 + (len(moved) - 1) // LOADED  # the end of each one takes an offset
        if not len(moved) <= committed(self._servers, self.queue) <= len(moved) + transactions:
            found.append(f"{name}: settled up to {committed(self._servers, self.queue)}, moved {len(moved)}")
        return found


def longest_pause(times: list[float], begin: float, end: float) -> float:
    """Return the longest time without a commit between *begin* and *end*.

    >>> longest_pause([1, 2, 9, 10], 0, 12)
    7
    """
    inside = [begin, *(each for each in times if begin <= each <= end), end]
    return max(later - earlier for earlier, later in itertools.pairwise(inside))


def is_whole(servers: str) -> bool:
    """Return whether each partition has all its replicas in sync."""
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=20).topics
    parts = [part for topic in topics.values() for part in topic.partitions.values()]
    return all(len(part.isrs) == len(part.replicas) and part.leader >= 0 for part in parts)


def restart(broker: LocalBroker, movers: list[Mover], node: int, away: float, *, is_killed: bool) -> list[float]:
    """Restart *node*; return for how many seconds each program stood still at most, until all continue for good."""
    begin = time.time()
    (broker.kill if is_killed else broker.stop)(node)
    time.sleep(away)
    broker.start(node)
    before = [len(mover.times()) for mover in movers]
    deadline = time.monotonic() + 4 * LONGEST_SECONDS
    while time.monotonic() < deadline:
        time.sleep(1)
        counts = [len(mover.times()) for mover in movers]
        if is_whole(broker.bootstrap_servers) and all(
            now > then + PROGRESS for then, now in zip(before, counts, strict=True)
        ):
            break
    return [longest_pause(mover.times(), begin, time.time()) for mover in movers]


def main() -> int:
    """Run as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="chores.py cluster restarts", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="how often each broker is restarted (10)")
    parser.add_argument("--away", type=float, default=3.0, help="seconds that it is away (3)")
    parser.add_argument("--messages", type=int, default=20_000, help="messages of each of the four queues (20000)")
    parser.add_argument("--kill", action="store_true", help="kill it, as kill -9 does, in the place of stopping it")
    chosen = parser.parse_args()
    pauses: list[list[float]] = []
    with LocalBroker(nodes=3, startup_timeout=120) as broker, tempfile.TemporaryDirectory() as folder:
        servers = broker.bootstrap_servers
        movers = [Mover(servers, Path(folder), number, chosen.messages) for number in range(PROGRAMS)]
        try:
            for mover in movers:
                mover.start()
            while not all(len(mover.times()) > PROGRESS for mover in movers):
                time.sleep(0.1)
            for number in range(chosen.rounds):
                for node in broker.nodes:
                    pauses.append(restart(broker, movers, node, chosen.away, is_killed=chosen.kill))
                    said = ", ".join(f"{each:.1f}" for each in pauses[-1])
                    print(f"round {number}: broker {node} restarted; longest pauses: {said} s", flush=True)
        finally:
            ends = [mover.end() for mover in movers if mover.process is not None]
        problems = [problem for mover in movers for problem in mover.problems()]
        counts = [len(mover.times()) for mover in movers]
        refusals = [refusal for mover in movers for refusal in mover.refusals()]
    still = sum(pause > LONGEST_SECONDS for each in pauses for pause in each)
    problems += [f"a program took {took:.0f} s to end" for took in ends if took > END_SECONDS - 1]
    if still:
        problems.append(f"a queue stood still for more than {LONGEST_SECONDS:.0f} s {still} times")
    longest = [max(each) for each in zip(*pauses, strict=True)]
    print(
        f"{len(pauses)} restarts, {sum(counts)} transactions, {len(refusals)} rolled back; longest pauses of the"
        f" programs: {', '.join(f'{each:.1f}' for each in longest)} s; longest end {max(ends):.1f} s"
    )
    for refusal in sorted({*refusals}):
        print(f"    {refusal}")
    for problem in problems:
        print(f"NOT KEPT: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
