"""Join and leave a consumer group, and follow its rebalances: what is held is given up in order."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kjms.engine.kafka import ConsumerPort, TopicPartition, jms_error

if TYPE_CHECKING:
    from kjms.engine.consumer.assignment import Assignment
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.fetch_positions import FetchPositions
    from kjms.engine.consumer.lifecycle import Lifecycle
    from kjms.engine.consumer.membership import Membership
    from kjms.engine.consumer.offset_committer import OffsetCommitter
    from kjms.engine.consumer.relocations import Relocations
    from kjms.engine.consumer.transfer_reading import TransferReading
    from kjms.engine.consumer.upkeep import Upkeep
    from kjms.engine.handover.handover import Handover

__all__ = ["Change", "Rebalancing"]

_log = logging.getLogger("kjms.consumer")

Change: TypeAlias = Literal["assigned", "revoked", "lost"]
Callback: TypeAlias = "Callable[[ConsumerPort, list[TopicPartition]], None]"

RELOCATE_SECONDS: Final = 3.0  # how long leaving waits for relocations; what is not relocated is found again


class Rebalancing:
    """A group consumer's part in its group; used by the consumer thread.

    The callbacks run inside of a poll, with the client's `turn` held. A revoked partition is committed and given up
    before another member has it; a lost one is another member's already, and nothing is committed for it.

    Args:
        membership: Polls for the group.
        assignment: The partitions that are held.
        client: Holds the Kafka consumer.
        fetch: What it fetches.
        transfers: What it fetches besides.
        committer: Commits before a partition is given up.
        upkeep: Keeps copies of what was committed.
        relocations: Relocate what sessions have of revoked partitions.
        dispatcher: Where messages wait.
        lifecycle: Knows whether the thread ends.
        handover: Takes part in the group's handover; None: there is none.
        lock: The group consumer's lock.
        on_rebalance: Called after a rebalance with what changed, the partitions, and the seconds that it took.
    """

    def __init__(
        self,
        membership: Membership,
        assignment: Assignment,
        client: ConsumerClient,
        fetch: FetchPositions,
        transfers: TransferReading,
        committer: OffsetCommitter,
        upkeep: Upkeep,
        relocations: Relocations,
        dispatcher: Dispatcher,
        lifecycle: Lifecycle,
        handover: Handover | None,
        lock: threading.RLock,
        on_rebalance: Callable[[Change, list[int], float], None],
    ) -> None:
        self._membership = membership
        self.poll = membership.poll  # returns a record, and raises what a callback raised
        self._assignment = assignment
        self._client = client
        self._fetch = fetch
        self._transfers = transfers
        self._committer = committer
        self._upkeep = upkeep
        self._relocations = relocations
        self._dispatcher = dispatcher
        self._lifecycle = lifecycle
        self._handover = handover
        self._lock = lock
        self._on_rebalance = on_rebalance

    def join(self, consumer: ConsumerPort) -> None:
        """Join the group; wait for the client's `turn`."""
        with self._client.turn:
            self._membership.subscribe(
                consumer,
                self._assignment.topic,
                on_assign=self._observed("assigned", self._on_assign),
                on_revoke=self._observed("revoked", self._on_revoke),
                on_lost=self._observed("lost", self._on_lost),
            )
        if self._handover is not None:
            self._handover.begin()

    def leave(self, consumer: ConsumerPort) -> None:
        """Give up everything in order, leave the group, and close *consumer*."""
        for step in (
            self._finish_relocations,
            partial(self._give_up_transfers, consumer),
            self._upkeep.commit,
            partial(self._close, consumer),
            self._upkeep.write_log,
        ):
            try:
                step()
            except Exception:
                _log.exception("consumer of %s: leaving the group failed", self._assignment.name)
        if self._assignment.is_kept:
            with self._lock:
                self._fetch.forget_all()

    def _finish_relocations(self) -> None:
        """Let dead letters go while the group counts us in: no consumer may ask for them again for a long time."""
        if self._assignment.is_kept:
            self._relocations.finish(RELOCATE_SECONDS)

    def _give_up_transfers(self, consumer: ConsumerPort) -> None:
        if self._handover is not None:
            self._transfers.give_up(consumer, self._membership)
            self._handover.end()

    def _close(self, consumer: ConsumerPort) -> None:
        with self._client.turn:
            if self._assignment.is_kept:
                self._membership.close(consumer)
            else:
                consumer.close()

    # The group moves partitions between its members.

    def _observed(self, change: Change, follow: Callback) -> Callback:
        """Return *follow*, which observers learn of."""

        def followed(consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
            begin = time.perf_counter()
            follow(consumer, partitions)
            if partitions:
                self._on_rebalance(change, [each.partition for each in partitions], time.perf_counter() - begin)

        return followed

    def _on_assign(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        if self._lifecycle.is_closed or self._lifecycle.is_leaving:  # the poll is that of the closing
            return
        self._fetch.assign(consumer, [assigned.partition for assigned in partitions])
        self._upkeep.proved()

    def _on_revoke(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        dispatcher = self._dispatcher
        with self._lock:
            last = [partition for revoked in partitions for partition in self._assignment.of(revoked.partition)]
            for partition in last:
                dispatcher.drop(partition)  # what is dispatched from now on is not part of a commit
        if not (self._lifecycle.is_closed or self._lifecycle.is_leaving):
            self._relocations.move_in_flight(last)
        with self._lock:
            for partition in last:
                partition.is_held = False
                dispatcher.drop(partition)  # what came back meanwhile
        error, _ = self._committer.commit(last)  # the poll that called this holds the client
        if error is not None:
            doing = f"acknowledge messages of {self._assignment.name} before a rebalance"
            _log.warning("%s", jms_error(error, doing))
        self._upkeep.keep_copies(last)
        self._unassign(consumer, partitions)

    def _on_lost(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        if partitions:
            numbers = ", ".join(str(each.partition) for each in partitions)
            _log.warning(
                "%s: the group no longer counts this process in, and lost are the partitions %s; what was dispatched "
                "from there comes again, marked as redelivered",
                self._assignment.name,
                numbers,
            )
        with self._lock:
            if self._handover is not None:
                self._handover.lost()
        self._unassign(consumer, partitions)

    def _unassign(self, consumer: ConsumerPort, partitions: list[TopicPartition]) -> None:
        try:
            self._fetch.unassign(consumer, partitions)
        finally:
            self._upkeep.proved()
