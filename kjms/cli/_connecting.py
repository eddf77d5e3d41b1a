"""What the commands share: the options that say which cluster, who and how long, and the connection they lead to."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.destinations import Destination, Queue, parse_destination
from kjms.errors import InvalidDestinationException, JMSException

if TYPE_CHECKING:
    from kjms import Connection, ConnectionFactory

__all__ = ["add_connection_options", "connect", "destination", "factory_of", "queue", "seconds"]

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_CONFIG: Final = Path("kjms.toml")
DEFAULT_TIMEOUT: Final = 10.0  # seconds
PASSWORD_VARIABLE: Final = "KJMS_PASSWORD"  # noqa: S105 - the variable's name


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options that every command has which talks to a cluster."""
    group = parser.add_argument_group("connecting")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Kafka's addresses (else the environment's KJMS_BOOTSTRAP, else what the configuration file says, else"
        f" {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument(
        "--config", metavar="FILE", type=Path, help=f"a configuration file (else {DEFAULT_CONFIG} where there is one)"
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        help=f"how long connecting, and sending a message, may take (else the file's send_timeout, else"
        f" {DEFAULT_TIMEOUT:g})",
    )
    group.add_argument(
        "--user", metavar="NAME", help=f"the name for SASL; its password is in the environment's {PASSWORD_VARIABLE}"
    )


def seconds(text: str) -> float:
    """Return the duration that *text* gives in seconds, as argparse wants it."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds greater than 0")
    return value


def destination(text: str) -> Destination:
    """Return the destination that *text* names, as argparse wants it: ``orders`` is the queue of that name."""
    try:
        return parse_destination(text) if "://" in text else Queue(text)
    except InvalidDestinationException as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def queue(text: str) -> Queue:
    """Return the queue that *text* names, with or without ``queue://``, as argparse wants it."""
    named = destination(text)
    if not isinstance(named, Queue):
        raise argparse.ArgumentTypeError(f"{text!r} is no queue")
    return named


def connect(arguments: argparse.Namespace, *, may_create: bool = True) -> Connection:
    """Return a connection as *arguments* say; trouble that belongs to no call goes to stderr.

    Args:
        arguments: Those of `add_connection_options`.
        may_create: Whether destinations that are missing are made, unless the configuration file says no.

    Raises:
        WrongUse: There is a user and no password.
        OSError: The configuration file that was named cannot be read.
        ValueError: Something in it is wrong.
        JMSException: No broker answered in time, or the credentials were refused.
    """
    factory = factory_of(arguments, may_create=may_create)
    password = os.environ.get(PASSWORD_VARIABLE) if arguments.user else None
    connection = factory.create_connection(arguments.user, password)

    def report(failure: JMSException) -> None:
        print(f"kjms {arguments.command}: {failure}", file=sys.stderr)

    connection.exception_listener = report
    return connection


def factory_of(arguments: argparse.Namespace, *, may_create: bool = True) -> ConnectionFactory:
    """Return the factory that *arguments* describe; arguments and errors are those of `connect`."""
    from kjms import ConnectionFactory

    if arguments.user and PASSWORD_VARIABLE not in os.environ:
        raise WrongUse(f"--user {arguments.user}: the environment variable {PASSWORD_VARIABLE} must hold the password")
    settings = _settings(arguments)
    if not may_create:
        settings["create_destinations"] = False
    return ConnectionFactory(**settings)


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    from kjms._config import factory_settings

    settings: dict[str, Any] = {}
    if arguments.config is not None or DEFAULT_CONFIG.exists():
        settings = factory_settings(arguments.config or DEFAULT_CONFIG)
        settings.pop("client_id", None)  # it is the program's, which may be running
    bootstrap = arguments.bootstrap or os.environ.get("KJMS_BOOTSTRAP")
    if bootstrap:
        settings["bootstrap_servers"] = bootstrap
    settings.setdefault("bootstrap_servers", DEFAULT_BOOTSTRAP)
    if arguments.timeout is not None:
        settings["send_timeout"] = round(arguments.timeout * 1000)
    return settings
