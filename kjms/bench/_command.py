"""What the two commands that run workloads share: ``kjms bench`` and ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence

from kjms.bench._machine import machine, versions
from kjms.bench._report import Report
from kjms.bench._run import run_workloads
from kjms.bench._stage import Stage
from kjms.bench._workload import Workload

__all__ = ["UnknownWorkload", "add_options", "chosen", "listing", "measured", "progress"]

QUICK_ROUNDS = 2
QUICK_MESSAGES = 5_000


class UnknownWorkload(ValueError):
    """No workload, and no set of workloads, has that name."""


def add_options(parser: argparse.ArgumentParser, *, rounds: int, messages: int) -> None:
    """Give *parser* the options that say what is run, and how much of it; the numbers are the defaults."""
    parser.add_argument(
        "--rounds",
        type=count,
        metavar="N",
        help=f"measure this many rounds, after a warm-up (default: {rounds}, with --quick {QUICK_ROUNDS})",
    )
    parser.add_argument(
        "--messages",
        type=count,
        metavar="N",
        help="use this many messages per round; slow workloads use a part of them"
        f" (default: {messages}, with --quick {QUICK_MESSAGES})",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="run only this workload, or set of workloads; repeatable",
    )
    parser.add_argument("--quick", action="store_true", help="check that all workloads run; the figures mean little")
    parser.add_argument("--list", action="store_true", help="list the workloads, and run none")
    parser.set_defaults(default_rounds=rounds, default_messages=messages)


def count(text: str) -> int:
    """Return the number of at least 1 that *text* is, as argparse wants it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def amounts(arguments: argparse.Namespace) -> tuple[int, int]:
    """Return how many rounds, and messages in each, the options ask for."""
    rounds = arguments.rounds or (QUICK_ROUNDS if arguments.quick else arguments.default_rounds)
    return rounds, arguments.messages or (QUICK_MESSAGES if arguments.quick else arguments.default_messages)


def chosen(workloads: Mapping[str, Workload], names: Sequence[str], default_sets: Sequence[str]) -> list[Workload]:
    """Return those of *workloads* that *names* name, by themselves or by their set; without any, the default sets.

    Raises:
        UnknownWorkload: A name is none of either.
    """
    sets = {workload.set for workload in workloads.values()}
    unknown = sorted(set(names) - workloads.keys() - sets)
    if unknown:
        raise UnknownWorkload(
            f"there is no workload {', '.join(unknown)}; the workloads are {', '.join(workloads)}, and the sets"
            f" {', '.join(sorted(sets))}"
        )
    wanted = set(names or default_sets)
    return [workload for workload in workloads.values() if {workload.name, workload.set} & wanted]


def listing(workloads: Mapping[str, Workload]) -> str:
    """Return a line for each of *workloads*."""
    return "\n".join(f"{each.set:12}{each.name:30}{each.title}" for each in workloads.values())


def measured(
    workloads: Sequence[Workload], stage: Stage, arguments: argparse.Namespace, others: Mapping[str, str]
) -> Report:
    """Run *workloads* as the options say, and return what came out.

    Args:
        workloads: What is run.
        stage: Where.
        arguments: Those of `add_options`.
        others: What besides this process took part, with its version.
    """
    rounds, messages = amounts(arguments)
    results, failed = run_workloads(workloads, stage, rounds=rounds, messages=messages, progress=progress)
    progress("")
    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    return Report(today, machine(), {**versions(), **others}, rounds, results, failed)


def progress(text: str) -> None:
    """Show the progress on stderr: in one line on a terminal, in a line per step elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)
