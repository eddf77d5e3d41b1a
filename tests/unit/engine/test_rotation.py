"""Consumers of one process that rotate: from when on, in which order, and until when; without Kafka and threads."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from kjms.engine.consumer import rotation as rotation_module
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import Delivery
from kjms.engine.consumer.rotation import ENOUGH, LONG_WINDOW, NOTHING, SHARE, STREAK, STUCK_SECONDS, Rotation
from tests.helpers import WAIT_SECONDS
from tests.unit.engine.records import Source, arrive

SLOWLY, QUICKLY = 0.00004, 0.00002  # seconds for a message: one by one, and in rotation


class Clock:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Taker:
    """A consumer."""

    taken_at = 0.0


class Pace:
    """Rotation of two consumers that take messages at a certain pace."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.takers = [Taker(), Taker()]
        self.waiting: dict[Taker, None] = {}
        self.woken: set[Taker] = set()
        self.rotation: Rotation[Taker] = Rotation(self.takers, self.waiting, self.woken, self.clock)
        self.dispatched = 0

    def take(self, messages: int, seconds: float) -> None:
        """Take so many messages, and need so many seconds for each of them."""
        for _ in range(0, messages, STREAK):
            self.clock.now += STREAK * seconds
            self.dispatched += STREAK
            self.rotation.look(self.dispatched)

    def take_slowly(self) -> None:
        """Take messages more slowly than one by one, until the rotation ends."""
        most = self.dispatched + 3 * LONG_WINDOW
        while self.rotation.is_on:
            assert self.dispatched < most
            self.take(STREAK, 2 * SLOWLY)

    def take_until_rotation(self, most: int = 10 * ENOUGH) -> int:
        """Take messages one by one until turns are taken, or *most*; return how many that were."""
        before = self.dispatched
        while not self.rotation.is_on and self.dispatched - before < most:
            self.take(STREAK, SLOWLY)
        return self.dispatched - before


def test_consumers_rotate_as_long_as_that_is_faster() -> None:
    """Consumers that find enough messages rotate; where that is slower, again only after twice as many."""
    pace = Pace()
    first = pace.take_until_rotation()
    assert ENOUGH <= first <= 3 * ENOUGH
    pace.take(20 * LONG_WINDOW, QUICKLY)
    assert pace.rotation.is_on
    pace.take_slowly()
    for _ in range(3):
        next_time = pace.take_until_rotation(100 * ENOUGH)
        assert pace.rotation.is_on
        assert next_time > 1.2 * first
        first = next_time
        pace.take_slowly()


def test_a_rotation_that_is_faster_for_long_comes_again_as_soon_as_at_first() -> None:
    """After a slow rotation more messages come one by one; fewer again after one that was faster for long."""
    pace = Pace()
    first = pace.take_until_rotation()
    for _ in range(4):
        pace.take_slowly()
        pace.take_until_rotation(100 * ENOUGH)
    pace.take(60 * ENOUGH, QUICKLY)
    pace.rotation.stop()
    assert pace.take_until_rotation(100 * ENOUGH) <= first + ENOUGH


def test_consumers_that_find_nothing_do_not_rotate() -> None:
    """Where messages come one at a time, and now and then, each consumer is woken at once."""
    pace = Pace()
    pace.take_until_rotation()
    for _ in range(NOTHING):
        assert pace.rotation.is_on
        pace.rotation.found_nothing()
    assert not pace.rotation.is_on
    for _ in range(20):
        pace.take(STREAK, 1.0)
    assert not pace.rotation.is_on


def test_a_whole_batch_shows_that_there_are_messages() -> None:
    """A consumer that finds nothing now and then, between whole batches, changes nothing."""
    pace = Pace()
    pace.take_until_rotation()
    for _ in range(10 * NOTHING):
        pace.rotation.found_nothing()
        pace.rotation.gave(SHARE)
    assert pace.rotation.is_on


def test_a_rotation_with_a_batch_that_lasts_for_long_ends() -> None:
    """A consumer that is busy with a batch holds the others up for some milliseconds, and not again so soon."""
    pace = Pace()
    first = pace.take_until_rotation()
    pace.rotation.gave(SHARE)
    pace.clock.now += STUCK_SECONDS / 2
    assert not pace.rotation.end_where_stuck()
    pace.clock.now += STUCK_SECONDS
    assert pace.rotation.end_where_stuck()
    assert not pace.rotation.is_on
    assert pace.take_until_rotation() > 1.2 * first


def test_a_lone_consumer_does_not_rotate() -> None:
    """It gets longer batches."""
    pace = Pace()
    pace.takers.pop()
    pace.take_until_rotation()
    assert not pace.rotation.is_on


def test_who_is_active() -> None:
    """A consumer is active that was woken, or took a message a moment ago; not one that waits, or works for long."""
    pace = Pace()
    rotation, (one, other) = pace.rotation, pace.takers
    assert not rotation.is_any_active()
    one.taken_at = pace.clock.now
    assert rotation.is_any_active()
    assert not rotation.is_any_active(but=one)
    pace.clock.now += 1
    assert not rotation.is_any_active()
    pace.woken.add(other)
    assert rotation.is_any_active(but=one)
    pace.woken.clear()
    other.taken_at = pace.clock.now
    pace.waiting[other] = None
    assert not rotation.is_any_active()


NOW = 1_000.0


class Shared:
    """A source with several consumers, which rotate; its clock stands still, so none of them is ever slow."""

    def __init__(self, messages: int, consumers: int) -> None:
        self.source = Source(messages, batch=250)
        self.slots = [self.source.slot() for _ in range(consumers)]
        self.queue: Any = self.slots[0].queue
        self.queue.rotation = Rotation(self.queue.slots, self.queue.waiting, self.queue.woken, lambda: NOW)
        self.queue.rotation.is_on = True

    def receive(self, slot: ConsumerSlot) -> Delivery | None:
        """Do what a session does that may wait for a message; return it, or None: it waits."""
        if slot.streak >= STREAK and not slot.batch:
            slot.streak = 0
            if self.source.dispatcher.wait_behind_others(slot):
                return None
        slot.wakeup.clear()
        delivery = slot.batch.popleft() if slot.batch else self.source.dispatcher.take(slot)
        slot.took(delivery, NOW)
        return delivery


def test_each_consumer_has_a_batch_and_then_waits_behind_the_others() -> None:
    """One consumer at a time is awake; each gets as many messages as the others, in their order."""
    shared = Shared(12 * (SHARE + 1), 4)
    for slot in shared.slots[1:]:
        shared.queue.wait(slot)
    got: dict[ConsumerSlot, list[int]] = {slot: [] for slot in shared.slots}
    slot = shared.slots[0]
    for _ in range(12):
        while (delivery := shared.receive(slot)) is not None:
            got[slot].append(delivery.offset)
        if not shared.source.dispatcher.held:
            break
        awake = [each for each in shared.slots if each.wakeup.is_set()]
        assert len(awake) == 1
        slot = awake[0]
    assert [len(offsets) for offsets in got.values()] == [3 * (SHARE + 1)] * 4
    assert all(offsets == sorted(offsets) for offsets in got.values())
    assert got[shared.slots[1]][:2] == [SHARE + 1, SHARE + 2]


def test_a_consumer_that_asks_meanwhile_gets_the_oldest_message() -> None:
    """It takes what the one with the batch has not taken yet; after that both get newer ones."""
    shared = Shared(200, 2)
    one, other = shared.slots
    assert [delivery.offset for delivery in (shared.receive(one), shared.receive(one)) if delivery] == [0, 1]
    assert len(one.batch) == SHARE - 1
    delivery = shared.source.dispatcher.take(other)
    assert delivery is not None
    assert delivery.offset == 2
    assert not one.batch
    one.streak = 0
    following = shared.source.dispatcher.take(one)
    assert following is not None
    assert following.offset == 3


def test_a_consumer_that_does_not_wait_behind_others_ends_the_rotation() -> None:
    """A listener, or receive without waiting, would take one batch after another, and leave the others nothing."""
    shared = Shared(200, 2)
    one, other = shared.slots
    shared.queue.wait(other)
    assert shared.receive(one) is not None
    while one.batch:
        one.batch.popleft()
    assert shared.source.dispatcher.take(one) is not None
    assert not shared.queue.rotation.is_on
    assert not one.batch


def test_a_peer_ends_the_rotation() -> None:
    """What is left of a batch goes to the consumer that asks next: it is older than what stands behind it."""
    shared = Shared(200, 2)
    one, other = shared.slots
    assert shared.receive(one) is not None
    peers: Any = ("a process",)
    shared.source.dispatcher.sharing.peers = peers
    delivery = shared.source.dispatcher.take(other)
    assert delivery is not None
    assert delivery.offset == 1
    assert not shared.queue.rotation.is_on
    assert not one.batch


def test_only_one_consumer_is_woken_and_none_while_another_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives wakes the first one that waits; those behind it are woken when it has taken its batch."""
    monkeypatch.setattr(rotation_module, "ACTIVE_SECONDS", 3600.0)
    shared = Shared(1, 3)
    first, *_ = shared.slots
    assert shared.receive(first) is not None
    for slot in shared.slots:
        assert shared.source.dispatcher.take(slot) is None
        slot.wakeup.clear()
    shared.queue.rotation.is_on = True
    shared.source.dispatcher.dispatch_limit_moved()
    assert not any(slot.wakeup.is_set() for slot in shared.slots), "nothing is ready"
    arrive(shared.source.dispatcher, shared.source.partition, 3 * SHARE, start=1)
    assert [slot.wakeup.is_set() for slot in shared.slots] == [True, False, False]
    assert shared.receive(first) is not None
    arrive(shared.source.dispatcher, shared.source.partition, SHARE, start=1 + 3 * SHARE)
    assert [slot.wakeup.is_set() for slot in shared.slots[1:]] == [False, False]


def test_others_get_what_is_left_of_a_stuck_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a consumer works for long, the rest of its batch is ready again, and the others are woken."""
    shared = Shared(SHARE + 1, 3)
    one, *others = shared.slots
    for slot in others:
        shared.queue.wait(slot)
    assert shared.receive(one) is not None
    queues, batches = shared.source.dispatcher.selector_queues, shared.source.dispatcher.batches
    assert queues.is_rotating
    assert shared.source.dispatcher.held == 0
    assert not queues.end_stuck_rotations(len(batches))
    monkeypatch.setattr(rotation_module, "STUCK_SECONDS", 0.0)
    assert queues.end_stuck_rotations(len(batches))
    batches.recall()
    queues.wake_others()
    assert all(slot.wakeup.is_set() for slot in others)
    taken = [shared.source.dispatcher.take(slot) for slot in others]
    assert [delivery.offset for delivery in taken if delivery] == [1, 2]


class CountingSource(Source):
    """A source that notes, as a group consumer does, how many messages each consumer takes without a pause."""

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        with self.lock:
            delivery = super().take(slot)
            slot.took(delivery, time.monotonic())
            return delivery


def test_rotations_begin_and_end_while_threads_receive() -> None:
    """While rotations begin and end, threads receive: each message comes once, and to each consumer in order."""
    messages, consumers = 30_000, 6
    source = CountingSource(1, batch=250)
    source.lock = threading.RLock()
    arrive(source.dispatcher, source.partition, messages - 1, start=1)
    source.partition.settlement.dispatch_limit = source.partition.extend_at = 10 * messages
    slots = [source.slot() for _ in range(consumers)]
    queue: Any = slots[0].queue
    got: list[list[int]] = [[] for _ in slots]
    in_rotation: list[int] = []

    def work(number: int) -> None:
        slot = slots[number]
        while sum(map(len, got)) < messages:
            if slot.streak >= STREAK and not slot.batch:
                slot.wakeup.clear()
                with source.lock:
                    slot.streak = 0
                    is_waiting = source.dispatcher.wait_behind_others(slot)
                if is_waiting:
                    slot.wakeup.wait(0.05)
            delivery = slot.poll()
            if delivery is None:
                slot.wakeup.wait(0.05)
                continue
            if queue.rotation.is_on:
                in_rotation.append(number)
            got[number].append(delivery.offset)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(consumers)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WAIT_SECONDS
    while any(thread.is_alive() for thread in threads) and time.monotonic() < deadline:
        with source.lock:
            if (
                source.dispatcher.selector_queues.end_stuck_rotations(len(source.dispatcher.batches))
                or random.random() < 0.3
            ):
                source.dispatcher.batches.recall()
                source.dispatcher.selector_queues.wake_others()
            queue.rotation.is_on = random.random() < 0.8
        time.sleep(0.001)
    assert not any(thread.is_alive() for thread in threads)
    assert in_rotation
    assert sorted(offset for offsets in got for offset in offsets) == list(range(messages))
    assert all(offsets == sorted(offsets) for offsets in got)
