"""The command ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks._machine import machine, versions
from benchmarks._report import Report, insert_between_markers
from benchmarks._run import run_workloads
from benchmarks._stage import Stage
from benchmarks._workload import load_workloads
from kjms import JMSException
from kjms.broker import find_broker

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what *arguments* say, and return the exit code."""
    workloads = load_workloads()
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        for workload in workloads.values():
            print(f"{workload.name:24}{workload.title}")
        return 0
    unknown = sorted(set(options.only) - workloads.keys())
    if unknown:
        parser.error(f"no workload is called {', '.join(unknown)}; there are {', '.join(workloads)}")
    chosen = [workload for name, workload in workloads.items() if not options.only or name in options.only]
    rounds = options.rounds or (2 if options.quick else 5)
    messages = options.messages or (5_000 if options.quick else 50_000)

    with contextlib.ExitStack() as stack:
        named = versions()
        servers = ""
        if any(workload.needs_broker for workload in chosen):
            broker = stack.enter_context(find_broker())
            servers = broker.bootstrap_servers
            named["broker"] = broker.kind
        stage = stack.enter_context(Stage(servers))
        results = run_workloads(chosen, stage, rounds=rounds, messages=messages, progress=_progress)
    _progress("")

    report = Report(datetime.datetime.now(datetime.timezone.utc).date().isoformat(), machine(), named, rounds, results)
    print(report.to_text())
    path = options.json or RESULTS / f"{datetime.datetime.now().strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report.to_json() + "\n", encoding="utf-8")
    print(f"written to {path}")
    if options.markdown:
        insert_between_markers(PAGE, report.to_markdown())
        print(f"written to {PAGE}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Compare kjms with the Kafka client that it stands on."
    )
    parser.add_argument("--rounds", type=_count, help="how many rounds count (5; 2 with --quick)")
    parser.add_argument("--messages", type=_count, help="messages per round (50000; 5000 with --quick)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this workload; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go (benchmarks/results/)")
    parser.add_argument("--markdown", action="store_true", help="put the table into docs/performance.md, too")
    parser.add_argument("--quick", action="store_true", help="see that all of it runs; the figures mean little")
    parser.add_argument("--list", action="store_true", help="tell what workloads there are, and run none")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 is needed, not {text}")
    return number


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text:
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JMSException as error:  # above all: there is no broker
        sys.exit(f"python -m benchmarks: {error}")
