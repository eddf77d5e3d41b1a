"""The crash test: rounds in which everything that uses a queue is killed, paused and restarted, and what it found.

    python3 chores.py crash [--rounds N] [--seed S] [--seconds T] [--keep]

The exit code is 0, or 1 if a promise was not kept; see docs/crash-test.md.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from crash_checker import Violation, excerpt, summary
from crash_plan import Plan, plan
from crash_round import Result, Stage

SHOWN = 2  # excerpts of each rule in a round; all of them are in the folder


def main() -> int:
    options = arguments()
    print(f"seed {options.seed}", flush=True)
    good, bad, void, found = 0, 0, 0, Counter[str]()
    wanted = 1 if options.round else options.rounds
    for number in itertools.count(options.round or 1):
        result = play(options, number)
        is_void = bool(result.violations and result.forsaken)
        good += not result.violations
        bad += bool(result.violations) and not is_void
        void += is_void
        found.update(violation.rule for violation in result.violations if not is_void)
        if good + bad == wanted or void > wanted:
            break
    print(f"{good + bad} rounds of seed {options.seed}, {bad} with violations; {void} besides that say nothing")
    for rule, count in found.most_common():
        print(f"  {count} {rule}")
    return 1 if bad or good + bad < wanted else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="chores.py crash", description="Kill, pause and restart what uses a queue, and check what came of it."
    )
    parser.add_argument("--rounds", type=int, default=100, help="how many rounds (100)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what is done (by chance)")
    parser.add_argument("--round", type=int, default=0, help="play only this round of the seed")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long a queue is used in a round (15)")
    parser.add_argument("--session-timeout", type=int, default=6_000, help="milliseconds (6000)")
    parser.add_argument("--fatal", type=int, help="how many messages kill their consumers (1 or 2)")
    parser.add_argument("--keep", action="store_true", help="keep all histories, not only those of bad rounds")
    parser.add_argument("--plan", action="store_true", help="say what is done in each round")
    return parser.parse_args()


def play(options: argparse.Namespace, number: int) -> Result:
    """Play round *number* and report it."""
    chosen = plan(options.seed, number, options.seconds, options.session_timeout / 1000)
    if options.fatal is not None:
        chosen = replace(chosen, fatal=options.fatal)
    folder = Path(tempfile.mkdtemp(prefix=f"kjms-crash-{options.seed}-{number}-"))
    if options.plan:
        print(described(chosen), flush=True)
    result = Stage(chosen, folder, f"{options.seed}-{number}", options.seconds, options.session_timeout).run()
    partitions = "1 partition" if chosen.partitions == 1 else f"{chosen.partitions} partitions"
    print(f"round {number}, {partitions}, prefetch {chosen.prefetch}: {result.line()}", flush=True)
    if result.violations and result.forsaken:
        print(f"  it says nothing: Kafka left {result.forsaken} transactions open when it was started again")
    if result.violations:
        print(f"  {summary(result.violations)}")
        report(result, folder / "violations.txt")
        again = f"--seed {options.seed} --round {number} --seconds {options.seconds:g}"
        again += "" if options.fatal is None else f" --fatal {options.fatal}"
        print(f"  again: python3 chores.py crash {again} --session-timeout {options.session_timeout}")
    if result.violations or options.keep:
        print(f"  histories: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return result


def report(result: Result, whole: Path) -> None:
    """Print the violations, each with what the histories say about it; write all of that into the file *whole*."""
    shown: Counter[str] = Counter()
    with open(whole, "w", encoding="utf-8") as everything:
        everything.write(f"{result.line()}\n")
        for violation in result.violations:
            text = described_violation(violation, result)
            everything.write(text)
            shown[violation.rule] += 1
            if shown[violation.rule] <= SHOWN:
                print(text, end="")
            elif shown[violation.rule] == SHOWN + 1:
                print(f"  more of these are in {whole}\n")


def described_violation(violation: Violation, result: Result) -> str:
    """Return the violation and the excerpt of the histories that shows it."""
    if violation.number < 0:
        return f"\n  {violation.rule}: {violation.text}\n"
    lines = excerpt(result.record, violation.number).splitlines()
    shown = "".join(f"    {line}\n" for line in lines)
    return f"\n  {violation.rule}: message {violation.number}: {violation.text}\n{shown}"


def described(chosen: Plan) -> str:
    """Return the plan in lines."""
    lines = [f"  {each.at:6.2f} {each.what} {each.slot} ({each.seconds:g} s)" for each in chosen.disturbances]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
