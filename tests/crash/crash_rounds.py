"""What the crash tests' commands share: their arguments, the counting of rounds, and what is printed of each."""

from __future__ import annotations

import argparse
import random
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Protocol

from crash_plan import Disturbance

from tests.history.checker import Anomaly
from tests.history.history import History
from tests.history.report import Void, judged, report

LEAST = 100  # messages that a round must send and deliver
SHOWN = 120  # lines of a bad round; all of them are in the folder


class Outcome(Protocol):
    """What a round was like.

    Attributes:
        history: What happened.
        late: Processes that did not leave within the time.
        standstill: What Kafka and the consumers said when the round was given up.
    """

    history: History
    late: list[str]
    standstill: str

    def line(self) -> str: ...


def parser(prog: str, description: str, *, rounds: int, seconds: float) -> argparse.ArgumentParser:
    """Return the parser of the arguments that all crash tests have."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how many rounds ({rounds})")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what is done (by chance)")
    parser.add_argument("--round", type=int, default=0, help="play only this round of the seed")
    parser.add_argument(
        "--seconds", type=float, default=seconds, help=f"how long processes are disturbed in a round ({seconds:g})"
    )
    parser.add_argument("--session-timeout", type=int, default=6_000, help="milliseconds (6000)")
    parser.add_argument("--nodes", type=int, default=1, help="of the Kafka; one at a time is stopped or killed (1)")
    parser.add_argument("--least", type=int, default=LEAST, help=f"messages without which a round is void ({LEAST})")
    parser.add_argument("--keep", action="store_true", help="keep all journals, not only those of bad rounds")
    parser.add_argument("--plan", action="store_true", help="say what is done in each round")
    return parser


def play_rounds(options: argparse.Namespace, play: Callable[[int], list[Anomaly]]) -> int:
    """Play the rounds that *options* ask for; return the exit code.

    Args:
        options: The arguments.
        play: Plays a round, and returns which promises it broke; raises Void where it says nothing.
    """
    print(f"seed {options.seed}", flush=True)
    numbers = [options.round] if options.round else range(1, options.rounds + 1)
    bad, void, names = 0, 0, Counter[str]()
    for number in numbers:
        try:
            found = play(number)
        except Void as error:
            print(f"  round {number} is {error}", flush=True)
            void += 1
            continue
        bad += bool(found)
        names.update(each.name for each in found)
    print(f"{len(numbers)} rounds of seed {options.seed}, {bad} with violations, {void} void")
    for name, count in names.most_common():
        print(f"  {count} {name}")
    return 1 if bad or void else 0


def show_plan(disturbances: Iterable[Disturbance]) -> None:
    """Print what is done in a round."""
    for each in disturbances:
        print(f"  {each.at:6.2f} {each.what} {each.slot} ({each.seconds:g} s)", flush=True)


def show(options: argparse.Namespace, result: Outcome, began: str, again: str, folder: Path) -> list[Anomaly]:
    """Print what came of a round, keep its journals if they are wanted, and return which promises it broke.

    Args:
        options: The arguments.
        result: What the round was like.
        began: What tells it from others.
        again: The command that plays the round again, but for what all crash tests have.
        folder: Where its journals are.

    Raises:
        Void: It saw too few messages.
    """
    print(f"{began}: {result.line()}", flush=True)
    is_wanted = bool(result.late or options.keep)
    try:
        found = judged(result.history, least=options.least)
    except Void:
        is_wanted = True
        raise
    else:
        again += f" --nodes {options.nodes}" if options.nodes > 1 else ""
        again = f"{again} --seconds {options.seconds:g} --session-timeout {options.session_timeout}"
        print(f"  {len(found)} violations", flush=True)
        is_wanted |= bool(found)
        show_report(result.history, found, again, folder)
    finally:
        if is_wanted:
            print(f"  journals: {folder}", flush=True)
        else:
            shutil.rmtree(folder)
    if result.standstill:
        print(f"  when the round was given up:\n{textwrap.indent(result.standstill, '    ')}", flush=True)
    return found


def show_report(history: History, found: list[Anomaly], again: str, folder: Path) -> None:
    """Print the anomalies *found*, each with the smallest history that has it; write all of that into *folder*."""
    if not found:
        return
    lines = report(history, found, again)
    with open(folder / "violations.txt", "w", encoding="utf-8") as whole:
        for line in islice(lines, SHOWN):
            print(f"  {line}", flush=True)
            whole.write(f"{line}\n")
        more = [f"{line}\n" for line in lines]
        whole.writelines(more)
    if more:
        print(f"  {len(more)} more lines are in {folder}/violations.txt", flush=True)
