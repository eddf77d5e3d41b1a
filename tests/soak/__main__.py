"""Run a soak: everything that kjms offers at once, for hours, with faults at random.

    python3 chores.py soak [--hours H] [--nodes 1|3] [--seed S] [--every S] [--page FILE]

It prints a line every ten seconds, and writes a page with plots. The exit code is 0, or 1 if a promise was not kept;
see docs/reliability.md.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException

from kjms.broker import LocalBroker
from tests.soak.faults import Fault, Faults, plan
from tests.soak.measures import Samples, cluster_figures
from tests.soak.page import Result, write
from tests.soak.programs import Programs

MOVERS: Final = 2
SAMPLES: Final = 300  # of a run at most
LEAST_SECONDS: Final = 5.0  # between two samples
LINE_SECONDS: Final = 10.0
START_SECONDS: Final = 300.0
STARTED: Final = 100  # messages have arrived: the run begins
DRY_SECONDS: Final = 120.0  # without progress: what has not arrived by then is missing
LEAST_PER_MINUTE: Final = 60  # messages, below which a run is void
UNFINISHED_SECONDS: Final = 180.0  # for a fault


class Soak:
    """One run.

    Args:
        broker: The cluster.
        options: Those of the command line.
        folder: For logs.
    """

    def __init__(self, broker: LocalBroker, options: argparse.Namespace, folder: Path) -> None:
        self._broker, self._options = broker, options
        self.seconds = options.hours * 3_600
        self.programs = Programs(broker.bootstrap_servers, options.seed, folder, MOVERS)
        self._faults = Faults(broker, self.programs)
        self.samples = Samples()
        self.done: list[Fault] = []
        self.problems: list[str] = []
        self._begin = time.monotonic()
        self._period = max(self.seconds / SAMPLES, LEAST_SECONDS)
        self._pids = broker.pids

    def run(self) -> Result:
        """Run everything; return what came of it."""
        self.programs.start()
        deadline = time.monotonic() + START_SECONDS
        while self.programs.report["arrived"] < STARTED:
            self.programs.look()
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {self.programs.report['arrived']} messages arrived in {START_SECONDS:.0f} s")
            time.sleep(0.2)
        self._begin = time.monotonic()
        faults = threading.Thread(target=self._make_faults, name="soak-faults", daemon=True)
        faults.start()
        threading.Thread(target=self._look_at_cluster, name="soak-cluster", daemon=True).start()
        self._watch(self.seconds)
        faults.join(UNFINISHED_SECONDS)
        if faults.is_alive():
            self.problems.append("the last fault is not over")
        self.programs.order("stop")
        self._drain()
        self.programs.end()
        report = self.programs.report
        self.problems += [*self.programs.problems, *report["problems"], *self.samples.problems()]
        if report["sent"] < LEAST_PER_MINUTE * self.seconds / 60:
            self.problems.append(f"void: {report['sent']} messages in {self.seconds / 60:.0f} minutes are too few")
        return Result(
            seed=self._options.seed,
            nodes=len(self._broker.nodes),
            seconds=self.seconds,
            series=[*self.samples.series.values()],
            faults=self.done,
            report=report,
            problems=self.problems,
        )

    def now(self) -> float:
        """Return the seconds since the begin."""
        return time.monotonic() - self._begin

    def _make_faults(self) -> None:
        for fault in plan(self._options.seed, self.seconds, self._options.every):
            time.sleep(max(fault.at - self.now(), 0))
            if self.now() > self.seconds:
                return
            begin = self.now()
            self.done.append(Fault(begin, fault.kind, fault.victim))
            try:
                self._faults.carry_out(fault)
            except Exception as error:
                self.problems.append(f"the fault {fault.kind!r} failed: {type(error).__name__}: {error}")

    def _watch(self, seconds: float) -> None:
        """Sample, and print a line now and then, for so many *seconds*."""
        next_sample, next_line = self.now() + self._period, self.now()
        while self.now() < seconds:
            time.sleep(0.2)
            if self.now() >= next_sample:
                next_sample += self._period
                self._sample()
            if self.now() >= next_line:
                next_line += LINE_SECONDS
                self.programs.look()
                self._print_line()

    def _sample(self) -> None:
        now = self.now()
        for name in self.programs.names:
            is_judged = name in {"load", "workers"}  # the others are replaced
            self.samples.add_process(name, self.programs.process_id(name), now, is_judged=is_judged)
        for number, process_id in self._pids.items():
            self.samples.add_process(f"broker {number}", process_id, now, is_judged=False)

    def _look_at_cluster(self) -> None:
        """Sample what the cluster has; in a thread of its own, as a broker may be away, or be starting."""
        while self.now() < self.seconds:
            self._pids = self._broker.pids
            with contextlib.suppress(KafkaException, TimeoutError):
                for what, value in cluster_figures(self._broker.bootstrap_servers).items():
                    self.samples.add(what, "cluster", self.now(), value)
            time.sleep(self._period)

    def _print_line(self) -> None:
        report: dict[str, Any] = self.programs.report
        last = self.done[-1].kind if self.done else "none"
        print(
            f"{self.now() / 60:6.1f} min: {report['sent']} sent, {report['arrived']} arrived, {report['missing']} under"
            f" way; {len(self.done)} faults, last: {last}; load: {self.samples.latest('load')};"
            f" {sum(report['errors'].values())} errors, {len(report['problems'])} problems",
            flush=True,
        )

    def _drain(self) -> None:
        """Wait until all that was sent has arrived, or nothing more arrives."""
        arrived, changed = -1, time.monotonic()
        while time.monotonic() - changed < DRY_SECONDS:
            time.sleep(1)
            report = self.programs.report
            if not report["missing"] and report["arrived"] == arrived and time.monotonic() - changed > LINE_SECONDS:
                return
            if report["arrived"] != arrived:
                arrived, changed = report["arrived"], time.monotonic()


def main() -> int:
    """Run as the command line says; return the exit code."""
    parser = argparse.ArgumentParser(prog="chores.py soak", description=__doc__.splitlines()[0])
    parser.add_argument("--hours", type=float, default=4.0, help="how long (4)")
    parser.add_argument("--nodes", type=int, default=1, help="brokers (1)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what happens (by chance)")
    parser.add_argument("--every", type=float, default=60.0, help="seconds from a fault to the next (60; 0: none)")
    parser.add_argument("--page", type=Path, default=Path("build/soak.html"), help="the page (build/soak.html)")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.nodes} nodes, {options.hours * 60:g} minutes", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="kjms-soak-"))
    with LocalBroker(nodes=options.nodes, startup_timeout=180) as broker:
        soak = Soak(broker, options, folder)
        try:
            result = soak.run()
        finally:
            soak.programs.kill()
    options.page.parent.mkdir(parents=True, exist_ok=True)
    write(options.page, result)
    for figures in result.report.get("figures", ()):
        print("    {name}: {sent} sent, {arrived} arrived, {repeated} repeated, {unknown} unknown".format(**figures))
    print(f"faults: {dict(Counter(fault.kind for fault in result.faults))}")
    print(f"errors that calls raised: {result.report['errors']}; steps: {result.report.get('steps')}")
    for problem in result.problems:
        print(f"NOT KEPT: {problem}")
    print(f"page: {options.page}; logs of the programs: {folder}")
    return 1 if result.problems else 0


if __name__ == "__main__":
    sys.exit(main())
