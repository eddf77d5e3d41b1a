"""``kjms ping``: ask a cluster whether it is there, and whether it has what kjms needs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from kjms.admin import Admin, Fitness, Ping
from kjms.cli import FAILED
from kjms.cli._connecting import add_connection_options, connect
from kjms.cli._terminal import columns, escaped, json_text

DESCRIPTION: Final = """\
Ask a cluster for a sign of life: one line has the Kafka release that it is like, its brokers, and how long an answer
takes. The exit code is 1 if no broker answers.

With --compatibility, find out whether the cluster has what kjms needs: some seconds for a table of ok, missing and
unknown. The check creates two topics whose names begin with 'kjms-ping-', a consumer group and a transactional
producer, and deletes them at the end. 'unknown' is what this user may not do, or what could not be tried. The exit code
is 1 unless all that kjms cannot work without is there.
"""
EXAMPLES: Final = """\
examples:
  kjms ping --bootstrap kafka-1:9092
  kjms ping --compatibility --config production.toml
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("--compatibility", action="store_true", help="check what kjms needs of a Kafka")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: There is a user but no password.
        JMSException: No broker answers, or the credentials were refused.
    """
    with connect(arguments, may_create=False) as connection, Admin.of(connection) as admin:
        ping = admin.ping()
        found = admin.compatibility() if arguments.compatibility else []
    if arguments.json:
        rows = {"compatibility": [asdict(each) for each in found]} if arguments.compatibility else {}
        print(json_text({**asdict(ping), **rows}, indent=2))
    else:
        print(line(ping))
        if found:
            print(f"\n{table(found)}")
    return FAILED if any(each.required and each.state != "ok" for each in found) else 0


def line(ping: Ping) -> str:
    """Return *ping* as one line.

    >>> line(Ping("x8sYqP4m", ("kafka-1:9092",), 0.52, "4.1"))
    'like Kafka 4.1 or later, cluster x8sYqP4m, 1 broker (kafka-1:9092), an answer takes 0.5 ms'
    """
    like = "Kafka" if ping.release is None else f"like Kafka {ping.release} or later"
    count = f"{len(ping.brokers)} broker{'' if len(ping.brokers) == 1 else 's'}"
    return escaped(
        f"{like}, cluster {ping.cluster}, {count} ({', '.join(ping.brokers)}), an answer takes"
        f" {ping.milliseconds:.1f} ms"
    )


def table(found: Sequence[Fitness]) -> str:
    """Return *found* in aligned columns, with a sentence below that sums it up."""
    rows = [("STATE", "NEEDED", "FOR"), *((each.state, each.name, each.purpose) for each in found)]
    lines = columns(rows)
    details = [f"! {each.name}: {each.state}: {escaped(each.detail)}" for each in found if each.detail]
    needed = [each for each in found if each.required]
    there = sum(each.state == "ok" for each in needed)
    if there == len(needed):
        verdict = "This cluster has all that kjms cannot work without."
    else:
        verdict = f"This cluster has {there} of {len(needed)} things that kjms cannot work without."
    return "\n".join([*lines, "", *details, *([""] if details else []), verdict])
