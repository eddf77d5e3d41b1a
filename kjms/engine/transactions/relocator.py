"""Relocate messages: one Kafka transaction writes the copies elsewhere and settles the originals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.transactions.errors import AbortedError, OutgrownError, UnknownError
from kjms.engine.transactions.plan import Move, Settler, TransactionPart
from kjms.engine.transactions.transactional_producer import PAUSE_SECONDS, TransactionalProducer
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.kafka import TopicPartition

__all__ = ["Relocator"]

_log = logging.getLogger("kjms.relocator")

BATCH: Final = 2_000  # messages in one transaction: it costs as much as some hundreds of them
LONGEST_PAUSE: Final = 5.0  # seconds between attempts
PASSING_SECONDS: Final = 1.0  # pauses shorter than that follow what passes by itself, as a rebalance
LEANEST: Final = 2  # how often a copy can be made smaller

Moves = tuple[Settler[Any], list[Move[Any]]]
"""What is relocated together, of one group consumer."""


class Relocator(TransactionalProducer[Moves]):
    """Relocates messages of an engine in a thread of its own.

    A message that cannot be relocated stays unsettled where it is, and is tried again.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka, of this engine alone.
        report: Reports a lasting failure.
        is_visible: Returns whether consumers of committed records see the one at a place.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        transactional_id: str,
        report: Callable[[JMSException], None],
        is_visible: Callable[[TopicPartition], bool],
        tuning: Tuning = DEFAULTS,
    ) -> None:
        super().__init__(config, transactional_id, tuning)
        self._report = report
        self._check_visible = is_visible
        self._alone = 0  # so many go one by one, after they failed together
        self._pause = PAUSE_SECONDS
        self._last_reported = ""
        self._moving: Settler[Any] | None = None  # of the messages that are being relocated
        self._moving_count = 0

    def submit(self, settler: Settler[Any], moves: Sequence[Move[Any]]) -> None:
        """Relocate messages of *settler* soon and in order, all of *moves* in one transaction."""
        if moves:
            self._submit((settler, list(moves)))

    def finish(self, settler: Settler[Any], seconds: float) -> None:
        """Return when no message of *settler* is left to be relocated, or after *seconds*."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or not self._has_moves(settler), seconds)

    def moving(self, settler: Settler[Any]) -> int:
        """Return how many messages of *settler* wait to be relocated, or are being relocated."""
        with self._changed:
            waiting = sum(len(moves) for each, moves in self._units if each is settler)
            return waiting + (self._moving_count if self._is_busy and self._moving is settler else 0)

    def _has_moves(self, settler: Settler[Any]) -> bool:
        is_moving = self._is_busy and self._moving is settler
        return is_moving or any(each is settler for each, _ in self._units)

    def _take(self) -> list[Moves]:
        settler, moves = self._units.popleft()
        self._moving = settler
        if self._alone:
            self._alone -= 1
        else:
            while self._units and self._units[0][0] is settler and len(moves) < BATCH:
                moves += self._units.popleft()[1]
        self._moving_count = len(moves)
        return [(settler, moves)]

    def _carry_out(self, batch: list[Moves]) -> None:
        settler, moves = batch[0]
        moves[:] = settler.still_held(moves)
        if moves:
            self._transact([TransactionPart(settler=settler, moves=moves)])
        self._pause = PAUSE_SECONDS

    def _is_visible(self, first: TopicPartition | None) -> bool:
        try:
            return first is not None and self._check_visible(first)
        except UnknownError as error:  # not allowed to read there, such as in a dead-letter queue
            _log.warning("%s; messages that may have been relocated are relocated again", error)
            return False

    def _failed(self, batch: list[Moves], error: Exception) -> None:
        settler, moves = batch[0]
        self._put_back(settler, moves, error)
        self._rest(moves, error)

    def _put_back(self, settler: Settler[Any], moves: list[Move[Any]], error: Exception) -> None:
        overflow = [move for move in moves if move.to]  # only together do they make the settlement fit
        single = [[move] for move in moves if not move.to]
        if isinstance(error, AbortedError) and isinstance(error.cause, OutgrownError):
            settler.forget(overflow)  # others are to go with them
            overflow = []
        if isinstance(error, AbortedError) and error.is_too_large and len(moves) == 1:
            # Else the batch was too large, and perhaps no message of it. After the leanest copy all is tried again.
            moves[0].too_large = (moves[0].too_large + 1) % (LEANEST + 1)
        units = [unit for unit in (*single, overflow) if unit]
        with self._changed:
            self._units.extend((settler, unit) for unit in units)  # at the end, so that other units do not wait
            self._alone = max(self._alone, len(units) if len(moves) > 1 else 0)

    def _rest(self, moves: list[Move[Any]], error: Exception) -> None:
        failure = error.cause if isinstance(error, AbortedError) else error
        is_too_large = isinstance(error, AbortedError) and error.is_too_large
        if isinstance(failure, OutgrownError) or (
            is_too_large and (len(moves) > 1 or (not moves[0].to and moves[0].too_large > 0))
        ):
            _log.debug("%s; kjms tries again in another way", failure)
            return
        is_passing = isinstance(error, AbortedError) and error.is_passing and self._pause < PASSING_SECONDS
        level = logging.DEBUG if is_passing else logging.WARNING
        _log.log(level, "relocate messages: %s; tried again in %.1f s", failure, self._pause)
        if not is_passing and str(failure) != self._last_reported:  # once for each reason
            self._last_reported = str(failure)
            self._report(
                failure if isinstance(failure, JMSException) else JMSException(self._last_reported, None, failure)
            )
        with self._changed:
            others = any(move not in moves for _, unit in self._units for move in unit)
            self._changed.wait_for(lambda: self._closing, PAUSE_SECONDS if others else self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
