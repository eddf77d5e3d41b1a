"""``kjms gateway``: serve AMQP 1.0 clients, such as Java programs with Qpid JMS."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, credentials, factory
from kjms.cli._operating import add_operating_options, serve_health
from kjms.cli._people import add_people_options, store_user
from kjms.health import cluster, event_loop

if TYPE_CHECKING:
    from kjms.gateway import Gateway
    from kjms.health import Check

_log = logging.getLogger("kjms.gateway")

DESCRIPTION: Final = """\
Serve AMQP 1.0 clients until Ctrl-C or SIGTERM. A Java program with Apache Qpid JMS and the URL amqp://localhost:5672
uses the same queues and topics as Python programs and plain Kafka programs.

At least one of these options is needed to admit clients: --anonymous, --users, --tls-clients, --pass-credentials.
"""
EXAMPLES: Final = """\
examples:
  kjms gateway --anonymous
  kjms gateway --add-user billing --users users.txt
  kjms gateway --users users.txt --listen 0.0.0.0:5671 --tls-certificate gateway.pem
"""
DEFAULT_LISTEN: Final = "localhost:5672"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=_address,
        default=_address(DEFAULT_LISTEN),
        help=f"listen at this address; port 0 takes a free port (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument("--anonymous", action="store_true", help="admit clients without a name")
    add_people_options(parser)
    parser.add_argument(
        "--allow-cleartext-passwords", action="store_true", help="accept passwords from other machines without TLS"
    )
    parser.add_argument(
        "--tls-certificate",
        metavar="FILE",
        type=Path,
        help="accept TLS connections only, with this certificate and its chain",
    )
    parser.add_argument(
        "--tls-key", metavar="FILE", type=Path, help="read the key from this file (default: the certificate's file)"
    )
    parser.add_argument(
        "--tls-clients",
        metavar="FILE",
        type=Path,
        help="admit clients whose certificate one of these certificates issued; the user is its common name",
    )
    parser.add_argument(
        "--metrics", metavar="PORT", type=int, help="serve Prometheus metrics at this port of the same host"
    )
    parser.add_argument(
        "--max-connections",
        metavar="NUMBER",
        type=int,
        default=2000,
        help="serve at most this many clients that have logged in (default: 2000)",
    )
    parser.add_argument(
        "--max-logins",
        metavar="NUMBER",
        type=int,
        default=500,
        help="serve at most this many clients that have not logged in yet (default: 500)",
    )
    parser.add_argument(
        "--max-message-size",
        metavar="BYTES",
        type=int,
        default=16 << 20,
        help="accept messages of at most this size (default: 16777216)",
    )
    parser.add_argument(
        "--max-transaction-size",
        metavar="BYTES",
        type=int,
        default=64 << 20,
        help="hold at most this size of messages sent in one transaction (default: 67108864)",
    )
    parser.add_argument(
        "--max-links",
        metavar="NUMBER",
        type=int,
        default=1000,
        help="accept at most this many links per connection (default: 1000)",
    )
    parser.add_argument(
        "--unlimited-releases",
        action="store_true",
        help="deliver a message that a client releases again and again without end"
        " (default: it becomes a dead letter as the redelivery policy says)",
    )
    add_operating_options(parser)
    add_connection_options(parser)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: No option admits clients, or the extra is not installed.
        OSError: The port is in use, or a file cannot be read.
        JMSException: The broker does not answer.
    """
    try:
        from kjms.gateway import Gateway, GatewayOptions
    except ModuleNotFoundError as error:
        raise WrongUse(str(error)) from error
    if arguments.add_user:
        return store_user(arguments, None, "password changed")
    host, port = arguments.listen
    try:
        options = GatewayOptions(
            host=host,
            port=port,
            anonymous=arguments.anonymous,
            users=arguments.users,
            pass_credentials=arguments.pass_credentials,
            allow_cleartext_passwords=arguments.allow_cleartext_passwords,
            tls_certificate=arguments.tls_certificate,
            tls_key=arguments.tls_key,
            tls_clients=arguments.tls_clients,
            metrics_port=arguments.metrics,
            max_message_size=arguments.max_message_size,
            max_transaction_size=arguments.max_transaction_size,
            limits_releases=not arguments.unlimited_releases,
            max_links=arguments.max_links,
            max_connections=arguments.max_connections,
            max_logins=arguments.max_logins,
        )
    except ValueError as error:
        raise WrongUse(str(error)) from error
    made = factory(arguments)
    own = credentials(arguments)
    with contextlib.ExitStack() as kept:
        ready: dict[str, Check] = {}
        if (
            options.anonymous or options.users or options.tls_clients
        ):  # otherwise the gateway has no connection of its own
            connection = kept.enter_context(
                made.create_connection(*own)
            )  # keeps the engine, and reports errors at once
            ready["kafka"] = cluster(connection)
        asyncio.run(_serve(Gateway(made, options, *own), arguments, ready))
    return 0


async def _serve(gateway: Gateway, arguments: argparse.Namespace, ready: Mapping[str, Check]) -> None:
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, is_over.set)
    with serve_health(
        arguments,
        live={"event loop": event_loop(loop)},
        ready={**ready, "listener": gateway.check_listening},
        metrics=gateway.metrics.exposition,
    ):
        await gateway.start()
        if gateway.options.metrics_port is not None:
            _log.info("metrics at %s:%d", gateway.options.host, gateway.metrics_port)
        _log.info("listening at %s:%d", gateway.options.host, gateway.port)
        await is_over.wait()
        await gateway.stop()
