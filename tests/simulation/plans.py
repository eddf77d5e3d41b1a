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
  whether it is carried out, whether it is fatal, how often); move (no partition of the source has a leader, seconds);
  late (request of a transaction, which the client repeats, and how many seconds later the first one arrives).

All that follows may be left out:

- ``network``: [the longest time of a request or of an answer, the same of a transaction's marker], in seconds.
- ``subscription``: "plain", "shared", "durable" or "shared durable", where ``is_topic``.
- ``second``: there is a second queue, for the messages with a key from 10 on; "second" stands for it among
  ``selectors``. ``targets``: how many queues transactions send to in turn.
- Of a process: ``ahead``, by how many seconds its clock is ahead of the Kafka's.
- Of a receiving session: the way "aio"; the actions browse and cancel (the next receive, with "aio"); ``interrupt``,
  the chance that Ctrl-C comes in a receive or a settlement.
- The sixth element of an op of a sending session: the time to live in ms.
- Sessions of the kind "request", with ``start`` and ``ops``, [pause in s, time limit in ms], have a requestor, and
  those of the kind "reply" answer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

Plan = dict[str, Any]

TRANSACTED, AUTO, CLIENT, DUPS_OK, INDIVIDUAL = 0, 1, 2, 3, 101
SELECTORS: Final = (None, None, None, "k = 0", "k = 1", "k < 2")
SECOND_KEY: Final = 10  # the keys of messages for the second queue begin with it
MATCHES: Final[dict[str | None, Callable[[int], bool]]] = {
    None: lambda key: key < SECOND_KEY,
    "second": lambda key: key >= SECOND_KEY,
    "k = 0": lambda key: key == 0,
    "k = 1": lambda key: key == 1,
    "k < 2": lambda key: key < 2,
}
LOST_REQUESTS: Final = ("commit", "commit_transaction", "send_offsets", "produce", "committed", "init_transactions")
SUBSCRIPTIONS: Final = ("plain", "shared", "durable")
REPEATED: Final = ("send_offsets", "commit_transaction", "abort_transaction")
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
OPTIONS: Final = ("network", "subscription", "second", "targets")
"""What it does not have, then."""


@dataclass(frozen=True)
class Traits:
    """What the sessions of a plan have in common.

    Args:
        subscription: What kind, where they have a topic; empty: they have a queue.
        has_groups: Whether messages have groups, and so on.
    """

    subscription: str
    has_groups: bool
    has_priorities: bool
    has_selectors: bool
    has_second: bool
    has_delays: bool
    has_lives: bool
    has_skew: bool
    requests: int

    @classmethod
    def drawn(cls, r: random.Random) -> Traits:
        """Draw them: a message without its own subscription's consumer has no delay, and is not selected."""
        subscription = r.choice(["", "", "", "shared durable", r.choice(SUBSCRIPTIONS)])
        is_lasting = not subscription or subscription.endswith("durable")
        return cls(
            subscription,
            has_groups=r.random() < 0.4,
            has_priorities=r.random() < 0.3,
            has_selectors=r.random() < 0.5 and not subscription,  # consumers of a subscription share its selector
            has_second=r.random() < 0.2 and not subscription,
            has_delays=r.random() < 0.15 and is_lasting,
            has_lives=r.random() < 0.15,
            has_skew=r.random() < 0.2,
            requests=r.choice([0, 0, 0, 0, 1, 2]),
        )


def drawn(seed: int, *, most_processes: int = 3, most_faults: int = 3) -> Plan:
    """Return the plan of *seed*."""
    r = random.Random(f"plan {seed}")
    count = r.choice([each for each in (1, 1, 2, 2, 3) if each <= most_processes])
    traits = Traits.drawn(r)
    plan: Plan = {
        "nodes": r.choice([1, 1, 3]),
        "partitions": r.choice([1, 1, 2, 3]),
        "prefetch": r.choice([1, 2, 5, 1_000]),
        "delay": r.choice([0, 0, 0, 300]),
        "max_deliveries": r.choice([1_000, 1_000, 3, 2]),
        "is_topic": bool(traits.subscription),
        **({"subscription": traits.subscription} if traits.subscription else {}),
        **({"second": True} if traits.has_second else {}),
        "targets": r.choice([1, 2]),
        "hand_over": r.choice([None, None, False]),
        "ordering": r.choice(["session", "session", "none"]),
        "network": r.choice([[0, 0], [0, 0], [0.004, 0.02], [0.1, 0.5]]),
        "processes": [_process(r, traits, number) for number in range(count)],
        "faults": [],
    }
    for _ in range(r.randrange(most_faults + 1)):
        who = r.choice(plan["processes"])["name"]
        plan["faults"].append([round(r.random() * 2.5, 3), *_fault(r, who)])
    return plan


def skew_of(plan: Plan) -> float:
    """Return by how many seconds two clocks of *plan* differ at the most."""
    ahead = [0.0, *(each.get("ahead", 0.0) for each in plan["processes"])]
    return float(max(ahead) - min(ahead))


def _process(r: random.Random, traits: Traits, number: int) -> Plan:
    is_alone = traits.subscription == "durable"  # it has one consumer at a time
    many = int(not number) if is_alone else r.choice([1, 2, 3])
    is_main = r.random() < 0.3
    sessions = [_receiving(r, traits) for _ in range(many)]
    for each in sessions[:1]:
        if is_main and each["way"] == "receive" and each["mode"] not in {AUTO, DUPS_OK} and r.random() < 0.5:
            each["interrupt"] = r.choice([0.1, 0.5])
    sessions += [_sending(r, traits) for _ in range(r.choice([0, 1, 1, 2]) if number else r.choice([1, 2]))]
    if traits.requests and not number:
        sessions.append({"kind": "reply", "start": 0, "ops": []})
    if traits.requests > number:
        ops = [[r.choice([0, 0.05]), r.choice([1, 300, 60_000, 60_000])] for _ in range(r.randrange(1, 5))]
        sessions.append({"kind": "request", "start": r.choice([0, 0.5]), "ops": ops})
    start = r.choice([0, 0, 1.5]) if number else 0
    process = {"name": f"p{number}", "start": start, "is_main": is_main, "sessions": sessions}
    return {**process, "ahead": r.choice([0, 0.05, -0.3, 2.0, -2.0])} if traits.has_skew else process


def _receiving(r: random.Random, traits: Traits) -> Plan:
    selectors = [r.choice(SELECTORS) if traits.has_selectors else None for _ in range(r.choice([1, 1, 2]))]
    if traits.has_second:
        selectors = r.choice([["second"], [*selectors[:1], "second"], selectors])
    if traits.subscription not in {"", "shared durable"}:
        selectors = [None]
    actions = ["settle", "settle", "keep", "keep", "back", "back", "reopen", "quit", "browse", "cancel"]
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
        "way": r.choice(["receive", "receive", "listener", "aio"]),
        "start": r.choice([0, 0, 0.3, 2.0]),
        "mode": r.choice([TRANSACTED, AUTO, CLIENT, DUPS_OK, INDIVIDUAL]),
        "ops": ops,
        "selectors": selectors,
        "tail": r.choice(["settle", "settle", "keep"]),
    }


def _sending(r: random.Random, traits: Traits) -> Plan:
    has_delays, has_second = traits.has_delays and r.random() < 0.5, traits.has_second and r.random() < 0.7
    ops = [
        [
            r.choice([0, 0, 0.002, 0.05]),
            r.randrange(3) + (SECOND_KEY if has_second and r.random() < 0.5 else 0),
            r.choice("ab") if traits.has_groups and r.random() < 0.7 else "",
            r.choice([4, 4, 2, 7]) if traits.has_priorities else 4,
            r.choice([0, 0, 50, 1_000]) if has_delays else 0,
            *([r.choice([0, 20, 500, 3_000])] if traits.has_lives else []),
        ]
        for _ in range(r.choice([1, 3, 5, 8, 8, 40]))
    ]
    start = r.choice([0, 0.2, 0.2, 1.0])
    return {"kind": "send", "start": start, "mode": r.choice(["sync", "async", "tx"]), "ops": ops}


def _fault(r: random.Random, who: str) -> list[Any]:
    kind = r.choice(["kill", "pause", "lose", "time_out", "time_out", "outage", "move", "late"])
    if kind == "late":
        return [kind, who, r.choice(REPEATED), r.choice([0.01, 0.3, 2.5])]
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
    for p, process in enumerate(plan["processes"]):
        for name in ("ahead", "is_main"):
            if name in process:
                yield _changed(plan, lambda each, p=p, n=name: each["processes"][p].pop(n))
        if process["start"]:
            yield _changed(plan, lambda each, p=p: each["processes"][p].update(start=0))
    for name in OPTIONS:
        if name in plan and _is_free(plan, name):
            yield _changed(plan, lambda each, n=name: each.pop(n))
    for name, simple in SIMPLE.items():
        if plan[name] != simple and _is_free(plan, name):
            yield _changed(plan, lambda each, n=name, v=simple: each.update({n: v}))


def _smaller_session(plan: Plan, p: int, s: int, session: Plan) -> Iterator[Plan]:
    many = len(session["ops"])
    for size in sorted({many // 2, many // 4, 1} - {0}, reverse=True):
        for begin in range(0, many, size):
            cut = slice(begin, begin + size)
            yield _changed(plan, lambda each, cut=cut: each["processes"][p]["sessions"][s]["ops"].__delitem__(cut))
    if session["start"]:
        yield _changed(plan, lambda each: each["processes"][p]["sessions"][s].update(start=0))
    if "interrupt" in session:
        yield _changed(plan, lambda each: each["processes"][p]["sessions"][s].pop("interrupt"))


def _is_free(plan: Plan, name: str) -> bool:
    """Return whether the option *name* of *plan* can be changed without the sessions."""
    if name == "subscription":
        return not plan["is_topic"]  # another kind would be another plan
    sessions = [each for process in plan["processes"] for each in process["sessions"]]
    texts = json.dumps([[each.get("selectors"), each["ops"]] for each in sessions])
    if name in {"second", "is_topic"}:
        return "second" not in texts and all(
            op[1] < SECOND_KEY for each in sessions if each["kind"] == "send" for op in each["ops"]
        )
    return True


def _changed(plan: Plan, change: Callable[[Plan], object]) -> Plan:
    copy: Plan = json.loads(json.dumps(plan))
    change(copy)
    return copy
