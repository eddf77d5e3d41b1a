"""Read what a queue or subscription has not settled, from any place on, without a group and without taking anything.

A scan reads one partition after the other: the overflow topic, the transfer partitions, the destination's own topic,
and at last what came to the first two since the scan began. So a message that is relocated meanwhile is read once or
twice, and never passed over. `Position` says where a later scan continues; it need not be of the same process.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from kjms.engine.admin.group_progress import GroupProgress, read_progress
from kjms.engine.admin.log_index import is_unsettled, unsettled_runs
from kjms.engine.admin.questions import Questions
from kjms.engine.kafka import ConsumerPort, KafkaException, TopicPartition, jms_error, open_consumer
from kjms.engine.log_reading import UNTIL_END, Place, records
from kjms.errors import InvalidDestinationException
from kjms.mapping import SourceRecord
from kjms.mapping.bridges import decoder
from kjms.mapping.relocated import original
from kjms.txn.states import NEVER

if TYPE_CHECKING:
    from kjms.engine.admin.scopes import Scope
    from kjms.engine.consumer.overflow import Overflow
    from kjms.txn.metadata import History, State

__all__ = ["Position", "Scan", "Scanned", "Where"]

MEMORY_KB: Final = 4_096  # fetched ahead by librdkafka; 16 MB by default
GAP: Final = 20_000  # settled offsets that are worth a new request; fewer are read and passed over
OWN: Final = 2  # the phase of the destination's own topic
LAST: Final = 4

Where: TypeAlias = Literal["queue", "overflow", "transfer"]
"""Where a message stands: in its destination's own topic, in the overflow topic, or in a transfer partition."""

WHERE: Final[tuple[Where, ...]] = ("overflow", "transfer", "queue", "overflow", "transfer")
"""By phase."""


class Position(NamedTuple):
    """Where a scan has got to.

    Attributes:
        phase: What it reads: the overflow topic, the transfer partitions, the own topic, and the first two again.
        number: The partition.
        offset: The next offset to read there.
        marks: Where the partitions of the overflow topic and of the transfer topic ended when the scan began.
    """

    phase: int
    number: int
    offset: int
    marks: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def is_possible(self) -> bool:
        """Return whether a scan may have got there: what comes from outside may be anything."""
        figures = (self.phase, self.number, self.offset, *self.marks[0], *self.marks[1])
        return all(type(each) is int and each >= 0 for each in figures) and self.phase <= LAST


class Scanned(NamedTuple):
    """A message that is not settled.

    Attributes:
        record: Its record, as it was where it stood first.
        phase: When the scan found it, as in `Position`.
        topic: The topic that it is in now.
        number: The partition there.
        offset: The offset there.
        history: What happened to it.
        is_dispatched: Whether a consumer may have it, or had it.
        marks: As in `Position`.
    """

    record: SourceRecord
    phase: int
    topic: str
    number: int
    offset: int
    history: History
    is_dispatched: bool
    marks: tuple[tuple[int, ...], tuple[int, ...]]

    @property
    def where(self) -> Where:
        """Return which kind of topic it is in now."""
        return WHERE[self.phase]

    @property
    def is_in_own_topic(self) -> bool:
        """Return whether it is in its destination's own topic."""
        return self.phase == OWN

    @property
    def after(self) -> Position:
        """Return where a scan continues behind it."""
        return Position(self.phase, self.number, self.offset + 1, self.marks)


class Scan:
    """One reading of the unsettled messages of a group, up to where the partitions end when it begins.

    One thread uses it. It has a Kafka consumer of its own, and asks the broker as consumers do.

    Args:
        scope: The queue or subscription; whose messages are its own is not looked at.
        config: librdkafka's settings of a consumer, with the group.
        overflow: Knows the Kafka topics, and reads copies of offsets that Kafka has deleted.
        timeout: Seconds without an answer after which reading fails.
        position: Where an earlier scan has got to; None: from the start.
    """

    def __init__(
        self,
        scope: Scope,
        config: Mapping[str, Any],
        overflow: Overflow,
        timeout: float,
        position: Position | None = None,
    ) -> None:
        self._scope = scope
        self._config = {**config, **UNTIL_END, "queued.max.messages.kbytes": MEMORY_KB}
        self._overflow = overflow
        self._questions = Questions(overflow.topics, timeout)
        self._timeout = timeout
        self._position = position
        self._consumer: ConsumerPort | None = None
        self._progress: dict[Place, GroupProgress] = {}

    def __repr__(self) -> str:
        return f"<Scan of {self._scope.destination} from {self._position}>"

    def __iter__(self) -> Iterator[Scanned]:
        """Return the unsettled messages from the position on.

        Raises:
            InvalidDestinationException: Its topic was deleted meanwhile.
            JMSException: The broker does not answer, or the settlement was written by a later kjms.
        """
        try:
            yield from self._messages()
        except KafkaException as error:
            doing = f"read the messages of {self._scope.destination}"
            raise jms_error(error, doing, to="Read", topic=self._scope.topic, group=self._scope.group) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the Kafka consumer."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _messages(self) -> Iterator[Scanned]:
        consumer = self._consumer = open_consumer(self._config)
        scope, topics = self._scope, (self._overflow.topic, self._overflow.handover)
        begin = self._position
        if begin is None:
            # Before the settlement is read: what stands before the marks is settled where it was relocated from, and a
            # later page, which reads the settlement anew, need not return to it.
            overflow, transfer = (self._ends(topic) for topic in topics)
            begin = Position(0, 0, 0, (overflow, transfer))
        found = read_progress(str(scope.destination), scope.topic, self._overflow, consumer, decoder(scope.convention))
        self._progress = {(each.topic, each.number): each for each in found}
        if not self._count(scope.topic):
            raise self._deleted(scope.topic)
        for phase in range(begin.phase, LAST + 1):
            topic = scope.topic if phase == OWN else topics[phase % 3]
            for number in range(begin.number if phase == begin.phase else 0, self._count(topic)):
                yield from self._partition(consumer, phase, topic, number, begin)

    def _count(self, topic: str) -> int:
        return sum(place[0] == topic for place in self._progress)

    def _ends(self, topic: str) -> tuple[int, ...]:
        count = self._overflow.topics.look_up(topic)
        ends = self._overflow.topics.ends(topic, count) if count else {}
        return tuple(ends[number] for number in range(count))

    def _partition(
        self, consumer: ConsumerPort, phase: int, topic: str, number: int, begin: Position
    ) -> Iterator[Scanned]:
        progress = self._progress.get((topic, number))
        if progress is None:  # a gap in the numbers: it was written by a later kjms, and was refused
            return
        state, low, high = progress.state, progress.state.committed_offset, progress.end
        if phase != OWN:
            ended = begin.marks[phase % 3]
            mark = ended[number] if number < len(ended) else 0
            low, high = (low, min(high, mark)) if phase < OWN else (max(low, mark), high)
        if (phase, number) == (begin.phase, begin.number):
            low = max(low, begin.offset)
        histories, marks = state.histories, begin.marks
        source: SourceRecord
        for first, past in _spans(state, low, high):
            consumer.assign([TopicPartition(topic, number, first)])
            for record in records(consumer, {(topic, number): past}, self._timeout, cut=self._check):
                offset = record.offset() or 0
                if offset < state.known and not is_unsettled(state, offset):
                    continue
                source, history = record, histories.get(offset, NEVER)
                if phase != OWN:
                    source, before = original(record)
                    if self._is_in_own_topic(source):
                        continue  # it was relocated since the settlement was read
                    history = max(history, before)
                yield Scanned(source, phase, topic, number, offset, history, state.is_in_flight(offset), marks)
            consumer.unassign()

    def _check(self, ends: Mapping[Place, int]) -> Collection[Place]:
        """Raise an exception if a partition ends before *ends* now, or is gone."""
        for topic, _ in self._questions.cut(ends):
            raise self._deleted(topic)
        return ()

    def _deleted(self, topic: str) -> InvalidDestinationException:
        return InvalidDestinationException(
            f"{self._scope.destination}: the Kafka topic {topic!r} was deleted while its messages were read"
        )

    def _is_in_own_topic(self, source: SourceRecord) -> bool:
        place, offset = (source.topic() or "", source.partition() or 0), source.offset() or 0
        progress = self._progress.get(place) if place[0] == self._scope.topic else None
        return progress is not None and offset < progress.end and is_unsettled(progress.state, offset)


def _spans(state: State, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Return what is to be read of a partition from *low* to *high*: its unsettled runs, near ones together.

    >>> from kjms.txn.metadata import State
    >>> list(_spans(State(0, 0, ((0, 5), (9, 10), (90_000, 90_001)), 90_001), 2, 90_003))
    [(2, 10), (90000, 90003)]
    """
    first = past = -1
    for begin, end in unsettled_runs(state, low, high):
        if first >= 0 and begin - past > GAP:
            yield first, past
            first = begin
        first = begin if first < 0 else first
        past = end
    if first >= 0:
        yield first, past
