"""What the clients of an in-memory Kafka share: topics, groups, transactional ids, one lock, and one clock.

Nothing runs by itself: what a broker does after a time-out is done by the next call, or by a client that waits, which
wakes when something is due.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kjms.engine.kafka import KafkaError, KafkaException, kafka_error
from kjms.testing._clock import Clock
from kjms.testing._faults import COORDINATOR_SECONDS, TRANSACTIONAL, Faults, Operation, lost
from kjms.testing._groups import Group, Member, Place
from kjms.testing._logs import Log, Topic
from kjms.testing._transactions import Transactions
from kjms.testing._wakeups import Client, Wakeups

__all__ = ["NEVER", "Cluster", "refused"]

NEVER: Final = float("inf")
DELETION_SECONDS: Final = 0.25
"""After that, readers of a topic that was deleted notice; if there is another one of its name by then, they do not."""
OFFSETS_RETENTION_SECONDS: Final = 7 * 86_400.0
"""How long a group's offsets outlive its last member (``offsets.retention.minutes``)."""


def refused(code: int, text: str | None = None, *, fatal: bool = False, abort: bool = False) -> KafkaException:
    """Return the exception for an error of that *code*; *text* says more than Kafka's own words for it."""
    error = KafkaError(code) if text is None else KafkaError(code, text)
    retriable = code in RETRIABLE
    if fatal or abort or retriable:
        error = KafkaError(code, error.str(), fatal=fatal, retriable=retriable, txn_requires_abort=abort)
    return KafkaException(error)


RETRIABLE: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Cluster:
    """The state of an in-memory Kafka; callers hold `lock`.

    Args:
        address: Its bootstrap servers.
        nodes: How many brokers it has.

    Attributes:
        changed: Notified of what may end a wait of any client: a transaction's end, a fault's, the clock.
        closed: Once it is closed: returns the error for a call.
        advances: How often the clock was advanced: polls end then, so that programs look at what is due.
    """

    def __init__(self, address: str, nodes: int) -> None:
        self._brokers = (address,) * nodes  # this process serves all of them at one address
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.clock = Clock()
        self.faults = Faults()
        self.topics: dict[str, Topic] = {}
        self._metric_names: dict[str, str] = {}  # topics, by what Kafka's metrics call them
        self.groups: dict[str, Group] = {}
        self.transactions = Transactions(self.clock, self.changed)
        self.wakeups = Wakeups()
        self.clients: weakref.WeakSet[Client] = weakref.WeakSet()
        self.closed: Callable[[str], Exception] | None = None
        self.advances = 0
        self._orders = itertools.count(1)
        self._silent: dict[Member, Group] = {}
        self._deleted: dict[str, tuple[int, float]] = {}  # topics, their partitions, and when their readers notice

    @property
    def address(self) -> str:
        """Its bootstrap servers."""
        return self._brokers[0]

    @property
    def nodes(self) -> int:
        """How many brokers it has."""
        return len(self._brokers)

    def check(self, doing: str, client: Client | None = None) -> None:
        """Raise the error for *doing* something once the cluster is closed, in a forked child, or after a kill."""
        if self.closed is not None:
            raise self.closed(doing)
        if client is not None and client.client in self.faults.killed:
            text = f"{doing}: the program with client.id {client.client!r} was killed (MemoryFaults.kill)"
            raise KafkaException(KafkaError(KafkaError._DESTROY, text))

    def end_of(self, client: Client) -> KafkaError | None:
        """Return why *client* will get nothing any more; None: it may. Polls wait then, and other calls raise it."""
        try:
            self.check("poll", client)
        except KafkaException as error:
            return kafka_error(error)
        return None

    def add(self, client: Client) -> None:
        """Take a new client in."""
        with self.lock:
            self.check("connect", client)
            self.clients.add(client)
            if self.faults.is_away(client.client):
                client.hear(self.down())

    def down(self) -> KafkaError:
        """Return the error of a client that reaches no broker."""
        return KafkaError(KafkaError._ALL_BROKERS_DOWN, f"{self.nodes}/{self.nodes} brokers are down")

    # Requests.

    @contextmanager
    def request(
        self,
        client: Client,
        operation: Operation,
        *,
        topic: str = "",
        group: str = "",
        id: str = "",
        until: float | None = None,
    ) -> Iterator[None]:
        """Hold the lock while *client* has it do *operation*, and raise what goes wrong with it.

        Args:
            client: The client.
            operation: What it asks for.
            topic: About which topic, if one.
            group: About which group, if one.
            id: The producer's transactional id, if it has one.
            until: When the client gives brokers up that are away, by the clock.
        """
        with self.lock:
            self.expire()
            if until is None:
                until = self.clock.monotonic() + COORDINATOR_SECONDS
            while self.faults.is_away(client.client):
                if not self.wait(self.changed, until):
                    raise KafkaException(lost(operation))
                self.check(operation, client)
            refusal = self.faults.refusal(operation, topic=topic, group=group, id=id)
            if refusal is not None and operation != "describe":  # an answer to that names the topics that are refused
                if operation in TRANSACTIONAL:
                    is_fatal = operation == "init_transactions"
                    refusal = KafkaError(refusal.code(), refusal.str(), fatal=is_fatal, txn_requires_abort=not is_fatal)
                raise KafkaException(refusal)
            fault = self.faults.next(operation, client.client, topic=topic, group=group)
            if fault is None or fault.is_carried_out:
                yield
            if fault is not None:
                raise KafkaException(fault.error)

    # Time.

    def milliseconds(self) -> int:
        """Return the time of the broker, in milliseconds since the epoch."""
        return self.clock.milliseconds()

    def next_order(self) -> int:
        """Return a number that is larger than all before."""
        return next(self._orders)

    def wait(self, changed: threading.Condition, until: float) -> bool:
        """Wait for *changed*, and do what is due meanwhile; return whether it is earlier than *until*, by the clock."""
        now = self.clock.monotonic()
        if now >= until:
            return False
        due = min(self.transactions.due(), self.wakeups.due())
        due = min(due, *(noticed for _, noticed in self._deleted.values())) if self._deleted else due
        for member in self._silent:
            due = min(due, (member.silent_since or 0.0) + member.session_timeout)
        seconds = max(min(until, due) - now, 0.0)
        changed.wait(None if seconds == NEVER else min(seconds, threading.TIMEOUT_MAX))
        self.expire()
        return True

    def expire(self) -> None:
        """Do what is due: send what lingers, abort transactions, and put silent members out of their groups."""
        now = self.clock.monotonic()
        self.wakeups.expire(now)
        for name, (_, noticed) in list(self._deleted.items()):
            if noticed <= now:
                del self._deleted[name]
                for group in self.groups.values():
                    group.lose_topic(name)
                self._partitions_changed(name)
        self.transactions.expire(now)
        for member, group in list(self._silent.items()):
            if (member.silent_since or 0.0) + member.session_timeout <= now:
                del self._silent[member]
                group.leave(member, now)
                member.consumer.lose()

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass."""
        self.clock.advance(seconds)
        self.advances += 1
        self.expire()
        now, today = self.clock.monotonic(), self.milliseconds()
        for group in self.groups.values():
            if not group.members:
                since = group.empty_since or 0.0
                for place, offset in list(group.offsets.items()):
                    if now - max(since, offset.time) >= OFFSETS_RETENTION_SECONDS:
                        del group.offsets[place]
        for topic in self.topics.values():
            kept = int(topic.setting("retention.ms"))
            if kept >= 0 and "delete" in topic.setting("cleanup.policy"):
                for log in topic.logs:
                    young = (r.offset for r in log.records[: log.stable_end - log.start] if r.timestamp > today - kept)
                    log.delete_before(next(young, log.stable_end))
        self.wake_all()

    def wake_all(self) -> None:
        """Have every client look at what has changed."""
        self.changed.notify_all()
        for client in list(self.clients):
            client.wake()

    # Topics.

    def log(self, place: Place) -> Log | None:
        """Return the log of a partition; None: there is no such partition."""
        topic = self.topics.get(place[0])
        return topic.logs[place[1]] if topic is not None and 0 <= place[1] < len(topic.logs) else None

    def partitions(self, topic: str) -> int:
        """Return how many partitions *topic* has; 0 where there is none."""
        found = self.topics.get(topic)
        return 0 if found is None else len(found.logs)

    def colliding(self, name: str) -> str | None:
        """Return the topic whose metrics would be called as those of *name*, with _ for each dot; None: none."""
        return self._metric_names.get(name.replace(".", "_"))

    def make(self, name: str, partitions: int, replicas: int, settings: Mapping[str, str]) -> None:
        """Make a topic, which is not there."""
        self.topics[name] = Topic(name, partitions, replicas, settings, self.wakeups.wake_readers)
        self._metric_names.setdefault(name.replace(".", "_"), name)
        former, _ = self._deleted.pop(name, (0, 0.0))
        self._partitions_changed(name, is_rebalanced=former != partitions)

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.topics[name].grow(partitions)
        self._partitions_changed(name)

    def delete(self, name: str) -> None:
        """Delete a topic, with what groups have committed of it."""
        topic = self.topics.pop(name)
        if self.colliding(name) == name:
            del self._metric_names[name.replace(".", "_")]
        for log in topic.logs:
            self.transactions.forget(log)
        for group in self.groups.values():
            for offsets in (group.offsets, *group.pending.values()):
                for place in [place for place in offsets if place[0] == name]:
                    del offsets[place]
        self._deleted[name] = len(topic.logs), self.clock.monotonic() + DELETION_SECONDS
        self._partitions_changed(name, is_rebalanced=False)

    def _partitions_changed(self, name: str, *, is_rebalanced: bool = True) -> None:
        for group in self.groups.values() if is_rebalanced else ():
            if any(name in member.topics for member in group.members.values()):
                group.rebalance()
        self.wakeups.wake_readers_of(name)
        self.changed.notify_all()

    # Groups.

    def group(self, name: str) -> Group:
        """Return the group, which begins with the first question about it."""
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = Group(name, self.partitions)
        return found

    def silence(self, members: Iterable[tuple[Group, Member]]) -> None:
        """Receive no more heartbeats of *members*; after their session time-out they are put out of their groups."""
        for group, member in members:
            member.silent_since = self.clock.monotonic()
            self._silent[member] = group

    def unsilence(self) -> None:
        """Receive heartbeats again of those members whose clients reach the brokers."""
        for member in list(self._silent):
            if not self.faults.is_away(member.consumer.client) and member.consumer.client not in self.faults.killed:
                member.silent_since = None
                del self._silent[member]
