"""The exactly-once test: transacted sessions move messages while everything is killed, paused and restarted.

    python3 chores.py crash --exactly-once [--rounds N] [--seed S] [--messages M] [--seconds T] [--keep]

The exit code is 0, or 1 if a message was not moved exactly once or another promise was not kept; see
docs/crash-test.md.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from crash_checker import summary
from exactly_once_checker import account
from exactly_once_plan import MovingPlan, plan
from exactly_once_round import MovingResult, MovingStage

SHOWN = 2  # accounts of each rule in a round; all of them are in the folder


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
        prog="chores.py crash --exactly-once",
        description="Move messages in transactions, kill, pause and restart whatever does it, and check the outcome.",
    )
    parser.add_argument("--rounds", type=int, default=20, help="how many rounds (20)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what is done (by chance)")
    parser.add_argument("--round", type=int, default=0, help="play only this round of the seed")
    parser.add_argument("--messages", type=int, default=20_000, help="how many are moved in a round (20000)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long processes are disturbed in a round (20)")
    parser.add_argument("--session-timeout", type=int, default=6_000, help="milliseconds (6000)")
    parser.add_argument("--no-accidents", action="store_true", help="no kills and pauses in the middle of commits")
    parser.add_argument("--keep", action="store_true", help="keep all histories, not only those of bad rounds")
    parser.add_argument("--plan", action="store_true", help="say what is done in each round")
    return parser.parse_args()


def play(options: argparse.Namespace, number: int) -> MovingResult:
    """Play round *number* and report it."""
    chosen = plan(options.seed, number, options.seconds, options.session_timeout / 1000)
    folder = Path(tempfile.mkdtemp(prefix=f"kjms-once-{options.seed}-{number}-"))
    if options.plan:
        print(described(chosen), flush=True)
    stage = MovingStage(
        chosen,  # type: ignore[arg-type]
        folder,
        f"{options.seed}-{number}",
        options.seconds,
        options.session_timeout,
        messages=options.messages,
        has_accidents=not options.no_accidents,
    )
    result = stage.run()
    partitions = f"{chosen.partitions} to {chosen.target_partitions} partitions"
    print(f"round {number}, {partitions}, prefetch {chosen.prefetch}: {result.line()}", flush=True)
    if result.violations and result.forsaken:
        print(f"  it says nothing: Kafka left {result.forsaken} transactions open when it was started again")
    if result.violations:
        print(f"  {summary(result.violations)}")
        report(result, folder / "violations.txt")
        again = f"--seed {options.seed} --round {number} --messages {options.messages} --seconds {options.seconds:g}"
        again += " --no-accidents" if options.no_accidents else ""
        print(f"  again: python3 chores.py crash --exactly-once {again} --session-timeout {options.session_timeout}")
    if result.violations or options.keep:
        print(f"  histories: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return result


def report(result: MovingResult, whole: Path) -> None:
    """Print the violations, each with what is known about it; write all of that into the file *whole*."""
    shown: Counter[str] = Counter()
    with open(whole, "w", encoding="utf-8") as everything:
        everything.write(f"{result.line()}\n")
        for violation, told in account(result.moves, result.violations):
            about = f"message {violation.number}: " if violation.number >= 0 else ""
            lines = "".join(f"    {line}\n" for line in told.splitlines())
            text = f"\n  {violation.rule}: {about}{violation.text}\n{lines}"
            everything.write(text)
            shown[violation.rule] += 1
            if shown[violation.rule] <= SHOWN:
                print(text, end="")
            elif shown[violation.rule] == SHOWN + 1:
                print(f"  more of these are in {whole}\n")


def described(chosen: MovingPlan) -> str:
    """Return the plan in lines."""
    lines = [f"  {each.at:6.2f} {each.what} {each.slot} ({each.seconds:g} s)" for each in chosen.disturbances]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
