"""``kjms demo``: run a small shop; each scene checks its claims."""

from __future__ import annotations

import argparse
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from kjms.cli._shop import SCENES, Shop
from kjms.cli._shop_in_spark import look_with_spark
from kjms.cli._stage import Stage

DESCRIPTION: Final = """\
Run a small shop on a real Kafka: orders in a queue, workers that share it, replies, a topic with subscribers,
selectors, and plain Kafka programs on both sides. Each scene checks its claims.

The demo uses the Kafka at KJMS_BOOTSTRAP or --bootstrap, and deletes its destinations there at the end. Without either,
it starts a Kafka. At the end, Spark shows the shop as a table, if it is installed.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help="use the running Kafka at this address (default: KJMS_BOOTSTRAP, then start one)",
    )
    parser.add_argument("--no-spark", action="store_true", help="omit Spark, which takes some seconds to start")


def run(arguments: argparse.Namespace) -> int:
    """Run all scenes; return 0 if all their claims hold, else 1.

    Raises:
        JMSException: There is no Kafka, or it failed during the demo.
    """
    from kjms.broker import find_broker

    if arguments.bootstrap:
        os.environ["KJMS_BOOTSTRAP"] = arguments.bootstrap
    stage = Stage()
    if not os.environ.get("KJMS_BOOTSTRAP"):
        stage.say("Starting a Kafka for the demo ...")
    with find_broker() as broker:
        begun = time.monotonic()
        stage.say(f"A small shop, on {KINDS[broker.kind]} at {broker.bootstrap_servers}.")
        with open_shop(broker.bootstrap_servers, is_shared=broker.kind == "external") as shop:
            for scene in SCENES:
                scene(shop, stage)
            seconds = time.monotonic() - begun
            if not arguments.no_spark:
                look_with_spark(shop, stage)
    all_holds = stage.result(
        f"The shop handled {shop.handled} orders, each once, in {seconds:.1f} s; {stage.claims} claims checked."
    )
    return 0 if all_holds else 1


KINDS: Final = {
    "embedded": "a new Kafka",
    "container": "a new Kafka in a container",
    "external": "the running Kafka",
}


@contextmanager
def open_shop(bootstrap_servers: str, *, is_shared: bool) -> Iterator[Shop]:
    """Yield a shop; on a shared cluster, use unique names and delete them at the end."""
    if not is_shared:
        yield Shop(bootstrap_servers)
        return
    shop = Shop(bootstrap_servers, suffix=f"-{uuid.uuid4().hex[:6]}")
    try:
        yield shop
    finally:
        shop.remove()
