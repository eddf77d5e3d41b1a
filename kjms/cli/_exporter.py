"""``kjms exporter``: serve Prometheus metrics of a cluster's queues and subscriptions."""

from __future__ import annotations

import argparse
import logging
import threading
from typing import Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, credentials, factory, seconds
from kjms.cli._logs import add_log_options
from kjms.cli._operating import address
from kjms.health import HealthServer

DESCRIPTION: Final = """\
Serve Prometheus metrics of all queues and subscriptions of the cluster until Ctrl-C or SIGTERM: depth, age of the
oldest message, consumers, dead letters, redeliveries and more. It consumes nothing. While the cluster does not answer,
kjms_up is 0. /livez and /readyz at the same address serve probes.
"""
EXAMPLES: Final = """\
examples:
  kjms exporter
  kjms exporter --listen 0.0.0.0:9465 --interval 30 --bootstrap kafka-1:9092
"""
DEFAULT_LISTEN: Final = "127.0.0.1:9465"

_log = logging.getLogger("kjms.exporter")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        default=address(DEFAULT_LISTEN),
        help="serve /metrics, /livez and /readyz at this address; port 0 takes a free port"
        f" (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=15.0,
        help="ask the cluster this many seconds after the last answer (default: 15)",
    )
    parser.add_argument(
        "--estimate", action="store_true", help="read no messages: serve upper bounds, and no depth and age"
    )
    add_log_options(parser)
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal ends the process.

    Raises:
        WrongUse: prometheus_client is missing, or there is a user but no password.
        OSError: The port is in use.
        ValueError: The configuration file has an error.
    """
    try:
        from kjms.exporter import ClusterCollector
    except ModuleNotFoundError as error:
        raise WrongUse(str(error)) from error
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

    user, password = credentials(arguments)
    collector = ClusterCollector(
        factory(arguments, may_create=False),
        interval=round(arguments.interval * 1000),
        estimate=arguments.estimate,
        in_child=True,
        user=user,
        password=password,
    )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(collector)
    server = HealthServer(
        *arguments.listen,
        ready={"kafka": collector.check},
        metrics=lambda: (CONTENT_TYPE_LATEST, generate_latest(registry)),
    )
    with server, collector:
        _log.info("metrics at http://%s/metrics", server.address)
        threading.Event().wait()
    return 0
