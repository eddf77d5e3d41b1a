"""``kjms broker``: run a real Kafka in the foreground."""

from __future__ import annotations

import argparse
from typing import Final

from kjms.cli._logs import add_log_options

MOST_NODES: Final = 9  # each takes 210 MB; more serve no test

DESCRIPTION: Final = """\
Run a real Apache Kafka on this machine, for development and tests: one node, or several with --nodes, reachable from
this machine only. The command prints one line when Kafka is ready, and runs until Ctrl-C. A second Ctrl-C ends it at
once.
"""
EXAMPLES: Final = """\
examples:
  kjms broker                                use a free port, and remove the data at the end
  kjms broker --port 9092 --data ./kafka     use the same port and data at the next start
  kjms broker --nodes 3                      use three nodes, with three replicas of each topic
  kjms broker --config message.max.bytes=4000000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "--port", metavar="PORT", type=_port, help="listen at this port of 127.0.0.1 (default: a free one)"
    )
    parser.add_argument(
        "--data", metavar="DIR", help="keep the data in this directory (default: a temporary one, removed at the end)"
    )
    parser.add_argument(
        "--config",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="set this entry of Kafka's server.properties; repeatable",
    )
    parser.add_argument(
        "--nodes", metavar="N", type=_count, default=1, help="run so many nodes, at the ports from PORT on (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print the ready line as a JSON object")
    add_log_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the broker; return the exit code.

    Raises:
        JMSException: It cannot start, or ended by itself.
        ValueError: A ``--config`` entry is not for users to set.
    """
    from kjms.broker import run_foreground

    return run_foreground(
        port=arguments.port,
        data_dir=arguments.data,
        config=dict(arguments.config),
        as_json=arguments.json,
        nodes=arguments.nodes,
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number from 1 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MOST_NODES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes from 1 to {MOST_NODES}")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value
