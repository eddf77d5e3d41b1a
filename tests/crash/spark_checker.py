"""Judge what consumers of different kinds recorded of one queue: pure.

- Nothing is lost: each message is in Spark's sink, or a session of Python or Java began to acknowledge it.
- Nothing is repeated in silence: of all deliveries of a message, each but the first is marked as redelivered.
- Nothing is repeated without a reason: an earlier delivery was in a process that was killed, or was refused.
- What was acknowledged is not delivered again.
- Spark's sink has what a batch was called with last.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "KINDS",
    "Delivery",
    "Figures",
    "Row",
    "deliveries",
    "figures",
    "last_calls",
    "stored_once",
    "violations",
]

KINDS: Final = ("spark", "python", "java")

Line = Mapping[str, Any]
History = tuple[str, int, Sequence[Line]]
"""What one session noted: the kind of consumer, its process, and its lines in order."""


@dataclass(frozen=True)
class Row:
    """What Spark's sink has of a message.

    Attributes:
        number: The message.
        batch: The batch that has it.
        is_marked: Whether it is marked as redelivered.
    """

    number: int
    batch: int
    is_marked: bool


@dataclass
class Delivery:
    """A message that a consumer got.

    Attributes:
        number: The message.
        kind: The kind of consumer.
        process: Its process.
        at: When it was noted.
        is_marked: Whether it was marked as redelivered.
        count: Its JMSXDeliveryCount.
        batch: Spark's batch; None: it was no consumer of Spark.
        state: What became of it: "delivered", "acknowledging", "acknowledged", "refused"; of Spark: "stored".
        acknowledged_at: When the acknowledgement had returned.
    """

    number: int
    kind: str
    process: int
    at: float
    is_marked: bool
    count: int
    batch: int | None = None
    state: str = "delivered"
    acknowledged_at: float | None = None

    def __str__(self) -> str:
        mark = f"marked, {self.count}" if self.is_marked else "unmarked"
        where = "" if self.batch is None else f", batch {self.batch}"
        return f"{self.at:.3f} {self.kind} {self.process} ({mark}{where}; {self.state})"


@dataclass(frozen=True)
class Figures:
    """What happened.

    Attributes:
        processed: How many messages each kind of consumer has processed.
        deliveries: All deliveries, also those that a batch of Spark repeated.
        repeated: Messages that were processed more than once.
        marked: Messages of which a delivery was marked.
        batches: Batches in Spark's sink.
        again: Batches that Spark has run again.
    """

    processed: Mapping[str, int]
    deliveries: int
    repeated: int
    marked: int
    batches: int
    again: int


def deliveries(histories: Iterable[History]) -> list[Delivery]:
    """Return the deliveries that *histories* hold."""
    found: list[Delivery] = []
    for kind, process, lines in histories:
        held: list[Delivery] = []
        for line in lines:
            event = line["event"]
            if event == "delivered":
                number, count, batch = line["id"], line["count"], line.get("batch")
                held.append(Delivery(number, kind, process, line["at"], line["marked"], count, batch))
                found.append(held[-1])
                continue
            for each in held:
                each.state = event
                if event == "acknowledged":
                    each.acknowledged_at = line["at"]
            if event != "acknowledging":
                held = []
    return found


def last_calls(histories: Iterable[History]) -> dict[int, int]:
    """Return, by the batch of Spark, the process that has stored it last."""
    stored = [
        (line["at"], line["batch"], process)
        for _, process, lines in histories
        for line in lines
        if line["event"] == "stored"
    ]
    return {batch: process for _, batch, process in sorted(stored)}


def figures(found: Sequence[Delivery], rows: Sequence[Row]) -> Figures:
    """Count what happened."""
    places: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        places[row.number].append("spark")
    for each in found:
        if each.kind != "spark" and each.state in {"acknowledging", "acknowledged"}:
            places[each.number].append(each.kind)
    processed = Counter(kind for kinds in places.values() for kind in set(kinds))
    runs = {(each.process, each.batch) for each in found if each.batch is not None}
    return Figures(
        {kind: processed[kind] for kind in KINDS},
        len(found),
        sum(len(kinds) > 1 for kinds in places.values()),
        len({each.number for each in found if each.is_marked}),
        len({row.batch for row in rows}),
        len(runs) - len({batch for _, batch in runs}),
    )


def violations(
    sent: Collection[int],
    found: Sequence[Delivery],
    rows: Sequence[Row],
    killed: Collection[int],
    last: Mapping[int, int],
) -> Iterator[str]:
    """Return each broken promise, in words.

    Args:
        sent: The messages.
        found: All deliveries.
        rows: Spark's sink.
        killed: The processes that were killed.
        last: What `last_calls` returned.
    """
    of: dict[int, list[Delivery]] = defaultdict(list)
    for each in sorted(found, key=lambda each: each.at):
        of[each.number].append(each)
    stored: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        stored[row.number].append(row)
    for number in sorted({*of, *stored} - set(sent)):
        yield f"{number} was never sent"
    for number in sorted(sent):
        if number not in stored and not any(each.kind != "spark" for each in of[number] if is_settling(each)):
            yield f"{number} was lost: {_told(of[number])}"
    for number in sorted(of):
        yield from _of_message(number, of[number], stored[number], killed)
    yield from _of_sink(found, rows, last)


def is_settling(delivery: Delivery) -> bool:
    """Return whether a session of Python or Java began to acknowledge it, and was not refused."""
    return delivery.state in {"acknowledging", "acknowledged"}


def _of_message(number: int, each: Sequence[Delivery], rows: Sequence[Row], killed: Collection[int]) -> Iterator[str]:
    for at, delivery in enumerate(each):
        if delivery.is_marked != (delivery.count > 1):
            yield f"{number}: the mark and the count disagree: {delivery}"
        before = each[:at]
        if before and not delivery.is_marked:
            yield f"{number} was repeated and came unmarked: {_told(each)}"
        if any(one.acknowledged_at is not None and one.acknowledged_at < delivery.at for one in before):
            yield f"{number} was acknowledged, and delivered again: {_told(each)}"
        elif before and not any(one.process in killed or one.state == "refused" for one in before):
            yield f"{number} was repeated, and no process that had it was killed: {_told(each)}"
    unmarked = [row for row in rows if not row.is_marked]
    others = [one for one in each if one.kind != "spark" and not one.is_marked]
    if len(unmarked) + len(others) > 1:
        yield f"{number} was processed more than once, unmarked: {rows}; {_told(each)}"


def _of_sink(found: Sequence[Delivery], rows: Sequence[Row], last: Mapping[int, int]) -> Iterator[str]:
    """Compare the sink with what the function of each batch was called with last."""
    called: dict[tuple[int | None, int], set[tuple[int, bool]]] = defaultdict(set)
    for each in found:
        called[each.batch, each.process].add((each.number, each.is_marked))
    held: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for row in rows:
        held[row.batch].append((row.number, row.is_marked))
    for batch in sorted({*last, *held}):
        wanted = called[batch, last[batch]] if batch in last else set()
        strange = sorted(wanted ^ set(held[batch]))
        if strange or len(held[batch]) != len(set(held[batch])):
            yield f"batch {batch} has {len(held[batch])} rows, and was called with {len(wanted)}: {strange[:5]}"


def _told(each: Iterable[Delivery]) -> str:
    return ", ".join(map(str, each)) or "no consumer got it"


def stored_once(sent: Collection[int], stored: Iterable[int]) -> Iterator[str]:
    """Return what is wrong with the numbers that a table has, in words: each of *sent* is to be there, once."""
    counts = Counter(stored)
    for number in sorted({*sent, *counts}):
        if counts[number] != (number in sent):
            is_known = "" if number in sent else ", and was never sent"
            yield f"{number} is stored {counts[number]} times{is_known}"
