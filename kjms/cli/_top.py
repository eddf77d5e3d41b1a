"""``kjms top``: watch the queues, the busiest first, until Ctrl-C."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Final

from kjms.admin import Admin, QueueFigures
from kjms.cli._connecting import add_connection_options, connect, seconds
from kjms.cli._receive import count
from kjms.cli._terminal import columns, escaped

DESCRIPTION: Final = """\
Show the queues again and again, those with the most waiting messages first, until Ctrl-C. On a terminal, each table
takes the place of the last one, and what does not fit is left out.

WAITING is the number of messages that are not settled, as of 'kjms queues'. CHANGE is by how many it grew, or shrank,
in a second since the last table. OLDEST is how long ago the oldest waiting message was sent.
"""

EXAMPLES: Final = """\
examples:
  kjms top
  kjms top --every 10 --tables 6 > last-minute.txt
"""

EVERY: Final = 2.0  # seconds
HEADING: Final = ("QUEUE", "WAITING", "CHANGE", "IN FLIGHT", "DELAYED", "DEAD LETTERS", "CONSUMERS", "OLDEST")
CLEAR: Final = "\x1b[H\x1b[J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, default=EVERY, help=f"the time between tables (default: {EVERY:g})"
    )
    parser.add_argument("--tables", metavar="N", type=count, help="end after N tables (default: at Ctrl-C)")
    parser.add_argument(
        "--estimate", action="store_true", help="show upper bounds, and do not read the waiting messages"
    )
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show tables until Ctrl-C, or as many as were asked for.

    Raises:
        JMSException: The cluster did not answer.
    """
    is_terminal = sys.stdout.isatty()
    before: dict[str, tuple[float, int]] = {}
    left = arguments.tables
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        while True:
            found = admin.queues(estimate=arguments.estimate)
            now = time.monotonic()
            depths = {each.topic: (now, _waiting(each) or 0) for each in found}
            lines = table(found, changes(before, depths), datetime.now(timezone.utc))
            before = depths
            if is_terminal:
                size = shutil.get_terminal_size()
                lines = [line[: size.columns] for line in lines[: size.lines - 1]]
            print((CLEAR if is_terminal else "") + "\n".join(lines), flush=True)
            left = None if left is None else left - 1
            if left == 0:
                return 0
            time.sleep(max(0.0, now + arguments.every - time.monotonic()))
            if not is_terminal:
                print()


def changes(before: Mapping[str, tuple[float, int]], now: Mapping[str, tuple[float, int]]) -> dict[str, float]:
    """Return by how much each number grew in a second, where it was there before.

    >>> changes({"a": (1.0, 10)}, {"a": (3.0, 4), "b": (3.0, 1)})
    {'a': -3.0}
    """
    return {
        name: (number - before[name][1]) / (at - before[name][0])
        for name, (at, number) in now.items()
        if name in before and at > before[name][0]
    }


def table(found: Sequence[QueueFigures], change: Mapping[str, float], now: datetime) -> list[str]:
    """Return the lines of the table, the queues with the most waiting messages first."""
    if not found:
        return ["There are no queues yet."]
    busiest = sorted(found, key=lambda each: (-(_waiting(each) or 0), each.name))
    rows = [HEADING] + [
        (
            escaped(each.name),
            _number(_waiting(each)),
            "-" if each.topic not in change else f"{change[each.topic]:+,.0f}/s",
            _number(each.in_flight),
            _number(each.delayed),
            _number(each.dead_letters),
            str(each.consumers),
            _age(each.oldest, now),
        )
        for each in busiest
    ]
    return columns(rows, right=range(1, len(HEADING)))


def _waiting(figures: QueueFigures) -> int | None:
    return figures.depth_up_to if figures.depth is None else figures.depth


def _number(found: int | None) -> str:
    return "-" if found is None else f"{found:,}"


def _age(sent: datetime | None, now: datetime) -> str:
    """Return how long ago *sent* was, in its two largest units."""
    if sent is None:
        return "-"
    left = max(0, round((now - sent).total_seconds()))
    parts: list[str] = []
    for name, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or (name == "s" and not parts):
            parts.append(f"{number}{name}")
    return " ".join(parts[:2])
