"""Commit the settlement of a group consumer's partitions: one commit for all threads that wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Final

from kjms.engine.consumer.client import COMMIT_SECONDS
from kjms.engine.kafka import KafkaError, KafkaException, TopicPartition, jms_error, kafka_error
from kjms.engine.outage import FULL_TIMEOUT, CloseTimeout
from kjms.engine.threads import start_thread
from kjms.errors import JMSException, ResourceAllocationException
from kjms.txn.metadata import owner

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment, Commit
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.delivery import AssignedPartition, Receipt
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.in_flight import InFlight

__all__ = ["ALL", "TICK_SECONDS", "TRANSIENT", "OffsetCommitter"]

TICK_SECONDS: Final = 0.1  # how long a settled message of a lazy mode may wait for its commit
CLOSE_SECONDS: Final = 5.0  # how long closing waits for a broker that does not answer
OUTCOME_UNKNOWN: Final = KafkaError(KafkaError._FAIL, "transaction outcome unknown")

CROWDED: Final = 0.5  # of what is unsettled is relocated when the settlement gets too large
ALL: Final = 1.0  # likewise, where it does not fit any more

TRANSIENT: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._STATE,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError._TRANSPORT,
        KafkaError._DESTROY_BROKER,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)


class _Waiter:
    """A thread that waits for a commit which another one makes.

    Attributes:
        receipts: What it waits for.
        thread: Its identifier.
        is_next: Whether it has to make the next commit.
        woken: Released once: what it waits for is committed, or it is next.
    """

    __slots__ = ("is_next", "receipts", "thread", "woken")

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self.receipts = receipts
        self.thread = get_ident()
        self.is_next = False
        self.woken = threading.Lock()
        self.woken.acquire()


class OffsetCommitter:
    """Commits what was settled, for all threads that wait for it, and says which of it was lost.

    Locks: it takes the group consumer's lock for what it notes, and the `turn` of *client* for a commit; it never waits
    for `turn` with the lock. The rebalance callbacks, which hold `turn`, call `commit` themselves.

    Args:
        assignment: The partitions whose settlement is committed.
        client: Makes the commits.
        dispatcher: Is notified that the dispatch limits have moved.
        in_flight: Has what sessions are done with, and is not settled yet.
        lock: The group consumer's lock.
        changed: Its condition: the consumer thread waits for it.
        before_commit: Called, with the lock, before a commit is planned: gives up what is not this process's any more.
        make_room: Called, with the lock, for partitions whose settlement does not fit, or soon will not, with the share
            of their messages to relocate.

    Attributes:
        commits: How many commits were made.
        moved: Notified after each of them: more may be dispatched.
        urgent: How many messages were settled that are to be committed at once.
        lacks_room: Whether the last commit left out what did not fit.
    """

    def __init__(
        self,
        assignment: Assignment,
        client: ConsumerClient,
        dispatcher: Dispatcher,
        in_flight: InFlight,
        lock: threading.RLock,
        changed: threading.Condition,
        before_commit: Callable[[], None],
        make_room: Callable[[Iterable[AssignedPartition], float], None],
    ) -> None:
        self._assignment = assignment
        self._client = client
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        self._lock = lock
        self._changed = changed
        self._before_commit = before_commit
        self._make_room = make_room
        self._committing = 0  # the thread that is about to commit for all that wait; 0: there is none
        self._waiters: list[_Waiter] = []  # the others, oldest first
        self._is_stopped = False
        self.commits = 0
        self.moved = threading.Condition(lock)
        self.urgent = 0
        self._urgent_planned = 0  # how many of them were part of a commit, at least of one that was tried
        self.lacks_room = False

    @property
    def is_wanted(self) -> bool:
        """Whether dispatch limits are to be moved, or messages wait for a commit that no thread is about to make."""
        if self.lacks_room:  # it would not be complete: the relocator is moving messages to the overflow
            return False
        if self.urgent != self._urgent_planned and not self._client.waiting:
            return True
        return self._dispatcher.wants_dispatch_limit or any(
            partition.needs_dispatch_limit for partition in list(self._assignment)
        )

    def urge(self) -> None:
        """Have the consumer thread commit, at once, what was settled just now; the caller holds the lock."""
        if self._client.waiting:
            self._client.is_awaited = True
        elif self.urgent == self._urgent_planned:
            self._changed.notify()
        self.urgent += 1

    def flush(self, timeout: float = COMMIT_SECONDS, receipts: Sequence[Receipt] = ()) -> int:
        """Return when everything that was settled before the call is committed, and how much of *receipts* was lost.

        One of the threads that want this commits for all of them; the others wait for its commit to end. What cannot be
        committed because the partition went to another member of the group is that member's now: it is lost. A commit
        that is under way when the last broker goes returns when one is back: librdkafka never gives it up.

        Args:
            receipts: What the caller waits for; empty: everything that was settled.
            timeout: Seconds to try again after transient errors, and to wait behind a commit that gets no answer.

        Raises:
            JMSException: The broker refused it.
        """
        if self._assignment.is_kept:
            try:
                self._flush(timeout, receipts)
            except Exception:
                raise
            except BaseException:  # Ctrl-C, at any point of it
                self._abandon()
                raise
        return self._lost(receipts)

    def _flush(self, timeout: float, receipts: Sequence[Receipt]) -> None:
        deadline = time.monotonic() + timeout
        client = self._client
        while not self._is_committed_by_another(deadline, receipts):
            try:
                left = max(deadline - time.monotonic(), TICK_SECONDS)
                client.acquire(left, max(timeout - left, 0.0))
                try:
                    error, is_complete = self.commit()  # of nothing, where the thread that had the client did it
                finally:
                    client.release()
            finally:
                self._pass_on()
            if (error is None and is_complete) or (receipts and self._is_durable(receipts)):
                return
            if time.monotonic() > deadline or (error is not None and kafka_error(error).code() not in TRANSIENT):
                raise self._failure(error) from error
            with self._lock:  # without the client: the rebalance itself happens in a poll
                self._changed.wait(0.02)

    def _abandon(self) -> None:
        """Let others commit, and wait for nothing: the present thread was interrupted."""
        self._client.abandon()
        thread = get_ident()
        with self._lock:
            self._waiters = [waiter for waiter in self._waiters if waiter.thread != thread]
            if self._committing == thread:
                self._pass_on()

    def _failure(self, error: KafkaException | None) -> JMSException:
        assignment = self._assignment
        doing = f"acknowledge messages of {assignment.name}"
        if error is None:
            return JMSException(f"{doing}: no room for their settlement was found")
        return jms_error(error, doing, to="Read", topic=assignment.topic, group=assignment.group)

    def _is_committed_by_another(self, deadline: float, receipts: Sequence[Receipt]) -> bool:
        """Wait while another thread commits; return whether nothing is left to commit for the caller."""
        with self._lock:
            if self._is_durable(receipts):
                return True
            if not self._committing:
                self._committing = get_ident()
                return False
            waiter = _Waiter(receipts)
            self._waiters.append(waiter)
        if not waiter.woken.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            with self._lock:
                if waiter in self._waiters:  # neither next, nor committed
                    self._waiters.remove(waiter)
                    return False
        return not waiter.is_next

    def _pass_on(self) -> None:
        """Wake those whose messages are committed now, and no others but the one that makes the next commit."""
        with self._lock:
            waiters, self._waiters, self._committing = self._waiters, [], 0
            for waiter in waiters:
                if not self._is_durable(waiter.receipts):
                    if self._committing:
                        self._waiters.append(waiter)
                        continue
                    self._committing, waiter.is_next = waiter.thread, True
                waiter.woken.release()

    def _is_durable(self, receipts: Sequence[Receipt]) -> bool:
        """Return whether *receipts* are committed, or lost; where they are empty, everything that was settled."""
        with self._lock:
            if self._in_flight.settled:
                self._in_flight.collect()
            if not receipts:
                return not any(partition.settlement.is_dirty for partition in self._assignment)
            for partition, version, _ in receipts:  # a loop, for speed
                if partition.is_held and partition.settlement.committed_version < version:
                    return False
            return True

    def _lost(self, receipts: Iterable[Receipt]) -> int:
        """Return how many messages of *receipts*, flushed before, are not committed: their partition was lost."""
        lost = 0
        for partition, version, count in receipts:  # a loop, for speed
            if (
                partition.is_kept
                and not (partition.is_held or partition.is_gone)
                and partition.settlement.committed_version < version
            ):
                lost += count
        return lost

    def flush_before_exit(self, receipts: Sequence[Receipt] = (), timeout: CloseTimeout = FULL_TIMEOUT) -> None:
        """Flush, and return in any case: for closing.

        Args:
            receipts: As for `flush`.
            timeout: How long to wait.

        Raises:
            JMSException: The broker refused it, or did not answer in time.
        """
        failures: list[JMSException] = []

        def flush() -> None:
            try:
                self.flush(CLOSE_SECONDS, receipts)
            except JMSException as failure:
                failures.append(failure)

        assignment = self._assignment
        if not assignment.is_kept or self._is_durable(receipts):
            return
        try:
            thread = start_thread(flush, f"kjms-consumer-{assignment.name}-last-commit")
        except ResourceAllocationException:  # the interpreter ends, perhaps: the consumer thread commits
            return
        if not timeout.join(thread, CLOSE_SECONDS + 1):
            failures.append(JMSException(f"acknowledge messages of {assignment.name}: the broker does not answer"))
        if failures:
            raise failures[0]

    def commit(
        self, last: Collection[AssignedPartition] = (), *, is_proof: bool = False
    ) -> tuple[KafkaException | None, bool]:
        """Commit every settlement that changed; the caller holds the client's `turn`.

        Args:
            last: Partitions that are given up in order.
            is_proof: Commit what is known already, too: it proves that the partitions are still held.

        Returns:
            What went wrong, and whether there was room for all of it.
        """
        if self._is_stopped:
            self._urgent_planned = self.urgent  # no commit will be made
            return KafkaException(OUTCOME_UNKNOWN), False
        assignment, dispatcher = self._assignment, self._dispatcher
        with self._lock:
            self._urgent_planned = self.urgent  # a commit that fails is tried again by the next flush, or in 0.1 s
            if self._in_flight.settled:
                self._in_flight.collect()
            if assignment.has_transfers:
                self._before_commit()
            commits, too_large = assignment.plan(last=last, is_proof=is_proof)
            consumer = self._client.consumer
            self.lacks_room = bool(too_large)
            crowded = [] if last else [each.partition for each in commits if each.partition.is_crowded]
            if too_large or crowded:
                self._make_room(too_large, ALL)
                self._make_room(crowded, CROWDED)
            if not commits:
                dispatcher.wants_dispatch_limit = False
        if not commits or consumer is None:
            return None, not too_large
        try:
            for answer in consumer.commit(offsets=[commit.offset for commit in commits], asynchronous=False):
                if answer.error is not None:
                    raise KafkaException(answer.error)
        except KafkaException as error:
            if kafka_error(error).code() == KafkaError.OFFSET_METADATA_TOO_LARGE and assignment.refused():
                return self.commit(last, is_proof=is_proof)
            return error, not too_large
        with self._lock:
            self.commits += 1
            assignment.committed(commits)
            dispatcher.dispatch_limit_moved()
            self.moved.notify_all()
        return None, not too_large

    # Transactions settle messages, too.

    def prepare(self) -> None:
        """Make sure that commits may be made, of what is held; the caller holds the lock.

        Raises:
            JMSException: The outcome of a transaction is not known.
        """
        if self._is_stopped:
            raise jms_error(OUTCOME_UNKNOWN, f"acknowledge messages of {self._assignment.name}")
        self._in_flight.collect()
        self._before_commit()

    def stop(self) -> None:
        """Commit nothing any more: the broker may still complete a transaction, which a later commit would partly undo.

        That transaction settles messages, and the next owner of their partitions waits for its outcome.
        """
        with self._lock:
            self._is_stopped = True

    def has_committed(self, commits: Sequence[Commit]) -> bool | None:
        """Ask the broker whether *commits* came through; the caller holds the client's `turn`.

        None: they are not there, but others may have committed since.
        """
        consumer = self._client.consumer
        assert consumer is not None
        known = consumer.committed(
            [TopicPartition(commit.offset.topic, commit.offset.partition) for commit in commits], COMMIT_SECONDS
        )
        if [(k.offset, k.metadata) for k in known] == [(c.offset.offset, c.offset.metadata) for c in commits]:
            return True
        for place, commit in zip(known, commits, strict=True):  # any member of the group can commit for it
            if commit.partition.is_transfer and owner(place.metadata)[1] != self._assignment.engine:
                return None
        error, _ = self.commit(is_proof=True)  # only the member that holds the partitions still can do that
        return False if error is None else None
