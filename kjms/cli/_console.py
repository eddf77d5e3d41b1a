"""``kjms console``: serve the web console and its JSON API."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, credentials, factory, seconds
from kjms.cli._operating import add_operating_options, address, serve_health
from kjms.cli._people import add_people_options, store_user
from kjms.health import event_loop
from kjms.users import ROLES

if TYPE_CHECKING:
    from kjms.console import Console

_log = logging.getLogger("kjms.console")

DESCRIPTION: Final = """\
Serve a web page that shows and steers queues, subscriptions and messages, and the same as JSON under /api, until Ctrl-C
or SIGTERM. Without --users, --pass-credentials and --anonymous, the command prints a link with a secret; the person who
opens it may do everything.
"""
EXAMPLES: Final = """\
examples:
  kjms console
  kjms console --add-user ann --with-role operate --users users.txt
  kjms console --users users.txt --listen 0.0.0.0:8161 --tls-certificate console.pem --audit audit.jsonl
"""
DEFAULT_LISTEN: Final = "127.0.0.1:8161"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        type=address,
        default=address(DEFAULT_LISTEN),
        help=f"listen at this address; port 0 takes a free port (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="answer also under this name, which browsers use, such as that of a proxy; repeatable",
    )
    parser.add_argument(
        "--proxy",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="believe the proxy at this address or in this network where requests come from (X-Forwarded-For,"
        " X-Forwarded-Proto); repeatable",
    )
    people = parser.add_argument_group("people")
    add_people_options(people)
    people.add_argument("--anonymous", action="store_true", help="admit everyone without a login")
    people.add_argument(
        "--role",
        choices=ROLES,
        help="what users may do to whom the users file gives no role (default: view; with --pass-credentials, and by"
        " the link: administer)",
    )
    people.add_argument(
        "--with-role", choices=ROLES, help="give this role to the user of --add-user (default: as it was, or none)"
    )
    people.add_argument(
        "--audit",
        metavar="FILE",
        type=Path,
        help="append each change to this file, as a line of JSON; the log has it, too",
    )
    people.add_argument(
        "--allow-cleartext-passwords",
        action="store_true",
        help="accept passwords from other machines without TLS, as behind a proxy that ends TLS",
    )
    people.add_argument(
        "--tls-certificate",
        metavar="FILE",
        type=Path,
        help="serve HTTPS only, with this certificate and its chain",
    )
    people.add_argument(
        "--tls-key", metavar="FILE", type=Path, help="read the key from this file (default: the certificate's file)"
    )
    parser.add_argument(
        "--grafana",
        metavar="URL",
        help="link to the dashboard of kjms at this URL, such as http://grafana/d/kjms-cluster",
    )
    parser.add_argument(
        "--interval",
        metavar="SECONDS",
        type=seconds,
        default=5.0,
        help="count the messages of the cluster this many seconds after the last count (default: 5)",
    )
    parser.add_argument(
        "--estimate",
        action="store_true",
        help="read no messages for the figures: show upper bounds, and no depth and age",
    )
    parser.add_argument(
        "--max-request-size",
        metavar="BYTES",
        type=int,
        default=4 << 20,
        help="accept requests of at most this size, and so messages to send (default: 4194304)",
    )
    add_operating_options(parser)
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: The options exclude each other, or the extra is not installed.
        OSError: The port is in use, or a file cannot be read.
        ValueError: The configuration file has an error.
    """
    if arguments.add_user:
        return store_user(arguments, arguments.with_role, "changed")
    try:
        from kjms.console import Console, ConsoleOptions
    except ModuleNotFoundError as error:
        raise WrongUse(str(error)) from error
    host, port = arguments.listen
    names = ("users", "pass_credentials", "anonymous", "role", "audit", "allow_cleartext_passwords", "tls_certificate",
             "tls_key", "grafana", "estimate", "max_request_size")  # fmt: skip
    chosen: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    try:
        options = ConsoleOptions(
            host=host,
            port=port,
            hosts=tuple(arguments.host),
            proxies=tuple(arguments.proxy),
            interval=round(arguments.interval * 1000),
            **chosen,
        )
    except ValueError as error:
        raise WrongUse(str(error)) from error
    own = (None, None) if options.pass_credentials else credentials(arguments)
    made = factory(arguments, may_create=False)
    asyncio.run(_serve(lambda: Console(made, options, user=own[0], password=own[1]), arguments))
    return 0


async def _serve(made: Any, arguments: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    console: Console = made()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, console.stop)
    listening = console.listen()
    with serve_health(arguments, live={"event loop": event_loop(loop)}, ready={"kafka": console.check}):
        _log.info("the console is at %s", console.url)
        if console.link != console.url:
            print(f"Open {console.link}", flush=True)  # not in the log, which others may read
        await console.serve(listening)
