"""Define the options for connecting that the commands share, and open the connection."""

from __future__ import annotations

import argparse
import inspect
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.cli._terminal import say
from kjms.client.engine_access import engine_of
from kjms.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, parse_destination
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping.names import topic_for

if TYPE_CHECKING:
    from kjms import Connection, ConnectionFactory

__all__ = [
    "add_connection_options",
    "check_exists",
    "connect",
    "credentials",
    "destination",
    "factory",
    "queue",
    "seconds",
]

DEFAULT_BOOTSTRAP: Final = "localhost:9092"
DEFAULT_CONFIG: Final = Path("kjms.toml")
DEFAULT_TIMEOUT: Final = 10.0  # seconds
PASSWORD_VARIABLE: Final = "KJMS_PASSWORD"  # noqa: S105 - the variable's name


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the options of every command that connects to a cluster."""
    group = parser.add_argument_group("connecting")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="connect to the Kafka brokers at these addresses, separated by commas (default: KJMS_BOOTSTRAP, then the"
        f" configuration file, then {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help=f"read this configuration file (default: {DEFAULT_CONFIG} if it exists)",
    )
    group.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        help="wait at most this many seconds to connect, and to send a message (default: send_timeout of the"
        f" configuration file, then {DEFAULT_TIMEOUT:g})",
    )
    group.add_argument(
        "--user", metavar="NAME", help=f"authenticate as this user (SASL), with the password in {PASSWORD_VARIABLE}"
    )


def seconds(text: str) -> float:
    """Return the duration in seconds that *text* states; a type for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.001 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds greater than 0 (the least is 0.001)")
    return value


def destination(text: str) -> Destination:
    """Return the destination that *text* names; a type for argparse. ``orders`` is the queue of that name."""
    try:
        return parse_destination(text) if "://" in text else Queue(text)
    except InvalidDestinationException as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def queue(text: str) -> Queue:
    """Return the queue that *text* names, with or without ``queue://``; a type for argparse."""
    named = destination(text)
    if not isinstance(named, Queue):
        raise argparse.ArgumentTypeError(f"{text!r} is not a queue: write NAME or queue://NAME")
    return named


def connect(arguments: argparse.Namespace, *, may_create: bool = True) -> Connection:
    """Return a connection as *arguments* say; report errors that belong to no call on stderr.

    Args:
        arguments: Those of `add_connection_options`.
        may_create: Whether missing destinations are created, unless the configuration file forbids it.

    Raises:
        WrongUse: There is a user but no password.
        OSError: The configuration file that was named cannot be read.
        ValueError: The configuration file has an error.
        JMSException: No broker answered in time, or the credentials were refused.
    """
    connection = factory(arguments, may_create=may_create).create_connection(*credentials(arguments))

    def report(failure: JMSException) -> None:
        say(arguments.command, str(failure))

    connection.exception_listener = report
    return connection


def check_exists(connection: Connection, wanted: Destination, advice: str = "") -> None:
    """Check that a destination exists, for commands that create none.

    Args:
        connection: The connection.
        wanted: The queue or topic.
        advice: What the user can do; the end of the error.

    Raises:
        InvalidDestinationException: Its Kafka topic does not exist.
        JMSException: The broker does not answer.
    """
    if isinstance(wanted, TemporaryQueue | TemporaryTopic):
        return  # the session reports the error
    options = connection._options
    topic = topic_for(wanted, options.queue_prefix, options.topic_prefix)
    if not engine_of(connection).admin.partitions(topic):
        raise InvalidDestinationException(f"there is no Kafka topic {topic!r} at {options.bootstrap_servers}{advice}")


def credentials(arguments: argparse.Namespace) -> tuple[str | None, str | None]:
    """Return the user and the password of *arguments*; None and None without a user.

    Raises:
        WrongUse: There is a user but no password.
    """
    if not arguments.user:
        return None, None
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is None:
        raise WrongUse(f"--user {arguments.user}: set the environment variable {PASSWORD_VARIABLE} to the password")
    return arguments.user, password


def factory(arguments: argparse.Namespace, *, may_create: bool = True) -> ConnectionFactory:
    """Return the factory of the connections that `connect` opens.

    Raises:
        OSError: The configuration file that was named cannot be read.
        ValueError: The configuration file has an error.
    """
    from kjms import ConnectionFactory

    settings = _settings(arguments)
    if not may_create:
        settings["create_destinations"] = False
    return ConnectionFactory(**settings)


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    from kjms import ConnectionFactory
    from kjms.client.config import factory_settings

    settings: dict[str, Any] = {}
    if arguments.config is not None or DEFAULT_CONFIG.exists():
        settings = factory_settings(arguments.config or DEFAULT_CONFIG, inspect.signature(ConnectionFactory).parameters)
        settings.pop("client_id", None)  # it belongs to the program, which may be running
    bootstrap = arguments.bootstrap or os.environ.get("KJMS_BOOTSTRAP")
    if bootstrap:
        settings["bootstrap_servers"] = bootstrap
    settings.setdefault("bootstrap_servers", DEFAULT_BOOTSTRAP)
    if arguments.timeout is not None:
        settings["send_timeout"] = round(arguments.timeout * 1000)
    return settings
