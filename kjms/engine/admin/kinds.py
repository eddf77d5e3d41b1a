"""For which kind of destination a Kafka topic is used: a queue and a topic of one name share their messages.

Any Kafka topic can be used as a queue and as a topic, and some are on purpose. More often it is a mistake: consumers of
``queue://prices`` take the messages of ``topic://prices``, and dead-letter those that they cannot read. So the
bookkeeping has a record of each topic's kind: the one that kjms made it for, or else consumed it as first. A program
that uses it as the other kind receives one warning, or is refused where its options say so.

What is on record is read by a thread, for all destinations that came meanwhile, and only of topics that this process
did not make itself: sending and receiving wait for nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kjms.destinations import Destination, Queue, Topic
from kjms.engine.kafka import KafkaException
from kjms.engine.threads import start_thread
from kjms.errors import InvalidDestinationException, JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.bookkeeping import Bookkeeping
    from kjms.engine.admin.topics import Topics
    from kjms.engine.outage import CloseTimeout

__all__ = ["DestinationKinds"]

_log = logging.getLogger("kjms.destinations")

CLOSE_SECONDS: Final = 2.0  # no message is lost without what is put on record


class DestinationKinds:
    """Notes for which kind of destination topics are used, and tells of those that are used as the other kind.

    Args:
        topics: Knows Kafka topics.
        bookkeeping: Has the records.
        report: Called with each warning.
    """

    def __init__(self, topics: Topics, bookkeeping: Bookkeeping, report: Callable[[JMSException], None]) -> None:
        self._topics = topics
        self._bookkeeping = bookkeeping
        self._report = report
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._pending: dict[str, list[Destination]] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that reads what is on record; None: nothing is to be read."""
        return self._thread

    def use(self, topic: str, destination: Destination, *, is_consumed: bool, is_strict: bool) -> None:
        """Note that *destination* uses *topic*.

        Args:
            topic: The Kafka topic.
            destination: The destination.
            is_consumed: Whether it is consumed. A program that only sends may not read the bookkeeping, as a rule: it
                receives a warning by what is known here, unless it is strict.
            is_strict: Whether to refuse it, and not only tell, where the topic is used as the other kind.

        Raises:
            InvalidDestinationException: It is refused.
            JMSException: *is_strict*, and the broker does not say what is on record.
        """
        kind = destination.scheme
        seen = self._topics.kinds.setdefault(topic, {})
        if kind in seen and (seen[kind] == kind or not is_strict):
            return
        recorded = seen.get(kind) or next(filter(None, list(seen.values())), "")
        is_made_here = not recorded and topic in self._topics.created
        if not (recorded or is_made_here or is_consumed or is_strict):
            return
        seen[kind] = recorded = kind if is_made_here else recorded
        if not recorded and is_strict:
            with self._reading:
                records = self._bookkeeping.kinds()
            recorded = self._noted(topic, destination, records, is_kept=is_consumed)
        elif is_made_here or not recorded:
            self._later(topic, destination)
        if recorded and recorded != kind:
            if is_strict:
                raise InvalidDestinationException(_text(topic, destination, recorded))
            self._tell(topic, destination, recorded)

    def _later(self, topic: str, destination: Destination) -> None:
        with self._lock:
            self._pending.setdefault(topic, []).append(destination)
            if self._thread is None and not self._is_closed:
                self._thread = start_thread(self._run, "kjms-destinations")

    def _run(self) -> None:
        while True:
            with self._lock:
                pending, self._pending = self._pending, {}
                if not pending:
                    self._thread = None
                    return
            try:
                with self._reading:
                    records = self._bookkeeping.kinds()
                for topic, destinations in pending.items():
                    for destination in destinations:
                        recorded = self._noted(topic, destination, records)
                        if recorded != destination.scheme:
                            self._tell(topic, destination, recorded)
            except Exception as error:  # it is a help, and no destination needs it
                if not (self._is_closed or isinstance(error, (JMSException, KafkaException))):
                    raise  # closing waits for a moment only: what this thread uses may be closed
                _log.debug("which kinds of destinations Kafka topics are used for is not known: %s", error)

    def _noted(
        self,
        topic: str,
        destination: Destination,
        records: Mapping[str, Sequence[tuple[str, str]]],
        *,
        is_kept: bool = True,
    ) -> str:
        """Return the kind on record for *topic*; where there is none, that of *destination*, which *is_kept* then.

        Raises:
            JMSException: The broker does not answer.
        """
        kind = destination.scheme
        with self._reading:
            seen = self._topics.kinds.setdefault(topic, {})
            identity = self._topics.ids.find(topic)
            other = next((each for used, each in seen.items() if each and used != kind), "")  # found a moment ago
            recorded = kind_on_record(records.get(topic, ()), identity) or other
            if not recorded:
                recorded = kind
                if is_kept:
                    self._bookkeeping.keep_kind(topic, kind, identity)
            seen[kind] = recorded
        return recorded

    def _tell(self, topic: str, destination: Destination, recorded: str) -> None:
        failure = InvalidDestinationException(_text(topic, destination, recorded))
        _log.warning("%s", failure)
        self._report(failure)

    def close(self, timeout: CloseTimeout) -> None:
        """Look for nothing more; what was used is put on record first, if the broker answers."""
        with self._lock:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            timeout.join(thread, CLOSE_SECONDS)


def kind_on_record(records: Iterable[tuple[str, str]], identity: str) -> str:
    """Return the kind of the first of *records* that is of the Kafka topic with the id *identity*; "": none is.

    An id that one of the two does not say is any.

    >>> kind_on_record([("topic", "a"), ("queue", "b"), ("topic", "b")], "b")
    'queue'
    """
    return next((kind for kind, its in records if identity in {its, "-"} or its == "-"), "")


def _text(topic: str, destination: Destination, recorded: str) -> str:
    other = Topic if recorded == Topic.scheme else Queue
    name = destination._name
    return (
        f"{destination} and {other(name)} are one Kafka topic, {topic!r}, which kjms made or consumed first as a"
        f" {recorded}: consumers of the queue take messages that are meant for the topic's subscribers. Use one kind"
        " for a name; where both are meant, ignore this (docs/configuration.md#one-kind-for-a-name)"
    )
