"""What the crash tests' commands share: their arguments, the counting of rounds, and what is printed of each."""

from __future__ import annotations

import argparse
import random
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from crash_checker import Violation, summary
from crash_plan import Disturbance

SHOWN = 2  # accounts of each rule in a round; all of them are in the folder


class Outcome(Protocol):
    """What a round was like.

    Attributes:
        violations: The promises that were not kept.
        late: Processes that did not leave within the time.
    """

    violations: list[Violation]
    late: list[str]

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
    parser.add_argument("--keep", action="store_true", help="keep all histories, not only those of bad rounds")
    parser.add_argument("--plan", action="store_true", help="say what is done in each round")
    return parser


def play_rounds(options: argparse.Namespace, play: Callable[[int], Outcome]) -> int:
    """Play the rounds that *options* ask for; return the exit code."""
    print(f"seed {options.seed}", flush=True)
    numbers = [options.round] if options.round else range(1, options.rounds + 1)
    bad, found = 0, Counter[str]()
    for number in numbers:
        result = play(number)
        bad += bool(result.violations)
        found.update(violation.rule for violation in result.violations)
    print(f"{len(numbers)} rounds of seed {options.seed}, {bad} with violations")
    for rule, count in found.most_common():
        print(f"  {count} {rule}")
    return 1 if bad else 0


def show_plan(disturbances: Iterable[Disturbance]) -> None:
    """Print what is done in a round."""
    for each in disturbances:
        print(f"  {each.at:6.2f} {each.what} {each.slot} ({each.seconds:g} s)", flush=True)


def show(
    options: argparse.Namespace,
    result: Outcome,
    began: str,
    account: Callable[[], Iterable[tuple[Violation, str]]],
    again: str,
    folder: Path,
) -> None:
    """Print what came of a round, and keep its histories if they are wanted.

    Args:
        options: The arguments.
        result: What the round was like.
        began: What tells it from others.
        account: Returns the violations, each with what is known about it.
        again: The command that plays the round again, but for what all crash tests have.
        folder: Where its histories are.
    """
    print(f"{began}: {result.line()}", flush=True)
    if result.violations:
        print(f"  {summary(result.violations)}")
        _report(result, account(), folder / "violations.txt")
        print(f"  again: {again} --seconds {options.seconds:g} --session-timeout {options.session_timeout}")
    if result.violations or result.late or options.keep:
        print(f"  histories: {folder}", flush=True)
    else:
        shutil.rmtree(folder)


def show_standstill(found: str) -> None:
    """Print what was found when a round was given up, if one was."""
    if found:
        print(f"  when the round was given up:\n{textwrap.indent(found, '    ')}", flush=True)


def _report(result: Outcome, account: Iterable[tuple[Violation, str]], whole: Path) -> None:
    """Print the violations, each with what is known about it; write all of that into the file *whole*."""
    shown: Counter[str] = Counter()
    with open(whole, "w", encoding="utf-8") as everything:
        everything.write(f"{result.line()}\n")
        for violation, told in account:
            about = f"message {violation.number}: " if violation.number >= 0 else ""
            lines = "".join(f"    {line}\n" for line in told.splitlines())
            text = f"\n  {violation.rule}: {about}{violation.text}\n{lines}"
            everything.write(text)
            shown[violation.rule] += 1
            if shown[violation.rule] <= SHOWN:
                print(text, end="")
            elif shown[violation.rule] == SHOWN + 1:
                print(f"  more of these are in {whole}\n")
