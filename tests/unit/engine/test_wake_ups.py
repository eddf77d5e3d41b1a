"""No session sleeps while a message is there that one of its consumers would get, whatever happened before."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kjms.destinations import Queue
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import Delivery
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.engine.consumer.in_flight import InFlight
from kjms.selector import parse_selector
from tests.unit.engine.records import Record, partition_from

SELECTORS = [None, *map(parse_selector, ("n < 30", "n BETWEEN 5 AND 60", "n > 100"))]
GROUPS = st.sampled_from([(None,), (None, b"a"), (b"a",), (None, b"a", b"b")])
PRIORITIES = st.sampled_from([(4,), (4, 1), (4, 9), (1,), (0, 4, 9)])
FOR_EVER = float("inf")
WINDOW = 4  # offsets from what was dispatched to the dispatch limit


class Sessions(RuleBasedStateMachine):
    """Up to three sessions with five consumers, and two partitions; each session polls when it is woken, and sleeps."""

    @initialize(
        sessions=st.integers(1, 3),
        selectors=st.lists(st.sampled_from(SELECTORS[:2]) | st.sampled_from(SELECTORS), min_size=2, max_size=5),
        groups=GROUPS,
        priorities=PRIORITIES,
        batch=st.sampled_from([0, 3]),
        keeps=st.booleans(),
    )
    def begin(self, sessions: int, selectors: list[Any], groups: Any, priorities: Any, batch: int, keeps: bool) -> None:
        self.now, self.order, self.is_certain = 0, itertools.count(), True
        self.groups, self.priorities = groups, priorities
        self.dispatcher = Dispatcher(Queue("q"), keeps_unmatched=keeps, limit=20, batch=batch)
        self.in_flight = InFlight(self.dispatcher, lambda: self.now)
        self.partitions = [partition_from(0), partition_from(0)]
        for partition in self.partitions:
            partition.settlement.dispatch_limit = partition.extend_at = WINDOW
        wakeups = [threading.Event() for _ in range(sessions)]
        self.received: dict[threading.Event, list[Delivery]] = {wakeup: [] for wakeup in wakeups}
        reader: Any = self  # of which the slots use `take` alone
        self.slots = [ConsumerSlot(reader, each, wakeups[n % sessions]) for n, each in enumerate(selectors)]
        for slot in self.slots:
            self.open_or_close(slot)

    def take(self, slot: ConsumerSlot) -> Delivery | None:
        """Do what `KafkaSource.take` does."""
        slot.batch_until = FOR_EVER
        return self.dispatcher.take(slot) if self.is_certain else self.dispatcher.wait(slot)

    def poll(self, slot: ConsumerSlot) -> Delivery | None:
        delivery = slot.poll()
        if delivery is not None:
            self.received[slot.wakeup].append(delivery)
        return delivery

    def open_or_close(self, slot: ConsumerSlot) -> None:
        slot.is_started = not slot.is_started
        (self.dispatcher.join if slot.is_started else self.dispatcher.leave)(slot)
        slot.wakeup.set()

    def started(self, number: int) -> ConsumerSlot | None:
        slot = self.slots[number % len(self.slots)]
        return slot if slot.is_started else None

    def of(self, number: int) -> tuple[ConsumerSlot, list[Delivery]]:
        slot = self.slots[number % len(self.slots)]
        return slot, self.received[slot.wakeup]

    @rule(partition=st.integers(0, 1), count=st.integers(1, 5), data=st.data(), is_run=st.booleans())
    def arrive(self, partition: int, count: int, data: st.DataObject, is_run: bool) -> None:
        where = self.partitions[partition]
        run = []
        for offset in range(where.settlement.position, where.settlement.position + count):
            group, priority = data.draw(st.sampled_from(self.groups)), data.draw(st.sampled_from(self.priorities))
            run.append(Delivery(Record(offset, group, priority), where, offset, next(self.order)))
        assert where.settlement.read_run(run[0].offset, run)
        if is_run:
            self.dispatcher.arrive_run(run)
        else:
            for delivery in run:
                self.dispatcher.arrive(delivery)

    @rule(number=st.integers(0, 4))
    def receive(self, number: int) -> None:
        slot = self.started(number)
        if slot is not None and self.poll(slot) is not None:
            slot.wakeup.set()  # its session is at work, and polls again before it sleeps

    @rule(number=st.integers(0, 4))
    def wait_behind_others(self, number: int) -> None:
        slot = self.started(number)
        if (
            slot is None
            or slot.batch
            or any(s.wakeup is slot.wakeup and s.is_started and s is not slot for s in self.slots)
        ):
            return
        slot.wakeup.clear()
        if not self.dispatcher.wait_behind_others(slot):
            slot.wakeup.set()  # it polls

    @rule(number=st.integers(0, 4), count=st.integers(1, 5))
    def settle(self, number: int, count: int) -> None:
        _, received = self.of(number)
        self.in_flight.settle(received[:count])
        del received[:count]

    @rule(number=st.integers(0, 4), count=st.integers(1, 5), is_to_itself=st.booleans(), is_late=st.booleans())
    def give_back(self, number: int, count: int, is_to_itself: bool, is_late: bool) -> None:
        slot, received = self.of(number)
        back = received[-count:]
        del received[-count:]
        self.in_flight.give_back(
            back, to=slot if is_to_itself else None, due=(lambda _: self.now + 100) if is_late else None
        )

    @rule()
    def pass_time(self) -> None:
        self.now += 60
        self.dispatcher.release(self.now)

    @rule()
    def stop_waiting_for_consumers(self) -> None:
        """Let others have what consumers gave back and have not asked for, as happens after a while."""
        self.dispatcher.release_returned(FOR_EVER)

    @rule(number=st.integers(0, 4))
    def start_or_stop(self, number: int) -> None:
        self.open_or_close(self.slots[number % len(self.slots)])

    @precondition(lambda self: self.is_certain)
    @rule()
    def sleep(self) -> None:
        """As `StallDetector` has it."""
        self.is_certain = False

    @precondition(lambda self: not self.is_certain)
    @rule()
    def prove(self) -> None:
        """As `Upkeep` does."""
        self.is_certain = True
        self.dispatcher.selector_queues.wake_all()

    @invariant()
    def each_message_is_listed_once(self) -> None:
        """A selector queue lists no message twice, and a message knows in how many it is ready."""
        dispatcher = getattr(self, "dispatcher", None)
        if dispatcher is None:
            return
        listed = [list(queue) for queue in dispatcher.selector_queues.values()]
        assert [len({each.order for each in deliveries}) for deliveries in listed] == [*map(len, listed)]
        counts = Counter(delivery for deliveries in listed for delivery in deliveries)
        assert all(delivery.ready_in == count for delivery, count in counts.items())
        assert dispatcher.held == len(counts)

    def poll_all(self, wakeup: threading.Event) -> None:
        for slot in self.slots:
            if slot.wakeup is wakeup and slot.is_started and not slot.is_waiting:
                while self.poll(slot) is not None:
                    pass

    @rule()
    def come_to_rest(self) -> None:
        """Have woken sessions poll as a listener's thread does, and commits move the limits, until all sleep."""
        dispatcher = self.dispatcher
        while dispatcher.wants_dispatch_limit or any(wakeup.is_set() for wakeup in self.received):
            if dispatcher.wants_dispatch_limit:
                for partition in self.partitions:
                    settlement = partition.settlement
                    settlement.dispatch_limit = max(settlement.dispatched, *settlement.requests, 0) + 1 + WINDOW
                    settlement.requests.clear()
                    partition.extend_at = settlement.dispatch_limit - WINDOW // 2
                dispatcher.dispatch_limit_moved()
            for wakeup in self.received:
                if wakeup.is_set():
                    wakeup.clear()
                    self.poll_all(wakeup)
        if self.is_certain:
            assert [slot for slot in self.slots if slot.is_started and self.poll(slot) is not None] == []

    def teardown(self) -> None:
        self.is_certain = True
        self.dispatcher.selector_queues.wake_all()
        self.come_to_rest()


def test_a_session_at_work_polls_again_before_it_sleeps() -> None:
    """What came for its group meanwhile woke only the other session, for which it is not."""
    state = Sessions()
    state.begin(sessions=2, selectors=[None, None], groups=(b"a",), priorities=(4,), batch=0, keeps=True)
    values = iter([b"a", 4] * 2)
    draws: Any = SimpleNamespace(draw=lambda _: next(values))
    state.come_to_rest()
    state.arrive(partition=0, count=1, data=draws, is_run=False)
    state.receive(1)
    state.arrive(partition=0, count=1, data=draws, is_run=False)
    state.come_to_rest()
    assert [len(received) for received in state.received.values()] == [0, 2]


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=40, deadline=None, max_examples=200)
