"""``kjms worker``: run functions that consume messages, in processes that are started again when they end."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import math
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, credentials, factory
from kjms.cli._operating import add_operating_options, serve_health

if TYPE_CHECKING:
    from kjms.health import Metrics

DESCRIPTION: Final = """\
Run the listeners of an application until Ctrl-C or SIGTERM: functions with the decorator kjms.worker.listener.
MODULE:NAME is a kjms.worker.Application, or one listener; MODULE alone is its "app", or all its listeners. Modules are
looked up in the current directory first.

A process that ends by itself is started again. SIGTERM ends all of them: running listeners have the grace period to
finish, and other messages go to other processes. SIGHUP replaces the processes one after the other, with new code.
"""
EXAMPLES: Final = """\
examples:
  kjms worker shop:app --processes 4
  kjms worker shop --watch
  kjms worker shop:app --processes 4 --grace 5m --bootstrap kafka-1:9092
"""
UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
MOST_PROCESSES: Final = 1_000
MULTIPROCESS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"  # prometheus_client's: where processes keep their figures


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("application", metavar="MODULE[:NAME]", help="run this application")
    parser.add_argument(
        "--processes", metavar="NUMBER", type=_processes, default=1, help="run so many processes (default: 1)"
    )
    parser.add_argument(
        "--grace",
        metavar="DURATION",
        type=_duration,
        default=30.0,
        help="give running listeners so long to finish at the end, such as 500ms, 30s, 5m or 1h (default: 30s)",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="replace the processes when a Python file below the current directory changes, for development",
    )
    parser.add_argument("--control", metavar="NUMBER", type=int, help=argparse.SUPPRESS)  # of a process: its socket
    add_operating_options(parser)
    add_connection_options(parser)


def _processes(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_PROCESSES}")
    return int(text)


def _duration(text: str) -> float:
    """Return the duration in seconds that *text* states, with its unit; a type for argparse.

    >>> [_duration(text) for text in ("30s", "500ms", "1.5m", "2")]
    [30.0, 0.5, 90.0, 2.0]
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|)", text)
    value = math.nan if match is None else float(match[1]) * UNITS[match[2]]
    if not 0 <= value <= 7 * 24 * 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 500ms, 30s, 5m or 1h, of a week at most")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: There is no such application, one of its listeners is wrong, or an extra is not installed.
        JMSException: No broker answers, or a consumer cannot be opened.
        OSError: A process cannot be started.
    """
    if sys.platform == "win32":
        raise WrongUse("processes are started and ended by means of POSIX: on Windows, use Application.running()")
    if arguments.control is not None:
        return _run_process(arguments)
    if arguments.watch and importlib.util.find_spec("watchfiles") is None:
        raise WrongUse("--watch needs watchfiles: pip install 'kjms[worker]'")
    from kjms.worker._supervisor import Supervisor

    logging.getLogger("watchfiles").setLevel("WARNING")  # the supervisor says what it does
    command = [sys.executable, "-m", "kjms", *sys.argv[1:], "--control"]
    supervisor = Supervisor(command, arguments.processes, arguments.grace, "." if arguments.watch else None)
    live, ready = {"supervisor": supervisor.heartbeat}, {"processes": supervisor.check_serving}
    with serve_health(arguments, live=live, ready=ready, metrics=_metrics()):
        return supervisor.run()


def _metrics() -> Metrics | None:
    """Return what collects the Prometheus metrics of all processes, where the environment has a directory for them."""
    if MULTIPROCESS_VARIABLE not in os.environ:
        return None
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector
    except ModuleNotFoundError as error:
        raise WrongUse(f"{MULTIPROCESS_VARIABLE} needs prometheus-client: pip install 'kjms[prometheus]'") from error
    registry = CollectorRegistry()
    try:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise WrongUse(f"{MULTIPROCESS_VARIABLE}: {error}") from error
    return lambda: (CONTENT_TYPE_LATEST, generate_latest(registry))


def _run_process(arguments: argparse.Namespace) -> int:
    """Run the application in this process, which a supervisor has started."""
    from kjms.worker._control import inherited_control, take_over_signals

    control = inherited_control(arguments.control)
    take_over_signals()
    from kjms.worker._child import serve

    application = _application(arguments.application)
    made = None if application.factory is not None else factory(arguments)
    if made is None and (arguments.bootstrap or arguments.config):
        raise WrongUse(
            f"{arguments.application} has a connection factory of its own: leave out --bootstrap and --config"
        )
    return serve(application, made, credentials(arguments), arguments.grace, control)


def _application(name: str) -> Any:
    from kjms.errors import InvalidDestinationException, InvalidSelectorException
    from kjms.worker._loading import UnknownApplication, load

    try:
        return load(name)
    except (UnknownApplication, TypeError, ValueError, InvalidDestinationException, InvalidSelectorException) as error:
        raise WrongUse(str(error)) from error
    except ModuleNotFoundError as error:
        raise WrongUse(str(error)) from error
