"""``kjms broker``: a real Kafka in the foreground."""

from __future__ import annotations

import argparse
from typing import Final

DESCRIPTION: Final = """\
Run a real Apache Kafka on this machine, for development and tests: one node, reachable from this machine only.
Prints one line when it is ready, and runs until Ctrl-C; a second Ctrl-C ends it at once.
"""
EXAMPLES: Final = """\
examples:
  kjms broker                                a free port, data removed at the end
  kjms broker --port 9092 --data ./kafka     a port and data that are there again the next time
  kjms broker --config message.max.bytes=4000000
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("--port", metavar="PORT", type=_port, help="the port on 127.0.0.1 (default: a free one)")
    parser.add_argument(
        "--data", metavar="DIR", help="keep the data here (default: a temporary directory, removed at the end)"
    )
    parser.add_argument(
        "--config",
        metavar="KEY=VALUE",
        type=_setting,
        action="append",
        default=[],
        help="an entry of Kafka's server.properties (can be repeated)",
    )
    parser.add_argument("--json", action="store_true", help="print the ready line as a JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the broker; return the exit code.

    Raises:
        JMSException: It cannot start, or ended by itself.
        ValueError: A ``--config`` entry is not for users to set.
    """
    from kjms.broker import run_foreground

    return run_foreground(
        port=arguments.port, data_dir=arguments.data, config=dict(arguments.config), as_json=arguments.json
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port number")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form KEY=VALUE")
    return key, value
