"""Find what faults have left in a cluster, and what may lose messages; repair what can be repaired without harm."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kjms.admin._retention import CLEANUP, RETENTION, RETENTION_BYTES, UNLIMITED, retention_warnings
from kjms.engine import DEAD_LETTER_MARGIN
from kjms.errors import JMSException
from kjms.mapping.names import (
    BOOKKEEPING,
    REGISTRY,
    delayed,
    delayed_group,
    is_inbox,
    is_internal,
)

if TYPE_CHECKING:
    from kjms.admin._scopes import Scopes
    from kjms.engine import Admin as Cluster
    from kjms.engine import Leftovers, Survey
    from kjms.engine.tuning import Tuning

__all__ = ["Examination", "Finding"]

LARGEST: Final = "max.message.bytes"
IN_SYNC: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"
KEPT: Final[Mapping[str, str]] = {RETENTION: UNLIMITED, RETENTION_BYTES: UNLIMITED, CLEANUP: "delete"}
COMPACTED: Final[Mapping[str, str]] = {CLEANUP: "compact"}
KEEPING: Final = ("delayed", "overflow", "handover")  # what topics beside a destination end with in which messages wait
REPLICAS: Final = 3  # from so many brokers on, one replica is too few
OVERDUE_MS: Final = 60_000  # for which a message may be due although a process serves it
UNSERVED_MS: Final = 5_000  # likewise, where none does
SERVE_SECONDS: Final = 60.0  # until what is overdue has moved
LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True)
class Finding:
    """Something that a fault has left in a cluster, or that may lose messages.

    Attributes:
        kind: What it is, such as ``dead inbox``; the page on administration lists the kinds.
        subject: The name of the topic, group, subscription or record that it is about.
        text: What was found, as a sentence.
        remedy: What is to be done, as a sentence.
        repairable: Whether `Admin.repair` does it. If not, kjms cannot know whether it may.
    """

    kind: str
    subject: str
    text: str
    remedy: str
    repairable: bool
    _repair: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, kind: str, subject: str, text: str, remedy: str, repair: Callable[[], None] | None) -> Finding:
        """Return a finding that *repair* repairs; None: nothing does."""
        return cls(kind, subject, text, remedy, repair is not None, repair)

    def repair(self) -> None:
        """Repair it, after another look whether that is still right; for `Admin.repair`."""
        assert self._repair is not None
        self._repair()


class Examination:
    """Looks for findings; one thread at a time.

    Args:
        cluster: Asks the cluster.
        leftovers: Finds what was left.
        survey: Knows which topics kjms made for queues.
        scopes: Knows the names of topics.
        find_queues: Returns the Kafka topics of queues, and of dead-letter queues.
        tuning: Has the clock.
    """

    def __init__(
        self,
        cluster: Cluster,
        leftovers: Leftovers,
        survey: Survey,
        scopes: Scopes,
        find_queues: Callable[[Mapping[str, int], Collection[str]], tuple[set[str], set[str]]],
        tuning: Tuning,
    ) -> None:
        self._cluster = cluster
        self._leftovers = leftovers
        self._survey = survey
        self._scopes = scopes
        self._find_queues = find_queues
        self._tuning = tuning

    def findings(self) -> list[Finding]:
        """Return all findings.

        Raises:
            JMSException: The broker does not answer.
        """
        there = self._cluster.topics()
        queues, letters = self._find_queues(there, self._cluster.groups())
        found = [*self._settings(there, queues | letters), *self._small_letters(there, queues)]
        found += self._replicas(there, queues | letters)
        found += self._overdue(there)
        found += [Finding.of(*each) for each in self._leftovers.find()]
        return found

    # Settings.

    def _settings(self, there: Mapping[str, int], queues: Collection[str]) -> Iterator[Finding]:
        wanted: dict[str, Mapping[str, str]] = dict.fromkeys(queues, KEPT)
        for topic in there:
            if topic in {REGISTRY, BOOKKEEPING}:
                wanted[topic] = COMPACTED
            elif is_internal(topic) and not is_inbox(topic) and topic.rpartition(".kjms.")[2].startswith(KEEPING):
                wanted[topic] = KEPT
        made = self._survey.queues_made(there)
        for topic, settings in self._cluster.settings(wanted, (*KEPT,)).items():
            if wanted[topic] is COMPACTED:
                texts = [] if settings[CLEANUP] == "compact" else [f"Kafka deletes records of {topic!r} by their age"]
            else:
                texts = list(retention_warnings(self._named(topic, queues), settings))
            if not texts:
                continue
            change = {name: value for name, value in wanted[topic].items() if settings[name] != value}
            listed = ", ".join(f"{name}={value}" for name, value in change.items())
            is_own = topic in made or topic not in queues
            yield Finding.of(
                "settings that lose messages",
                topic,
                "; ".join(texts),
                f"set {listed}, as kjms made the topic"
                if is_own
                else f"set {listed}, unless the program that made the topic needs them: kjms did not make it",
                partial(self._cluster.change_settings, topic, change) if is_own else None,
            )

    def _named(self, topic: str, queues: Collection[str]) -> str:
        return self._scopes.name(topic, is_queue=True) if topic in queues else topic

    def _small_letters(self, there: Mapping[str, int], queues: Collection[str]) -> Iterator[Finding]:
        pairs = {topic: self._scopes.letters(self._scopes.queue(topic)) for topic in queues}
        pairs = {topic: letters for topic, letters in pairs.items() if letters in there}
        limits = {
            topic: int(settings[LARGEST] or 0)
            for topic, settings in self._cluster.settings({*pairs, *pairs.values()}, (LARGEST,)).items()
        }
        needed: dict[str, int] = {}
        for topic, letters in pairs.items():
            if limits.get(letters, 0) < limits.get(topic, 0):
                needed[letters] = max(needed.get(letters, 0), limits[topic])
        for letters, largest in sorted(needed.items()):
            yield Finding.of(
                "small dead-letter queue",
                letters,
                f"{LARGEST} of {letters!r} is {limits[letters]}, and messages of {largest} bytes may become dead"
                " letters: a larger one stays in its queue",
                f"set {LARGEST}={largest + DEAD_LETTER_MARGIN}",
                partial(self._cluster.change_settings, letters, {LARGEST: str(largest + DEAD_LETTER_MARGIN)}),
            )

    def _replicas(self, there: Mapping[str, int], queues: Collection[str]) -> Iterator[Finding]:
        brokers, least = self._cluster.replicas()
        if brokers < REPLICAS:
            return
        topics = {*queues, *(topic for topic in there if is_internal(topic) and not is_inbox(topic))}
        settings = self._cluster.settings(sorted(topics), (IN_SYNC, UNCLEAN))
        for topic in sorted(topics):
            found = settings.get(topic, {})
            texts = []
            if least.get(topic, brokers) < 2:
                texts.append(f"it has 1 replica on {brokers} brokers: it is lost with its broker")
            elif found.get(IN_SYNC) == "1":
                texts.append(f"{IN_SYNC}=1: a message is confirmed that one broker alone has")
            if found.get(UNCLEAN) == "true":
                texts.append(f"{UNCLEAN}=true: a broker without the last messages may become the leader")
            if texts:
                yield Finding.of(
                    "settings that lose messages",
                    topic,
                    "; ".join(texts),
                    "use 3 replicas with min.insync.replicas=2: the page on clusters says how",
                    None,
                )

    # Delayed messages.

    def _overdue(self, there: Mapping[str, int]) -> Iterator[Finding]:
        topics = [topic for topic in there if not is_internal(topic) and delayed(topic) in there]
        served = self._cluster.members([delayed_group(topic) for topic in topics])
        for topic in topics:
            is_served = bool(served.get(delayed_group(topic)))
            count = self._count_overdue(topic, OVERDUE_MS if is_served else UNSERVED_MS)
            if count:
                why = "the process that serves them does not deliver them" if is_served else "no process serves them"
                yield Finding.of(
                    "overdue messages",
                    topic,
                    f"{count:,} delayed messages are due, and {why}",
                    "serve them until they are delivered, as 'kjms schedule run' does",
                    partial(self._serve, topic),
                )

    def _count_overdue(self, topic: str, grace_ms: int) -> int:
        due = self._tuning.now_ms() - grace_ms
        with self._cluster.delayed(topic) as waiting:
            return sum(each.due < due for each in waiting.read())

    def _serve(self, topic: str) -> None:
        """Serve the delayed messages of *topic*, as one more member of the group that shares them."""
        before = self._tuning.now_ms()
        self._cluster.serve_delayed(topic)
        deadline = time.monotonic() + SERVE_SECONDS
        with self._cluster.delayed(topic) as waiting:
            while any(each.due < before - UNSERVED_MS for each in waiting.read()):
                if time.monotonic() > deadline:
                    raise JMSException(f"delayed messages of {topic!r} are still due after {SERVE_SECONDS:g} s")
                time.sleep(LOOK_SECONDS)
