"""Count dead letters by queue and by cause."""

from __future__ import annotations

import logging
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final

from kjms.admin._messages import DeadLetter, DeadLetterCause, DeadLetterQueue, OnProgress, moment
from kjms.errors import InvalidDestinationException
from kjms.mapping.dead_letters import CAUSE
from kjms.selector import parse_selector

if TYPE_CHECKING:
    from datetime import datetime

    from kjms.admin._reader import MessageReader
    from kjms.admin._scopes import Chosen, Scopes

__all__ = ["IS_DEAD_LETTER", "causes_of", "count_every_queue", "count_letters", "queue_of"]

_log = logging.getLogger("kjms.admin")

CAUSES_KEPT: Final = 1_000  # of a queue: an exception's text may differ each time
OTHERS: Final = "other causes"
IS_DEAD_LETTER: Final = f"{CAUSE} IS NOT NULL"
"""The selector of dead letters."""

Tallies = tuple[Counter[str], dict[str, int]]
"""How many dead letters have each cause, and when the last of them failed."""


def count_letters(
    reader: MessageReader, chosen: Chosen, on_progress: OnProgress | None, most: int | None = None
) -> Tallies:
    """Return the causes of the dead letters in *chosen*: how many, and when the last failed, in milliseconds.

    Args:
        reader: Reads them.
        chosen: The queue.
        on_progress: Called once for every thousand messages that were looked at.
        most: How many are counted at the most; None: all.
    """
    counts: Counter[str] = Counter()
    last: dict[str, int] = {}
    for _, message in islice(reader.scan(chosen, parse_selector(IS_DEAD_LETTER), on_progress), most):
        letter = DeadLetter.of(message)
        assert letter is not None
        cause = letter.cause if letter.cause in counts or len(counts) < CAUSES_KEPT else OTHERS
        counts[cause] += 1
        last[cause] = max(last.get(cause, 0), letter.last_failure or 0)
    return counts, last


def count_every_queue(
    reader: MessageReader, scopes: Scopes, on_progress: OnProgress | None, most: int | None = None
) -> dict[str, Tallies]:
    """Return the causes of the dead letters in each dead-letter queue, by its name, sorted; as `count_letters` counts.

    A queue that is deleted meanwhile is left out.
    """
    found = {}
    for queue in scopes.dead_letter_queues():
        try:
            found[queue.queue_name] = count_letters(reader, scopes.chosen(queue), on_progress, most)
        except InvalidDestinationException as error:
            _log.info("the dead letters of %s were not counted: %s", queue, error)
    return found


def queue_of(name: str, tallies: Tallies) -> DeadLetterQueue:
    """Return what *tallies* say of the queue *name*."""
    counts, last = tallies
    return DeadLetterQueue(name, counts.total(), dict(counts.most_common()), _when(max(last.values(), default=0)))


def causes_of(queues: dict[str, Tallies]) -> list[DeadLetterCause]:
    """Return the causes of the dead letters in *queues*, by name, most frequent first."""
    totals: Counter[str] = Counter()
    where: dict[str, Counter[str]] = {}
    latest: dict[str, int] = {}
    for name, (counts, last) in queues.items():
        totals += counts
        for cause, count in counts.items():
            where.setdefault(cause, Counter())[name] += count
            latest[cause] = max(latest.get(cause, 0), last[cause])
    return [
        DeadLetterCause(cause, count, dict(where[cause].most_common()), _when(latest[cause]))
        for cause, count in totals.most_common()
    ]


def _when(milliseconds: int) -> datetime | None:
    return moment(milliseconds) if milliseconds else None
