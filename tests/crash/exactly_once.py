"""The exactly-once test: transacted sessions move messages while everything is killed, paused and restarted.

    python3 chores.py crash --exactly-once [--rounds N] [--seed S] [--messages M] [--seconds T] [--keep]

The exit code is 0, or 1 if a message was not moved exactly once or another promise was not kept; see
docs/crash-test.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from crash_rounds import parser, play_rounds, show, show_plan
from exactly_once_plan import plan
from exactly_once_round import MovingStage

from tests.history.checker import Anomaly


def main() -> int:
    arguments = parser(
        "chores.py crash --exactly-once",
        "Move messages in transactions, kill, pause and restart whatever does it, and check the outcome.",
        rounds=20,
        seconds=20.0,
    )
    arguments.add_argument("--messages", type=int, default=20_000, help="how many are moved in a round (20000)")
    arguments.add_argument("--no-accidents", action="store_true", help="no kills and pauses in the middle of commits")
    options = arguments.parse_args()
    return play_rounds(options, partial(play, options))


def play(options: argparse.Namespace, number: int) -> list[Anomaly]:
    """Play round *number*, report it, and return which promises it broke."""
    chosen = plan(options.seed, number, options.seconds, options.session_timeout / 1000)
    folder = Path(tempfile.mkdtemp(prefix=f"kjms-once-{options.seed}-{number}-"))
    if options.plan:
        show_plan(chosen.disturbances)
    result = MovingStage(
        chosen,  # type: ignore[arg-type]
        folder,
        f"{options.seed}-{number}",
        options.seconds,
        options.session_timeout,
        options.nodes,
        messages=options.messages,
        has_accidents=not options.no_accidents,
    ).run()
    partitions = f"{chosen.partitions} to {chosen.target_partitions} partitions"
    again = f"python3 chores.py crash --exactly-once --seed {options.seed} --round {number}"
    again += f" --messages {options.messages}" + (" --no-accidents" if options.no_accidents else "")
    began = f"round {number}, {options.nodes} nodes, {partitions}, prefetch {chosen.prefetch}"
    return show(options, result, began, again, folder)


if __name__ == "__main__":
    sys.exit(main())
