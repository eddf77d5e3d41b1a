"""Judge a round, and show what it broke: its anomalies, each with the smallest history that has it. Pure.

A round that saw too few messages is void: that nothing was broken says nothing then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Final

from tests.history.checker import Anomaly, Index, anomalies
from tests.history.history import Call, History, Kind

MOST_TRIED: Final = 1_000_000  # calls, of all histories that are tried to find a small one
SHOWN: Final = 2  # anomalies of each name that are shown with their histories


class Void(Exception):
    """A round that says nothing, since it saw too few messages.

    Args:
        seen: How many messages were sent and delivered.
        least: How many there must be.
    """

    def __init__(self, seen: int, least: int) -> None:
        super().__init__(f"void: {seen} messages were sent and delivered, and a round needs {least}")
        self.seen = seen
        self.least = least


def judged(history: History, *, least: int) -> list[Anomaly]:
    """Return each promise that the round broke.

    Raises:
        Void: It broke none, and fewer than *least* messages were sent and delivered.
    """
    found = anomalies(history)
    seen = delivered(history)
    if not found and seen < least:
        raise Void(seen, least)
    return found


def delivered(history: History) -> int:
    """Return how many messages were certainly sent, and delivered once at least."""
    index = Index(history)
    return len(index.confirmed & index.stays.keys())


def minimal(history: History, anomaly: Anomaly) -> History:
    """Return a small part of *history* that has *anomaly* as well: the life of its messages, and what else it needs.

    The checker confirms it, so what it shows is enough to understand the anomaly. Where a transaction has other
    messages as well, its line says how many.
    """
    names = {*anomaly.messages}
    names |= {message for call in history.calls for message, _ in _pairs(call) if names & {*call.outputs}}
    mine = [call for call in history.calls if names & {*call.messages, *call.outputs}]
    others = [call for call in history.calls if not names & {*call.messages, *call.outputs}]
    trimmed = [_trimmed(call, names) for call in mine]
    if _has(found := _part(history, trimmed, names), anomaly):
        return found
    if not _has(_part(history, history.calls, None), anomaly):
        return history
    needed = _needed(history, mine, others, anomaly)
    return _part(history, sorted([*mine, *needed], key=lambda call: call.begin), None)


def _needed(history: History, mine: Sequence[Call], others: Sequence[Call], anomaly: Anomaly) -> list[Call]:
    """Return those of the *others* without which *anomaly* would not be found: parts are left out, halves first."""
    kept, size, tried = [*others], max(len(others) // 2, 1), 0
    while size and tried < MOST_TRIED:
        start = 0
        while start < len(kept) and tried < MOST_TRIED:
            fewer = kept[:start] + kept[start + size :]
            tried += len(mine) + len(fewer)
            if _has(_part(history, sorted([*mine, *fewer], key=lambda call: call.begin), None), anomaly):
                kept = fewer
            else:
                start += size
        size //= 2
    return kept


def _has(history: History, anomaly: Anomaly) -> bool:
    return any(each.name == anomaly.name and {*each.messages} == {*anomaly.messages} for each in anomalies(history))


def _pairs(call: Call) -> Iterator[tuple[str, str]]:
    """Return each message of *call* with its output, where each has one."""
    if len(call.messages) == len(call.outputs):
        yield from zip(call.messages, call.outputs, strict=True)


def _trimmed(call: Call, names: Set[str]) -> Call:
    """Return *call* without the messages, and their outputs, that are not among *names*."""
    messages = tuple(name for name in call.messages if name in names)
    left_out = len(call.messages) - len(messages)
    if not left_out:
        return call
    outputs = call.outputs
    if len(call.messages) == len(outputs):
        outputs = tuple(text for message, text in _pairs(call) if message in names)
    return replace(call, messages=messages, outputs=outputs, others=call.others + left_out)


def _part(history: History, calls: Sequence[Call], names: Set[str] | None) -> History:
    """Return *history* with these *calls*, what they are about, and what happened to their processes meanwhile."""
    if names is None:
        names = {name for call in calls for name in (*call.messages, *call.outputs)}
    about = names | {text for call in calls for text in call.outputs}
    processes = {call.process for call in calls}
    begin = min((call.begin for call in calls), default=0.0)
    return replace(
        history,
        sent={name: each for name, each in history.sent.items() if name in about},
        calls=[*calls],
        disturbances=[each for each in history.disturbances if each.process in {"", *processes} and each.end >= begin],
        killed={process: at for process, at in history.killed.items() if process in processes},
        left=None if history.left is None else {n: count for n, count in history.left.items() if n in about},
        outputs=Counter({n: times for n, times in history.outputs.items() if n in about}),
        dead=Counter({n: times for n, times in history.dead.items() if n in about}),
        places={n: place for n, place in history.places.items() if n in about},
    )


def account(history: History, anomaly: Anomaly) -> list[str]:
    """Return the smallest history that has *anomaly*, in lines: what happened, and what was there at the end."""
    part = minimal(history, anomaly)
    lines = part.lines()
    for name in sorted({*part.places, *(part.left or {}), *part.dead, *part.outputs} & _concerned(part)):
        found = []
        if name in part.places:
            found.append("partition {} offset {}".format(*part.places[name]))
        if part.outputs[name]:
            found.append(f"in the target {part.outputs[name]} times")
        if name in (part.left or {}):
            found.append("left in the queue")
        if part.dead[name]:
            found.append(f"in the dead-letter queue {part.dead[name]} times {part.notes.get(name, '')}".rstrip())
        lines.append(f"{'at the end':>21} {name}: {', '.join(found)}")
    return lines


def _concerned(history: History) -> set[str]:
    return {*history.sent, *(text for call in history.calls for text in call.outputs), *history.dead, *history.outputs}


def summary(found: Iterable[Anomaly]) -> str:
    """Return how many anomalies there are of each name, in a line.

    >>> summary([Anomaly("order", ""), Anomaly("lost write", ""), Anomaly("order", "")]), summary([])
    ('2 order, 1 lost write', 'none')
    """
    counts = Counter(each.name for each in found)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "none"


def report(history: History, found: Sequence[Anomaly], again: str) -> Iterator[str]:
    """Return the anomalies *found* in lines, the first of each name with their smallest histories.

    Args:
        history: The round's.
        found: What it broke.
        again: The command that plays the round again, with its seed.
    """
    if not found:
        return
    shown: Counter[str] = Counter()
    yield f"{summary(found)}; again: {again}"
    for each in found:
        shown[each.name] += 1
        yield f"{each.name}: {each.text}"
        if shown[each.name] <= SHOWN:
            yield from account(history, each)


def counts(history: History) -> tuple[int, int, int]:
    """Return how many messages were certainly sent, how many deliveries there were, and how many came marked."""
    receives = [call for call in history.calls if call.kind is Kind.RECEIVE and call.messages]
    return len(Index(history).confirmed), len(receives), sum(call.count > 1 for call in receives)
