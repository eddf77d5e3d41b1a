"""``kjms bench``: how fast kjms is on a cluster, beside the Kafka client that it stands on."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from kjms.bench._command import UnknownWorkload, add_options, amounts, chosen, listing, measured
from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, connect, credentials, factory

DESCRIPTION: Final = """\
Measure how fast kjms is on your cluster, from this machine, and what the Kafka client that it stands on does there with
the same records, settings and promises: sending, receiving, acknowledging, transactions, beginning. Each kind of work
is done in rounds, both sides in each of them; medians are compared.

It makes Kafka topics of its own, whose names begin with --prefix, and deletes them in the end, after Ctrl-C too. It
loads the cluster as hard as one process can, so choose the hour.
"""

DEFAULT_ROUNDS: Final = 3
DEFAULT_MESSAGES: Final = 10_000
DEFAULT_PREFIX: Final = "kjms-bench-"
MESSAGE_BYTES: Final = 512  # of 256 bytes of text, headers, and what Kafka adds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    add_options(parser, rounds=DEFAULT_ROUNDS, messages=DEFAULT_MESSAGES)
    parser.add_argument("--json", action="store_true", help="the figures of every round, as a JSON object")
    parser.add_argument(
        "--prefix",
        default=DEFAULT_PREFIX,
        metavar="TEXT",
        help=f"what the names of its topics begin with ({DEFAULT_PREFIX})",
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
    connect(arguments).close()  # an address or password that is wrong is told in a line
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
        f"kjms bench: {len(wanted)} kinds of work at {options.bootstrap_servers}, each in a warm-up and {rounds} rounds"
        f" of up to {messages:,} messages; a topic takes up to {messages * MESSAGE_BYTES / 1e6:,.0f} MB. Its topics are"
        f" called {stage.prefix}-1 and so on, and are deleted in the end.",
        file=sys.stderr,
    )
    with stage:
        report = measured(wanted, stage, arguments, {})
    print(report.to_json() if arguments.json else report.to_text())
    return 1 if report.failed else 0
