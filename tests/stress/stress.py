"""The stress test: lifecycle calls from many threads, thousands of connections, an outage, and a mixed soak.

    python3 chores.py stress [--seconds T] [--threads N] [--seed S] [--connections N] [--engines N] [--outage T]
                             [--soak T]

The exit code is 0, or 1 if a promise was not kept; see docs/stress-test.md.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from stress_lifecycle import lifecycle
from stress_many import many_connections, many_engines
from stress_outage import outage
from stress_soak import soak

from kjms.broker import LocalBroker, find_broker


def main() -> int:
    options = arguments()
    print(f"seed {options.seed}", flush=True)
    problems: list[str] = []
    with find_broker() as broker:
        servers = broker.bootstrap_servers
        if options.seconds:
            problems += lifecycle(servers, options.seconds, options.threads, options.seed)
        if options.connections:
            problems += many_connections(servers, options.connections)
        if options.engines:
            problems += many_engines(servers, options.engines)
        if options.soak:
            problems += soak(servers, options.soak, options.seed)
    if options.outage:
        with LocalBroker() as own:
            problems += outage(own, options.outage)
    for problem in problems:
        print(f"NOT KEPT: {problem}")
    print("all promises were kept" if not problems else f"{len(problems)} promises were not kept")
    return 1 if problems else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="chores.py stress", description="Lifecycle calls from many threads, many connections, and an outage."
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="how long threads make lifecycle calls (60)")
    parser.add_argument("--threads", type=int, default=16, help="how many threads (16)")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="what they do (by chance)")
    parser.add_argument("--connections", type=int, default=10_000, help="connections to open and close (10000)")
    parser.add_argument("--engines", type=int, default=200, help="the same, each with Kafka clients of its own (200)")
    parser.add_argument("--outage", type=float, default=60.0, help="seconds without a broker, under load (60)")
    parser.add_argument("--soak", type=float, default=600.0, help="seconds of everything at once (600)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
