"""Explore schedules and plans, or run one again: ``python3 chores.py simulate --help``.

The same seed gives the same run, whatever the machine: addresses and hashes, which decide the order of sets, are made
equal by starting Python once more.
"""

from __future__ import annotations

import os
import sys

if os.environ.get("PYTHONHASHSEED") != "0" or "KJMS_SIMULATION" not in os.environ:
    import ctypes

    NO_RANDOM_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of Linux's personality(2)
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
    os.environ.update(PYTHONHASHSEED="0", KJMS_SIMULATION="1")
    os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])

from tests.simulation import world

world.install()

import argparse
import gc
import json
import time
from collections import Counter

from tests.simulation import plans, runs


def explore(chosen: argparse.Namespace) -> int:
    """Run plan after plan, and say which promises were broken, with seeds to run again."""
    begin, kinds, total = time.monotonic(), {}, Counter()
    last_told = begin
    first, _, last = chosen.seeds.partition(":")
    for seed in range(int(first), int(last or int(first) + 1)):
        now = time.monotonic()
        if now - begin > chosen.minutes * 60:
            break
        if sys.stderr.isatty() and now - last_told > 1:
            last_told = now
            print(f"\rseed {seed:,}, {total['runs']:,} runs, {len(kinds)} kinds of failures", end="", file=sys.stderr)
        result = runs.forked(plan_of(chosen, seed), seed)
        total.update(runs=1, steps=result.steps, switches=result.switches)
        total["virtual"] += int(result.seconds * 1_000)
        if result.name:
            seeds = kinds.setdefault(runs.kind_of(result), [])
            seeds.append(seed)
            if len(seeds) == 1:
                print(f"{now - begin:7.1f} s, seed {seed}: {result.name}: {result.failure[-1_500:]}", flush=True)
            if chosen.stop:
                break
    spent = max(time.monotonic() - begin, 1e-9)
    many = max(total["runs"], 1)
    print(
        f"{total['runs']:,} runs in {spent:.1f} s, {60 * total['runs'] / spent:.0f} a minute;"
        f" {total['steps'] // many:,} switch points and {total['switches'] // many:,} switches a run;"
        f" {total['virtual'] / 1_000 / spent:.0f} virtual seconds a second,"
        f" {total['virtual'] / 3_600_000:.2f} virtual hours"
    )
    for kind, seeds in sorted(kinds.items(), key=lambda each: -len(each[1])):
        print(f"{len(seeds):5} {kind} seeds {seeds[:8]}")
    return 1 if kinds else 0


def plan_of(chosen: argparse.Namespace, seed: int) -> plans.Plan:
    if chosen.plan:
        return runs.plan_of(chosen.plan)
    return plans.drawn(seed, most_processes=chosen.processes, most_faults=chosen.faults)


def show(chosen: argparse.Namespace) -> int:
    """Run one seed again, and print all of it."""
    seed = int(chosen.seeds)
    plan = plan_of(chosen, seed)
    result = runs.forked(plan, seed, is_long=True)
    print(json.dumps(plan), *result.lines, sep="\n")
    print(f"seed {seed}, {result.policy}, {result.steps:,} switch points, digest {result.digest}")
    print(f"{result.name}: {result.failure}" if result.name else "no promise was broken")
    return 1 if result.name else 0


def shrink(chosen: argparse.Namespace) -> int:
    """Take from the plan of one seed what its failure does not need."""
    seed = int(chosen.seeds)
    plan = plan_of(chosen, seed)
    for smaller, schedule in runs.shortened(plan, seed, tries=chosen.tries, seconds=chosen.minutes * 60):
        print(f"schedule {schedule}: {json.dumps(smaller)}", flush=True)
    return 0


def twice(chosen: argparse.Namespace) -> int:
    """Run each seed twice, and say whether both runs were the same."""
    first, _, last = chosen.seeds.partition(":")
    different = 0
    for seed in range(int(first), int(last or int(first) + 1)):
        digests = [runs.forked(plan_of(chosen, seed), seed).digest for _ in range(2)]
        different += digests[0] != digests[1]
        print(seed, *digests, "the same" if digests[0] == digests[1] else "DIFFERENT", flush=True)
    return min(different, 1)


def main() -> int:
    """Do what the command line says."""
    actions = {each.__name__: each for each in (explore, show, shrink, twice)}
    parser = argparse.ArgumentParser(
        prog="chores.py simulate",
        description="Run kjms in a world that a seed decides: every switch of threads, all time, and every fault.",
    )
    parser.add_argument("action", nargs="?", default="explore", choices=actions, help="what to do (explore)")
    parser.add_argument("--seeds", default="0:1000000000", help="one, or FIRST:LAST")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long at most (1)")
    parser.add_argument("--plan", help="a file with a plan, in the place of those that the seeds draw")
    parser.add_argument("--processes", type=int, default=3, help="how many processes a plan has at most (3)")
    parser.add_argument("--faults", type=int, default=3, help="how many faults at most (3); 0: calm runs")
    parser.add_argument("--stop", action="store_true", help="explore: stop at the first failure")
    parser.add_argument("--tries", type=int, default=6, help="shrink: schedules for each smaller plan (6)")
    chosen = parser.parse_args()
    gc.collect()
    gc.freeze()
    return actions[chosen.action](chosen)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # without kjms's own ends of the process, which would want a scheduler
