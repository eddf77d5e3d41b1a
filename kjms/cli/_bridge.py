"""``kjms bridge``: move messages between kjms and another broker, over AMQP 1.0."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from kjms.cli import SIGNALLED, WrongUse, end
from kjms.cli._connecting import add_connection_options, credentials, destination, factory, seconds
from kjms.cli._operating import add_operating_options, serve_health

if TYPE_CHECKING:
    from kjms.bridge import Bridge

PASSWORD_VARIABLE: Final = "KJMS_BRIDGE_PASSWORD"  # noqa: S105 - the variable's name
DESCRIPTION: Final = """\
Move messages between kjms and another AMQP 1.0 broker, such as ActiveMQ Artemis, ActiveMQ Classic, Qpid or RabbitMQ 4:
'in' moves them from the broker to kjms, 'out' from kjms to the broker. A queue is moved. A topic is copied through a
durable subscription. The bridge runs until Ctrl-C or SIGTERM, unless --count or --idle sets an end.

The password of the broker's user is in the environment variable KJMS_BRIDGE_PASSWORD.
"""
EXAMPLES: Final = """\
examples:
  kjms bridge in amqp://old:5672 orders --idle 5
  kjms bridge in amqps://mover@old:5671 topic://prices --selector "market = 'XETRA'"
  kjms bridge out amqp://old:5672 orders queue://orders.new --rate 200

docs/bridge.md describes how to move programs from another broker, step by step.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("direction", choices=("in", "out"), help="move from the broker into kjms, or out of kjms")
    parser.add_argument(
        "url", metavar="URL", help="connect to this broker: amqp://[USER@]HOST:PORT, or amqps:// for TLS"
    )
    parser.add_argument(
        "source", metavar="SOURCE", type=destination, help="take messages from this queue, or topic (topic://NAME)"
    )
    parser.add_argument(
        "target", metavar="TARGET", nargs="?", type=destination, help="send them here (default: the name of the source)"
    )
    group = parser.add_argument_group("messages")
    group.add_argument("--selector", metavar="TEXT", help="move only messages that match this selector")
    group.add_argument("--count", metavar="NUMBER", type=_number, help="end after this many messages")
    group.add_argument(
        "--idle", metavar="SECONDS", type=seconds, help="end when no message arrives for this many seconds"
    )
    group.add_argument("--rate", metavar="NUMBER", type=_rate, help="move at most this many messages per second")
    group.add_argument(
        "--window",
        metavar="NUMBER",
        type=_number,
        default=2_000,
        help="have at most this many messages in transfer (default: 2000)",
    )
    group.add_argument(
        "--name",
        metavar="NAME",
        help="give the bridge this name (default: HOST:PORT/NAME of broker and kjms destination)",
    )
    group.add_argument(
        "--keep-repeats",
        action="store_true",
        help="keep messages whose id has been seen; for senders that give several messages the same id",
    )
    group.add_argument(
        "--unsubscribe", action="store_true", help="delete the bridge's subscription of the topic, and exit"
    )
    group = parser.add_argument_group("broker")
    group.add_argument(
        "--queue-prefix", metavar="TEXT", default="", help="add this prefix to queue names at the broker"
    )
    group.add_argument(
        "--topic-prefix", metavar="TEXT", default="", help="add this prefix to topic names at the broker"
    )
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        type=Path,
        help="check the broker's certificate against these authorities (default: the system's)",
    )
    group.add_argument(
        "--tls-certificate",
        metavar="FILE",
        type=Path,
        help="present this certificate; without a user, authenticate with it",
    )
    group.add_argument(
        "--tls-key", metavar="FILE", type=Path, help="read the key from this file (default: the certificate's file)"
    )
    group = parser.add_argument_group("reports")
    group.add_argument(
        "--progress",
        metavar="SECONDS",
        type=seconds,
        default=10.0,
        help="report progress on stderr at this interval, in seconds (default: 10)",
    )
    group.add_argument("--json", action="store_true", help="write the result as a JSON object at the end")
    add_operating_options(parser)
    add_connection_options(parser)


def _number(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number greater than 0")
    return int(text)


def _rate(text: str) -> float:
    try:
        return seconds(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number greater than 0") from None


def run(arguments: argparse.Namespace) -> int:
    """Do what *arguments* say.

    Raises:
        WrongUse: The arguments are invalid, or the extra is not installed.
        OSError: A file cannot be read.
        JMSException: The broker or Kafka does not answer, or refuses.
    """
    try:
        from kjms.bridge import BridgeIn, BridgeOptions, BridgeOut, PeerOptions
    except ModuleNotFoundError as error:
        raise WrongUse(str(error)) from error
    try:
        peer = PeerOptions(
            arguments.url,
            password=os.environ.get(PASSWORD_VARIABLE),
            tls_ca=arguments.tls_ca,
            tls_certificate=arguments.tls_certificate,
            tls_key=arguments.tls_key,
            queue_prefix=arguments.queue_prefix,
            topic_prefix=arguments.topic_prefix,
            **({"connect_timeout": round(arguments.timeout * 1000)} if arguments.timeout else {}),
        )
        options = BridgeOptions(
            name=arguments.name,
            selector=arguments.selector,
            rate=arguments.rate,
            count=arguments.count,
            idle=None if arguments.idle is None else round(arguments.idle * 1000),
            window=arguments.window,
            keep_repeats=arguments.keep_repeats,
        )
    except ValueError as error:
        raise WrongUse(str(error)) from error
    user, password = credentials(arguments)
    kind = BridgeIn if arguments.direction == "in" else BridgeOut
    bridge = kind(factory(arguments), peer, arguments.source, arguments.target, options, user=user, password=password)
    if arguments.unsubscribe:
        bridge.end_subscription()
        return 0
    with serve_health(arguments, live=bridge.health.live, ready=bridge.health.ready, metrics=bridge.metrics):
        return _run(bridge, arguments)


def _run(bridge: Bridge, arguments: argparse.Namespace) -> int:
    stop = Stop(bridge)
    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    is_over = threading.Event()
    teller = threading.Thread(target=_tell, args=(bridge, arguments.progress, is_over), daemon=True)
    teller.start()
    try:
        done = bridge.run()
    finally:
        is_over.set()
        teller.join()
        for number, handler in before.items():
            signal.signal(number, handler)
    if stop.number and not bridge.has_begun:
        return SIGNALLED + stop.number
    if arguments.json:
        print(json.dumps({"bridge": bridge.name, **done._asdict()}))
    else:
        print(_said(bridge))
    return 1 if done.left else 0


class Stop:
    """End the bridge in order on Ctrl-C and SIGTERM; before the bridge has started, end it at once."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self.number = 0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        self._bridge.stop()
        if self._bridge.is_preparing:
            end(number)


def _tell(bridge: Bridge, every: float, is_over: threading.Event) -> None:
    log = logging.getLogger("kjms.bridge")
    before = bridge.progress.moved
    while not is_over.wait(every):
        now = bridge.progress.moved
        log.info("%s, %.0f/s", _said(bridge), (now - before) / every)
        before = now


def _said(bridge: Bridge) -> str:
    moved, repeats, left = bridge.progress
    return f"{moved} moved, {repeats} repeats dropped, {left} could not be moved"
