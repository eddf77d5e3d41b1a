"""Judge what the worker test recorded: pure.

- Nothing is lost: each message that was sent was ended, and each that was packed was packed once.
- Nothing is repeated but what was in flight: a message begins again only after its last delivery was in a process that
  was killed, and if its session had begun no later one by then; or in a process that has logged the loss of a
  partition. There the session's commit was refused, and it continues with other messages.
- Each repeated delivery is marked and counted.
- A message that no function began is marked only if a process was killed: what was held ahead may be marked then. Apart
  from a few: a partition that moves on while sessions give back what they held ahead.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Figures", "figures", "violations"]

Line = Mapping[str, Any]

FEW: Final = 0.02  # of the messages; sessions that gave nothing back would mark all that they held ahead


@dataclass(frozen=True)
class Figures:
    """What happened.

    Attributes:
        sent: Messages that were sent.
        handled: Of them, those that a function ended.
        begun: Deliveries that a function began.
        repeated: Deliveries of messages that had begun before.
        marked: Deliveries that came marked as redelivered.
        inferred: Of them, those of messages that no function had begun.
    """

    sent: int
    handled: int
    begun: int
    repeated: int
    marked: int
    inferred: int


def deliveries(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the deliveries that began, of each message, oldest first."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in sorted(lines, key=lambda line: line["at"]):
        if line["event"] == "began":
            found[line["id"]].append(line)
    return found


def figures(sent: Collection[str], lines: Sequence[Line]) -> Figures:
    """Count what *lines* say of the messages *sent*."""
    of = deliveries(lines)
    ended = {line["id"] for line in lines if line["event"] == "ended"}
    return Figures(
        len(sent),
        len(ended & set(sent)),
        sum(map(len, of.values())),
        sum(len(each) - 1 for each in of.values()),
        sum(line["marked"] for each in of.values() for line in each),
        sum(each[0]["marked"] for each in of.values()),
    )


def violations(
    sent: Collection[str],
    transacted: Collection[str],
    packed: Sequence[str],
    lines: Sequence[Line],
    killed: Collection[int],
    bereft: Collection[int] = (),
) -> Iterator[str]:
    """Return each broken promise, in words.

    Args:
        sent: The numbers of all messages.
        transacted: Of them, those that were to be packed.
        packed: What was packed.
        lines: The histories of all processes.
        killed: The processes that were killed.
        bereft: The processes that have logged that they lost a partition, or that an acknowledgement took too long.
    """
    ended = {line["id"] for line in lines if line["event"] == "ended"}
    for number in sorted(set(sent) - ended):
        yield f"{number} was lost: no function ended it"
    counts = Counter(packed)
    for number in sorted(set(transacted) | set(counts)):
        if counts[number] != (number in transacted):
            yield f"{number} was packed {counts[number]} times"
    begun: dict[tuple[int, int], list[float]] = defaultdict(list)  # by each session, in order
    for line in sorted(lines, key=lambda line: line["at"]):
        if line["event"] == "began":
            begun[line["pid"], line["session"]].append(line["at"])
    of = deliveries(lines)
    if not killed and not bereft:
        inferred = [(number, each[0]) for number, each in of.items() if each[0]["marked"]]
        if len(inferred) > FEW * len(sent):
            for number, first in inferred:
                yield f"{number} came marked at first, and no process was killed: {first}"
    for number, each in of.items():
        for before, again in itertools.pairwise(each):
            later = [at for at in begun[before["pid"], before["session"]] if before["at"] < at < again["at"]]
            if before["pid"] not in {*killed, *bereft}:
                yield f"{number} was repeated, and process {before['pid']} was not killed: {before}, {again}"
            elif later and before["pid"] not in bereft:
                yield f"{number} was repeated, and its session had begun another one: {before}, {again}"
            if not again["marked"] or again["count"] < 2:
                yield f"{number} was repeated and came unmarked: {again}"
