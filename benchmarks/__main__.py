"""The command ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import benchmarks
import kjms.bench
from benchmarks import _page, _ratios
from kjms import JMSException
from kjms.bench._command import UnknownWorkload, add_options, chosen, listing, measured
from kjms.bench._stage import Stage
from kjms.bench._workload import Workload, load_workloads
from kjms.broker import find_broker

RESULTS = Path(__file__).parent / "results"
DEFAULT_SETS = ("main", "growth", "rivals")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* say, and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.page:
        _page.make()
        _page.compare()
        return 0
    workloads = load_workloads(kjms.bench, benchmarks)
    if options.list:
        print(listing(workloads))
        return 0
    if options.check:
        return _check(workloads, is_kept=options.keep)
    try:
        wanted = chosen(workloads, options.only, DEFAULT_SETS)
    except UnknownWorkload as error:
        parser.error(str(error))
    partly = sorted(set(options.only) & workloads.keys())
    if options.keep and partly:
        parser.error(f"--keep keeps whole sets, of one run: --only {partly[0]} would leave out the others of its set")
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
        _page.compare()
    return 1 if report.failed else 0


def _check(workloads: Mapping[str, Workload], *, is_kept: bool) -> int:
    with find_broker() as broker, Stage(broker.bootstrap_servers) as stage:
        measured = _ratios.measure(workloads, stage)
        if is_kept:
            _ratios.keep(measured)
            return 0
        found = _ratios.slower(measured, before := _ratios.kept())
    for name, attempts in found.items():
        told = ", ".join(f"{each:.2f}" for each in attempts)
        print(f"{name}: {told} times as fast as {_ratios.CHECKED[name]}; it was {before[name]}", file=sys.stderr)
    return 1 if found else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare kjms with the Kafka client it stands on, with itself as work grows, and with its rivals.",
    )
    add_options(parser, rounds=5, messages=50_000)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go (benchmarks/results/)")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="keep the figures, and put them into the pages that show them; with --check: its ratios",
    )
    parser.add_argument(
        "--check", action="store_true", help="see in seconds whether something is much slower than it was"
    )
    parser.add_argument(
        "--page", action="store_true", help="make tables and picture anew from what is kept; run nothing"
    )
    return parser


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JMSException as error:  # above all: there is no broker
        sys.exit(f"python -m benchmarks: {error}")
