"""Read and cancel the delayed messages of one destination from outside, without a group."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.engine.admin.questions import MISSING, Questions
from kjms.engine.kafka import (
    ConsumerPort,
    KafkaException,
    KafkaMessage,
    TopicPartition,
    jms_error,
    kafka_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, records
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord
from kjms.mapping.delayed import (
    CANCEL,
    CANCELLED,
    DELIVER,
    MOVED_ON,
    REQUESTS,
    REWRITTEN,
    Note,
    Progress,
    noted,
    place_of,
    read,
)
from kjms.mapping.internal import MalformedError
from kjms.mapping.names import delayed
from kjms.mapping.periodic import Definition

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from kjms.engine.delayed.schedule import Schedule
    from kjms.engine.publisher import Publisher

__all__ = ["DelayedMessage", "DelayedMessages", "PeriodicMessage"]

BATCH: Final = 500  # offsets in one note
POLL_SECONDS: Final = 0.05  # between looks whether it took effect
ALONE_SECONDS: Final = 1.0  # without an answer: perhaps no process serves them
ANSWER_SECONDS: Final = 30.0  # a process that was killed keeps its partitions for 6 s

Place = tuple[int, int]
"""A partition and an offset."""


class DelayedMessage(NamedTuple):
    """A message that waits.

    Attributes:
        due: When it may be delivered, in milliseconds since the epoch.
        place: Its partition and offset.
        origin: Where it stood first.
        record: The record.
    """

    due: int
    place: Place
    origin: Place
    record: KafkaMessage


class PeriodicMessage(NamedTuple):
    """A periodic message.

    Attributes:
        definition: Its definition, with the latest `next` and `last`.
        waiting: Where the definition stands, as `DelayedMessages.cancel` takes it.
    """

    definition: Definition
    waiting: DelayedMessage


class DelayedMessages:
    """A reading of the delayed messages of a Kafka topic, which continues with each `read`.

    Args:
        schedule: Serves delayed messages, and knows how to read them.
        publisher: Writes requests to cancel.
        questions: Asks whether the topic is still there.
        topic: The Kafka topic of the destination. Where it has no delayed messages, or is deleted, nothing waits.
        timeout: Seconds without an answer after which reading fails.
    """

    def __init__(
        self, schedule: Schedule, publisher: Publisher, questions: Questions, topic: str, timeout: float
    ) -> None:
        self._schedule = schedule
        self._publisher = publisher
        self._questions = questions
        self._topic = topic
        self._delayed_topic = delayed(topic)
        self._timeout = timeout
        self._entries: dict[Place, DelayedMessage] = {}
        self._definitions: dict[Place, Definition] = {}  # of those entries that are periodic messages
        self._accepted: set[str] = set()  # the message ids of definitions that were in force once
        self._refused: set[str] = set()  # those of definitions that ended without
        self._outcomes: dict[Place, str] = {}
        self._next: dict[int, int] = {}
        self._consumer: ConsumerPort | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def read(self) -> list[DelayedMessage]:
        """Return what waits now, the messages due first first; periodic messages are not among them.

        Raises:
            JMSException: The broker does not answer.
        """
        self._read_on()
        entries = [entry for place, entry in self._entries.items() if place not in self._definitions]
        return sorted(entries, key=lambda entry: (entry.due, entry.place))

    def read_periodic(self) -> list[PeriodicMessage]:
        """Return the periodic messages that are defined now, by name.

        Raises:
            JMSException: The broker does not answer.
        """
        self._read_on()
        found = [
            PeriodicMessage(definition, self._entries[place])
            for place, definition in self._definitions.items()
            if definition.next is not None
        ]
        return sorted(found, key=lambda each: each.definition.name)

    def _read_on(self) -> None:
        ends = self._schedule.ends(self._topic)
        try:
            self._read(ends)
        except KafkaException as error:
            if kafka_error(error).code() not in MISSING:
                raise jms_error(error, f"read {self._delayed_topic}") from error
            self._forget()

    def _read(self, ends: Mapping[int, int]) -> None:
        behind = {number: at for number, end in ends.items() if (at := self._next.get(number, 0)) < end}
        if not behind:
            return
        if self._consumer is None:
            self._consumer = open_consumer({**self._schedule.reading, **UNTIL_END})
        # From 0, where nothing was read yet: OFFSET_BEGINNING costs half a second.
        self._consumer.assign([TopicPartition(self._delayed_topic, *place) for place in behind.items()])
        wanted = {(self._delayed_topic, number): ends[number] for number in behind}
        for record in records(self._consumer, wanted, self._timeout, cut=self._cut):
            self._arrived(record)
        self._consumer.unassign()
        self._next.update({number: ends[number] for number in behind})

    def _cut(self, ends: Mapping[tuple[str, int], int]) -> Collection[tuple[str, int]]:
        """Return which partitions end before *ends* now; then the topic was deleted, and what waited with it."""
        cut = self._questions.cut(ends)
        if cut:
            self._forget()
        return cut

    def _forget(self) -> None:
        self._entries.clear()
        self._definitions.clear()

    def _arrived(self, record: KafkaMessage) -> None:
        number, offset = record.partition() or 0, record.offset() or 0
        try:
            found = read(record)
        except MalformedError as error:
            self._schedule.skipped.add(record.topic(), number, offset, error)
            return
        if not isinstance(found, Note):
            place = number, offset
            due = found if isinstance(found, int) else found.next or 0
            self._entries[place] = DelayedMessage(due, place, place_of(record) or place, record)
            if isinstance(found, Definition):
                self._definitions[place] = found
                if found.next is not None:
                    self._accepted.add(found.message_id)
        elif found.kind not in REQUESTS:
            for progress in found.progress:
                self._advance(number, progress)
            for settled in found.offsets:
                self._settle((number, settled), found.kind)

    def _advance(self, number: int, progress: Progress) -> None:
        place = number, progress.offset
        definition = self._definitions.get(place)
        if definition is not None:
            self._definitions[place] = replace(definition, next=progress.next, last=progress.last)
            self._entries[place] = self._entries[place]._replace(due=progress.next)
            self._accepted.add(definition.message_id)

    def _settle(self, place: Place, kind: str) -> None:
        self._entries.pop(place, None)
        self._outcomes.setdefault(place, kind)
        definition = self._definitions.pop(place, None)
        if definition is not None and definition.next is None:
            self._refused.add(definition.message_id)

    def define(self, record: KafkaRecord, message_id: str) -> bool:
        """Ask for the periodic message of *record*; return whether the process that serves the partition accepted it.

        Args:
            record: Its definition.
            message_id: Names the definition.

        Raises:
            JMSException: The broker does not answer; or it is not known yet whether it is accepted.
        """
        self._publisher.send_and_wait(self._delayed_topic, 0, record)
        begun = time.monotonic()
        while message_id not in self._accepted | self._refused:
            self._await_owner(begun, message_id)
            self._read_on()
        return message_id in self._accepted

    def _await_owner(self, since: float, message_id: str) -> None:
        """Pause between looks whether a definition was accepted; serve the messages if no other process does."""
        waited = time.monotonic() - since
        if waited > ALONE_SECONDS:
            self._schedule.serve(self._topic)
        if waited > ANSWER_SECONDS:
            raise JMSException(
                f"the periodic message {message_id} of {self._topic!r} is not accepted yet: no process serves delayed"
                " messages there. It will be, when one does"
            )
        time.sleep(POLL_SECONDS)

    def cancel(self, chosen: Collection[DelayedMessage]) -> int:
        """Return how many of *chosen* were cancelled, when that is sure; the others were delivered meanwhile.

        Raises:
            JMSException: The broker does not answer; or it is not sure yet.
        """
        return self._ask(CANCEL, chosen, CANCELLED)

    def deliver(self, chosen: Collection[DelayedMessage]) -> int:
        """Return how many of *chosen* are delivered now, before their time; the others were cancelled meanwhile.

        Raises:
            JMSException: The broker does not answer; or it is not sure yet.
        """
        return self._ask(DELIVER, chosen, MOVED_ON)

    def _ask(self, what: str, chosen: Collection[DelayedMessage], expected: str) -> int:
        """Ask for *what* of *chosen*; return of how many the outcome is *expected*, when all outcomes are known."""
        done = 0
        wanted = {entry.origin: entry for entry in chosen}
        self._order(what, wanted.values())
        begun = answered_at = time.monotonic()
        while wanted:
            self._read_on()
            outcomes = {origin: self._outcomes.get(entry.place) for origin, entry in wanted.items()}
            known = [origin for origin, outcome in outcomes.items() if outcome is not None]
            anew = {entry.origin: entry for entry in self._entries.values() if entry.origin in wanted}
            for origin in known:
                done += outcomes[origin] == expected
                del wanted[origin]
                if outcomes[origin] == REWRITTEN and origin in anew:  # to somewhere else: it is asked for again
                    wanted[origin] = anew[origin]
                    self._order(what, [anew[origin]])
            now = time.monotonic()
            if known:
                answered_at = now
            elif now - answered_at > ALONE_SECONDS:
                self._schedule.serve(self._topic)
            if now - max(begun, answered_at) > ANSWER_SECONDS:
                raise JMSException(
                    f"{len(wanted)} delayed messages of {self._topic!r} are not {expected} yet: no process serves the"
                    f" delayed messages of this topic. They are {expected} when one starts, unless they are due before"
                )
            time.sleep(POLL_SECONDS)
        return done

    def _order(self, what: str, entries: Iterable[DelayedMessage]) -> None:
        by_number: dict[int, list[int]] = {}
        for entry in entries:
            by_number.setdefault(entry.place[0], []).append(entry.place[1])
        send: Callable[..., None] = self._publisher.send_and_wait
        for number, offsets in by_number.items():
            for first in range(0, len(offsets), BATCH):
                send(self._delayed_topic, number, noted(what, offsets[first : first + BATCH]))
