"""Relocate messages of one source: Kafka transactions write copies elsewhere and settle the originals."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.consumer.assignment import oldest
from kjms.engine.consumer.offset_committer import ALL
from kjms.engine.kafka import KafkaException
from kjms.engine.transactions.errors import AbortedError, LostError, OutgrownError
from kjms.engine.transactions.plan import DeadLetterMove, Move, copier
from kjms.errors import JMSException
from kjms.txn.delivery_states import COMPLETE, DISPATCHED, RELOCATING, SETTLE

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.engine.admin.topics import WantedTopic
    from kjms.engine.consumer.assignment import Assignment, Commit
    from kjms.engine.consumer.client import ConsumerClient
    from kjms.engine.consumer.delivery import AssignedPartition, Delivery, Event
    from kjms.engine.consumer.dispatcher import Dispatcher
    from kjms.engine.consumer.in_flight import InFlight
    from kjms.engine.consumer.offset_committer import OffsetCommitter
    from kjms.engine.consumer.overflow import Overflow
    from kjms.mapping.dead_letters import Cause

__all__ = ["Relocations"]

_log = logging.getLogger("kjms.consumer")

LOOK_SECONDS: Final = 0.05  # how soon a rebalance that waits for sessions sees that they are done
MOST_IN_FLIGHT: Final = 10_000  # messages in flight that a rebalance may wait for


class Relocations:
    """What Kafka transactions settle of one source: relocations, and messages that transacted sessions received.

    Locks: each method takes the lock of the source for what it notes. `plan`, `unplan` and `done` are called with the
    client's `turn` held; `still_held`, in the relocator's thread, waits for it.

    Args:
        assignment: The partitions that are held.
        client: Holds the Kafka consumer of the group.
        committer: Makes the other commits.
        dispatcher: Where messages wait.
        in_flight: Counts what is neither settled nor waits.
        overflow: What the engine does for the source.
        lock: The lock of the source.
        changed: Its condition: the consumer thread waits for it.
        open_overflow: Makes sure that a partition of the overflow topic is read here.

    Attributes:
        waits_seconds: For how many seconds a rebalance waits until sessions have settled what they have.
    """

    def __init__(
        self,
        assignment: Assignment,
        client: ConsumerClient,
        committer: OffsetCommitter,
        dispatcher: Dispatcher,
        in_flight: InFlight,
        overflow: Overflow,
        lock: threading.RLock,
        changed: threading.Condition,
        open_overflow: Callable[[int], None],
    ) -> None:
        self.client = client
        self.committer = committer
        self._assignment = assignment
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        self._overflow = overflow
        self._lock = lock
        self._changed = changed
        self._open_overflow = open_overflow
        self.waits_seconds = 0.0

    def __repr__(self) -> str:
        return f"<Relocations of {self._assignment.name}>"

    @property
    def is_kept(self) -> bool:
        """Whether Kafka keeps the settlement of the source."""
        return self._assignment.is_kept

    def record(self, delivery: Delivery, destination: Destination) -> bool:
        """Record *delivery*, a repeated one, durably before it is made; return whether it still may be.

        Raises:
            JMSException: The broker refused it.
        """
        with self._lock:
            delivery.note()
            is_new = delivery.attempts.logged < delivery.count  # else it was given back before a program saw it
            delivery.attempts.logged = delivery.count
        if is_new:
            self._overflow.redelivery_log.note("redelivery", self._assignment.group, destination, delivery)
        self.committer.flush()
        with self._lock:  # from here on, giving the partition up counts the delivery
            delivery.attempts.is_made = delivery.partition.is_held
            return delivery.attempts.is_made

    def dead_letter(
        self, delivery: Delivery, cause: Cause, target: WantedTopic, why: Event, destination: Destination
    ) -> None:
        """Relocate *delivery*, which a session has, to *target*, and note *why* in the log of redeliveries."""
        with self._lock:
            delivery.state = COMPLETE[delivery.state]
            delivery.attempts.is_made = True  # should its partition be lost before, it has the count that it has now
            self._dispatcher.let_go(delivery)
        self._overflow.redelivery_log.note(why, self._assignment.group, destination, delivery)
        self._overflow.relocator.submit(self, [DeadLetterMove(delivery, cause, target)])

    def submit(self, moves: Sequence[Move[Delivery]]) -> None:
        """Have messages moved that were taken out of the buffer; the caller holds the lock."""
        self._dispatcher.in_flight += len(moves)
        self._overflow.relocator.submit(self, moves)

    def make_room(self, partitions: Iterable[AssignedPartition], share: float) -> None:
        """Relocate messages of *partitions* to the overflow, so that their settlement gets small again.

        While there is time, messages that wait for the room of peers go to these instead. If there are none, those go
        that lie scattered and match no consumer: others will soon be settled. If there are none either, or at the last
        moment, it is the oldest *share*.
        """
        has_given = False
        for partition in partitions:
            if partition in self._assignment.crowding:
                continue
            has_given = has_given or (share < 1 and self._dispatcher.sharing.give_waiting())
            if has_given:
                self._changed.notify()  # the consumer thread sends them
                continue
            self._dispatcher.batches.recall()  # what no session has taken is copied as it is
            scattered = partition.settlement.fragments(share) if share < 1 and self._dispatcher.kept_back else []
            chosen = [delivery for delivery in scattered if self._dispatcher.is_staying(delivery)]
            if not chosen:  # without those that go to a peer: they are as good as gone
                chosen = [delivery for delivery in oldest(partition, share) if delivery.state is not RELOCATING]
            if chosen:
                self._assignment.crowding.add(partition)
                for delivery in chosen:
                    delivery.is_relocating = True
                place = (partition.topic if partition.is_transfer else self._overflow.topic), partition.number
                copy = copier(*place)
                self._overflow.relocator.submit(self, [Move(each, copy, to=place) for each in chosen])

    def still_held(self, moves: Iterable[Move[Delivery]]) -> list[Move[Delivery]]:
        """Return those of *moves* that are still to be made: the messages are held here, and not settled.

        Where their copies overflow to is read here by then, and where those of another process go is there.

        Raises:
            JMSException: It is read elsewhere.
        """
        left: list[Move[Delivery]] = []
        gone: list[Move[Delivery]] = []
        with self._lock:
            for move in moves:
                (left if self._is_movable(move) else gone).append(move)
            for move in gone:
                self._assignment.crowding.discard(move.delivery.partition)
                move.delivery.is_relocating = False
                if not move.to:
                    self._dispatcher.in_flight -= 1
                if move.peer is not None:
                    move.peer.written(None)
                    if move.delivery.partition.is_held:  # the peer is gone
                        move.delivery.attempts.is_back = True
                        self._dispatcher.put_back([move.delivery])
            places = {move.to for move in left if move.to}
        for topic, number in places:
            if topic == self._overflow.topic:
                self._open_overflow(number)
        for number in {move.overflow_partition for move in left if move.overflow_partition >= 0}:
            self._overflow.ensure(number)
        return left

    def _is_movable(self, move: Move[Delivery]) -> bool:
        partition = move.delivery.partition
        if move.peer is not None and not 0 <= move.transfer_partition == move.peer.transfer_partition:
            return False
        return partition.is_held and partition.settlement.holds(move.delivery.offset)

    def plan(self, made: Sequence[Move[Delivery]], deliveries: Sequence[Delivery]) -> tuple[list[Commit], Any]:
        """Return the commits that settle the originals of *made*, and *deliveries*, and the group's metadata.

        The caller holds the client. They include settlements made while a message was being copied.

        Raises:
            OutgrownError: The settlement would not fit even so.
            LostError: Some of the messages are not held any more.
            JMSException: The outcome of another transaction is unknown.
        """
        with self._lock:
            self.committer.prepare()
            settled: dict[AssignedPartition, set[int]] = {}
            everything = [*(move.delivery for move in made), *deliveries]
            lost = [delivery for delivery in everything if not delivery.partition.is_held]
            if lost:
                raise LostError(
                    f"{len(lost)} messages of {self._assignment.name} belong to partitions that this process lost,"
                    " to another consumer or in an outage",
                    lost,
                )
            for delivery in everything:
                settled.setdefault(delivery.partition, set()).add(delivery.offset)
            consumer = self.client.consumer
            if not self.is_kept or consumer is None:
                return [], None
            targets = {place: self._target(place) for place in {move.to for move in made if move.to}}
            settled.update((target, set()) for target in targets.values() if target not in settled)
            for move in made:
                if move.to:
                    delivery, target, (_, offset) = move.delivery, targets[move.to], move.place
                    target.settlement.place(offset, delivery)
                    if not delivery.partition.settlement.holds(delivery.offset):
                        target.settlement.settle(offset)
                    elif delivery.history != move.told:
                        target.settlement.note(offset, delivery.history)
            commits, too_large = self._assignment.plan(settled=settled)
            if too_large:
                if not made:
                    self.make_room(too_large, ALL)
                raise OutgrownError(f"the settlement of {self._assignment.name} does not fit")
        return commits, consumer.consumer_group_metadata()

    def _target(self, place: tuple[str, int]) -> AssignedPartition:
        """Return the overflow partition at *place*.

        Raises:
            JMSException: It is read elsewhere.
        """
        target = self._assignment.get(*place)
        if target is None:
            name = self._assignment.name
            raise JMSException(f"the overflow of partition {place[1]} of {name} is read elsewhere now")
        return target

    def unplan(self, made: Sequence[Move[Delivery]]) -> None:
        """Note that *made* did not come through: their copies do not count."""
        with self._lock:
            for move in made:
                target = self._assignment.get(*move.to) if move.to else None
                if target is not None:
                    target.settlement.unplace(move.place[1])

    def forget(self, moves: Sequence[Move[Delivery]]) -> None:
        """Note that *moves* will not be made; others may be chosen."""
        with self._lock:
            for move in moves:
                self._assignment.crowding.discard(move.delivery.partition)
                move.delivery.is_relocating = False
            self.committer.lacks_room = False
            self._changed.notify()

    def done(self, commits: Sequence[Commit], made: Sequence[Move[Delivery]], deliveries: Sequence[Delivery]) -> None:
        """Note that *made* came through, and that *deliveries* are settled, with *commits*."""
        with self._lock:
            self._assignment.committed(commits)
            self._in_flight.settle(deliveries)
            self.committer.lacks_room = False
            settled: dict[AssignedPartition, list[int]] = {}
            for move in made:
                delivery, offset = move.delivery, move.place[1]
                source = delivery.partition
                self._assignment.crowding.discard(source)
                delivery.is_relocating = False
                is_done = not source.settlement.holds(delivery.offset)  # by now
                settled.setdefault(source, []).append(delivery.offset)
                if not move.to:
                    delivery.state = SETTLE[delivery.state]
                    self._dispatcher.in_flight -= 1
                    if move.peer is not None:
                        move.peer.written(move.place)
                    continue
                target = self._assignment.get(*move.to)
                if target is None:  # it was given up at once: its new owner reads the copy
                    continue
                delivery.stands_at(target, offset, move.told)
                if is_done:
                    target.settlement.settle(offset)
                else:
                    delivery.note()  # it may have come back meanwhile
            for source, offsets in settled.items():
                source.settlement.settle_each(offsets)
            self._changed.notify()

    def move_in_flight(self, leaving: Collection[AssignedPartition]) -> None:
        """Move what sessions have of partitions that are *leaving* to one that stays: it can still be acknowledged.

        Message groups are left: the next messages of them are delivered elsewhere at once. Where sessions are to be
        waited for, the next owner waits as long for the partitions; all others continue.
        """
        self._wait_for(leaving)
        with self._lock:
            self._in_flight.collect()
            numbers = {partition.number for partition in leaving}
            home = next((number for number in self._assignment.numbers() if number not in numbers), None)
            in_flight = [
                delivery
                for partition in leaving
                for _, delivery in partition.settlement.messages()
                if delivery.is_in_flight and not delivery.is_relocating and delivery.group is None
            ]
        if home is None or not 0 < len(in_flight) <= MOST_IN_FLIGHT:
            return
        place = self._overflow.topic, home
        try:
            self._open_overflow(home)
            copy = copier(*place)
            self._overflow.sync_relocator.move(self, [Move(each, copy, to=place) for each in in_flight])
        except (JMSException, AbortedError, KafkaException) as error:
            _log.warning(
                "another process redelivers %d messages of %s: %s", len(in_flight), self._assignment.name, error
            )

    def _wait_for(self, leaving: Collection[AssignedPartition]) -> None:
        """Wait, no longer than `waits_seconds`, until no session has anything of the partitions that are *leaving*."""
        begin = time.monotonic()
        with self._lock:
            while time.monotonic() < begin + self.waits_seconds and any(
                delivery.state is DISPATCHED for partition in leaving for _, delivery in partition.settlement.messages()
            ):
                self._changed.wait(LOOK_SECONDS)
                self._in_flight.collect()

    def finish(self, seconds: float) -> None:
        """Return when nothing is left to relocate, or after *seconds*."""
        self._overflow.relocator.finish(self, seconds)

    @property
    def waiting(self) -> int:
        """How many messages are being relocated, or wait for it."""
        return self._overflow.relocator.moving(self)
