"""The crash test: rounds in which everything that uses a queue is killed, paused and restarted, and what it found.

    python3 chores.py crash [--rounds N] [--seed S] [--seconds T] [--keep]

The exit code is 0, or 1 if a promise was not kept; see docs/crash-test.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from crash_plan import plan
from crash_round import Stage
from crash_rounds import parser, play_rounds, show, show_plan

from tests.history.checker import Anomaly


def main() -> int:
    arguments = parser(
        "chores.py crash",
        "Kill, pause and restart what uses a queue, and check what came of it.",
        rounds=100,
        seconds=15.0,
    )
    arguments.add_argument("--fatal", type=int, help="how many messages kill their consumers (1 or 2)")
    options = arguments.parse_args()
    return play_rounds(options, partial(play, options))


def play(options: argparse.Namespace, number: int) -> list[Anomaly]:
    """Play round *number*, report it, and return which promises it broke."""
    chosen = plan(options.seed, number, options.seconds, options.session_timeout / 1000)
    if options.fatal is not None:
        chosen = replace(chosen, fatal=options.fatal)
    folder = Path(tempfile.mkdtemp(prefix=f"kjms-crash-{options.seed}-{number}-"))
    if options.plan:
        show_plan(chosen.disturbances)
    seed = f"{options.seed}-{number}"
    result = Stage(chosen, folder, seed, options.seconds, options.session_timeout, options.nodes).run()
    partitions = "1 partition" if chosen.partitions == 1 else f"{chosen.partitions} partitions"
    again = f"python3 chores.py crash --seed {options.seed} --round {number}"
    again += "" if options.fatal is None else f" --fatal {options.fatal}"
    began = f"round {number}, {options.nodes} nodes, {partitions}, prefetch {chosen.prefetch}"
    return show(options, result, began, again, folder)


if __name__ == "__main__":
    sys.exit(main())
