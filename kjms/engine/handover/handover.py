"""The part of one group consumer in the handover of its queue's messages between processes."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.delivery_reports import failure_of
from kjms.engine.handover.demand import RequestWindow, Starvation
from kjms.engine.handover.interest import IDLE_VALID_SECONDS, Interest
from kjms.engine.handover.peers import NONE, PeerEvent, Peers, PeerState, read_interest
from kjms.engine.handover.transfer import (
    REQUEST_DELAY_SECONDS,
    HandoverTopics,
    TransferPartitions,
    moves_back,
    moves_over,
)
from kjms.engine.interrupts import Event
from kjms.engine.statistics import HandoverStatistics
from kjms.errors import JMSException
from kjms.mapping.internal import MalformedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kjms.engine.consumer.delivery import AssignedPartition, Delivery
    from kjms.engine.handover.peers import Peer
    from kjms.engine.handover.ports import Consumer, PeerSharing
    from kjms.engine.handover.service import HandoverService
    from kjms.engine.kafka import KafkaError, KafkaMessage
    from kjms.engine.transactions.plan import Move

__all__ = ["Handover", "HandoverState"]

BEAT_SECONDS: Final = 1.5  # between the interests of a process whose transfer partition is in use
IDLE_BEAT_SECONDS: Final = 10.0  # the same where nothing moves
MARGIN_SECONDS: Final = 2.0  # and the session timeout: from the end of a claim to the end of the lease
STALE_SECONDS: Final = 4.0  # a peer that published nothing for that long gets nothing before it is asked
ASK_SECONDS: Final = 0.5  # between questions to peers
JOIN_SECONDS: Final = 10.0  # Kafka takes milliseconds
STUCK_SECONDS: Final = 0.5  # what a consumer that takes nothing is assumed to need for a message
BUSY_SECONDS: Final = 2.0  # since something moved last: for so long it is looked at often


class HandoverState(Enum):
    """How far a process takes part in a handover: each state follows the one before, and an end leads to the first."""

    ENDED = "ended"  # or not begun
    OUTSIDE = "outside"  # there are no topics yet
    JOINING = "joining"  # reads what others have published before
    READY = "ready"


class Handover:
    """Publishes what a group consumer wants of its queue, receives what peers want, and moves messages both ways.

    The service's thread calls `tick` and `received`; any thread that holds the consumer's lock may call the rest.

    Args:
        consumer: The group consumer.
        service: The engine's thread for it.
    """

    def __init__(self, consumer: Consumer, service: HandoverService) -> None:
        self.interest_topic = consumer.overflow.interest
        self._consumer = consumer
        self._service = service
        self._sharing = consumer.sharing
        self._lock = consumer.lock
        self._transfers = TransferPartitions(consumer, self.publish)
        self._reset()

    def _reset(self) -> None:
        self.peers = Peers(self._service.engine)
        self._topics = HandoverTopics(self._consumer.overflow)
        self._transfers.reset(self.peers, self._topics)
        margin = self._consumer.session_timeout + MARGIN_SECONDS
        self._interest = Interest(self.interest_topic, self._service.engine, self._service.publisher, margin)
        self._window = RequestWindow()
        self._starvation = Starvation()
        self._state = HandoverState.ENDED
        self._joined_at = -1  # the offset of this process's first interest: those before it come from the past
        self._moved_at = time.monotonic()  # when something moved last
        self._asked_at = 0.0

    def __repr__(self) -> str:
        return f"<Handover {self._transfers.topic}: partition {self._transfers.number}, {len(list(self.peers))} peers>"

    def statistics(self) -> HandoverStatistics:
        """Return how many peers there are, and what is read for it; the caller holds the lock."""
        transfers = self._transfers
        return HandoverStatistics(
            topic=transfers.topic,
            peers=sum(1 for _ in self.peers),
            transfer_partition=None if transfers.number == NONE else transfers.number,
            adopted=tuple(sorted(transfers.adopted)),
            reading=tuple(sorted(transfers.open)),
            releasing=tuple(sorted(transfers.releasing)),
            is_ready=self._state is HandoverState.READY,
        )

    # The group consumer begins and ends.

    def begin(self) -> None:
        """Take part from now on."""
        with self._lock:
            self._reset()
            self._state = HandoverState.OUTSIDE
            self._sharing.peers = self.peers
        self._service.join(self)

    def end(self) -> None:
        """Take part no more: what is left in transfer partitions goes to others at once."""
        self._service.leave(self)
        with self._lock:
            self._interest.publish_end()
            self._reset()  # without a transfer partition that a later commit would give up
            self._sharing.peers = ()

    # What happens in the group consumer.

    def took(self, delivery: Delivery | None, worked: float, now: float) -> None:
        """Record that a session took *delivery*, or found nothing, *worked* seconds after it took the one before."""
        if (
            delivery is not None or not self._starvation.since
        ):  # a consumer that asks again, and finds nothing, moves nothing
            if now - self._moved_at > BUSY_SECONDS:
                self._service.wake()
            self._moved_at = now
        if worked:
            self._window.worked(worked)
        if delivery is None:
            self._starvation.missed(now)
            if self._transfers.is_held:
                self._request_more()
            return
        if self._starvation.since and not self._consumer.dispatcher.selector_queues.is_waiting:
            self._starvation.since = 0.0
        if delivery.partition.is_transfer and self._window.took():
            self.publish()

    def _request_more(self) -> None:
        """Request more where a consumer found nothing: peers may not know that it waits, or it gets too little."""
        started = self._consumer.dispatcher.selector_queues
        is_more = self._window.missed(started.slots, started.waiting, self._consumer.prefetch)
        if is_more or self._sharing.has_reopened:
            self.publish()

    def changed(self) -> None:
        """Record that a consumer with another selector was opened or closed."""
        self._moved_at = time.monotonic()
        self._service.wake()
        if self._transfers.is_held and self._free_wants() != self._interest.selectors:
            self._transfers.arrived_at = self._moved_at  # something may come
            self.publish()

    def arrived(self) -> None:
        """Record that messages came to a transfer partition."""
        self._transfers.arrived_at = self._moved_at = time.monotonic()
        own = self._transfers.own
        self._window.arrived(0 if own is None else min(own.settlement.unsettled, self._consumer.dispatcher.held))
        if self._interest.is_idle:
            self.publish()

    @property
    def is_sharing(self) -> bool:
        """Whether there are processes to share with, or messages that they handed over."""
        return bool(self._sharing.peers or self._transfers.open)

    def share(self, now: float) -> bool:
        """Let peers have messages of busy consumers; return whether to look again soon."""
        is_soon = False
        if self._sharing.peers:
            self._sharing.offer_waiting()  # also what a peer had read before its position was known
            is_soon = self._sharing.share(now)
            self._ask(now)
        if self._transfers.open:
            stuck = self._sharing.send_back(now)  # requested in advance for consumers that are busy
            if stuck:
                self._window.stuck(STUCK_SECONDS)
                self._consumer.relocations.submit(moves_back(self._consumer, stuck))
                self.publish()
            is_soon = self._sharing.may_get_stuck(now) or is_soon
        self._consumer.send_over()
        return is_soon

    def lost(self) -> None:
        """Record that the consumer is out of its group: it must not commit for transfer partitions any more."""
        self._transfers.drop_all()

    def moves(self, leaving: Iterable[tuple[Peer, Delivery]]) -> list[Move[Delivery]]:
        """Return the moves of messages, each to its peer."""
        return moves_over(self._transfers.topic, leaving)

    # Publishing; the caller holds the lock.

    def _wants(self) -> set[str | None]:
        """Return the selectors of the consumers here, if other processes may have messages for them."""
        consumer = self._consumer
        if not consumer.is_wanting or not (self._transfers.number != NONE or self._has_more_elsewhere()):
            return set()
        return self._sharing.wants() if consumer.keeps_unmatched else {None}

    def _has_more_elsewhere(self) -> bool:
        """Return whether other processes have partitions of the queue, or messages that were handed over to them."""
        partitions = self._topics.source_partitions
        if not partitions or len(self._consumer.numbers()) < partitions:
            return True
        return any(peer.credit.outstanding for peer in self.peers)

    def _free_wants(self) -> set[str | None]:
        """Return those of them whose consumers are not too busy."""
        wants = self._wants()
        free = self._sharing.wants(without_withdrawn=True)
        return wants & free if self._consumer.keeps_unmatched else wants if free else set()

    def publish(self) -> None:
        """Publish how many messages there is room for, and what is wanted now, as far as it has changed.

        It extends the claims, so a process that has left, or does not read what it claims, publishes nothing.
        """
        if self._state is HandoverState.ENDED or self._consumer.is_stuck:
            return
        wants = self._free_wants()
        self._sharing.has_reopened = False
        self._interest.is_idle = not self._transfers.is_active(time.monotonic())
        self._interest.publish_changes(wants, self._record())
        self._window.published()

    def _record(self) -> dict[str, Any]:
        own, dispatcher = self._transfers.own, self._consumer.dispatcher
        return {
            "lease": self._interest.lease,
            "idle": self._interest.is_idle,
            "partition": self._transfers.number,
            "partitions": self._transfers.claimed,
            "position": 0 if own is None else max(own.settlement.position, 0),
            "undispatched": 0 if own is None else self._sharing.undispatched(own),
            "credit": self._window.room(dispatcher.selector_queues.waiting),
            "fast": self._window.is_quick,
        }

    # The service's thread.

    @property
    def is_followed(self) -> bool:
        """Whether the interest topic is to be read."""
        return self._state in {HandoverState.JOINING, HandoverState.READY}

    def is_busy(self, now: float) -> bool:
        """Return whether something moved a short while ago, so that it is worthwhile to look often."""
        return now - self._moved_at < BUSY_SECONDS

    def tick(self, now: float) -> None:
        """Do what is due.

        Raises:
            JMSException, KafkaException: Kafka does not let us; the next tick tries again.
        """
        if self._state is HandoverState.ENDED:  # a moment ago
            return
        topics, transfers = self._topics, self._transfers
        if not topics.partitions:
            topics.look(now, self._starving(now), len(self._consumer.numbers()))
        if not topics.partitions:
            return
        if self._state is HandoverState.OUTSIDE:
            self._join()
        if self._state is not HandoverState.READY:
            return
        with self._lock:
            if self.peers.expire(now, STALE_SECONDS):
                transfers.sweep_soon()
                _offer_all(self._sharing, self.peers)
            self.give_up_expired(now)
            self._ask(now)
            self._repeat(now)  # before anything that Kafka may delay
        for number in self._consumer.numbers():
            self._consumer.fetch.open_overflow(number)  # what peers send back
        topics.count_source(now)
        self._claim(now)
        transfers.sweep(now)
        transfers.open_claimed(self._begin_with)
        transfers.close_idle(now, is_needed=lambda: self._consumer.is_wanting and self._has_more_elsewhere())
        transfers.release()
        with self._lock:
            self._return_unwanted()
            self._consumer.send_over()

    def give_up_expired(self, now: float) -> None:
        """Give up transfer partitions that others may have by now; the caller holds the lock, as before a commit."""
        if self._transfers.give_up_expired(now, self._interest.valid_until):
            self._interest.is_requested = True  # peers have forgotten what is wanted here

    def _ask(self, now: float) -> None:
        """Ask suspect peers whether they are there, if there are messages for them; and others what they want."""
        asked = [
            peer
            for peer in self.peers
            if (peer.state is PeerState.REQUIRED and peer.wants) or (peer.transfer_partition >= 0 and not peer.is_known)
        ]
        if asked and now - self._asked_at > ASK_SECONDS and not self._consumer.is_stuck:
            self._asked_at = now
            for peer in asked:
                peer.on(PeerEvent.ASKED)
            self._interest.publish({**self._record(), "request": True})

    def _starving(self, now: float) -> float:
        """Return for how many seconds a consumer here has waited while there may be messages for it elsewhere."""
        with self._lock:
            seconds = self._starvation.seconds(now, is_waiting=self._consumer.dispatcher.selector_queues.is_waiting)
            return seconds if seconds and self._wants() else 0.0

    def _join(self) -> None:
        """Publish a first interest, and read what was published before by processes that may still be there."""
        answers: list[Any] = []
        is_answered = Event()

        def report(error: KafkaError | None, record: KafkaMessage) -> None:
            failure = failure_of(error, record)
            answers.append(failure if failure is not None else (record.offset(), record.timestamp()[1]))
            is_answered.set()

        with self._lock:
            if self._state is not HandoverState.OUTSIDE:
                return
            self._interest.is_idle = True
            self._interest.publish({**self._record(), "selectors": [], "request": True}, report)
        is_answered.wait(JOIN_SECONDS)
        if not answers or not isinstance(answers[0], tuple):
            reason = answers[0] if answers else "no answer"
            raise JMSException(f"{self.interest_topic}: the broker did not take an interest record: {reason}")
        joined_at, at = answers[0]
        replay = IDLE_VALID_SECONDS + self._interest.margin + BEAT_SECONDS  # older claims count no more
        self._service.follow(self, at - round(replay * 1000), joined_at)
        with self._lock:
            if self._state is HandoverState.OUTSIDE:
                self._joined_at, self._state = joined_at, HandoverState.JOINING

    def received(self, offset: int, value: bytes | None) -> None:
        """Record what the interest topic has at *offset*."""
        now = time.monotonic()
        interest, is_own = self._read(offset, value)
        with self._lock:
            if not is_own:
                self._moved_at = now
            if interest is not None:
                peer, new = self.peers.apply(interest, interest.get("published_at", 0) / 1000 if is_own else now)
                if offset < self._joined_at and not interest.get("leaving"):
                    peer.on(PeerEvent.STALE)  # it is from the past: its process may have ended meanwhile
                if is_own:
                    self._interest.received(peer.received_at, is_idle=bool(interest.get("idle")))
                else:
                    self._transfers.claimed_by(peer)
                    self._received_from(peer, interest, new, now)
            if self._state is HandoverState.JOINING and offset >= self._joined_at:
                self._state = HandoverState.READY

    def _read(self, offset: int, value: bytes | None) -> tuple[dict[str, Any] | None, bool]:
        """Return the interest in a record, None where it is skipped; and whether it is this process's own."""
        try:
            interest = read_interest(value)
            is_own = interest["engine"] == self._service.engine
            if is_own and interest.get("published_at", 0) / 1000 > self._interest.published_at:
                raise MalformedError("it names this process, which has not written it")
        except MalformedError as error:
            self._service.skipped.add(self.interest_topic, 0, offset, error)
            return None, False
        return interest, is_own

    def _received_from(self, peer: Peer, interest: dict[str, Any], new: list[str | None], now: float) -> None:
        if interest.get("request") and self._transfers.number != NONE:
            self._interest.is_requested = True
            self._transfers.arrived_at = now  # something may come
            self.publish()
        if interest.get("leaving"):
            self._transfers.sweep_soon()
            _offer_all(self._sharing, self.peers)
        if new and peer.transfer_partition >= 0:
            self._sharing.offer(peer, new, is_new=True)
        self._sharing.offer_waiting()
        self._sharing.share(now)
        self._consumer.send_over()

    def _claim(self, now: float) -> None:
        """Claim a transfer partition if consumers here wait for messages that others may have."""
        transfers = self._transfers
        transfers.withdraw_refused(now, self._interest.published_at)
        if transfers.number != NONE or self._starving(now) < REQUEST_DELAY_SECONDS:
            return
        free = transfers.find_free(now)
        if free:
            with self._lock:
                transfers.claim(free, now)
                self._window.size = 0
                self._interest.is_requested = True
                self.publish()

    def _begin_with(self, partition: AssignedPartition) -> bool:
        now = time.monotonic()
        self.give_up_expired(now)
        return self._transfers.begin(partition, now)

    def _repeat(self, now: float) -> None:
        """Repeat the claims in time, and what has changed at once."""
        wants, interest = self._free_wants(), self._interest
        if not self._transfers.is_claimed:
            if interest.selectors:
                self.publish()
            return
        own, silent = self._transfers.own, now - interest.published_at
        if own is not None and silent > BEAT_SECONDS:
            self._window.shrink(self._sharing.undispatched(own))
        if wants != interest.selectors or silent > (IDLE_BEAT_SECONDS if interest.is_idle else BEAT_SECONDS):
            self.publish()

    def _return_unwanted(self) -> None:
        """Move messages that match no consumer here any more back to the owner of their partition."""
        if not self._transfers.open:
            return
        owned = set(self._consumer.numbers())
        unmatched = self._sharing.give_up(
            lambda d: d.partition.is_transfer and not d.due and (d.record.partition() or 0) not in owned
        )
        self._consumer.relocations.submit(moves_back(self._consumer, unmatched))


def _offer_all(sharing: PeerSharing, peers: Peers) -> None:
    """Offer again what matches no consumer here: a peer that was to get it is gone."""
    for peer in peers:
        if peer.transfer_partition >= 0 and peer.wants:
            sharing.offer(peer, list(peer.wants), is_new=False)
