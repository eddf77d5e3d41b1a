"""``kjms bench``: measure the speed of kjms on a cluster, compared with its Kafka client."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from kjms.bench._command import UnknownWorkload, add_options, amounts, chosen, listing, measured
from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect, credentials, factory

DESCRIPTION: Final = """\
Measure the speed of kjms on your cluster, from this machine, and compare it with the Kafka client that it uses, with
the same records, settings and guarantees: sending, receiving, acknowledging, transactions, starting. Each workload
runs in rounds, with both sides in each round. The result compares the medians.

The command creates Kafka topics whose names begin with --prefix, and deletes them at the end, also after Ctrl-C. It
loads the cluster as much as one process can: run it when that does not disturb others.
"""

DEFAULT_ROUNDS: Final = 3
DEFAULT_MESSAGES: Final = 10_000
DEFAULT_PREFIX: Final = "kjms-bench-"
MESSAGE_BYTES: Final = 512  # of 256 bytes of text, headers, and what Kafka adds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    add_options(parser, rounds=DEFAULT_ROUNDS, messages=DEFAULT_MESSAGES)
    parser.add_argument("--json", action="store_true", help="write the figures of every round as a JSON object")
    parser.add_argument(
        "--prefix",
        default=DEFAULT_PREFIX,
        metavar="TEXT",
        help=f"begin the names of topics with this prefix (default: {DEFAULT_PREFIX})",
    )
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the table.

    Raises:
        WrongUse: There is no such workload, or a user without a password.
        JMSException: No broker answered in time.
    """
    import kjms.bench
    from kjms.bench._stage import Stage
    from kjms.bench._workload import load_workloads

    workloads = load_workloads(kjms.bench)
    if arguments.list:
        print(listing(workloads))
        return 0
    try:
        wanted = chosen(workloads, arguments.only, ["main"])
    except UnknownWorkload as error:
        raise WrongUse(str(error)) from error
    connect(arguments).close()  # reports a wrong address or password in one line
    options = factory(arguments)._options
    user, password = credentials(arguments)
    stage = Stage(
        options.bootstrap_servers,
        kafka=options.kafka,
        user=user,
        password=password,
        prefix=arguments.prefix,
        send_timeout=options.send_timeout,
    )
    rounds, messages = amounts(arguments)
    print(
        f"kjms bench: {len(wanted)} workloads at {options.bootstrap_servers}, each in a warm-up and {rounds} rounds"
        f" of up to {messages:,} messages; a topic takes up to {messages * MESSAGE_BYTES / 1e6:,.0f} MB. Its topics are"
        f" named {stage.prefix}-1 and so on, and are deleted at the end.",
        file=sys.stderr,
    )
    with stage:
        report = measured(wanted, stage, arguments, {})
    print(report.to_json() if arguments.json else report.to_text())
    return 1 if report.failed else 0
