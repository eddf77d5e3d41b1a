"""Moves messages: one Kafka transaction writes the copies elsewhere and settles the originals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.transactions.transactional_producer import (
    PAUSE_SECONDS,
    AbortedError,
    Move,
    OutgrownError,
    Part,
    TransactionalProducer,
    UnknownError,
)
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.consumer.group_consumer import GroupConsumer
    from kjms.engine.kafka import TopicPartition

__all__ = ["Relocator"]

_log = logging.getLogger("kjms.mover")

BATCH: Final = 500  # messages in one transaction: a transaction costs as much as a hundred of them
LONGEST_PAUSE: Final = 5.0  # seconds between attempts
PASSING_SECONDS: Final = 1.0  # pauses shorter than that follow what passes by itself, as a rebalance
LEANEST: Final = 2  # how often a copy can be made smaller

Moves = tuple["GroupConsumer", list[Move]]
"""What is moved together, of one reader."""


class Relocator(TransactionalProducer[Moves]):
    """The engine's mover, with a thread and a transactional producer of its own from the first move on.

    A message that cannot be moved stays unsettled where it is, and is tried again.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka, of this engine alone.
        tell: Told of trouble that lasts.
        look: Says whether readers of committed records see the one at a place.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        transactional_id: str,
        tell: Callable[[JMSException], None],
        look: Callable[[TopicPartition], bool],
        tuning: Tuning = DEFAULTS,
    ) -> None:
        super().__init__(config, transactional_id, tuning)
        self._tell = tell
        self._look = look
        self._alone = 0  # so many go one by one, after they failed together
        self._pause = PAUSE_SECONDS
        self._told = ""
        self._moving: GroupConsumer | None = None  # whose messages are being moved
        self._moving_count = 0

    def submit(self, reader: GroupConsumer, moves: Sequence[Move]) -> None:
        """Move messages that *reader* holds, soon and in their order, *moves* all in one transaction."""
        if moves:
            self._submit((reader, list(moves)))

    def finish(self, reader: GroupConsumer, seconds: float) -> None:
        """Return when nothing of *reader* is left to be moved, or after *seconds*."""
        with self._news:
            self._news.wait_for(lambda: self._closing or not self._has_moves(reader), seconds)

    def moving(self, reader: GroupConsumer) -> int:
        """Return how many messages of *reader* wait to be moved, or are being moved."""
        with self._news:
            waiting = sum(len(moves) for each, moves in self._units if each is reader)
            return waiting + (self._moving_count if self._is_busy and self._moving is reader else 0)

    def _has_moves(self, reader: GroupConsumer) -> bool:
        is_moving = self._is_busy and self._moving is reader
        return is_moving or any(each is reader for each, _ in self._units)

    def _take(self) -> list[Moves]:
        reader, moves = self._units.popleft()
        self._moving = reader
        if self._alone:
            self._alone -= 1
        else:
            while self._units and self._units[0][0] is reader and len(moves) < BATCH:
                moves += self._units.popleft()[1]
        self._moving_count = len(moves)
        return [(reader, moves)]

    def _carry_out(self, batch: list[Moves]) -> None:
        reader, moves = batch[0]
        moves[:] = reader.still_held(moves)
        if moves:
            copies = [move.copy(move.delivery.too_large) for move in moves]
            self._transact([Part(copies, reader, moves)])
        self._pause = PAUSE_SECONDS

    def _is_visible(self, first: TopicPartition | None) -> bool:
        try:
            return first is not None and self._look(first)
        except UnknownError as error:  # not allowed to read there, such as in a dead-letter queue
            _log.warning("%s; what may have been moved is moved again", error)
            return False

    def _failed(self, batch: list[Moves], error: Exception) -> None:
        reader, moves = batch[0]
        self._put_back(reader, moves, error)
        self._rest(moves, error)

    def _put_back(self, reader: GroupConsumer, moves: list[Move], error: Exception) -> None:
        aside = [move for move in moves if move.is_overflow]  # only together they make the settlement fit
        single = [[move] for move in moves if not move.is_overflow]
        if isinstance(error, AbortedError) and isinstance(error.cause, OutgrownError):
            reader.forget(aside)  # others are to go with them
            aside = []
        if isinstance(error, AbortedError) and error.is_too_large and len(moves) == 1:
            # Else the batch was too large, and perhaps no message of it. In the end it begins anew: limits are raised.
            moves[0].delivery.too_large = (moves[0].delivery.too_large + 1) % (LEANEST + 1)
        units = [unit for unit in (*single, aside) if unit]
        with self._news:
            self._units.extend((reader, unit) for unit in units)  # at the end: they hold up nobody else's
            self._alone = max(self._alone, len(units) if len(moves) > 1 else 0)

    def _rest(self, moves: list[Move], error: Exception) -> None:
        failure = error.cause if isinstance(error, AbortedError) else error
        is_too_large = isinstance(error, AbortedError) and error.is_too_large
        if isinstance(failure, OutgrownError) or (
            is_too_large and (len(moves) > 1 or (not moves[0].is_overflow and moves[0].delivery.too_large > 0))
        ):
            _log.debug("%s; tried again, otherwise", failure)
            return
        is_passing = isinstance(error, AbortedError) and error.is_passing and self._pause < PASSING_SECONDS
        level = logging.DEBUG if is_passing else logging.WARNING
        _log.log(level, "move messages: %s; tried again in %.1f s", failure, self._pause)
        if not is_passing and str(failure) != self._told:  # not each time that it fails for the same reason
            self._told = str(failure)
            self._tell(failure if isinstance(failure, JMSException) else JMSException(self._told, None, failure))
        with self._news:
            others = any(move not in moves for _, unit in self._units for move in unit)
            self._news.wait_for(lambda: self._closing, PAUSE_SECONDS if others else self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
