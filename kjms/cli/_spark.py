"""``kjms spark``: archive, replay, drain, route, convert or report on messages with Spark; list or forget archives."""

from __future__ import annotations

import argparse
import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kjms.cli import WrongUse
from kjms.cli._connecting import add_connection_options, credentials, destination, factory
from kjms.cli._terminal import columns, say
from kjms.destinations import Queue
from kjms.errors import JMSException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kjms.destinations import Destination
    from kjms.spark.pipelines import Report

DESCRIPTION: Final = """\
Process messages with Spark. The command needs pyspark and Java: pip install 'kjms[spark]'. Spark runs in this process,
on all processors (--master sets another place). Under spark-submit, it runs as spark-submit says:

    spark-submit --packages ... $(python3 -m kjms.spark.submit) archive orders --path ... --checkpoint ...

archive   Store the messages of destinations in files or a table, each message once.
archives  List the archives that the cluster knows, or forget one; this needs neither pyspark nor Java.
replay    Send the messages of an archive to a destination, unchanged.
drain     Consume all pending messages of a queue into files or a table, each message once, and end.
route     Send messages to the destinations whose selectors match them.
convert   Send the messages that Confluent's JMS connectors wrote to topics to a destination, as kjms messages.
report    Report on destinations: rates, sizes, latencies, redeliveries and dead letters.

archive, route and convert run until they are stopped, or with --once until the present messages are processed. Started
again with the same checkpoint, they resume where they ended, whatever ended them. Only drain consumes messages.
"""
EXAMPLES: Final = """\
examples:
  kjms spark archive orders --path /data/orders --checkpoint /data/orders.at --once
  kjms spark archives
  kjms spark archives --forget orders
  kjms spark replay orders-again --path /data/orders --selector "region = 'EU'" --rate 1000
  kjms spark drain orders.dlq --path /data/dead --checkpoint /data/dead.at --format delta
  kjms spark route orders --to large "amount > 100" --to topic://eu "region = 'EU'" --otherwise rest
        --set "priority=9" --set "text=upper(text)" --checkpoint /data/route.at
  kjms spark convert topic://from-mq --to orders --checkpoint /data/convert.at --once
  kjms spark report orders replies --since 2h --html report.html
"""
USES: Final = {
    "archive": ({"path", "checkpoint"}, {"format", "name", "selector", "once", "option"}),
    "archives": (set(), {"forget", "json"}),
    "replay": ({"path"}, {"format", "selector", "rate", "option"}),
    "drain": ({"path", "checkpoint"}, {"format", "selector", "option"}),
    "route": ({"to", "checkpoint"}, {"otherwise", "set", "once", "option"}),
    "convert": ({"to", "checkpoint"}, {"schema", "once", "option"}),
    "report": (set(), {"since", "interval", "html", "json"}),
}
"""The options that each pipeline needs, and those that it takes."""

FORMATS: Final = ("parquet", "delta", "iceberg", "orc", "json", "avro")
_TABLES: Final = frozenset({"delta", "iceberg"})  # the formats that need a connector
_OPTIONS: Final = sorted({name for needs, takes in USES.values() for name in needs | takes})
_DURATION: Final = re.compile(r"(\d+)(s|m|min|h|d)")
_UNITS: Final = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_SEEN_SECONDS: Final = 1  # between checks for progress to report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give *parser* the arguments of the command."""
    parser.add_argument("pipeline", choices=[*USES], help="run this pipeline")
    parser.add_argument(
        "destinations",
        nargs="*",
        metavar="DESTINATION",
        type=destination,
        help="use these queues, or topics (topic://NAME); replay: send to this one; drain: consume this queue;"
        " archives: none",
    )
    parser.add_argument(
        "--path",
        metavar="DIRECTORY",
        help="archive, replay: use the archive in this directory; drain: write to this directory; with --format"
        " iceberg also the name of a table",
    )
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=FORMATS,
        help=f"archive, replay, drain: {', '.join(FORMATS)} (default: parquet); orc, json and avro are for drain",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="archive: register as this name (default: made of the checkpoint's path)"
    )
    parser.add_argument(
        "--forget",
        metavar="NAME",
        help="archives: keep settled messages no longer for this archive, whose query has been stopped; what it has"
        " stored remains",
    )
    parser.add_argument("--checkpoint", metavar="DIRECTORY", help="record the progress in this directory")
    parser.add_argument(
        "--selector", metavar="TEXT", help="archive, replay, drain: process only messages that match this selector"
    )
    parser.add_argument("--once", action="store_true", help="end when the present messages have been processed")
    parser.add_argument(
        "--rate", metavar="NUMBER", type=int, help="replay: send at most this many messages per second, in order"
    )
    parser.add_argument(
        "--to",
        metavar=("DESTINATION", "SELECTOR"),
        nargs="+",
        action="append",
        help="route: send messages that match the selector to this destination; without a selector, all; repeatable."
        " convert: send to this destination",
    )
    parser.add_argument(
        "--otherwise",
        metavar="DESTINATION",
        type=destination,
        help="route: send messages that match no selector to this destination",
    )
    parser.add_argument(
        "--set",
        metavar="COLUMN=SQL",
        action="append",
        help="route: set a column, or a property, to a Spark SQL expression over the columns; repeatable",
    )
    parser.add_argument(
        "--schema", metavar="FILE", type=Path, help="convert: read the Avro schema of the records from this file"
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_since,
        help="report: start at this date, or this long ago: 90m, 2h, 7d (default: 1d)",
    )
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=_interval,
        help="report: sum up this time in each figure: 30s, 5m, 1h (default: chosen by the length of the report)",
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="report: also write a page with plots to this file")
    parser.add_argument("--json", action="store_true", help="archives, report: write JSON")
    parser.add_argument(
        "--option",
        metavar="NAME=VALUE",
        action="append",
        help="set an option of Spark's Kafka source, such as maxOffsetsPerTrigger=100000; replay: of its sink;"
        " repeatable",
    )
    parser.add_argument("--master", metavar="URL", help="run Spark at this master (default: local[*])")
    add_connection_options(parser)


def _interval(text: str) -> timedelta:
    found = _DURATION.fullmatch(text)
    if found is None or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s, 5m, 2h or 7d")
    try:
        length = timedelta(**{_UNITS[found[2]]: int(found[1])})
        _ = datetime.now().astimezone() - length  # no calendar goes back farther
    except OverflowError:
        raise argparse.ArgumentTypeError(f"{text!r} is longer than any time that there is") from None
    return length


def _since(text: str) -> timedelta | datetime:
    try:
        return datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z")).astimezone()
    except ValueError:
        return _interval(text)


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline that was named; those with a checkpoint and without --once run until they are stopped.

    Raises:
        WrongUse: Arguments are missing, or belong to another pipeline.
        JMSException: There is no pyspark, no cluster, or no archive; or the query failed.
    """
    name = arguments.pipeline
    needs, takes = USES[name]
    given = {option for option in _OPTIONS if getattr(arguments, option) not in (None, False)}
    if not needs <= given:
        raise WrongUse(f"{name}: give {_listed(needs - given)}")
    if not given <= needs | takes:
        raise WrongUse(f"{name}: has no option {_listed(given - needs - takes)}")
    if bool(arguments.destinations) is (name == "archives"):
        raise WrongUse(f"{name}: give {'no' if arguments.destinations else 'a'} destination")
    if name == "archives":
        return _archives(arguments)
    if name in {"replay", "drain"} and len(arguments.destinations) > 1:
        raise WrongUse(f"{name}: give one destination")
    if name == "drain" and not isinstance(arguments.destinations[0], Queue):
        raise WrongUse(f"drain: give a queue, not {arguments.destinations[0]}")
    if name != "drain" and arguments.format in {"orc", "json", "avro"}:
        raise WrongUse(f"{name}: --format {arguments.format} is for drain; give parquet, delta or iceberg")
    routes, changes = _routes(arguments), _changes(arguments)
    chosen = factory(arguments)
    user, password = credentials(arguments)
    spark = _session(arguments)
    from kjms.spark import pipelines

    who: dict[str, Any] = {"user": user, "password": password}
    options = {name: value for name, _, value in (each.partition("=") for each in arguments.option or ())}
    streaming: dict[str, Any] = {"checkpoint": arguments.checkpoint, "options": options, **who}
    if arguments.once:
        streaming["trigger"] = {"availableNow": True}
    wanted, path = arguments.destinations, arguments.path
    stored: dict[str, Any] = {"format": arguments.format or "parquet", "selector": arguments.selector}
    if name == "archive":
        query = pipelines.archive(spark, chosen, wanted, path, name=arguments.name, **stored, **streaming)
        return _follow(name, query)
    if name == "drain":
        return _drain(
            lambda say_so: pipelines.drain(spark, chosen, wanted[0], path, progress=say_so, **stored, **streaming)
        )
    if name == "route":
        return _follow(
            name,
            pipelines.route(
                spark, chosen, wanted, routes, otherwise=arguments.otherwise, transform=changes, **streaming
            ),
        )
    if name == "convert":
        schema = arguments.schema and arguments.schema.read_text("utf-8")
        return _follow(name, pipelines.convert(spark, chosen, wanted, next(iter(routes)), schema=schema, **streaming))
    if name == "report":
        found = pipelines.report(spark, chosen, wanted, since=arguments.since, interval=arguments.interval, **who)
        return _tell(arguments, found)
    count = pipelines.replay(spark, chosen, path, wanted[0], rate=arguments.rate, options=options, **stored, **who)
    say("spark", f"{count} messages were sent to {wanted[0]}")
    return 0


def _archives(arguments: argparse.Namespace) -> int:
    """List the archives that the cluster knows, or forget the one that is named.

    Raises:
        JMSException: There is no cluster, or no such archive.
    """
    from kjms.spark._archives import archives, forget_archive

    chosen = factory(arguments)
    user, password = credentials(arguments)
    if arguments.forget is not None:
        forget_archive(chosen, arguments.forget, user=user, password=password)
        say("spark", f"archive {arguments.forget} is forgotten")
        return 0
    rows = [
        (known.name, topic, number, offset)
        for known in archives(chosen, user=user, password=password)
        for (topic, number), offset in sorted(known.positions.items())
    ]
    if arguments.json:
        names = ("archive", "topic", "partition", "offset")
        print(json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=2))
    elif rows:
        head = ("ARCHIVE", "KAFKA TOPIC", "PARTITION", "STORED UP TO")
        print(*columns([head, *(tuple(map(str, row)) for row in rows)], right=[2, 3]), sep="\n")
    return 0


def _listed(options: set[str]) -> str:
    return " and ".join(f"--{option}" for option in sorted(options))


def _routes(arguments: argparse.Namespace) -> dict[Destination, str | None]:
    """Return the selectors of the destinations that --to gives.

    Raises:
        WrongUse: A destination or selector is invalid, or a destination is given twice.
    """
    from kjms.selector import parse_selector

    routes: dict[Destination, str | None] = {}
    for each in arguments.to or ():
        try:
            to = destination(each[0])
            parse_selector(each[1] if len(each) > 1 else None)
        except (argparse.ArgumentTypeError, JMSException) as error:
            raise WrongUse(f"--to {' '.join(each)}: {error}") from error
        if len(each) > 2 or to in routes:
            raise WrongUse(
                f"--to {' '.join(each)}: give a destination and one selector, in quotes, and each destination once"
            )
        routes[to] = each[1] if len(each) > 1 else None
    if arguments.pipeline == "convert" and (len(routes) > 1 or any(routes.values())):
        raise WrongUse("convert: give one --to, without a selector")
    return routes


def _changes(arguments: argparse.Namespace) -> Callable[[DataFrame], DataFrame] | None:
    """Return a function that sets the columns that --set gives; None without --set.

    Raises:
        WrongUse: One has no name.
    """
    if not arguments.set:
        return None
    pairs = [each.partition("=") for each in arguments.set]
    for name, _, sql in pairs:
        if not name.strip() or not sql.strip():
            raise WrongUse(f"--set {name}: write COLUMN=SQL, such as priority=9")

    def change(frame: DataFrame) -> DataFrame:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        try:
            return frame.withColumns({name.strip(): f.expr(sql) for name, _, sql in pairs})
        except PySparkException as error:
            raise JMSException(f"--set: {_reason(error)}") from error

    return change


def _follow(name: str, query: StreamingQuery) -> int:
    """Report the progress of *query* until it ends.

    Raises:
        JMSException: It failed.
    """
    from pyspark.errors import StreamingQueryException

    say("spark", f"{name} runs as query {query.id}")
    told, messages = -1, 0
    try:
        is_over = False
        while not is_over:
            is_over = bool(query.awaitTermination(_SEEN_SECONDS))
            for progress in query.recentProgress:
                if progress.batchId > told and progress.numInputRows:
                    told, messages = progress.batchId, messages + progress.numInputRows
                    rate = f"{progress.processedRowsPerSecond:,.0f}/s"
                    say("spark", f"batch {told}: {progress.numInputRows:,} records, {rate}")
    except StreamingQueryException as error:
        raise JMSException(f"{name} failed after {messages:,} records: {_reason(error)}") from error
    finally:
        query.stop()
    say("spark", f"{name} ended after {messages:,} records")
    return 0


def _drain(drain: Callable[[Callable[[int], None]], int]) -> int:
    """Call *drain* with what reports its progress.

    Raises:
        JMSException: It failed.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    done = 0

    def report(count: int) -> None:
        nonlocal done
        done = count
        say("spark", f"{count:,} messages are settled")

    try:
        count = drain(report)
    except (PySparkException, Py4JError) as error:
        raise JMSException(f"drain failed after {done:,} messages: {_reason(error)}") from error
    say("spark", f"drain ended after {count:,} messages")
    return 0


def _reason(error: Exception) -> str:
    """Return the cause of *error*, without the query plan and the stack traces of Java and Python."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    return (causes[-1].removeprefix("Caused by: ") if causes else lines[0]) if lines else type(error).__name__


def _tell(arguments: argparse.Namespace, report: Report) -> int:
    """Print *report*, and write its page."""
    from kjms.spark._page import totals
    from kjms.spark._scale import count, duration, moment, rate, size

    if arguments.html is not None:
        arguments.html.write_text(report.to_html(), "utf-8")
        say("spark", f"wrote {arguments.html}")
    if arguments.json:
        print(report.to_json())
        return 0

    def show(head: Sequence[str], rows: list[tuple[str, ...]], right: list[int]) -> None:
        if rows:
            print(*columns([tuple(head), *rows], right=right), "", sep="\n")

    show(
        ("DESTINATION", "MESSAGES", "RATE", "AT MOST", "BYTES", "LARGEST"),
        [
            (
                each.destination,
                count(each.messages),
                rate(each.per_second),
                rate(each.peak_per_second),
                size(each.bytes),
                size(each.largest_size),
            )
            for each in totals(report)
        ],
        [1, 2, 3, 4, 5],
    )
    show(
        ("QUEUE", "WAITING", "DELIVERED BEFORE", "OLDEST"),
        [
            (
                each.destination,
                count(each.messages),
                count(each.delivered_before),
                "-" if each.oldest_age is None else duration(each.oldest_age),
            )
            for each in report.waiting
        ],
        [1, 2, 3],
    )
    show(
        ("REPLIES TO", "AT", "REPLIES", "MEDIAN", "95 %", "SLOWEST"),
        [
            (
                each.destination,
                moment(each.begin),
                count(each.replies),
                duration(each.median),
                duration(each.p95),
                duration(each.slowest),
            )
            for each in report.replies
        ],
        [2, 3, 4, 5],
    )
    show(
        ("EVENT", "AT", "DESTINATION", "MESSAGES", "CAUSE"),
        [
            (each.event, moment(each.begin), each.destination, count(each.messages), each.cause)
            for each in report.incidents
        ],
        [3],
    )
    return 0


def _session(arguments: argparse.Namespace) -> SparkSession:
    from kjms.spark import spark_session

    settings = {"spark.ui.enabled": False} if arguments.master is None else {"master": arguments.master}
    formats = _TABLES & {arguments.format}
    session = spark_session(f"kjms spark {arguments.pipeline}", formats=formats, **settings)
    session.sparkContext.setLogLevel("ERROR")
    return session
