"""``kjms spark``: work with messages that Spark does: keeping them in files, and sending them from there."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, credentials, destination, factory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DESCRIPTION: Final = """\
Work with messages that Spark does. It needs pyspark and a Java: pip install 'kjms[spark]'. Spark runs here, on all
processors (--master chooses another place); under spark-submit, where spark-submit says:

    spark-submit --packages ... $(which kjms) spark archive orders --path /data/orders --checkpoint /data/orders.at

archive   keeps the messages of destinations in Parquet files, each once; ended in whatever way, and started again with
          the same checkpoint, it goes on where it was
replay    sends the messages of an archive to a destination, as they were
"""


def add_parser(subparsers: Any) -> None:
    """Add the command to those that argparse knows."""
    parser = subparsers.add_parser(
        "spark",
        help="work with messages that Spark does",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("pipeline", choices=["archive", "replay"], help="what is to be done")
    parser.add_argument(
        "destinations", nargs="+", metavar="DESTINATION", type=destination, help="queues, or topic://NAME; replay: one"
    )
    parser.add_argument("--path", metavar="DIRECTORY", required=True, help="where the archive's files are")
    parser.add_argument("--checkpoint", metavar="DIRECTORY", help="archive: where it is written down how far it is")
    parser.add_argument("--selector", metavar="TEXT", help="which messages; all without it")
    parser.add_argument("--once", action="store_true", help="archive: end when all is kept that is there now")
    parser.add_argument("--rate", metavar="NUMBER", type=int, help="replay: the most messages per second, in order")
    parser.add_argument("--master", metavar="URL", help="where Spark runs (local[*])")
    add_connection_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline that was named; an archive without --once runs until it is stopped.

    Raises:
        WrongUse: Arguments are missing, or belong to another pipeline.
        JMSException: There is no pyspark, no cluster, or no archive.
    """
    is_archive = arguments.pipeline == "archive"
    if is_archive and (arguments.checkpoint is None or arguments.rate is not None):
        raise WrongUse("archive: needs --checkpoint, and takes no --rate")
    if not is_archive and (len(arguments.destinations) > 1 or arguments.once or arguments.checkpoint):
        raise WrongUse("replay: takes one destination, and neither --once nor --checkpoint")
    from kjms.spark import pipelines

    chosen = factory(arguments)
    user, password = credentials(arguments)
    spark = _session(arguments)
    if is_archive:
        query = pipelines.archive(
            spark,
            chosen,
            arguments.destinations,
            arguments.path,
            checkpoint=arguments.checkpoint,
            selector=arguments.selector,
            trigger={"availableNow": True} if arguments.once else None,
            user=user,
            password=password,
        )
        print(f"kjms spark: archive runs as query {query.id}", file=sys.stderr)
        query.awaitTermination()
        return 0
    count = pipelines.replay(
        spark,
        chosen,
        arguments.path,
        arguments.destinations[0],
        selector=arguments.selector,
        rate=arguments.rate,
        user=user,
        password=password,
    )
    print(f"kjms spark: {count} messages sent to {arguments.destinations[0]}", file=sys.stderr)
    return 0


def _session(arguments: argparse.Namespace) -> SparkSession:
    from kjms.spark import spark_session

    settings = {"spark.ui.enabled": False} if arguments.master is None else {"master": arguments.master}
    session = spark_session(f"kjms spark {arguments.pipeline}", **settings)
    session.sparkContext.setLogLevel("ERROR")
    return session
