"""The command ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

import benchmarks
import kjms.bench
from benchmarks import _page
from kjms import JMSException
from kjms.bench._command import UnknownWorkload, add_options, chosen, listing, measured
from kjms.bench._stage import Stage
from kjms.bench._workload import load_workloads
from kjms.broker import find_broker

RESULTS = Path(__file__).parent / "results"
DEFAULT_SETS = ("main", "growth", "rivals")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* say, and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.page:
        _page.make()
        return 0
    workloads = load_workloads(kjms.bench, benchmarks)
    if options.list:
        print(listing(workloads))
        return 0
    try:
        wanted = chosen(workloads, options.only, DEFAULT_SETS)
    except UnknownWorkload as error:
        parser.error(str(error))
    for each in [each for each in wanted if each.missing]:
        print(f"{each.name} is left out: {each.missing}", file=sys.stderr)
    wanted = [each for each in wanted if not each.missing]

    with contextlib.ExitStack() as stack:
        stage, others = Stage(), {}
        if any(each.needs_broker for each in wanted):
            broker = stack.enter_context(find_broker())
            others["broker"] = broker.kind
            stage = Stage(broker.bootstrap_servers, is_own=broker.kind != "external")
        for each in wanted:
            others.update(each.versions())
        report = measured(wanted, stack.enter_context(stage), options, others)

    print(report.to_text())
    path = options.json or RESULTS / f"{datetime.datetime.now().strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.to_json() + "\n", encoding="utf-8")
    print(f"written to {path}")
    if options.keep:
        _page.keep(report)
        _page.make()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare kjms with the Kafka client it stands on, with itself as work grows, and with its rivals.",
    )
    add_options(parser, rounds=5, messages=50_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go (benchmarks/results/)")
    parser.add_argument("--keep", action="store_true", help="keep the figures, and put them into docs/performance.md")
    parser.add_argument("--page", action="store_true", help="make tables and plot anew from what is kept; run nothing")
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JMSException as error:  # above all: there is no broker
        sys.exit(f"python -m benchmarks: {error}")
