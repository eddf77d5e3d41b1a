"""One reader's part in the hand-over of its queue's messages between processes: what it wants, gives and holds."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kjms.engine.consumer.dispatcher import STUCK_SECONDS
from kjms.engine.handover.peers import Peer, Peers, read_interest, written_interest
from kjms.engine.statistics import HandoverStatistics
from kjms.engine.transactions.transactional_producer import Move
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kjms.engine.consumer.delivery import AssignedPartition, Delivery
    from kjms.engine.consumer.group_consumer import GroupConsumer
    from kjms.engine.handover.interest import Exchange
    from kjms.engine.kafka import KafkaError

__all__ = ["Handover"]

_log = logging.getLogger("kjms.handover")

LOOK_SECONDS: Final = 1.0  # between looks whether others have begun to hand over
PATIENCE_SECONDS: Final = 0.1  # a consumer waits that long before other processes are asked for messages
APPETITE_SECONDS: Final = 2.0  # who has not asked again for that long does not wait
RELUCTANCE_SECONDS: Final = 0.5  # and that long, where none of them ever was: the first member of a group gets all

BEAT_SECONDS: Final = 1.5  # between the notices of a process whose box is in use
IDLE_BEAT_SECONDS: Final = 10.0  # the same where nothing moves
# A box is another's after the lease; who holds it stops before, by the margin, which is longer than the session
# time-out: Kafka puts out of the group, meanwhile, who has slept and believes that it is still its own.
GOES_ON_SECONDS: Final = 7.0  # without having been heard
IDLE_GOES_ON_SECONDS: Final = 32.0
MARGIN_SECONDS: Final = 2.0  # and the session time-out
NONE: Final = -1  # no box

NAP_SECONDS: Final = 4.0  # who was not heard for that long gets nothing before he is asked
CALL_SECONDS: Final = 0.5  # between questions whether they are there
ACTIVE_SECONDS: Final = 3.0  # since the last message
EMPTY_SECONDS: Final = 5.0  # an empty box is given back after that, if its holder wants nothing any more
LEFT_SECONDS: Final = 2.0  # the same, if it was somebody else's
GREETING_SECONDS: Final = 10.0  # Kafka takes milliseconds
ASK_SECONDS: Final = 10.0  # how long the reader's client may be in use
SWEEP_SECONDS: Final = 5.0  # between looks for boxes that nobody holds and that are not empty
MOST_WANTS: Final = 1_000  # selectors in one notice
QUICK_SECONDS: Final = 0.25  # who takes longer for a message, on an average, gets none in advance
AHEAD_SECONDS: Final = 0.2  # of work for each consumer, at the most, is got in advance
AVERAGED: Final = 8  # messages over which it is averaged how long they take
STIRRED_SECONDS: Final = 2.0  # since something moved last: for so long it is looked at often


class Handover:
    """What a reader says to those of other processes that serve the same queue or subscription, and hears of them.

    The exchange's thread calls `tick` and `heard`; everything else may be called by any thread that holds the reader's
    lock.

    Args:
        reader: The reader.
        exchange: The engine's thread for it.
    """

    def __init__(self, reader: GroupConsumer, exchange: Exchange) -> None:
        self.demand = reader.aside.demand
        self.topic = reader.aside.handover
        self.peers = Peers(exchange.engine)
        self._reader = reader
        self._margin = reader.session_timeout + MARGIN_SECONDS
        self._exchange = exchange
        self._lock = reader.lock
        self._reset()

    def _reset(self) -> None:
        self.count = 0  # partitions of the topic; 0: there is none
        self.is_followed = False
        self._greeted_at = -1  # where our first notice stands: what was said before it is known when it is read
        self.is_ready = False  # whether it was
        self._box = NONE
        self._adopted: set[int] = set()
        self._open: dict[int, AssignedPartition] = {}
        self._going: set[int] = set()  # boxes that are read no longer, for which a commit may be under way
        self._quiet_since: dict[int, float] = {}
        self._ahead = 0  # messages that are asked for before a consumer waits
        self._work = 0.0  # seconds that a consumer takes for a message, on an average
        self._said_room = 0
        self._stirred_at = time.monotonic()  # when something moved last
        self._taken = 0  # messages of boxes handed out since the last notice
        self._taken_in_all = 0  # the same since there was more room last
        self._said: set[str | None] = set()
        self._is_asked = False  # whether somebody wants to hear all that we want
        self._has_spoken = False
        self._said_at = 0.0
        self.is_idle = False
        self.sure_until = 0.0  # until when our boxes are surely ours, by the notices that Kafka has or may have
        self._moved_at = 0.0  # when the last message came to a box
        self._hungry_since = 0.0  # since when a consumer found nothing, again and again
        self._missed_at = 0.0  # when one found nothing last
        self._looked_at = self._swept_at = -LOOK_SECONDS * 100
        self._called_at = 0.0
        self._known_empty: dict[int, int] = {}  # boxes that nobody holds, and their ends when they were found empty
        self._total = 0
        self._counted_at = 0.0

    def __repr__(self) -> str:
        return f"<Handover {self.topic}: box {self._box}, {len(list(self.peers))} peers>"

    def statistics(self) -> HandoverStatistics:
        """Return who takes part, and what is read for it; the caller holds the lock."""
        return HandoverStatistics(
            topic=self.topic,
            peers=sum(1 for _ in self.peers),
            transfer_partition=None if self._box == NONE else self._box,
            adopted=tuple(sorted(self._adopted)),
            reading=tuple(sorted(self._open)),
            releasing=tuple(sorted(self._going)),
            is_ready=self.is_ready,
        )

    # The reader begins and ends.

    def begin(self) -> None:
        """Take part from now on."""
        with self._lock:
            self._reset()
            self.peers = self._reader.buffer.peers = Peers(self._exchange.engine)
        self._exchange.join(self)

    def end(self) -> None:
        """Take part no more: what is left in boxes goes to others at once."""
        self._exchange.leave(self)
        with self._lock:
            if self._has_spoken:
                self.publish({"bye": True})
            self._reset()
            self.peers = Peers(self._exchange.engine)  # with no box that a later commit would give up
            self._reader.buffer.peers = ()

    # What goes on in the reader.

    def took(self, delivery: Delivery | None, worked: float, now: float) -> None:
        """Hear that a session took *delivery*, or found nothing, *worked* seconds after it took the one before."""
        if delivery is not None or not self._hungry_since:  # who asks again and again, and finds nothing, moves nothing
            self._stirred_at = now
        if worked:
            self._work += (worked - self._work) / AVERAGED
            if self._work > QUICK_SECONDS:
                self._ahead = 0
        if delivery is None:
            self._missed_at = now
            self._hungry_since = self._hungry_since or now
            if self._box in self.peers.own:
                self._missed()
            return
        if self._hungry_since and not self._reader.buffer.is_hungry:
            self._hungry_since = 0.0
        if delivery.partition.is_transfer:
            self._taken += 1
            self._taken_in_all += 1
            if self._ahead and self._taken * 2 >= self._ahead:
                self.speak()

    def _missed(self) -> None:
        """Ask for more where a consumer found nothing: others may not know that it waits, or it gets too little."""
        buffer = self._reader.buffer
        if self._taken_in_all > self._ahead and self._may_get_more_ahead():  # what comes at once is too little
            self._ahead = min(max(self._ahead * 2, buffer.feeds), self._reader.prefetch)
            self._taken_in_all = 0
            self.speak()
        elif buffer.has_reopened or (not self._ahead and (self._taken or buffer.hungry > self._said_room)):
            self.speak()

    def _may_get_more_ahead(self) -> bool:
        """Whether the consumers here would be done with twice as many messages soon."""
        return self._work <= QUICK_SECONDS and self._ahead * 2 * self._work <= AHEAD_SECONDS * self._reader.buffer.feeds

    def changed(self) -> None:
        """Hear that a consumer with another selector has come or gone."""
        self._stirred_at = time.monotonic()
        if self._box in self.peers.own and self._wants_now() != self._said:
            self._moved_at = self._stirred_at  # something may come
            self.speak()

    def arrived(self) -> None:
        """Hear that messages came to a box."""
        self._moved_at = self._stirred_at = time.monotonic()
        if self.is_idle:
            self.speak()

    def share(self, now: float) -> bool:
        """Let others have what consumers here have no time for; tell whether to look again soon."""
        buffer = self._reader.buffer
        if not buffer.peers:
            return False
        is_soon = buffer.share(now)
        self._call(now)
        if self._open:
            is_soon = self._send_back(now) or is_soon
        self._reader.send_over()
        return is_soon

    def _send_back(self, now: float) -> bool:
        """Move back what consumers here got in advance and have no time for; tell whether to look again soon."""
        stuck = self._reader.buffer.send_back(now)
        if stuck:
            self._ahead = 0
            self._work = max(self._work, STUCK_SECONDS)
            self._move_home(stuck)
            self.speak()
        return self._reader.buffer.may_get_stuck(now)

    def lost(self) -> None:
        """Hear that the reader is out of its group: it must not commit for boxes any more."""
        for box in list(self._open):
            self._reader.drop_transfer(self._open.pop(box))

    def move(self, delivery: Delivery, peer: Peer) -> Move:
        """Return the move of *delivery* to *peer*."""
        box = peer.transfer_partition
        copy = self._reader.copy_for(delivery, lambda: (self.topic, box))
        return Move(delivery, copy, is_aside=False, peer=peer, transfer_partition=box)

    # Speaking; the caller holds the lock.

    def _wants(self) -> set[str | None]:
        """Return the selectors of our consumers, if other processes may have messages for them."""
        reader = self._reader
        if not reader.is_wanting or (self._total and len(reader.numbers()) >= self._total):
            return set()
        return reader.buffer.wants() if reader.keeps_unwanted else {None}

    def _wants_now(self) -> set[str | None]:
        """Return those of them whose consumers are not too busy."""
        reader = self._reader
        wants = self._wants()
        free = reader.buffer.wants(without_withdrawn=True)
        return wants & free if reader.keeps_unwanted else wants if free else set()

    def speak(self, **more: Any) -> None:
        """Say what we have room for, and what we want now, as far as it has changed."""
        wants = self._wants_now()
        self._reader.buffer.has_reopened = False
        notice: dict[str, Any] = {}
        rest: list[list[str | None]] = []
        if self._is_asked or not self._has_spoken:
            chunks = _chunks(sorted(wants, key=str))
            notice["wants"], rest = chunks[0], chunks[1:]
        else:
            chunks = _chunks(sorted(wants - self._said, key=str))
            if chunks[0]:
                notice["more"], rest = chunks[0], chunks[1:]
            less = self._said - wants
            if less:
                notice["less"] = sorted(less, key=str)
        self._said = wants
        self._is_asked = False
        now = time.monotonic()
        is_active = now - self._moved_at < ACTIVE_SECONDS or any(p.settlement.unsettled for p in self._open.values())
        self.is_idle = not is_active
        self.publish({**self._state(), **notice, **more})
        for chunk in rest:
            self.publish({**self._state(), "more": chunk})
        self._taken = 0

    @property
    def _goes_on(self) -> float:
        """For how many seconds after the last notice that Kafka has the boxes are surely ours."""
        return IDLE_GOES_ON_SECONDS if self.is_idle else GOES_ON_SECONDS

    def _state(self) -> dict[str, Any]:
        boxes = sorted({*self._adopted, *self._going, *([self._box] if self._box != NONE else [])})
        own = self._open.get(self._box)
        self._said_room = max(self._ahead, self._reader.buffer.hungry)
        return {
            "lease": math.ceil(self._goes_on + self._margin),
            "idle": self.is_idle,
            "box": self._box,
            "boxes": boxes,
            "read": 0 if own is None else max(own.settlement.position, 0),
            "held": 0 if own is None else self._reader.buffer.waiting(own),
            "room": self._said_room,
            "quick": self._work <= QUICK_SECONDS,
        }

    def publish(self, notice: dict[str, Any], report: Callable[[KafkaError | None, Any], None] | None = None) -> None:
        """Publish *notice*, and how long what this process holds is surely its own; the caller holds the lock.

        Args:
            notice: What is said.
            report: Hears whether Kafka has it, instead of the claim on transfer partitions.
        """
        milliseconds = round(time.monotonic() * 1000)
        now, goes_on = milliseconds / 1000, self._goes_on
        self._has_spoken = True
        self._said_at = now
        self.sure_until = min(self.sure_until, now + goes_on)  # it may be that others hear it, and we do not hear so

        def proved(error: KafkaError | None, _record: object) -> None:
            if error is None:
                self._proved(now, goes_on)

        notice["at"] = milliseconds  # for ourselves: another machine's clock says nothing
        value = written_interest(self._exchange.engine, notice)
        try:
            self._exchange.publisher.send(self.demand, 0, KafkaRecord(None, value, [], 0), report or proved)
        except JMSException as failure:
            _log.debug("%s", failure)

    def _proved(self, said_at: float, goes_on: float) -> None:
        """Note that others hear what was said at a time; what was said later they may hear, too.

        The publisher's thread calls it without the lock, which a thread may hold that waits for the publisher.
        """
        self.sure_until = said_at + goes_on
        if said_at < self._said_at:
            self.sure_until = min(self.sure_until, said_at + GOES_ON_SECONDS)

    # The exchange's thread.

    def tick(self, now: float) -> None:
        """Do what is due.

        Raises:
            JMSException, KafkaException: Kafka does not let us; the next tick tries again.
        """
        if not self.count:
            self._look(now)
        if not self.count:
            return
        if not self.is_followed:
            self._follow()
        if not self.is_ready:
            return
        with self._lock:
            if self.peers.expire(now, NAP_SECONDS):
                self._offer_all()
            self.keep_to_what_is_ours(now)
            self._call(now)
            self._beat(now)  # before anything that Kafka may keep us waiting with
        self._open_asides()
        self._count_partitions(now)
        self._see_to_box(now)
        self._sweep(now)
        self._open_boxes()
        self._close_boxes(now)
        self._let_boxes_go()
        with self._lock:
            self._send_home()
            self._reader.send_over()

    def is_stirred(self, now: float) -> bool:
        """Whether something moved a short while ago, so that it is worthwhile to look often."""
        return now - self._stirred_at < STIRRED_SECONDS

    def _offer_all(self) -> None:
        """Offer again what nobody here wants: somebody who was to get it is gone."""
        for peer in self.peers:
            if peer.transfer_partition >= 0 and peer.wants:
                self._reader.buffer.offer(peer, list(peer.wants), is_new=False)

    def keep_to_what_is_ours(self, now: float) -> None:
        """Give up boxes that others may have by now; the caller holds the lock.

        Any member of the group can commit for a box, so the reader calls it before each commit, too.
        """
        if self.peers.own and now > self.sure_until:
            _log.warning("%s: others may take this process for gone; its boxes are given up", self.topic)
            self.peers.give_up()
            self._box = NONE
            self._adopted.clear()
            self._is_asked = True  # they have forgotten what is wanted here
        for box in self._open.keys() - self.peers.own:
            self._going.add(box)
            self._reader.drop_transfer(self._open.pop(box))

    def _let_boxes_go(self) -> None:
        """Say that boxes are free, once no commit for them can be under way: it would undo what others commit."""
        going = set(self._going)
        if going:
            with self._reader.client.held(ASK_SECONDS):
                pass
            with self._lock:
                self._going -= going
                self.speak()

    def _call(self, now: float) -> None:
        """Ask those who have not been heard for a while whether they are there: there is something for them.

        Ask those, too, of whom it is not known what they want.
        """
        called = [
            peer
            for peer in self.peers
            if (peer.is_called and peer.wants) or (peer.transfer_partition >= 0 and not peer.is_known)
        ]
        if called and now - self._called_at > CALL_SECONDS:
            self._called_at = now
            for peer in called:
                peer.is_called = False
            self.publish({**self._state(), "ask": True})

    def _hunger(self, now: float) -> float:
        """Return for how many seconds a consumer here has waited while there may be messages for it elsewhere."""
        with self._lock:
            if self._reader.buffer.is_hungry:
                self._missed_at = now
                self._hungry_since = self._hungry_since or now
            elif now - self._missed_at > APPETITE_SECONDS:
                self._hungry_since = 0.0
            return now - self._hungry_since if self._hungry_since and self._wants() else 0.0

    def _look(self, now: float) -> None:
        hunger = self._hunger(now)
        if now - self._looked_at < (PATIENCE_SECONDS if hunger else LOOK_SECONDS):
            return
        self._looked_at = now
        self._count_partitions(now)
        self.count = self._reader.aside.topic_partitions(self.topic)
        if not self.count and hunger > RELUCTANCE_SECONDS and len(self._reader.numbers()) < self._total:
            self._reader.aside.ensure_handover()
            self.count = self._reader.aside.topic_partitions(self.topic)

    def _count_partitions(self, now: float) -> None:
        if now - self._counted_at > IDLE_BEAT_SECONDS or not self._total:
            self._counted_at = now
            self._total = self._reader.aside.source_partitions()

    def _follow(self) -> None:
        """Say that we are here, and read what was said before by those who may still be here."""
        answers: list[Any] = []
        is_answered = threading.Event()

        def report(error: KafkaError | None, record: Any) -> None:
            answers.append(error if error is not None else (record.offset(), record.timestamp()[1]))
            is_answered.set()

        with self._lock:
            self.is_idle = True
            self.publish({**self._state(), "wants": [], "ask": True}, report)
        is_answered.wait(GREETING_SECONDS)
        if not answers or not isinstance(answers[0], tuple):
            raise JMSException(f"{self.demand}: Kafka does not take a notice: {answers[0] if answers else 'no answer'}")
        self._greeted_at, at = answers[0]
        replay = IDLE_GOES_ON_SECONDS + self._margin + BEAT_SECONDS  # who was silent for longer has nothing any more
        self._exchange.follow(self, at - round(replay * 1000), self._greeted_at)
        self.is_followed = True

    def heard(self, offset: int, value: bytes | None) -> None:
        """Take in what stands in the log at *offset*."""
        notice = read_interest(value)
        is_ours = notice is not None and notice["e"] == self._exchange.engine
        now = time.monotonic()
        with self._lock:
            if not is_ours:
                self._stirred_at = now
            if notice is not None:
                peer, new = self.peers.apply(notice, notice.get("at", 0) / 1000 if is_ours else now)
                if is_ours:
                    self._proved(peer.heard, IDLE_GOES_ON_SECONDS if peer.is_idle else GOES_ON_SECONDS)
                else:
                    for box in peer.claimed & self._known_empty.keys():
                        del self._known_empty[box]
                    self._hear_of(peer, notice, new, now)
            self.is_ready = self.is_ready or offset >= self._greeted_at

    def _hear_of(self, peer: Peer, notice: dict[str, Any], new: list[str | None], now: float) -> None:
        if notice.get("ask") and self._box != NONE:
            self._is_asked = True
            self._moved_at = now  # something may come
            self.speak()
        if notice.get("bye"):
            self._swept_at = now - SWEEP_SECONDS
            self._offer_all()
        buffer = self._reader.buffer
        is_new = bool(new)
        if peer.waits and peer.room(is_targeted=True):
            peer.waits = False
            new = list(peer.wants)
        if new and peer.transfer_partition >= 0:
            buffer.offer(peer, new, is_new=is_new)
        buffer.share(now)
        self._reader.send_over()

    # Boxes.

    def _see_to_box(self, now: float) -> None:
        """Claim a box if consumers here wait for messages that others may have; see whether it was granted."""
        if self._box not in {NONE, *self.peers.own} and now - self._said_at > PATIENCE_SECONDS * 2:
            self._box = NONE  # somebody else was first
        if self._box != NONE or self._hunger(now) < PATIENCE_SECONDS:
            return
        free = self.peers.free(self.count)
        if not free:
            self._reader.aside.grow(self.topic, self.count + max(1, self.count // 2))
            self.count = self._reader.aside.topic_partitions(self.topic)
            free = self.peers.free(self.count)
        if free:
            with self._lock:
                self._box = random.choice(free)
                self._ahead = 0
                self._is_asked = True
                self._moved_at = now
                self.speak()

    def _sweep(self, now: float) -> None:
        """Claim boxes that hold messages and nobody else has: whoever reads the first partition does."""
        if now - self._swept_at < SWEEP_SECONDS or not self._is_steward():
            return
        self._swept_at = now
        self.count = self._reader.aside.topic_partitions(self.topic)
        with self._lock:
            lost = {box for box in self._adopted if box not in self.peers.own}  # claimed last time, and not granted
            self._adopted -= lost
            free = [box for box in self.peers.free(self.count) if box not in self._adopted and box != self._box]
        if not free:
            return
        found = self._reader.find_unread(self.topic, free, self._known_empty)
        if found:
            with self._lock:
                self._adopted |= found
                self.speak()

    def _is_steward(self) -> bool:
        return 0 in self._reader.numbers()

    def _open_asides(self) -> None:
        """Read what others send home."""
        for number in self._reader.numbers():
            self._reader.open_aside(number)

    def _open_boxes(self) -> None:
        for box in sorted({self._box, *self._adopted} & self.peers.own - self._open.keys()):
            self._reader.open_transfer(self.topic, box, self._begin_with)

    def _begin_with(self, partition: AssignedPartition) -> bool:
        """Note that *partition*, a box, is about to be read, unless it is another process's by now."""
        now, box = time.monotonic(), partition.number
        self.keep_to_what_is_ours(now)
        if box not in self.peers.own or box not in {self._box, *self._adopted}:
            return False
        self._open[box] = partition
        self._quiet_since[box] = self._moved_at = now
        self.speak()
        return True

    def _close_boxes(self, now: float) -> None:
        """Give back boxes that are empty and not needed."""
        empty = []
        with self._lock:
            has_wants = bool(self._wants())
            for box, partition in self._open.items():
                is_own = box == self._box
                if partition.settlement.unsettled or now - self._moved_at < 1 or (is_own and has_wants):
                    self._quiet_since[box] = now
                elif now - self._quiet_since[box] > (EMPTY_SECONDS if is_own else LEFT_SECONDS):
                    empty.append(box)
        for box in empty:
            end = self._reader.end_if_settled(self.topic, box)
            with self._lock:
                going = self._open.get(box)
                if end is None or going is None or going.settlement.unsettled:
                    self._quiet_since[box] = now
                    continue
                del self._open[box]
                self._going.add(box)
                self._known_empty[box] = end
                self._reader.drop_transfer(going)
                self._adopted.discard(box)
                if box == self._box:
                    self._box = NONE
                self.speak()

    def _beat(self, now: float) -> None:
        wants = self._wants_now()
        if self._box == NONE and not self._adopted:
            if self._said:
                self.speak()
            return
        own = self._open.get(self._box)
        is_due = self._ahead > 0 and now - self._said_at > BEAT_SECONDS
        if is_due and own is not None and self._reader.buffer.waiting(own) * 2 > self._ahead:
            self._ahead //= 2
        pause = IDLE_BEAT_SECONDS if self.is_idle else BEAT_SECONDS
        if wants != self._said or now - self._said_at > pause:
            self.speak()

    def _send_home(self) -> None:
        """Move back, to who owns their partition, messages of boxes that nobody here wants any more."""
        owned = set(self._reader.numbers())
        self._move_home(
            self._reader.buffer.give_up(
                lambda d: d.partition.is_transfer and not d.due and (d.record.partition() or 0) not in owned
            )
        )

    def _move_home(self, deliveries: list[Delivery]) -> None:
        reader = self._reader
        reader.submit(
            [
                Move(delivery, reader.copy_for(delivery, partial(self._home_of, delivery)), is_aside=False)
                for delivery in deliveries
            ]
        )

    def _home_of(self, delivery: Delivery) -> tuple[str, int]:
        number = delivery.record.partition() or 0
        self._reader.aside.ensure(number)
        return self._reader.aside.topic, number


def _chunks(wants: list[str | None]) -> list[list[str | None]]:
    return [wants[at : at + MOST_WANTS] for at in range(0, len(wants), MOST_WANTS)] or [[]]
