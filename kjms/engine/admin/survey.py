"""Count what is not settled of many queues and subscriptions at once, without a group and without taking anything.

A look asks for all of them together, in this order: where the destinations' own topics end, what their groups have
committed, and where the logs begin and the other topics end. So a message that is relocated meanwhile is seen once or
twice, never in neither place, and the copy says where it came from.

Offsets have holes, so messages are counted by reading: what was read once is kept in an index, and the next look reads
only what came since. A queue without unsettled offsets is not read at all.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kjms.engine.admin.kinds import kind_on_record
from kjms.engine.admin.log_index import DelayedIndex, LogIndex, Origin, Tally, unsettled_runs
from kjms.engine.admin.notes import Copies, RedeliveryFigures
from kjms.engine.admin.questions import Questions
from kjms.engine.admin.scopes import Backlog, Scope, facts_of
from kjms.engine.consumer.restoration import kept_state
from kjms.engine.kafka import (
    ConsumerPort,
    KafkaException,
    KafkaMessage,
    OffsetSpec,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, Place, records
from kjms.errors import InvalidDestinationException, JMSException, JMSSecurityException
from kjms.mapping.delayed import read
from kjms.mapping.internal import MalformedError
from kjms.mapping.names import delayed, handover, overflow
from kjms.txn.metadata import NewerStateError, State

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics
    from kjms.engine.skipped import SkippedRecords
    from kjms.engine.tuning import Tuning

__all__ = ["Survey"]

_log = logging.getLogger("kjms.survey")

BETWEEN: Final = 1_000  # messages between two calls of what takes progress

OnLook: TypeAlias = "Callable[[int, int, str], object]"
"""Called with how many messages of a destination were looked at, of how many at the most, and the destination."""


class _Found(NamedTuple):
    """What the cluster says of one scope."""

    scope: Scope
    states: dict[Place, State]
    ends: dict[Place, int]  # before which messages count


class Survey:
    """Looks at queues and subscriptions, and remembers what it has read; one thread at a time.

    Args:
        topics: Knows Kafka topics.
        settings: librdkafka's settings of a consumer without a group.
        flush: Commits what this process has settled of the queue in a Kafka topic.
        timeout: Seconds for each answer.
        skipped: Counts the records that cannot be read.
        tuning: Has the clock.
    """

    def __init__(
        self,
        topics: Topics,
        settings: Mapping[str, Any],
        flush: Callable[[str], None],
        timeout: float,
        skipped: SkippedRecords,
        tuning: Tuning,
    ) -> None:
        self._topics = topics
        self._questions = Questions(topics, timeout)
        self._settings = {**settings, **UNTIL_END}
        self._flush = flush
        self._timeout = timeout
        self._skipped = skipped
        self._now_ms = tuning.now_ms
        self._lock = threading.Lock()
        self._consumer: ConsumerPort | None = None
        self._indexes: dict[Place, dict[Hashable, LogIndex]] = {}
        self._delayed: dict[Place, DelayedIndex] = {}
        self._identities: dict[str, str] = {}
        self._changed: set[str] = set()  # topics that were cut while they were read, as in `Questions.cut`
        self._copies = Copies()
        self._redeliveries = RedeliveryFigures()

    def __repr__(self) -> str:
        messages = sum(len(index) for views in self._indexes.copy().values() for index in views.values())
        return f"<Survey: {len(self._indexes)} partitions, {messages} messages>"

    def close(self) -> None:
        """Close the Kafka consumer."""
        with self._lock:
            self._drop_consumer()

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    # Looks.

    def queues_made(self, there: Mapping[str, int]) -> set[str]:
        """Return the topics that kjms made for queues, and that were not made anew since.

        Raises:
            JMSException: The broker does not answer.
        """
        with self._lock:
            self._read_copies(there)
            made = {topic: identity for topic, identity in self._copies.made.items() if topic in there}
            known = self._questions.identities(made)
            return {topic for topic, identity in made.items() if known.get(topic, "-") in {identity, "-"}}

    def kinds(self, there: Mapping[str, int]) -> dict[str, str]:
        """Return the kind of destination, ``queue`` or ``topic``, that kjms made or first consumed topics as.

        Raises:
            JMSException: The broker does not answer.
        """
        with self._lock:
            self._read_copies(there)
            noted = {topic: records for topic, records in self._copies.kinds.items() if topic in there}
            known = self._questions.identities(noted)
            return {topic: kind_on_record(records, known.get(topic, "-")) for topic, records in noted.items()}

    def redeliveries(self, there: Mapping[str, int], since: int) -> Mapping[str, Counter[str]]:
        """Return how many events of each kind the redelivery log has had, by consumer group.

        Args:
            there: The partitions of every topic.
            since: What the first call counts from, in milliseconds since the epoch.

        Raises:
            JMSException: The broker does not answer.
        """
        figures = self._redeliveries
        with self._lock:
            topic, count = figures.topic, there.get(figures.topic, 0)
            places = [(topic, number) for number in range(count)]
            if not places:
                return figures.counts
            new = [place for place in places if place not in figures.positions]
            ends = self._questions.offsets(places, OffsetSpec.latest())
            firsts = self._questions.offsets(new, OffsetSpec.for_timestamp(since)) if new else {}
            begins = self._questions.offsets(places, OffsetSpec.earliest())
            for place in new:
                first = firsts.get(place, -1)
                figures.positions[place] = first if first >= 0 else ends.get(place, 0)
            starts = figures.starts(begins, ends)
            self._read(starts, ends, self._skipping(figures.add))
            figures.positions.update(ends)
            return figures.counts

    def look(
        self,
        scopes: Sequence[Scope],
        there: Mapping[str, int],
        *,
        is_exact: bool = True,
        changing: Collection[str] = (),
        on_look: OnLook | None = None,
    ) -> dict[str, Backlog | JMSException]:
        """Return what is not settled of each of *scopes*, by group, or why that cannot be said.

        A scope whose topic is being created or deleted is left out.

        Args:
            scopes: What is to be counted.
            there: The partitions of every topic.
            is_exact: Whether to count messages; if not, nothing is read.
            changing: Topics of which Kafka deletes records that are not the oldest; they are read anew.
            on_look: Called once for every thousand messages that are read; what it raises ends the look.

        Raises:
            JMSException: The broker does not answer.
        """
        with self._lock:
            for scope in scopes:
                self._flush(scope.topic)
            for topic in changing:
                self._forget(topic)
            self._forget_gone(there)
            self._changed.clear()
            found, failed, begins = self._find(scopes, there)
            waiting = self._ends_of_delayed(scopes, there) if is_exact else {}
            unreadable = dict[str, JMSException]()
            if is_exact:
                unreadable = self._read_all(found, begins, waiting, on_look)
            now = self._now_ms()
            later: dict[str, list[DelayedIndex]] = {}
            for place in waiting:
                later.setdefault(place[0], []).append(self._delayed.setdefault(place, DelayedIndex()))
            for topic in self._changed:
                self._forget(topic)
            for each in found:
                if not self._changed.isdisjoint({topic for topic, _ in each.states}):
                    continue
                why = next((unreadable[topic] for topic, _ in each.states if topic in unreadable), None)
                why = unreadable.get(delayed(each.scope.topic), why)
                failed[each.scope.group] = why or self._counted(each, begins, later, now, is_exact)
            return failed

    def _find(
        self, scopes: Sequence[Scope], there: Mapping[str, int]
    ) -> tuple[list[_Found], dict[str, Backlog | JMSException], dict[Place, int]]:
        """Return what is settled of each scope, what cannot be said, and where the logs begin."""
        places, own_ends, committed = self._settled(scopes, there)
        every = {place for found in places.values() for place in found}
        asked = self._questions.ask(every, OffsetSpec.earliest()), self._questions.ask(own_ends, OffsetSpec.latest())
        later = {delayed(scope.topic) for scope in scopes} & there.keys()
        identities = self._questions.identities({topic for topic, _ in every} | later)
        begins, ends = (self._questions.answers(answers) for answers in asked)
        ends |= self._questions.ends_after_commits(every - own_ends.keys())
        if any(place not in known for g, known in committed.items() if isinstance(known, dict) for place in places[g]):
            self._read_copies(there)
        for topic, identity in identities.items():
            if self._identities.setdefault(topic, identity) != identity:
                self._identities[topic] = identity
                self._forget(topic)
        found, failed = [], dict[str, Backlog | JMSException]()
        for scope in scopes:
            answer = committed[scope.group]
            if isinstance(answer, JMSException):
                failed[scope.group] = answer
                continue
            if any(place not in begins or place not in ends for place in places[scope.group]):
                continue
            try:
                states = {
                    place: self._state(scope, place, answer, begins[place], ends[place], identities.get(place[0], "-"))
                    for place in places[scope.group]
                }
            except NewerStateError as error:
                failed[scope.group] = JMSException(f"{scope.destination} cannot be counted: {error}")
                continue
            found.append(_Found(scope, states, {place: own_ends.get(place, ends[place]) for place in states}))
        return found, failed, begins

    def _settled(
        self, scopes: Sequence[Scope], there: Mapping[str, int]
    ) -> tuple[dict[str, list[Place]], dict[Place, int], dict[str, dict[Place, tuple[int, str]] | JMSException]]:
        """Return the partitions of each group, where the destinations' own end, and what each group has committed."""
        topics = {s.group: (s.topic, overflow(s.topic, s.group), handover(s.topic, s.group)) for s in scopes}
        beside = {topic for _, *others in topics.values() for topic in others}
        while True:
            places = {
                group: [(topic, number) for topic in names for number in range(there.get(topic, 0))]
                for group, names in topics.items()
            }
            own = {place for scope in scopes for place in places[scope.group] if place[0] == scope.topic}
            own_ends = self._questions.offsets(own, OffsetSpec.latest())
            committed = self._questions.committed([scope.group for scope in scopes])
            now = self._topics.all()
            if all(now.get(topic, 0) == there.get(topic, 0) for topic in beside):
                return places, own_ends, committed
            there = now  # a topic that was made before the answer may hold what that says is settled

    def _state(
        self,
        scope: Scope,
        place: Place,
        committed: Mapping[Place, tuple[int, str]],
        begin: int,
        end: int,
        identity: str,
    ) -> State:
        kept = committed.get(place) or self._copies.settlements.get((scope.group, *place))
        state = None
        if kept is not None:
            state = kept_state(kept[1], kept[0], identity, lambda: end)
        elif place[0] == scope.topic and place[1] < len(scope.starts):
            begin = max(begin, scope.starts[place[1]])
        return State(begin, begin, (), begin) if state is None else state

    def _ends_of_delayed(self, scopes: Sequence[Scope], there: Mapping[str, int]) -> dict[Place, int]:
        topics = {delayed(scope.topic) for scope in scopes}
        places = [(topic, number) for topic in topics for number in range(there.get(topic, 0))]
        return self._questions.offsets(places, OffsetSpec.latest()) if places else {}

    # Reading.

    def _read_all(
        self,
        found: Sequence[_Found],
        begins: Mapping[Place, int],
        waiting: Mapping[Place, int],
        on_look: OnLook | None,
    ) -> dict[str, JMSException]:
        """Bring the indexes of all partitions up to date that have unsettled offsets; return which topics refuse it."""
        lows: dict[Place, dict[Hashable, int]] = {}
        ends: dict[Place, int] = {}
        views: dict[Place, dict[Hashable, Scope]] = {}
        for each in found:
            for place, state in each.states.items():
                low, end = max(begins[place], state.committed_offset), each.ends[place]
                if next(unsettled_runs(state, low, end), None) is None:
                    continue
                view = each.scope.view if place[0] == each.scope.topic else each.scope.group
                lowest = lows.setdefault(place, {})
                lowest[view] = min(low, lowest.get(view, low))
                ends[place] = max(end, ends.get(place, end))
                views.setdefault(place, {})[view] = each.scope
        for place in {place for each in found for place in each.states} - ends.keys():
            self._indexes.pop(place, None)
        starts: dict[Place, int] = {}
        for place, lowest in lows.items():
            indexes = self._indexes.setdefault(place, {})
            for view, low in lowest.items():
                index = indexes.setdefault(view, LogIndex(low))
                index.move_to(low)
                if index.position < ends[place]:
                    starts[place] = min(index.position, starts.get(place, index.position))
        if waiting:
            low_ends = self._questions.offsets(waiting, OffsetSpec.earliest())
            for place, end in waiting.items():
                delay = self._delayed.setdefault(place, DelayedIndex())
                delay.move_to(low_ends.get(place, 0))
                if delay.position < end:
                    starts[place], ends[place] = delay.position, end

        names = {topic: str(each.scope.destination) for each in found for topic, _ in each.states}
        names.update({delayed(each.scope.topic): str(each.scope.destination) for each in found})
        totals: Counter[str] = Counter()
        for place, start in starts.items():
            totals[names[place[0]]] += ends[place] - start
        looked: Counter[str] = Counter()
        count = 0

        def take(record: KafkaMessage) -> None:
            nonlocal count
            place, offset = (record.topic() or "", record.partition() or 0), record.offset() or 0
            name = names[place[0]]
            looked[name] += 1
            count += 1
            if on_look is not None and count % BETWEEN == 0:
                on_look(min(looked[name], totals[name]), totals[name], name)
            if place in waiting:
                self._take_delayed(self._delayed[place], offset, record)
                return
            for view, scope in views[place].items():
                index = self._indexes[place][view]
                if offset >= index.position:
                    facts = facts_of(record, scope, is_relocated=place[0] != scope.topic, now=self._now_ms())
                    if facts is not None:
                        index.add(offset, facts)
                    index.position = offset + 1

        unreadable = self._read_each(starts, ends, take)
        for place in starts:
            if place[0] in unreadable:
                continue
            if place in waiting:
                self._delayed[place].position = ends[place]
            for view in views.get(place, ()):
                index = self._indexes[place][view]
                index.position = max(index.position, ends[place])
        return unreadable

    def _take_delayed(self, index: DelayedIndex, offset: int, record: KafkaMessage) -> None:
        try:
            index.add(offset, read(record))
        except MalformedError as error:
            self._skipped.add(record.topic(), record.partition(), offset, error)
        index.position = offset + 1

    def _skipping(self, take: Callable[[KafkaMessage], None]) -> Callable[[KafkaMessage], None]:
        """Return what calls *take*, and skips what that cannot read."""

        def taken(record: KafkaMessage) -> None:
            try:
                take(record)
            except MalformedError as error:
                self._skipped.add(record.topic(), record.partition(), record.offset(), error)

        return taken

    def _read_each(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int], take: Callable[[KafkaMessage], None]
    ) -> dict[str, JMSException]:
        """Call *take* with each record; return why the broker refuses some topics. The others are read all the same."""
        try:
            self._read(starts, ends, take)
        except (JMSSecurityException, InvalidDestinationException) as error:
            topics = sorted({topic for topic, _ in starts})
            if len(topics) == 1:
                return {topics[0]: error}
            half = set(topics[: len(topics) // 2])
            parts = ({p: s for p, s in starts.items() if (p[0] in half) == is_first} for is_first in (True, False))
            first, second = (self._read_each(part, ends, take) for part in parts)
            return first | second
        return {}

    def _read(
        self, starts: Mapping[Place, int], ends: Mapping[Place, int], take: Callable[[KafkaMessage], None]
    ) -> None:
        """Call *take* with each record from *starts* to *ends*.

        Raises:
            JMSException: The broker does not answer, or refuses to let them be read.
        """
        starts = {place: start for place, start in starts.items() if start < ends[place]}
        if not starts:
            return
        try:
            if self._consumer is None:
                self._consumer = open_consumer(self._settings)
            self._consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
            within = {place: ends[place] for place in starts}
            for record in records(self._consumer, within, self._timeout, cut=self._cut):
                take(record)
            self._consumer.unassign()
        except KafkaException as error:
            self._drop_consumer()
            topic = next(iter(starts))[0]
            raise jms_error(error, "count messages", to="Read", topic=topic) from error
        except BaseException:
            self._drop_consumer()
            raise

    def _cut(self, ends: Mapping[Place, int]) -> set[Place]:
        """Return which partitions end before *ends* now, and note their topics."""
        cut = self._questions.cut(ends)
        self._changed.update(topic for topic, _ in cut)
        return cut

    def _read_copies(self, there: Mapping[str, int]) -> None:
        """Read what came to the bookkeeping since the last time."""
        copies = self._copies
        if there.get(copies.place[0], 0):
            begin, end = (
                self._questions.offsets([copies.place], spec).get(copies.place, 0)
                for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
            )
            if end < copies.position:  # made anew
                self._copies = copies = Copies()
            self._read({copies.place: max(copies.position, begin)}, {copies.place: end}, self._skipping(copies.add))
            copies.position = end

    def _forget(self, topic: str) -> None:
        """Forget *topic*, which was made anew."""
        for known in (self._indexes, self._delayed):
            for place in [place for place in known if place[0] == topic]:
                known.pop(place)

    def _forget_gone(self, there: Collection[str]) -> None:
        """Forget the topics that are deleted."""
        for topic in {topic for topic, _ in (*self._indexes, *self._delayed)} - set(there):
            self._forget(topic)

    # Counting.

    def _counted(
        self,
        each: _Found,
        begins: Mapping[Place, int],
        delays: Mapping[str, list[DelayedIndex]],
        now: int,
        is_exact: bool,
    ) -> Backlog:
        scope, bound, unreclaimed = each.scope, 0, 0
        for place, state in each.states.items():
            runs = unsettled_runs(state, max(begins[place], state.committed_offset), each.ends[place])
            bound += sum(past - first for first, past in runs)
            unreclaimed += max(min(state.committed_offset, each.ends[place]) - begins[place], 0)
        if not is_exact:
            return Backlog(bound, unreclaimed, is_exact=False)
        seen: set[Origin] = set()

        def is_double(origin: Origin) -> bool:
            if origin in seen or _is_unsettled(each, origin):
                return True
            seen.add(origin)
            return False

        tallies: dict[str, list[Tally]] = {}
        dispatched: dict[Place, int] = {}
        for place, state in each.states.items():
            view = scope.view if place[0] == scope.topic else scope.group
            index = self._indexes.get(place, {}).get(view)
            if index is not None:
                tally = index.tally(state, each.ends[place], now, is_double)
                tallies.setdefault(place[0], []).append(tally)
                if tally.dispatched:
                    dispatched[place] = tally.dispatched
        every = [tally for found in tallies.values() for tally in found]
        later = delays.get(delayed(scope.topic), [])
        return Backlog(
            unsettled_offsets=bound,
            unreclaimed=unreclaimed,
            is_exact=True,
            depth=sum(tally.pending for tally in every),
            oldest=min((tally.oldest for tally in every if tally.oldest is not None), default=None),
            dispatched=sum(tally.dispatched for tally in every),
            overflow=sum(tally.pending for tally in tallies.get(overflow(scope.topic, scope.group), ())),
            transfer=sum(tally.pending for tally in tallies.get(handover(scope.topic, scope.group), ())),
            expired=sum(tally.expired for tally in every),
            delayed=sum(tally.early for tally in every) + sum(map(len, later)),
            overdue=sum(index.overdue(now) for index in later),
            dead_letters=sum((tally.labels for tally in every), Counter[str]()),
            dispatched_at=dispatched,
        )


def _is_unsettled(found: _Found, origin: Origin) -> bool:
    """Return whether the message at *origin*, in the destination's own topic, is counted there."""
    place, offset = (origin[0], origin[1]), origin[2]
    state = found.states.get(place) if origin[0] == found.scope.topic else None
    return state is not None and any(unsettled_runs(state, offset, min(offset + 1, found.ends[place])))
