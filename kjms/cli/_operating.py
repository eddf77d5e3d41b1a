"""The options of commands that run for long: where probes ask for their health, and how they log."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from kjms.cli import WrongUse
from kjms.cli._logs import add_log_options

if TYPE_CHECKING:
    from kjms.health import Check, HealthServer, Metrics

__all__ = ["add_operating_options", "address", "health_address", "serve_health"]

HEALTH_VARIABLE: Final = "KJMS_HEALTH"

_log = logging.getLogger("kjms.health")


def add_operating_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* ``--health``, ``--log-format`` and ``--log-level``; `kjms.cli.main` sets up the log."""
    group = parser.add_argument_group("health")
    group.add_argument(
        "--health",
        metavar="HOST:PORT",
        type=address,
        help="serve /livez, /readyz and metrics over HTTP at this address; PORT alone: at 127.0.0.1"
        f" (default: {HEALTH_VARIABLE}, otherwise no such server)",
    )
    add_log_options(parser)


def address(text: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, or of ``PORT`` at 127.0.0.1; a type for argparse."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535 or (":" in text and not host) or "/" in host:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form HOST:PORT or PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def health_address(given: tuple[str, int] | None) -> tuple[str, int] | None:
    """Return the address that was *given*, else the environment's; None: neither.

    Raises:
        WrongUse: The environment variable holds no address.
    """
    text = os.environ.get(HEALTH_VARIABLE)
    if given is not None or not text:
        return given
    try:
        return address(text)
    except argparse.ArgumentTypeError as error:
        raise WrongUse(f"{HEALTH_VARIABLE}: {error}") from error


@contextlib.contextmanager
def serve_health(
    arguments: argparse.Namespace,
    *,
    live: Mapping[str, Check] | None = None,
    ready: Mapping[str, Check] | None = None,
    metrics: Metrics | None = None,
) -> Iterator[HealthServer | None]:
    """Serve the health of the command while the block runs, if ``--health`` or the environment asks for it.

    Args:
        arguments: Those of `add_operating_options`.
        live: The checks of liveness, by name.
        ready: The checks of readiness, by name.
        metrics: Returns what ``/metrics`` serves.

    Raises:
        WrongUse: The environment variable holds no address.
        OSError: The port is in use, or the address is not one of this machine.
    """
    found = health_address(arguments.health)
    if found is None:
        yield None
        return
    from kjms.health import HealthServer

    with HealthServer(*found, live=live, ready=ready, metrics=metrics) as server:
        _log.info("health at %s", server.address)
        yield server
