"""What programs do in a run, and what goes wrong meanwhile: plans that a seed draws, and smaller ones. Pure.

A plan is plain JSON, so that a failing one can be kept, read and shortened by hand:

- ``nodes`` of the Kafka.
- ``partitions``, ``prefetch``, ``delay`` (of redeliveries, ms), ``max_deliveries``, ``hand_over``, ``ordering``: as in
  the factory. ``is_topic``: a shared durable subscription of a topic takes the place of the queue.
- ``processes``: each with ``name``, ``start`` (s), ``is_main`` (its first session runs in the main thread) and
  ``sessions``.
- A receiving session has ``mode`` (JMS's number), ``way`` ("receive" or "listener"), ``selectors`` (a consumer for
  each), ``ops`` and ``tail``, what it does when its ops are done. An op is [consumer, time limit in ms, seconds to
  think, action]. Actions: settle; keep; back (rollback or recover); reopen (close the consumer, make another); quit
  (close everything, begin anew).
- A sending session has ``mode`` (sync, async or tx) and ``ops``: [pause in s, key, message group, priority, delivery
  delay in ms].
- ``faults``: [second, kind, process, ...]: kill; pause, outage (seconds); lose (its partitions); time_out (operation,
  whether it is carried out, whether it is fatal, how often).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any, Final

Plan = dict[str, Any]

TRANSACTED, AUTO, CLIENT, DUPS_OK, INDIVIDUAL = 0, 1, 2, 3, 101
SELECTORS: Final = (None, None, None, "k = 0", "k = 1", "k < 2")
MATCHES: Final[dict[str | None, Callable[[int], bool]]] = {
    None: lambda key: True,
    "k = 0": lambda key: key == 0,
    "k = 1": lambda key: key == 1,
    "k < 2": lambda key: key < 2,
}
LOST_REQUESTS: Final = ("commit", "commit_transaction", "send_offsets", "produce", "committed", "init_transactions")
SIMPLE: Final = {
    "nodes": 1,
    "partitions": 1,
    "delay": 0,
    "max_deliveries": 1_000,
    "ordering": "session",
    "prefetch": 1_000,
    "hand_over": None,
    "is_topic": False,
}
"""What a shortened plan has, where the failure does not need anything else."""


def drawn(seed: int, *, most_processes: int = 3, most_faults: int = 3) -> Plan:
    """Return the plan of *seed*."""
    r = random.Random(f"plan {seed}")
    count = r.choice([each for each in (1, 1, 2, 2, 3) if each <= most_processes])
    is_topic = r.random() < 0.2
    has_groups, has_priorities = r.random() < 0.4, r.random() < 0.3
    has_selectors = r.random() < 0.5 and not is_topic  # those of a subscription share its selector
    plan: Plan = {
        "nodes": r.choice([1, 1, 3]),
        "partitions": r.choice([1, 1, 2, 3]),
        "prefetch": r.choice([1, 2, 5, 1_000]),
        "delay": r.choice([0, 0, 0, 300]),
        "max_deliveries": r.choice([1_000, 1_000, 3, 2]),
        "is_topic": is_topic,
        "hand_over": r.choice([None, None, False]),
        "ordering": r.choice(["session", "session", "none"]),
        "processes": [],
        "faults": [],
    }
    for number in range(count):
        sessions = [_receiving(r, has_selectors=has_selectors) for _ in range(r.choice([1, 2, 3]))]
        for _ in range(r.choice([0, 1, 1, 2]) if number else r.choice([1, 2])):
            sessions.append(_sending(r, has_groups=has_groups, has_priorities=has_priorities))
        start = r.choice([0, 0, 1.5]) if number else 0
        plan["processes"].append(
            {"name": f"p{number}", "start": start, "is_main": r.random() < 0.3, "sessions": sessions}
        )
    for _ in range(r.randrange(most_faults + 1)):
        who = r.choice(plan["processes"])["name"]
        plan["faults"].append([round(r.random() * 2.5, 3), *_fault(r, who)])
    return plan


def _receiving(r: random.Random, *, has_selectors: bool) -> Plan:
    selectors = [r.choice(SELECTORS) if has_selectors else None for _ in range(r.choice([1, 1, 2]))]
    actions = ["settle", "settle", "keep", "keep", "back", "back", "reopen", "quit"]
    ops = [
        [
            r.randrange(len(selectors)),
            r.choice([0, 50, 1_000, 60_000]),
            r.choice([0, 0, 0, 0.005, 0.1, 1.0]),
            r.choice(actions),
        ]
        for _ in range(r.randrange(1, 8))
    ]
    return {
        "kind": "receive",
        "way": r.choice(["receive", "receive", "listener"]),
        "start": r.choice([0, 0, 0.3, 2.0]),
        "mode": r.choice([TRANSACTED, AUTO, CLIENT, DUPS_OK, INDIVIDUAL]),
        "ops": ops,
        "selectors": selectors,
        "tail": r.choice(["settle", "settle", "keep"]),
    }


def _sending(r: random.Random, *, has_groups: bool, has_priorities: bool) -> Plan:
    has_delays = r.random() < 0.15
    ops = [
        [
            r.choice([0, 0, 0.002, 0.05]),
            r.randrange(3),
            r.choice("ab") if has_groups and r.random() < 0.7 else "",
            r.choice([4, 4, 2, 7]) if has_priorities else 4,
            r.choice([0, 0, 50, 1_000]) if has_delays else 0,
        ]
        for _ in range(r.choice([1, 3, 5, 8, 8, 40]))
    ]
    start = r.choice([0, 0.2, 0.2, 1.0])
    return {"kind": "send", "start": start, "mode": r.choice(["sync", "async", "tx"]), "ops": ops}


def _fault(r: random.Random, who: str) -> list[Any]:
    kind = r.choice(["kill", "pause", "lose", "time_out", "time_out", "outage"])
    if kind != "time_out":
        return [kind, who, r.choice([0.3, 2.5, 4.0, 9.0])]
    operation = r.choice(LOST_REQUESTS)
    is_fatal = operation == "commit_transaction" and r.random() < 0.5
    return [kind, who, operation, r.random() < 0.5, is_fatal, r.choice([1, 2])]


def smaller(plan: Plan) -> Iterator[Plan]:
    """Return plans that have a little less than *plan*, the largest steps first."""
    for number in reversed(range(len(plan["processes"]))):
        if len(plan["processes"]) > 1:
            yield _changed(plan, lambda each, n=number: each["processes"].pop(n))
    for number in range(len(plan["faults"])):
        yield _changed(plan, lambda each, n=number: each["faults"].pop(n))
    for p, process in enumerate(plan["processes"]):
        for s in range(len(process["sessions"])):
            yield _changed(plan, lambda each, p=p, s=s: each["processes"][p]["sessions"].pop(s))
    for p, process in enumerate(plan["processes"]):
        for s, session in enumerate(process["sessions"]):
            yield from _smaller_session(plan, p, s, session)
    for name, simple in SIMPLE.items():
        if plan[name] != simple:
            yield _changed(plan, lambda each, n=name, v=simple: each.update({n: v}))


def _smaller_session(plan: Plan, p: int, s: int, session: Plan) -> Iterator[Plan]:
    many = len(session["ops"])
    for size in sorted({many // 2, many // 4, 1} - {0}, reverse=True):
        for begin in range(0, many, size):
            cut = slice(begin, begin + size)
            yield _changed(plan, lambda each, cut=cut: each["processes"][p]["sessions"][s]["ops"].__delitem__(cut))
    if session["start"]:
        yield _changed(plan, lambda each: each["processes"][p]["sessions"][s].update(start=0))


def _changed(plan: Plan, change: Callable[[Plan], object]) -> Plan:
    copy: Plan = json.loads(json.dumps(plan))
    change(copy)
    return copy
