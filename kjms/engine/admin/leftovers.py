"""Find what ended programs, interrupted changes and damage have left in a cluster, and take it away.

Each look lists topics and groups first and reads the registry then: what is made meanwhile is in the registry before
its topics and its group are there, so it is never taken for left. A topic that is not listed may be one that this user
may not see, so each is asked for by its name: Kafka then says whether it is gone, or not this user's.

What is taken away is looked at again first, in the same order. Kafka itself refuses to delete a group with members.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.engine.admin.claims import LOCK, USE, Claims, read_value
from kjms.engine.admin.janitor import inbox_resource
from kjms.engine.admin.notes import COPIES, Copies
from kjms.engine.kafka import (
    IsolationLevel,
    KafkaException,
    KafkaMessage,
    OffsetSpec,
    TopicPartition,
    jms_error,
    open_consumer,
)
from kjms.engine.log_reading import UNTIL_END, Place, records
from kjms.engine.subscriptions.definitions import DURABLE, Identity, group_of
from kjms.errors import JMSException, JMSSecurityException
from kjms.mapping import KafkaRecord
from kjms.mapping.internal import LaterVersionError, MalformedError
from kjms.mapping.names import (
    BOOKKEEPING,
    MAX_LENGTH,
    REGISTRY,
    beside,
    delayed,
    delayed_group,
    handover,
    interest,
    is_inbox,
    is_internal,
    overflow,
    queue_group,
)

if TYPE_CHECKING:
    from kjms.engine.admin.admin import Admin
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.admin.questions import Questions
    from kjms.engine.admin.registry import Registry
    from kjms.engine.admin.topics import Topics
    from kjms.engine.publisher import Publisher
    from kjms.engine.subscriptions.subscriptions import Subscriptions

__all__ = ["Leftover", "Leftovers"]

QUEUES: Final = queue_group("")
DELAYED: Final = delayed_group("")
SUBSCRIPTIONS: Final = "kjms.sub."
PAIRS: Final = (overflow, handover, interest)
_OF_SUBSCRIPTION: Final = re.compile(r"(.+)\.kjms\.(?:overflow|handover|interest)\.[0-9a-f]{12}")
LOOK_SECONDS: Final = 1.0  # between looks at open transactions


class Leftover(NamedTuple):
    """Something that was left.

    Attributes:
        kind: What it is, as one word or two.
        subject: The name of what it is about.
        text: What was found, as a sentence.
        remedy: What is to be done, as a sentence.
        repair: Does it; None: kjms does not, or cannot know whether it may.
    """

    kind: str
    subject: str
    text: str
    remedy: str
    repair: Callable[[], None] | None


class _Seen(NamedTuple):
    """What a look has seen, in this order."""

    topics: Mapping[str, int]
    groups: frozenset[str]
    definitions: Mapping[Identity, tuple[str, str]]  # the Kafka topic and the group of each subscription
    users: Mapping[Identity, frozenset[str]]  # the engines with consumers on it
    inboxes: Mapping[str, frozenset[str]]  # the engines that claim each
    claims: Mapping[str, Sequence[str]]  # what each engine has in the registry, as resources
    silent: frozenset[str]  # the engines that do not answer

    @property
    def subscribed(self) -> set[str]:
        """The groups that subscriptions have, or that are there."""
        return {group for _, group in self.definitions.values()} | {
            group for group in self.groups if group.startswith(SUBSCRIPTIONS)
        }


class Leftovers:
    """Looks for what was left; one thread at a time.

    Args:
        admin: Asks the cluster.
        topics: Knows Kafka topics.
        registry: Where engines claim what they use.
        subscriptions: Ends subscriptions.
        bookkeeping: Forgets copies of settlement.
        questions: Asks for many offsets at once.
        publisher: Writes what takes a record away.
        reading: librdkafka's settings of a consumer without a group.
        timeout: Seconds for each answer.
        open_seconds: For which no transaction of a program that runs stays open.
    """

    def __init__(
        self,
        admin: Admin,
        topics: Topics,
        registry: Registry,
        subscriptions: Subscriptions,
        bookkeeping: Bookkeeping,
        questions: Questions,
        publisher: Publisher,
        reading: Mapping[str, Any],
        timeout: float,
        open_seconds: float,
    ) -> None:
        self._admin = admin
        self._topics = topics
        self._registry = registry
        self._subscriptions = subscriptions
        self._bookkeeping = bookkeeping
        self._questions = questions
        self._publisher = publisher
        self._reading = {**reading, **UNTIL_END}
        self._timeout = timeout
        self._open_seconds = open_seconds

    def find(self) -> Iterator[Leftover]:
        """Give what was left; what cannot be looked at for want of a right is given, too.

        Raises:
            JMSException: The broker does not answer.
        """
        seen = self._look()
        gone = sorted(self._gone(self._destinations(seen)))
        yield from self._deleted_destinations(seen, gone)
        yield from self._ended_subscriptions(seen)
        yield from self._dead_programs(seen)
        yield from self._records(seen, set(gone))
        yield from self._transactions(seen.topics)

    # Looking.

    def _look(self) -> _Seen:
        there = self._topics.all()
        groups = self._admin.groups()
        if REGISTRY not in there:  # nothing can be said of subscriptions and programs
            return _Seen(there, groups, {}, {}, {}, {}, frozenset())
        with self._registry.reading() as claims:
            self._registry.catch_up()
            engines = claims.engines() - {self._registry.name}
            silent = engines - self._registry.living(engines, self._registry.questions)
            inboxes = {
                topic: frozenset(claim.engine for claim in claims.all(USE, inbox_resource(topic)))
                for topic in there
                if is_inbox(topic)
            }
            definitions = list(_definitions(claims))
            return _Seen(
                there,
                groups,
                {identity: (topic, group) for identity, topic, group, _ in definitions},
                {identity: users for identity, _, _, users in definitions},
                inboxes,
                {engine: claims.resources(engine) for engine in silent},
                frozenset(silent),
            )

    @staticmethod
    def _destinations(seen: _Seen) -> set[str]:
        """Return the Kafka topics of destinations that are not listed, and of which something is."""
        of_groups = {
            group.removeprefix(prefix)
            for prefix in (QUEUES, DELAYED)
            for group in seen.groups
            if group.startswith(prefix)
        }
        of_topics = {
            topic.rpartition(".kjms.")[0]
            for topic in seen.topics
            if is_internal(topic) and not is_inbox(topic) and len(topic) < MAX_LENGTH  # at which names are shortened
        }
        of_subscriptions = {topic for topic, _ in seen.definitions.values()}
        return (of_groups | of_topics | of_subscriptions) - seen.topics.keys() - {""}

    def _gone(self, topics: Iterable[str]) -> set[str]:
        """Return those of *topics* that do not exist; one that this user may not see may exist."""
        found = set()
        for topic in topics:
            with contextlib.suppress(JMSSecurityException):
                if not self._topics.look_up(topic):
                    found.add(topic)
        return found

    # Destinations that were deleted.

    def _deleted_destinations(self, seen: _Seen, gone: Iterable[str]) -> Iterator[Leftover]:
        for topic in gone:
            family = beside(topic, seen.topics)
            groups = {queue_group(topic), delayed_group(topic)} & seen.groups
            if not family and queue_group(topic) not in groups:
                continue  # Kafka deletes the group of delayed messages, which its members leave a moment later
            if any(self._admin.members(groups).values()):
                continue  # a program waits for it to be made again
            held = self._held(topic, family)
            what = ", ".join(map(repr, [*sorted(family), *(f"group {group}" for group in sorted(groups))]))
            text = f"the Kafka topic {topic!r} was deleted, and what kjms kept beside it was not: {what}"
            if held:
                text += f"; {held:,} messages are in it"
                remedy = f"create the topic {topic!r} again to receive them; 'kjms queues delete {topic}' deletes them"
                yield Leftover("deleted destination", topic, text, remedy, None)
                continue
            yield Leftover(
                "deleted destination",
                topic,
                text,
                "delete them; they hold no message, and the groups have no member",
                partial(self._forget_destination, topic),
            )

    def _held(self, topic: str, family: Collection[str]) -> int:
        """Return how many messages the *family* of *topic* has that are not settled."""
        found = 0
        if delayed(topic) in family:
            with self._admin.delayed(topic) as waiting:
                found += len(waiting.read()) + len(waiting.read_periodic())
        group = queue_group(topic)
        for each in (overflow(topic, group), handover(topic, group)):
            if each in family:
                committed = self._admin.committed(group, each)
                found += sum(1 for _ in self._read(each, committed))
        return found

    def _forget_destination(self, topic: str) -> None:
        there = self._topics.all()
        family = beside(topic, there)
        if self._topics.look_up(topic) or self._held(topic, family):
            raise _in_use(topic)
        group, made = queue_group(topic), f"\n{topic}".encode()
        if not (self._admin.delete_group(group) and self._admin.delete_group(delayed_group(topic))):
            raise _in_use(topic)
        self._topics.delete(sorted(family))
        keys = {key: record.offset() or 0 for key, record in self._newest(BOOKKEEPING, COPIES).items()}
        prefixes = f"{group}\n".encode(), made + b"\n"
        own = {key: offset for key, offset in keys.items() if key == made or key.startswith(prefixes)}
        self._wipe(BOOKKEEPING, COPIES, own)

    # Subscriptions that have ended.

    def _ended_subscriptions(self, seen: _Seen) -> Iterator[Leftover]:
        if REGISTRY not in seen.topics:
            return
        missing = self._gone({topic for topic, _ in seen.definitions.values()} - seen.topics.keys())
        for identity, (topic, _) in seen.definitions.items():
            users = seen.users[identity]
            is_used = bool(users - seen.silent)
            if topic in missing:
                repair = None if is_used else (partial(self._subscriptions.remove, identity))
                why = "close its consumers first" if is_used else "end it; its messages went with the topic"
                text = f"the Kafka topic {topic!r} of the {identity} was deleted"
                yield Leftover("subscription without topic", str(identity), text, why, repair)
            elif identity.space != DURABLE and not is_used:
                yield Leftover(
                    "ended subscription",
                    str(identity),
                    f"the programs with consumers of the {identity} have ended without closing it",
                    "end it; a non-durable subscription ends with its last consumer",
                    partial(self._subscriptions.remove, identity),
                )
        yield from self._undefined_groups(seen)
        yield from self._undefined_topics(seen)

    def _undefined_groups(self, seen: _Seen) -> Iterator[Leftover]:
        defined = {group for _, group in seen.definitions.values()}
        undefined = {group for group in seen.groups if group.startswith(SUBSCRIPTIONS)} - defined
        members = self._admin.members(undefined)
        for group in sorted(undefined):
            if not members.get(group, ("not described",)):
                yield Leftover(
                    "group without subscription",
                    group,
                    "the subscription of the consumer group has ended, and the group is there",
                    "delete it; it has no member, and a subscription of that name gets another group",
                    partial(self._delete_group, group),
                )

    def _delete_group(self, group: str) -> None:
        if group in {defined for _, defined in self._look().definitions.values()}:
            raise _in_use(group)
        if not self._admin.delete_group(group):
            raise _in_use(group)

    def _undefined_topics(self, seen: _Seen) -> Iterator[Leftover]:
        """Give the topics beside a destination that is there which belong to no subscription any more."""
        for topic in sorted(self._without_subscription(seen)):
            yield Leftover(
                "topic without subscription",
                topic,
                "the subscription that it was made for has ended",
                "delete it; its name has the number of a definition, so no later subscription uses it",
                partial(self._delete_undefined, topic),
            )

    @staticmethod
    def _without_subscription(seen: _Seen) -> set[str]:
        used = {
            of(topic, group)
            for group in seen.subscribed
            for topic in [group.removeprefix(SUBSCRIPTIONS).partition(":")[0]]
            for of in PAIRS
        }
        found = {topic: _OF_SUBSCRIPTION.fullmatch(topic) for topic in seen.topics if topic not in used}
        return {topic for topic, match in found.items() if match is not None and match[1] in seen.topics}

    def _delete_undefined(self, topic: str) -> None:
        if topic not in self._without_subscription(self._look()):
            raise _in_use(topic)
        self._topics.delete([topic])

    # Programs that have ended.

    def _dead_programs(self, seen: _Seen) -> Iterator[Leftover]:
        for topic, users in sorted(seen.inboxes.items()):
            if users <= seen.silent:
                yield Leftover(
                    "dead inbox",
                    topic,
                    "the program whose temporary destinations were in it has ended without deleting it",
                    f"delete it; {_evidence(users, self._registry.questions)}",
                    partial(self._delete_inbox, topic),
                )
        for engine, resources in sorted(seen.claims.items()):
            yield Leftover(
                "dead program",
                engine,
                f"a program that has ended has claims in the registry: {', '.join(sorted(set(resources)))}",
                f"take them away; {_evidence({engine}, self._registry.questions)}",
                partial(self._take_away, engine),
            )

    def _delete_inbox(self, topic: str) -> None:
        seen = self._look()
        if not seen.inboxes.get(topic, frozenset()) <= seen.silent:
            raise _in_use(topic)
        self._topics.delete([topic])

    def _take_away(self, engine: str) -> None:
        with self._registry.reading() as claims:
            self._registry.catch_up()
            if self._registry.living({engine}, self._registry.questions):
                raise _in_use(f"the program {engine}")
            self._registry.take_away(claims.left_by(engine))

    # Records that cannot be read, and copies that nothing needs.

    def _records(self, seen: _Seen, gone: set[str]) -> Iterator[Leftover]:
        if REGISTRY in seen.topics:
            yield from self._damaged(REGISTRY, 0, _read_claim)
        if BOOKKEEPING in seen.topics:
            yield from self._damaged(BOOKKEEPING, COPIES, lambda record: Copies().add(record))
            yield from self._copies(seen, gone)

    def _damaged(self, topic: str, number: int, read: Callable[[KafkaMessage], object]) -> Iterator[Leftover]:
        for key, record in self._newest(topic, number).items():
            try:
                read(record)
            except LaterVersionError:
                continue
            except MalformedError as error:
                offset = record.offset() or 0
                yield Leftover(
                    "damaged record",
                    f"{topic}[{number}]@{offset}",
                    f"a record cannot be read: {error}",
                    "delete its key; no program uses such a record, and it hides the one before it",
                    partial(self._wipe, topic, number, {key: offset}),
                )

    def _copies(self, seen: _Seen, gone: set[str]) -> Iterator[Leftover]:
        """Give the copies of settlement whose queue or subscription is gone."""
        is_known = REGISTRY in seen.topics
        newest = self._newest(BOOKKEEPING, COPIES)
        left: dict[str, dict[bytes, int]] = {}
        unlisted: dict[str, set[str]] = {}
        for key, record in newest.items():
            group, _, rest = key.decode(errors="replace").partition("\n")
            topic = rest.partition("\n")[0]
            if group.startswith(QUEUES) and group not in seen.groups:
                unlisted.setdefault(group.removeprefix(QUEUES), set()).add(group)
            elif not group and topic and topic not in seen.topics:
                unlisted.setdefault(topic, set())
            elif group.startswith(SUBSCRIPTIONS) and is_known and group not in seen.subscribed:
                left.setdefault(group, {})[key] = record.offset() or 0
        gone = gone | self._gone(unlisted.keys() - seen.topics.keys() - gone)
        for key, record in newest.items():
            group, _, rest = key.decode(errors="replace").partition("\n")
            topic = rest.partition("\n")[0] if not group else group.removeprefix(QUEUES)
            is_left = group not in seen.groups and (not group or group.startswith(QUEUES))
            if is_left and topic in gone:
                left.setdefault(topic, {})[key] = record.offset() or 0
        for subject, keys in sorted(left.items()):
            yield Leftover(
                "copy without group",
                subject,
                f"the bookkeeping has {len(keys)} records of a queue, topic or subscription that is gone",
                "delete them; neither the group nor its topic or subscription exists",
                partial(self._wipe_copies, subject, keys),
            )

    def _wipe_copies(self, subject: str, keys: Mapping[bytes, int]) -> None:
        """Take *keys* away, which are of a subscription's group, or of a queue or topic."""
        seen = self._look()
        if subject.startswith(SUBSCRIPTIONS):
            is_used = subject in seen.subscribed
        else:
            is_used = queue_group(subject) in seen.groups or self._topics.look_up(subject) > 0
        if is_used:
            raise _in_use(subject)
        self._wipe(BOOKKEEPING, COPIES, keys)

    def _wipe(self, topic: str, number: int, keys: Mapping[bytes, int]) -> None:
        """Take *keys* away whose newest records still have these offsets."""
        newest = self._newest(topic, number)
        for key, offset in keys.items():
            if key in newest and newest[key].offset() == offset:
                self._publisher.send_and_wait(topic, number, KafkaRecord(key, None, [], 0))

    def _newest(self, topic: str, number: int) -> dict[bytes, KafkaMessage]:
        """Return the newest record of each key that has a value."""
        found: dict[bytes, KafkaMessage] = {}
        for record in self._read(topic, {}, [number]):
            key = record.key() or b""
            found.pop(key, None)
            if record.value() is not None:
                found[key] = record
        return found

    def _read(
        self, topic: str, starts: Mapping[int, int], numbers: Collection[int] | None = None
    ) -> Iterator[KafkaMessage]:
        """Give the committed records of *topic* that are there now."""
        ends = {
            (topic, number): end
            for number, end in self._topics.ends(topic).items()
            if (numbers is None or number in numbers) and starts.get(number, 0) < end
        }
        if not ends:
            return
        try:
            consumer = open_consumer(self._reading)
            try:
                consumer.assign([TopicPartition(topic, number, starts.get(number, 0)) for _, number in ends])
                yield from records(consumer, ends, self._timeout)
            finally:
                consumer.close()
        except KafkaException as error:
            raise jms_error(error, f"read the Kafka topic {topic!r}", to="Read", topic=topic) from error

    # Transactions that do not end.

    def _transactions(self, topics: Mapping[str, int]) -> Iterator[Leftover]:
        """Give the partitions that open transactions have held back for longer than kjms's own can."""
        places = [(topic, number) for topic, count in topics.items() for number in range(count)]
        held = self._held_back(places)
        deadline = time.monotonic() + self._open_seconds
        while held and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
            now = self._held_back(held)
            held = {place: offset for place, offset in held.items() if now.get(place) == offset}
        for (topic, number), offset in sorted(held.items()):
            yield Leftover(
                "hanging transaction",
                f"{topic}[{number}]@{offset}",
                f"a transaction has been open for {self._open_seconds:g} s or longer, and holds up all consumers",
                "find its producer, or end the transaction with Kafka's tool: kafka-transactions.sh abort"
                f" --topic {topic} --partition {number} --start-offset {offset}",
                None,
            )

    def _held_back(self, places: Collection[Place]) -> dict[Place, int]:
        """Return those of *places* whose committed records end before the log does, and where they end."""
        latest = OffsetSpec.latest()
        stable = self._questions.answers(self._questions.ask(places, latest))
        ends = self._questions.answers(self._questions.ask(places, latest, IsolationLevel.READ_UNCOMMITTED))
        return {place: at for place, at in stable.items() if at < ends.get(place, 0)}


def _definitions(claims: Claims) -> Iterator[tuple[Identity, str, str, frozenset[str]]]:
    """Give each subscription with its Kafka topic, its group, and the engines with consumers on it."""
    for definition in claims.definitions():
        identity = Identity.of(definition.resource)
        if identity is not None:
            used = [*claims.all(USE, definition.resource), *claims.all(LOCK, definition.resource)]
            users = frozenset(claim.engine for claim in used)  # an engine that has the lock may be about to use it
            yield identity, definition.value["topic"], group_of(identity, definition), users


def _in_use(what: str) -> JMSException:
    return JMSException(f"{what} is in use again: nothing was changed")


def _read_claim(record: KafkaMessage) -> None:
    key = (record.key() or b"").decode(errors="replace")
    read_value(key.partition(":")[0], record.value())


def _evidence(engines: Collection[str], questions: int) -> str:
    if not engines:
        return "no program has a claim on it, and programs claim an inbox before they make it"
    return f"the program has left {questions} questions in the registry unanswered, a second apart"
