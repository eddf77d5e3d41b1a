"""``kjms gateway``: an AMQP 1.0 server, so that Java programs with Qpid JMS meet the same queues and topics."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import PASSWORD_VARIABLE, add_connection_options, credentials, factory

DESCRIPTION: Final = """\
Serve AMQP 1.0 clients until Ctrl-C or SIGTERM. A Java program with Apache Qpid JMS and the URL amqp://localhost:5672
meets the queues and topics of kjms, beside Python and Kafka programs.

Who may come in has to be said: --anonymous, --users FILE, --tls-clients FILE, or --pass-credentials.
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
        help=f"where to listen (else {DEFAULT_LISTEN}; port 0 takes a free one)",
    )
    parser.add_argument("--anonymous", action="store_true", help="let clients in without a name")
    parser.add_argument("--users", metavar="FILE", type=Path, help="let those in that a file names; see --add-user")
    parser.add_argument(
        "--pass-credentials", action="store_true", help="let those in that Kafka lets in; its ACLs decide what they may"
    )
    parser.add_argument(
        "--add-user",
        metavar="NAME",
        help="write that user into the --users FILE, with a password that is asked for, and do no more; without a FILE"
        " print the line",
    )
    parser.add_argument(
        "--allow-cleartext-passwords",
        action="store_true",
        help="let passwords come over a network without TLS",
    )
    parser.add_argument(
        "--tls-certificate", metavar="FILE", type=Path, help="the gateway's certificate, with its chain: TLS alone then"
    )
    parser.add_argument("--tls-key", metavar="FILE", type=Path, help="its key, if that is in another file")
    parser.add_argument(
        "--tls-clients",
        metavar="FILE",
        type=Path,
        help="let those in whose certificate one of these vouches for, under its common name",
    )
    parser.add_argument("--metrics", metavar="PORT", type=int, help="answer Prometheus there, at the same host")
    parser.add_argument(
        "--max-connections", metavar="NUMBER", type=int, default=2000, help="of clients that have logged in (2000)"
    )
    parser.add_argument(
        "--max-logins",
        metavar="NUMBER",
        type=int,
        default=500,
        help="of clients that have connected and not logged in yet (500)",
    )
    parser.add_argument(
        "--max-message-size", metavar="BYTES", type=int, default=16 << 20, help="of one message (16777216)"
    )
    parser.add_argument(
        "--max-transaction-size", metavar="BYTES", type=int, default=64 << 20, help="of what is sent in one (67108864)"
    )
    parser.add_argument("--max-links", metavar="NUMBER", type=int, default=1000, help="of one connection (1000)")
    add_connection_options(parser)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form HOST:PORT")
    return host.strip("[]"), int(port)


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: No client could log in, or the extra is not installed.
        OSError: The port is in use, or a file cannot be read.
        JMSException: Kafka does not answer.
    """
    try:
        from kjms.gateway import Gateway, GatewayOptions, add_user, hashed
    except ModuleNotFoundError as error:
        if error.name != "proton":
            raise
        raise WrongUse("the gateway needs python-qpid-proton: pip install 'kjms[amqp]'") from error
    if arguments.add_user:
        password = os.environ.get(PASSWORD_VARIABLE) or getpass.getpass(f"Password of {arguments.add_user}: ")
        try:
            if arguments.users is None:
                print(hashed(arguments.add_user, password))
            else:
                was_there = add_user(arguments.users, arguments.add_user, password)
                print(f"{arguments.add_user}: {'password changed' if was_there else 'added'}", file=sys.stderr)
        except ValueError as error:
            raise WrongUse(str(error)) from error
        return 0
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
            max_links=arguments.max_links,
            max_connections=arguments.max_connections,
            max_logins=arguments.max_logins,
        )
    except ValueError as error:
        raise WrongUse(str(error)) from error
    made = factory(arguments)
    own = credentials(arguments)
    with contextlib.ExitStack() as kept:
        if options.anonymous or options.users or options.tls_clients:  # else it has nothing of its own to do with Kafka
            kept.enter_context(made.create_connection(*own))  # keeps the engine, and says at once what is wrong
        _log_to_stderr()
        asyncio.run(_serve(Gateway(made, options, *own)))
    return 0


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s kjms gateway: %(message)s"))
    logger = logging.getLogger("kjms.gateway")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)


async def _serve(gateway: Any) -> None:
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, is_over.set)
    await gateway.start()
    log = logging.getLogger("kjms.gateway")
    if gateway.options.metrics_port is not None:
        log.info("metrics at %s:%d", gateway.options.host, gateway.metrics_port)
    log.info("listening at %s:%d", gateway.options.host, gateway.port)
    await is_over.wait()
    await gateway.stop()
