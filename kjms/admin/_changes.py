"""Take messages out of queues, and copy, move or retry them, in Kafka transactions of bounded size.

A change receives messages as a consumer of the queue does, so each message is its own or another consumer's. It takes
what was there when it began: where the topic's partitions ended then says so, and so does the latest JMSTimestamp that
matched, which keeps later messages from being handed over to it in vain. One Kafka transaction writes the copies of a
batch and settles the originals. When the process is killed, a batch is done or not, and the same change continues with
the rest.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kjms.admin._letters import IS_DEAD_LETTER
from kjms.admin._messages import Changed, DeadLetter, OnProgress, Progress
from kjms.admin._reader import MessageReader, selector_of
from kjms.admin._taking import BATCH, BATCH_BYTES, TOO_LARGE, UNREADABLE, CarryOut, Refused, Seen, Taking, after
from kjms.client.dead_letters import retried_message
from kjms.destinations import Queue, TemporaryQueue, TemporaryTopic, Topic, parse_destination
from kjms.engine import Copy, SessionTransaction, destination_name
from kjms.errors import InvalidDestinationException, JMSException
from kjms.mapping import KafkaRecord, encode
from kjms.mapping.bridges import decoder
from kjms.mapping.dead_letters import CUT, DESTINATION, DETAILS
from kjms.mapping.delayed import DELAYED
from kjms.mapping.names import delayed
from kjms.selector import parse_selector

if TYPE_CHECKING:
    from kjms.admin._scopes import Chosen, Scopes
    from kjms.engine import ConsumerSlot, DelayedMessage, DelayedMessages, Delivery, Engine, MessageSource
    from kjms.mapping import SourceRecord
    from kjms.message import Message
    from kjms.options import FactoryOptions

__all__ = ["Changes", "Choice"]

_log = logging.getLogger("kjms.admin")

IDS: Final = 500  # message ids of one selector, which has room for some more
ARRIVE_SECONDS: Final = 10.0  # a consumer that was killed keeps its partitions for 6 s
FILL_SECONDS: Final = 0.05  # for more messages of a batch that is not complete
NEXT_SECONDS: Final = 3.0  # after the first one, waiting ones follow at once; unless many others are between them
READING_AGAIN: Final = 3  # times what the preview took, until other processes have looked at the whole queue

IN_FLIGHT: Final = "in flight to another consumer of {}"
INCOMPLETE: Final = "stored without headers or body, which were too large for the dead-letter queue"
NO_ORIGIN: Final = "their origin is not recorded"
FROM_TEMPORARY: Final = "from a temporary destination, which belonged to one program"
GONE: Final = "from a destination that does not exist any more"
ELSEWHERE: Final = "from a destination whose dead letters go to another queue, as they say"
FROM_TOPIC: Final = "from a topic, every subscription of which would receive them again"


class Choice(NamedTuple):
    """Which messages are to be changed.

    Attributes:
        selector: A selector's text; None is all.
        limit: How many at the most; None: any number.
        message_ids: Those with these ids alone; None: whatever their ids.
    """

    selector: str | None = None
    limit: int | None = None
    message_ids: Collection[str] | None = None

    def parts(self) -> Iterator[Choice]:
        """Return choices with so few ids that a selector has room for them."""
        if self.message_ids is None:
            yield self
            return
        ids = iter(dict.fromkeys(self.message_ids))
        while part := tuple(itertools.islice(ids, IDS)):
            yield self._replace(message_ids=part)

    def text(self, *more: str) -> str:
        """Return the selector of all this, and of *more*; empty: all messages."""
        parts = list(more)
        if (self.selector or "").strip():
            parts.append(f"({self.selector})")
        if self.message_ids is not None:
            parts.append(_is_one_of("JMSMessageID", self.message_ids))
        return " AND ".join(parts)


class Changes:
    """Changes what queues hold; any thread may call it.

    Args:
        engine: Has the Kafka clients.
        options: The options of the factory.
        reader: Counts messages.
        scopes: Finds Kafka topics.
    """

    def __init__(self, engine: Engine, options: FactoryOptions, reader: MessageReader, scopes: Scopes) -> None:
        self._scopes = scopes
        self._engine = engine
        self._options = options
        self._reader = reader

    # What is done.

    def purge(self, chosen: Chosen, choice: Choice, on_progress: OnProgress | None) -> Changed:
        """Settle messages of *chosen*."""
        return self._each(choice, lambda part: self._take(chosen, part, part.text(), on_progress, self._settle))

    def move(self, chosen: Chosen, target: Queue | Topic, choice: Choice, on_progress: OnProgress | None) -> Changed:
        """Move messages of *chosen* to *target*."""
        mapping = self._to(chosen, target)

        def moved(batch: Sequence[Delivery], reader: MessageSource) -> int:
            return self._commit([mapping(each.record) for each in batch], batch)

        return self._each(choice, lambda part: self._take(chosen, part, part.text(), on_progress, moved))

    def copy(self, chosen: Chosen, target: Queue | Topic, choice: Choice, on_progress: OnProgress | None) -> Changed:
        """Write copies of messages of *chosen* to *target*."""
        mapping = self._to(chosen, target)
        return self._each(choice, lambda part: self._copy(chosen, part, mapping, on_progress))

    def retry(
        self,
        chosen: Chosen,
        choice: Choice,
        on_progress: OnProgress | None,
        *,
        origins: Collection[Queue | Topic] = (),
        topics: bool = False,
    ) -> Changed:
        """Move dead letters of *chosen* to where they came from.

        Any program may write a dead letter that names any origin. So it is moved to a destination whose dead letters
        go to *chosen* by the options, or that the caller names.

        Args:
            chosen: The queue that has them.
            choice: Which of them.
            on_progress: Called after each batch.
            origins: Only those that came from one of these; empty: from all whose dead letters go to the queue.
            topics: Whether to retry those that came from topics, too.
        """
        more = [IS_DEAD_LETTER]
        if origins:
            more.append(_is_one_of(DESTINATION, map(str, origins)))
        known = Origins(self._engine, self._options, self._scopes, chosen, origins)
        queue = chosen.scope.destination

        def sent_back(batch: Sequence[Delivery], reader: MessageSource) -> int:
            now = self._engine.tuning.now_ms()
            places = [known.topics[_origin(each.message(queue))] for each in batch]
            copies = [retried_message(each.record, *place, now) for each, place in zip(batch, places, strict=True)]
            return self._commit(copies, batch)

        def part(choice: Choice) -> Changed:
            stay: Counter[str] = Counter()
            wanted = 0
            selector = parse_selector(choice.text(*more))
            for _, message in self._reader.scan(chosen, selector, on_progress, ids=choice.message_ids):
                obstacle = _obstacle(message, topics=topics) or known.obstacle(_origin(message))
                if obstacle:
                    stay[obstacle] += 1
                    continue
                wanted += 1
                if wanted == choice.limit:
                    break
            if not wanted:
                return Changed(0, matched=sum(stay.values()), stayed=stay)
            allowed = choice.text(
                *more, f"({CUT} IS NULL OR {CUT} = '{DETAILS}')", _is_one_of(DESTINATION, known.topics)
            )
            done = self._take(chosen, choice, allowed, on_progress, sent_back)
            stay.update(done.stayed)
            return Changed(done, matched=done.matched + sum(stay.values()) - sum(done.stayed.values()), stayed=stay)

        return self._each(choice, part)

    @staticmethod
    def _each(choice: Choice, change: Callable[[Choice], Changed]) -> Changed:
        """Carry *change* out for each part of *choice*, up to its limit; return all results together."""
        done = matched = 0
        stayed: Counter[str] = Counter()
        for part in choice.parts():
            left = None if choice.limit is None else choice.limit - done
            if left is not None and left <= 0:
                break
            found = change(part._replace(limit=left))
            done += found
            matched += found.matched
            stayed.update(found.stayed)
        return Changed(done, matched=matched, stayed=stayed)

    # Delayed messages.

    def cancel(self, places: Iterable[Chosen], message_id: str) -> bool:
        """Cancel the delayed message with that JMSMessageID; return whether that was done."""
        return self._ask(places, message_id, lambda waiting, entry: waiting.cancel([entry]))

    def deliver(self, places: Iterable[Chosen], message_id: str) -> bool:
        """Deliver the delayed message with that JMSMessageID now; return whether that was done."""
        return self._ask(places, message_id, lambda waiting, entry: waiting.deliver([entry]))

    def _ask(
        self, places: Iterable[Chosen], message_id: str, ask: Callable[[DelayedMessages, DelayedMessage], int]
    ) -> bool:
        for chosen in places:
            scope = chosen.scope
            if not self._engine.admin.partitions(delayed(scope.topic)):
                continue
            with self._engine.admin.delayed(scope.topic) as waiting:
                for entry in waiting.read():
                    message = decoder(scope.convention)(entry.record, scope.destination, 1)
                    if message.jms_message_id == message_id:
                        return bool(ask(waiting, entry))
        return False

    # How batches are carried out.

    @staticmethod
    def _settle(batch: Sequence[Delivery], reader: MessageSource) -> int:
        receipts = reader.settle(batch)
        return len(batch) - (reader.flush(receipts=receipts) if receipts else 0)

    def _commit(self, copies: Sequence[Copy], batch: Sequence[Delivery]) -> int:
        """Write *copies* and settle *batch* in one Kafka transaction.

        Raises:
            Refused: Nothing of it was done.
        """
        failure = self._engine.committer.commit(SessionTransaction(copies, batch))
        if failure is not None:
            raise Refused(failure)
        return len(copies)

    def _to(self, chosen: Chosen, target: Queue | Topic) -> Callable[[SourceRecord], Copy]:
        """Return what makes the copy of a record for *target*.

        Raises:
            InvalidDestinationException: It does not exist, or is the source.
        """
        if isinstance(target, TemporaryQueue | TemporaryTopic):
            raise InvalidDestinationException(f"{target} belongs to the connection that made it")
        self._scopes.existing(target)
        topic, partitions = self._engine.topic_of(target, self._options)
        if topic == chosen.scope.topic:
            raise InvalidDestinationException(f"{target} is where the messages are already; choose another destination")
        convention = self._options.destination(destination_name(target)).convention or "kjms"
        is_same = convention == chosen.scope.convention
        read = decoder(chosen.scope.convention)

        def copy(record: SourceRecord) -> Copy:
            headers = [header for header in record.headers() or () if header[0] != DELAYED]
            own = KafkaRecord(record.key(), record.value(), headers, max(record.timestamp()[1], 0))
            if not is_same and "kjms" not in dict(headers):  # the target would read it in another way
                own = encode(read(record, target, 1))._replace(key=record.key())
            return Copy(topic, -1 if own.key is not None else (record.partition() or 0) % partitions, own)

        return copy

    # Copying.

    def _copy(
        self, chosen: Chosen, choice: Choice, mapping: Callable[[SourceRecord], Copy], on_progress: OnProgress | None
    ) -> Changed:
        stay: Counter[str] = Counter()
        done = looked = 0
        batch: list[Copy] = []
        size = 0

        def write(copies: Sequence[Copy]) -> int:
            try:
                return self._commit(copies, ())
            except Refused as refusal:
                if not refusal.is_too_large:
                    raise after(done, refusal.failure) from refusal
            if len(copies) == 1:
                stay[TOO_LARGE] += 1
                return 0
            return sum(write([copy]) for copy in copies)

        text = choice.text()
        for found, _ in self._reader.scan(chosen, selector_of(text), ids=choice.message_ids):
            looked += 1
            try:
                copy = mapping(found.record)
            except Exception:  # the client raises on header names that are no UTF-8
                stay[UNREADABLE] += 1
                continue
            batch.append(copy)
            size += len(copy.record.value or b"")
            if len(batch) == BATCH or size >= BATCH_BYTES or done + len(batch) == choice.limit:
                done += write(batch)
                batch, size = [], 0
                if on_progress is not None:
                    on_progress(Progress(done, None, str(chosen)))
                if done == choice.limit:
                    break
        if batch:
            done += write(batch)
        return Changed(done, matched=looked, stayed=stay)

    # Taking.

    def _seen(
        self,
        chosen: Chosen,
        choice: Choice,
        text: str,
        on_progress: OnProgress | None,
        ends: dict[int, int] | None = None,
    ) -> Seen:
        """Return what there is of *chosen* that matches *text*; with *ends*, what there still is of a change's."""
        if ends is None:  # first: what the scan finds beyond is not of this change
            ends = self._engine.admin.ends(chosen.scope.topic)
        count = latest = 0
        for found, message in self._reader.scan(chosen, selector_of(text), on_progress, ids=choice.message_ids):
            record = found.record
            if (record.offset() or 0) < ends.get(record.partition() or 0, 0):
                count += 1
                latest = max(latest, message.jms_timestamp)
                if count == choice.limit:
                    break
        return Seen(ends, count, latest)

    def _take(
        self,
        chosen: Chosen,
        choice: Choice,
        text: str,
        on_progress: OnProgress | None,
        carry_out: CarryOut,
    ) -> Changed:
        """Receive the messages of *chosen* that match *text* and are there now, and pass them on in batches.

        Args:
            chosen: The queue.
            choice: Has the limit.
            text: A selector; empty is all.
            on_progress: Called after each batch.
            carry_out: Processes a batch, all of it or nothing; returns how much was settled.

        Raises:
            JMSException: A batch failed; the messages of those before were processed, the others are available again.
        """
        begin = time.monotonic()
        seen = self._seen(chosen, choice, text, on_progress)
        if not seen.matched:
            return Changed(0)
        # Other processes have to read what they own, at about the speed of this one.
        others = ARRIVE_SECONDS + READING_AGAIN * (time.monotonic() - begin)
        if choice.limit is None:  # with a limit, the latest one that matches is not known
            text = f"{text}{' AND ' if text else ''}JMSTimestamp <= {seen.latest}"
        wakeup = threading.Event()
        slot, is_mine = self._open(chosen, text, wakeup)
        taking = Taking(slot.reader, seen, carry_out, is_mine, str(chosen), on_progress)
        try:
            slot.start()
            deadline = time.monotonic() + ARRIVE_SECONDS
            last, until = -1, time.monotonic() + others
            while taking.wants_more:
                wakeup.clear()
                delivery = slot.poll()
                if delivery is not None:
                    taking.add(delivery)
                    if not taking.is_ready:
                        continue
                if taking.is_ready or (taking.has_batch and not wakeup.wait(FILL_SECONDS)):
                    taking.carry_out()
                    deadline = time.monotonic() + NEXT_SECONDS
                elif not taking.has_batch and not wakeup.wait(max(deadline - time.monotonic(), 0)):
                    read, is_all = self._read(chosen, seen.ends)
                    if read == last and (is_all or time.monotonic() > until):
                        break
                    last, deadline = read, time.monotonic() + NEXT_SECONDS
                    if on_progress is not None:
                        on_progress(Progress(taking.done, seen.matched, str(chosen)))
            taking.carry_out()
        finally:
            taking.give_back()
            self._engine.close_slots([slot])
        stay = taking.stay
        missing = seen.matched - taking.done - stay.total()
        if missing > 0:  # others have them, or have settled them meanwhile
            left = self._seen(chosen, choice._replace(limit=None), text, None, seen.ends).matched - stay.total()
            if left > 0:
                stay[IN_FLIGHT.format(chosen)] += min(left, missing)
        return Changed(taking.done, matched=seen.matched, stayed=stay)

    def _read(self, chosen: Chosen, ends: dict[int, int]) -> tuple[int, bool]:
        """Return how far this process has read *chosen* up to *ends*, as a sum of offsets, and whether it owns all."""
        read, numbers = 0, set()
        for each in self._engine.statistics().group_consumers:
            if (each.topic, each.group) == (chosen.scope.topic, chosen.scope.group):
                for part in each.partitions:
                    if part.topic == each.topic:
                        read += min(part.position, ends.get(part.number, 0))
                        numbers.add(part.number)
        return read, numbers >= ends.keys()

    def _open(
        self, chosen: Chosen, text: str, wakeup: threading.Event
    ) -> tuple[ConsumerSlot, Callable[[Delivery], bool] | None]:
        """Return a slot that gets the messages of *chosen*, and what says which of them match *text*; None: all do.

        What a subscription's consumer leaves out is settled, so its own selector stays, and *text* is looked at here.

        Raises:
            JMSException: The subscription has a consumer, and may have only one.
        """
        selector = selector_of(text)
        queue, found = chosen.scope.destination, chosen.found
        if isinstance(queue, Queue):
            return self._engine.open_slot(queue, self._options, selector, wakeup), None
        assert found is not None

        def lost(_: ConsumerSlot, failure: JMSException) -> None:
            _log.warning("%s: %s", chosen, failure)
            wakeup.set()

        slot = self._engine.open_subscription(
            found.identity, found.terms, self._options, chosen.scope.wanted, wakeup, lost
        )
        if selector is None:
            return slot, None
        return slot, lambda delivery: selector.matches(delivery.message(queue))


class Origins:
    """Where dead letters of one queue came from.

    Args:
        engine: Knows Kafka topics.
        options: The options of the factory.
        scopes: Finds them.
        chosen: The queue.
        named: The destinations that the caller names; empty: those whose dead letters go there.

    Attributes:
        topics: The Kafka topic of each origin that is believed, and its number of partitions.
    """

    def __init__(
        self,
        engine: Engine,
        options: FactoryOptions,
        scopes: Scopes,
        chosen: Chosen,
        named: Collection[Queue | Topic],
    ) -> None:
        self._engine = engine
        self._options = options
        self._scopes = scopes
        self._queue = chosen.scope.destination
        self._named = named
        self.topics: dict[str, tuple[str, int]] = {}

    def obstacle(self, origin: str) -> str:
        """Return why no dead letter goes to the destination *origin*; empty: it is among `topics` now.

        Raises:
            JMSException: The broker does not answer.
        """
        if origin in self.topics:
            return ""
        destination = parse_destination(origin)
        assert isinstance(destination, Queue | Topic)
        if destination not in self._named and not self._scopes.sends_letters_to(destination, self._queue):
            return ELSEWHERE
        try:
            self._scopes.existing(destination)
            self.topics[origin] = self._engine.topic_of(destination, self._options)
        except InvalidDestinationException:
            return GONE
        return ""


def _origin(message: Message) -> str:
    """Return the destination that the dead letter *message* names."""
    letter = DeadLetter.of(message)
    return (letter and letter.destination) or ""


def _is_one_of(name: str, texts: Iterable[str]) -> str:
    """Return the selector of messages whose property *name* is one of *texts*."""
    return "{} IN ({})".format(name, ", ".join("'{}'".format(each.replace("'", "''")) for each in texts))


def _obstacle(message: Message, *, topics: bool) -> str:
    """Return why the dead letter *message* cannot be retried, or an empty text."""
    letter = DeadLetter.of(message)
    if letter is None or letter.omitted not in (None, DETAILS):  # earlier versions left out headers and bodies
        return INCOMPLETE
    try:
        origin = parse_destination(letter.destination or "")
    except InvalidDestinationException:
        return NO_ORIGIN
    if isinstance(origin, TemporaryQueue | TemporaryTopic):
        return FROM_TEMPORARY
    return FROM_TOPIC if isinstance(origin, Topic) and not topics else ""
