"""Relocate messages: one Kafka transaction writes the copies elsewhere and settles the originals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.publisher import SMALL, checked_sizes, record_size
from kjms.engine.transactions.errors import AbortedError, OutgrownError, UnknownError
from kjms.engine.transactions.plan import DeadLetterMove, Move, Settler, TransactionPart
from kjms.engine.transactions.transactional_producer import PAUSE_SECONDS, TransactionalProducer
from kjms.engine.tuning import DEFAULTS, Tuning
from kjms.errors import JMSException, ResourceAllocationException

if TYPE_CHECKING:
    from kjms.engine.admin.topics import WantedTopic
    from kjms.engine.kafka import TopicPartition

__all__ = ["Relocator"]

_log = logging.getLogger("kjms.relocator")

BATCH: Final = 2_000  # messages in one transaction: it costs as much as some hundreds of them
LONGEST_PAUSE: Final = 5.0  # seconds between attempts
PASSING_SECONDS: Final = 1.0  # pauses shorter than that follow what passes by itself, as a rebalance

Moves = tuple[Settler[Any], list[Move[Any]]]
"""What is relocated together, of one group consumer."""


class TargetError(Exception):
    """The topic of dead letters does not take them: nothing was begun.

    Args:
        cause: Why.
    """

    def __init__(self, cause: JMSException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Relocator(TransactionalProducer[Moves]):
    """Relocates messages of an engine in a thread of its own.

    A message that cannot be relocated stays unsettled where it is, and is tried again. Others do not wait for it, and
    neither does closing.

    Args:
        config: librdkafka's settings of the producer.
        transactional_id: Its name in Kafka, of this engine alone.
        ensure: Makes the topic of dead letters where it is missing; returns its name.
        largest: Returns how many bytes a message to a topic may have; None: it is not known.
        report: Reports a lasting failure.
        is_visible: Returns whether consumers of committed records see the one at a place.
        tuning: Its times and limits.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        transactional_id: str,
        ensure: Callable[[WantedTopic], tuple[str, int]],
        largest: Callable[[str], int | None],
        report: Callable[[JMSException], None],
        is_visible: Callable[[TopicPartition], bool],
        tuning: Tuning = DEFAULTS,
    ) -> None:
        super().__init__(config, transactional_id, tuning)
        self._ensure = ensure
        self._sizes = checked_sizes(config, largest)
        self._report = report
        self._check_visible = is_visible
        self._alone = 0  # so many go one by one, after they failed together
        self._pause = PAUSE_SECONDS
        self._reported: set[str] = set()  # the failures of what is left; each is reported once
        self._moving: Settler[Any] | None = None  # of the messages that are being relocated
        self._moving_count = 0
        self._is_retrying = False  # what failed before: nothing waits for it

    def submit(self, settler: Settler[Any], moves: Sequence[Move[Any]]) -> None:
        """Relocate messages of *settler* soon and in order, all of *moves* in one transaction."""
        if moves:
            self._submit((settler, list(moves)))

    def finish(self, settler: Settler[Any], seconds: float) -> None:
        """Return when no message of *settler* is left to be relocated but those that cannot be, or after *seconds*."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or not self._has_moves(settler), seconds)

    def moving(self, settler: Settler[Any]) -> int:
        """Return how many messages of *settler* wait to be relocated, or are being relocated."""
        with self._changed:
            waiting = sum(len(moves) for each, moves in self._units if each is settler)
            return waiting + (self._moving_count if self._is_busy and self._moving is settler else 0)

    def _has_moves(self, settler: Settler[Any]) -> bool:
        is_moving = self._moving is settler and self._is_working
        return is_moving or any(each is settler and not _has_failed(moves) for each, moves in self._units)

    @property
    def _is_working(self) -> bool:
        """Whether messages are being relocated that closing waits for."""
        return self._is_busy and self._moving_count > 0 and not self._is_retrying

    def _is_done(self) -> bool:
        return not self._is_working and all(_has_failed(moves) for _, moves in self._units)

    def _take(self) -> list[Moves]:
        settler, moves = self._units.popleft()
        self._moving = settler
        self._is_retrying = _has_failed(moves)
        if self._alone:
            self._alone -= 1
        elif not self._is_retrying:
            while (
                self._units
                and self._units[0][0] is settler
                and len(moves) < BATCH
                and not _has_failed(self._units[0][1])
            ):
                moves += self._units.popleft()[1]
        self._moving_count = len(moves)
        return [(settler, moves)]

    def _carry_out(self, batch: list[Moves]) -> None:
        settler, moves = batch[0]
        moves[:] = settler.still_held(moves)
        ready, refused, failure = self._plan(moves)
        if failure is not None and not ready:
            raise TargetError(failure)
        if failure is not None:
            self._set_aside(settler, refused, failure)
            moves[:] = ready
        if moves:
            self._transact([TransactionPart(settler=settler, moves=moves)])
        self._pause = PAUSE_SECONDS
        if not self._units:
            self._reported.clear()

    # Dead letters are planned: their topics are found or made, and are to take them.

    def _plan(self, moves: Sequence[Move[Any]]) -> tuple[list[Move[Any]], list[Move[Any]], JMSException | None]:
        """Return which of *moves* can be made, which cannot, and why not; None: all can."""
        topics: dict[WantedTopic, str | JMSException] = {}
        limits: dict[str, int] = {}  # as far as they were asked for now
        ready: list[Move[Any]] = []
        refused: list[Move[Any]] = []
        too_large: dict[str, int] = {}  # the size of the largest message for a topic
        failure: JMSException | None = None
        for move in moves:
            if not isinstance(move, DeadLetterMove):
                ready.append(move)
                continue
            topic = topics.get(move.target)
            if topic is None:
                topic = topics[move.target] = self._find(move.target)
            if isinstance(topic, JMSException):
                failure = failure or topic
                refused.append(move)
                continue
            size, limit = self._excess(move, topic, limits)
            if limit:
                too_large[topic] = max(size, too_large.get(topic, 0))
                refused.append(move)
            else:
                ready.append(move)
        for topic, size in too_large.items():
            failure = failure or ResourceAllocationException(
                f"a dead letter for the Kafka topic {topic!r} has {size} bytes with its headers, and the topic's"
                f" max.message.bytes allows {limits[topic]}: the message stays where it is until the limit is raised"
                " (kafka-configs.sh --alter --entity-type topics)",
                "MSG_SIZE_TOO_LARGE",
            )
        return ready, refused, failure

    def _find(self, target: WantedTopic) -> str | JMSException:
        try:
            return self._ensure(target)[0]
        except JMSException as error:
            return error

    def _excess(self, move: DeadLetterMove[Any], topic: str, limits: dict[str, int]) -> tuple[int, int]:
        """Plan *move*, if need be without its details; return its size, and how much *topic* allows if that is less."""
        planned = move.plan(topic).record
        if self._sizes is None or (len(planned.value or b"") <= SMALL and not move.has_failed):
            return 0, 0
        size = record_size(planned)
        limit = limits.get(topic) or self._sizes.limit(topic, size)
        if not limit or size <= limit:
            return size, 0
        limits[topic] = limit
        if move.shorten():
            size = record_size(move.plan(topic).record)
            if size <= limit:
                return size, 0
            move.has_details = True
        return size, limit

    def _set_aside(self, settler: Settler[Any], refused: list[Move[Any]], failure: JMSException) -> None:
        """Have *refused* tried again behind all others, and report why."""
        for move in refused:
            move.has_failed = True
        _log.warning("relocate messages: %s; tried again in %.1f s", failure, self._pause)
        self._report_once(failure)
        with self._changed:
            self._moving_count -= len(refused)
            self._units.append((settler, refused))

    def _report_once(self, failure: JMSException) -> None:
        if str(failure) not in self._reported:
            self._reported.add(str(failure))
            self._report(failure)

    def _is_visible(self, first: TopicPartition | None) -> bool:
        try:
            return first is not None and self._check_visible(first)
        except UnknownError as error:  # not allowed to read there, such as in a dead-letter queue
            _log.warning("%s; messages that may have been relocated are relocated again", error)
            return False

    # What failed is tried again.

    def _failed(self, batch: list[Moves], error: Exception) -> None:
        settler, moves = batch[0]
        cause = error.cause if isinstance(error, AbortedError | TargetError) else error
        failure = cause if isinstance(cause, JMSException) else JMSException(str(cause), None, cause)
        is_passing = isinstance(error, AbortedError) and error.is_passing and self._pause < PASSING_SECONDS
        is_another_way = isinstance(failure, OutgrownError) or self._finds_another_way(moves, error)
        for move in moves:
            move.has_failed = not is_passing and not is_another_way
        self._put_back(settler, moves, error)
        if is_another_way:
            _log.debug("%s; kjms tries again in another way", failure)
            return
        level = logging.DEBUG if is_passing else logging.WARNING
        _log.log(level, "relocate messages: %s; tried again in %.1f s", failure, self._pause)
        if not is_passing:
            self._report_once(failure)
        self._rest(moves)

    @staticmethod
    def _finds_another_way(moves: list[Move[Any]], error: Exception) -> bool:
        """Return whether *moves*, which were too large, can be made smaller: one by one, or without details."""
        if not isinstance(error, AbortedError) or not error.is_too_large:
            return False
        if len(moves) > 1:
            return True
        move = moves[0]
        if not isinstance(move, DeadLetterMove):
            return False
        if move.shorten():
            return True
        move.has_details = True  # after the dead letter without them, all is tried again
        return False

    def _put_back(self, settler: Settler[Any], moves: list[Move[Any]], error: Exception) -> None:
        overflow = [move for move in moves if move.to]  # only together do they make the settlement fit
        single = [[move] for move in moves if not move.to]
        if isinstance(error, TargetError):  # they wait for the same
            single = [moves]
        if isinstance(error, AbortedError) and isinstance(error.cause, OutgrownError):
            settler.forget(overflow)  # others are to go with them
            overflow = []
        units = [unit for unit in (*single, overflow) if unit]
        with self._changed:
            self._units.extend((settler, unit) for unit in units)  # at the end, so that other units do not wait
            self._alone = max(self._alone, len(units) if len(moves) > 1 else 0)
            self._moving_count = 0
            self._changed.notify_all()

    def _rest(self, moves: list[Move[Any]]) -> None:
        """Wait before the next attempt, with *moves* or others; only briefly where others have not failed."""
        mine = set(map(id, moves))

        def has_others() -> bool:
            return any(not _has_failed(unit) and id(unit[0]) not in mine for _, unit in self._units)

        with self._changed:
            if not self._changed.wait_for(lambda: self._closing, PAUSE_SECONDS):
                self._changed.wait_for(lambda: self._closing or has_others(), self._pause - PAUSE_SECONDS)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def _has_failed(moves: Sequence[Move[Any]]) -> bool:
    return bool(moves) and moves[0].has_failed
