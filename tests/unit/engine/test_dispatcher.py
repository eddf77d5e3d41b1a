"""How a reader shares out messages among its consumers, without Kafka and threads."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kjms.destinations import Queue
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.consumer.dispatcher import OVERTAKING, RETURNED_SECONDS, Dispatcher
from kjms.engine.consumer.in_flight import InFlight
from kjms.engine.consumer.selector_queue import AT_ONCE
from kjms.engine.handover.peers import Peers
from kjms.engine.kafka import KafkaMessage
from kjms.selector import Selector, parse_selector
from kjms.txn.delivery_states import RETURN, SETTLE, DeliveryState
from kjms.txn.metadata import State
from kjms.txn.states import NEVER
from tests.unit.engine.records import EMPTY, Record, arrive, partition_from

TraceFunction = Callable[[FrameType, str, Any], Any]

SELECTORS: list[Selector | None] = [
    None,
    parse_selector("n < 5"),
    parse_selector("n BETWEEN 3 AND 8"),
    parse_selector("n > 100"),
]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.integers(0, 11)),
        st.tuples(st.sampled_from(["join", "leave", "take", "rest", "behind", "return", "settle"]), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(
    steps=STEPS,
    keeps=st.booleans(),
    batch=st.integers(0, 4),
    consumers=st.integers(1, 6),
    alike=st.booleans(),
    rotates=st.booleans(),
)
def test_every_message_is_in_one_place_and_goes_to_one_matching_consumer_in_order(
    steps: list[tuple[str, int]], keeps: bool, batch: int, consumers: int, alike: bool, rotates: bool
) -> None:
    """While consumers come and go no message is lost or doubled, overtakes, or reaches one that it does not match."""
    # The limit is larger than the number of steps: no message is overtaken by too many.
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=keeps, limit=50, batch=batch)
    partition = partition_from(0)
    unused: Any = None
    sessions = [threading.Event() for _ in range(3)]  # some have two consumers, with other selectors
    selectors = [None if alike else SELECTORS[number % len(SELECTORS)] for number in range(consumers)]
    slots = [ConsumerSlot(unused, selector, sessions[number % 3]) for number, selector in enumerate(selectors)]
    arrived: list[Delivery] = []
    in_flight: list[Delivery] = []
    settled: list[Delivery] = []

    def wants(slot: ConsumerSlot, delivery: Delivery) -> bool:
        return slot.selector is None or slot.selector.matches(delivery.message(Queue("q")))

    def settle(delivery: Delivery) -> None:
        delivery.state = SETTLE[delivery.state]
        partition.settlement.settle(delivery.offset)
        settled.append(delivery)
        dispatcher.let_go(delivery)

    def consumers_of(session: threading.Event) -> list[ConsumerSlot]:
        return [slot for slot in slots if slot.wakeup is session and slot.queue is not None]

    def sleep(session: threading.Event) -> None:
        if all(slot.is_waiting for slot in consumers_of(session)):
            session.clear()

    for slot in slots:
        dispatcher.join(slot)
    for step, number in steps:
        slot = slots[number % consumers]
        for queue in dispatcher.selector_queues.values():
            queue.rotation.is_on = rotates and batch > 0
        if step == "arrive":
            record = Record(len(arrived), [None, b"a", b"b"][number % 3], [4, 4, 9, 0][number % 4])
            delivery = Delivery(record, partition, len(arrived), len(arrived))
            partition.settlement.read(delivery.offset, delivery)
            arrived.append(delivery)
            dispatcher.arrive(delivery)
        elif step == "join" and slot.queue is None:
            dispatcher.join(slot)
        elif step == "leave":
            dispatcher.leave(slot)
        elif step == "rest":
            dispatcher.rest(slot)
        elif step == "behind" and not slot.batch:
            dispatcher.wait_behind_others(slot)
            sleep(slot.wakeup)
        elif step == "return":
            dispatcher.batches.recall()
            for delivery in in_flight:
                delivery.state = RETURN[delivery.state]
                dispatcher.let_go(delivery)
            dispatcher.put_back(in_flight)
            in_flight.clear()
        elif step == "settle" and in_flight:
            settle(in_flight.pop(number % len(in_flight)))
        elif step == "take":
            taken = slot.batch.popleft() if slot.batch else dispatcher.take(slot)
            if taken is None:
                assert slot.queue is None or slot.is_waiting
                sleep(slot.wakeup)
                continue
            assert wants(slot, taken)
            assert taken not in in_flight
            in_flight.append(taken)
            ahead = [d for d in arrived if d.state is DeliveryState.READY and wants(slot, d) and d.group is None]
            ahead += [d for each in slots for d in each.batch if wants(slot, d)]
            assert not [d for d in ahead if (-d.priority, d.order) < (-taken.priority, taken.order)] or taken.group
        ready = {id(d) for queue in dispatcher.selector_queues.values() for d in queue}
        assert dispatcher.held == len(ready)
        kept = {id(d) for d in dispatcher.unmatched}
        waiting = {id(d) for group in dispatcher.groups.busy.values() for d in group.waiting}
        assert len(waiting) == dispatcher.groups.waiting
        batched = {id(d) for each in slots for d in each.batch}
        assert len(batched) == len(dispatcher.batches)
        places = [ready, kept, waiting, batched, {id(d) for d in in_flight}]
        assert len(set().union(*places)) == sum(map(len, places))
        if keeps:
            assert sum(map(len, places)) + len(settled) == len(arrived)
        for group in (b"a", b"b"):
            assert len({d.slot.wakeup for d in in_flight if d.slot is not None and d.group == group}) <= 1
        for busy in dispatcher.groups.busy.values():  # who waits, waits for somebody, or behind what is ready
            assert busy.session or not busy.waiting or any(d.ready_in and d.group == busy.key[1] for d in arrived)
        # No session sleeps while a message waits for it, since the session has others of the message's group.
        for session, groups in dispatcher.groups.followed.items():
            firsts = [group.waiting[0] for group in groups]
            asleep = [] if session.is_set() else [slot for slot in consumers_of(session) if slot.is_waiting]
            assert not [d for d in firsts for slot in asleep if wants(slot, d)]
        # No consumer sleeps while a message that it matches is ready, and of no group, unless they rotate.
        for queue in dispatcher.selector_queues.values():
            assert not queue.woken.keys() & queue.waiting.keys()
            assert queue.woken.keys() <= set(queue.slots)
            assert [*queue.waiting.values()] == sorted(queue.waiting.values())
            if queue.waiting and not rotates and any(delivery.group is None for delivery in queue):
                assert any(each.woken for each in dispatcher.selector_queues.values())
    # In the end everything comes out, once.
    for delivery in in_flight:
        settle(delivery)
    last = ConsumerSlot(unused, None, threading.Event())
    dispatcher.join(last)
    while (taken := last.batch.popleft() if last.batch else dispatcher.take(last)) is not None:
        assert taken not in settled
        settle(taken)
    if keeps:
        assert len(settled) == len(arrived)
    assert (dispatcher.held, dispatcher.kept_back, dispatcher.groups.busy, dispatcher.groups.followed) == (0, 0, {}, {})


def test_a_message_goes_to_the_consumer_that_has_waited_longest() -> None:
    """Waiting consumers are woken in the order in which they began to wait, one per message."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    unused: Any = None
    first, second = (ConsumerSlot(unused, None, threading.Event()) for _ in range(2))
    for slot in (first, second):
        dispatcher.join(slot)
        assert dispatcher.take(slot) is None
    dispatcher.arrive(Delivery(Record(0), partition, 0, 0))
    assert (first.wakeup.is_set(), second.wakeup.is_set()) == (True, False)
    assert dispatcher.take(first) is not None


def test_a_consumer_that_was_woken_for_a_message_beyond_the_dispatch_limit_keeps_its_place() -> None:
    """It has waited longest when the limit moves, also where others were woken with it and ask in another order."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    slots = waiting_slots(dispatcher, 4)
    partition.settlement.dispatch_limit = partition.extend_at = 0
    ready(dispatcher, 3, partition)
    assert [slot.wakeup.is_set() for slot in slots] == [True, True, True, False]
    for slot in (slots[1], slots[0], slots[2]):
        assert dispatcher.take(slot) is None
        slot.wakeup.clear()
    assert [*dispatcher.selector_queues[None].waiting] == slots
    partition.settlement.dispatch_limit = partition.extend_at = 1
    dispatcher.selector_queues[None].wake(1)
    assert [slot.wakeup.is_set() for slot in slots] == [True, False, False, False]
    assert dispatcher.take(slots[0]) is not None


def waiting_slots(dispatcher: Dispatcher, count: int) -> list[ConsumerSlot]:
    """Return so many consumers that wait."""
    unused: Any = None
    slots = [ConsumerSlot(unused, None, threading.Event()) for _ in range(count)]
    for slot in slots:
        dispatcher.join(slot)
        assert dispatcher.take(slot) is None
    return slots


def ready(dispatcher: Dispatcher, count: int, partition: AssignedPartition | None = None) -> None:
    """Make so many messages ready."""
    partition = partition or partition_from(0)
    for number in range(count):
        dispatcher.arrive(Delivery(Record(number), partition, number, number))


def woken(slots: list[ConsumerSlot]) -> int:
    """Return how many of *slots* were woken."""
    return sum(slot.wakeup.is_set() for slot in slots)


def test_consumers_are_woken_a_few_at_once_and_each_wakes_the_next_one() -> None:
    """For many messages only a few consumers are woken at once; as soon as one asks, the next one is woken."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=50)
    slots = waiting_slots(dispatcher, 10)
    ready(dispatcher, 9)
    assert woken(slots) == AT_ONCE
    for number, slot in enumerate(slots[:9]):
        assert slot.wakeup.is_set()
        assert dispatcher.take(slot) is not None
        assert woken(slots) == min(AT_ONCE + number + 1, 9)
    assert dispatcher.selector_queues.is_waiting  # the tenth


def test_consumers_that_are_woken_and_do_not_come_hold_no_other_up() -> None:
    """Where consumers that were woken do not come, as in an event loop that is held up, others are woken later."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=50)
    slots = waiting_slots(dispatcher, AT_ONCE + 2)
    ready(dispatcher, 20)
    dispatcher.selector_queues.wake_others()
    assert woken(slots) == len(slots)
    assert all(dispatcher.take(slot) is not None for slot in slots)


def test_a_quick_consumer_waits_behind_those_that_wait() -> None:
    """The consumer waits as the last one, and the first one is woken; with no other that waits, it does not wait."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=50)
    slots = waiting_slots(dispatcher, AT_ONCE + 2)
    ready(dispatcher, 20)
    first, *others = slots
    for slot in slots[:AT_ONCE]:  # the last two are woken then
        assert dispatcher.take(slot) is not None
    assert not dispatcher.wait_behind_others(first)
    dispatcher.rest(slots[-1])
    dispatcher.wait(slots[-1])
    assert dispatcher.wait_behind_others(first)
    assert first.is_waiting
    assert not slots[-1].is_waiting
    for slot in others:
        assert dispatcher.take(slot) is not None
    assert not first.is_waiting  # it was woken


def test_a_dropped_partitions_messages_are_forgotten() -> None:
    """When a partition goes to another reader, its ready messages are dropped here."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5)
    mine, gone = partition_from(0), partition_from(0)
    unused: Any = None
    slot = ConsumerSlot(unused, SELECTORS[1], threading.Event())
    dispatcher.join(slot)
    for order, (partition, n) in enumerate([(gone, 1), (mine, 2), (gone, 50), (mine, 60)]):
        dispatcher.arrive(Delivery(Record(n), partition, n, order))
    dispatcher.drop(gone)
    assert (dispatcher.held, len(dispatcher.unmatched)) == (1, 1)
    taken = dispatcher.take(slot)
    assert taken is not None
    assert taken.partition is mine
    assert dispatcher.take(slot) is None


def grouped(dispatcher: Dispatcher, partition: AssignedPartition, *numbers: int) -> None:
    for n in numbers:
        delivery = Delivery(Record(n, b"group"), partition, n, n)
        partition.settlement.read(n, delivery)
        dispatcher.arrive(delivery)


def slots_of(dispatcher: Dispatcher, *wanted: tuple[int, threading.Event]) -> list[ConsumerSlot]:
    """Return started consumers, each with one of the selectors, of a session."""
    unused: Any = None
    slots = [ConsumerSlot(unused, SELECTORS[which], session) for which, session in wanted]
    for slot in slots:
        dispatcher.join(slot)
    return slots


def test_a_message_of_a_group_that_nobody_wants_holds_up_no_other() -> None:
    """Behind a message that its session has settled, the next one that matches a consumer is ready."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    few, several, everything = slots_of(dispatcher, *((which, threading.Event()) for which in (1, 2, 0)))
    grouped(dispatcher, partition, 0, 1, 4)
    first = dispatcher.take(few)
    assert first is not None
    assert dispatcher.take(everything) is dispatcher.take(several) is None
    dispatcher.leave(everything)
    dispatcher.leave(few)
    assert not several.wakeup.is_set()
    partition.settlement.settle(0)
    dispatcher.let_go(first)
    assert several.wakeup.is_set()
    after = dispatcher.take(several)
    assert after is not None
    assert (after.offset, [delivery.offset for delivery in dispatcher.unmatched]) == (4, [1])


def test_a_consumer_does_not_wait_behind_others_for_what_only_it_may_have() -> None:
    """The next message of a group waits for the session that has one of the group: the others wake it for nothing."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    quick, other = slots_of(dispatcher, (0, threading.Event()), (0, threading.Event()))
    grouped(dispatcher, partition, 0, 1)
    assert dispatcher.take(quick) is not None
    assert dispatcher.take(other) is None
    assert not dispatcher.wait_behind_others(quick)
    following = dispatcher.take(quick)
    assert following is not None
    assert following.offset == 1


def test_a_session_gets_an_older_message_of_a_group_before_one_that_waits_for_it() -> None:
    """What another session asked for, and waits, does not overtake what was not asked for."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    everything, several = slots_of(dispatcher, (0, threading.Event()), (2, threading.Event()))
    grouped(dispatcher, partition, 0)
    assert dispatcher.take(everything) is not None
    grouped(dispatcher, partition, 1, 3)
    assert dispatcher.take(several) is None  # 3 waits for the session that has 0
    grouped(dispatcher, partition, 4)
    assert [delivery.offset for delivery in take_all(dispatcher, everything)] == [1, 3, 4]


def test_urgent_messages_of_a_group_come_in_order_behind_a_usual_one_that_waits() -> None:
    """Of those that wait for the session, a usual one keeps no urgent one back, which a later urgent one overtakes."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    mine, other = slots_of(dispatcher, (0, threading.Event()), (0, threading.Event()))

    def arrive(offset: int, priority: int) -> None:
        delivery = Delivery(Record(offset, b"group", priority), partition, offset, offset)
        partition.settlement.read(offset, delivery)
        dispatcher.arrive(delivery)

    arrive(0, 4)
    assert dispatcher.take(mine) is not None
    for offset, priority in ((1, 4), (2, 7)):
        arrive(offset, priority)
        assert dispatcher.take(other) is None  # it waits for the session that has the first one
    arrive(3, 7)
    assert [delivery.offset for delivery in take_all(dispatcher, mine)] == [2, 3, 1]


def test_a_session_gets_what_waits_for_it_behind_a_message_that_it_does_not_want() -> None:
    """A message of its group that matches another session's consumer keeps no later one back that matches its own."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    few, everything = slots_of(dispatcher, (1, threading.Event()), (0, threading.Event()))
    grouped(dispatcher, partition, 0)
    assert dispatcher.take(few) is not None
    for order, n in enumerate((7, 3), 1):
        delivery = Delivery(Record(n, b"group"), partition, order, order)
        partition.settlement.read(order, delivery)
        dispatcher.arrive(delivery)
    assert dispatcher.take(everything) is None  # both wait for the session that has the first one
    grouped(dispatcher, partition, 4)
    assert [delivery.offset for delivery in take_all(dispatcher, few)] == [2, 4]
    assert dispatcher.take(everything) is None


def take_all(dispatcher: Dispatcher, slot: ConsumerSlot) -> list[Delivery]:
    """Return what the consumer of *slot* gets before it waits."""
    taken: list[Delivery] = []
    while (delivery := dispatcher.take(slot)) is not None:
        taken.append(delivery)
    return taken


def test_what_a_consumer_gave_back_and_does_not_ask_for_goes_to_others() -> None:
    """Its group is free then, and its messages come in order; a consumer that asks in time gets them before others."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    in_flight = InFlight(dispatcher, lambda: 0)
    first, other = slots_of(dispatcher, (0, threading.Event()), (0, threading.Event()))
    first.is_started = True
    grouped(dispatcher, partition, 0, 1, 2, 3)
    in_flight.give_back([delivery for delivery in (dispatcher.take(first) for _ in range(3)) if delivery], to=first)
    assert dispatcher.take(other) is None
    dispatcher.release_returned(first.returned_at + RETURNED_SECONDS / 2)
    again = dispatcher.take(first)
    assert again is not None
    assert again.offset == 0
    first.took(again, first.returned_at + RETURNED_SECONDS / 2)
    dispatcher.release_returned(first.returned_at + RETURNED_SECONDS)  # it is at work
    in_flight.give_back([again], to=first)
    other.wakeup.clear()
    first.taken_at = 0.0
    dispatcher.release_returned(first.returned_at + RETURNED_SECONDS)
    assert other.wakeup.is_set()
    assert [(delivery.offset, delivery.count) for delivery in take_all(dispatcher, other)] == [
        (0, 3),
        (1, 2),
        (2, 2),
        (3, 1),
    ]
    assert dispatcher.take(first) is None


def test_another_consumer_of_the_session_is_woken_for_the_next_message_of_a_group() -> None:
    """The message before it, which that consumer does not want, is taken by the session's first one."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    session = threading.Event()
    few, several, other = slots_of(dispatcher, (1, session), (2, session), (0, threading.Event()))
    grouped(dispatcher, partition, 0, 1, 6)
    assert dispatcher.take(few) is not None
    assert dispatcher.take(other) is dispatcher.take(several) is None
    session.clear()
    assert dispatcher.take(few) is not None
    assert session.is_set()
    following = dispatcher.take(several)
    assert following is not None
    assert following.offset == 6


def test_a_consumer_is_woken_for_a_message_of_a_group_that_was_beyond_the_dispatch_limit() -> None:
    """It is ready for no other session, and its own one has a message of the group."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    first, other = slots_of(dispatcher, (0, threading.Event()), (0, threading.Event()))
    partition.settlement.dispatch_limit = partition.extend_at = 1
    grouped(dispatcher, partition, 0, 1)
    assert dispatcher.take(first) is not None
    assert dispatcher.take(other) is dispatcher.take(first) is None
    partition.settlement.dispatch_limit = partition.extend_at = 2
    dispatcher.dispatch_limit_moved()
    assert first.wakeup.is_set()
    following = dispatcher.take(first)
    assert following is not None
    assert following.offset == 1


def test_who_leaves_takes_no_turn_of_a_group_with_him() -> None:
    """Behind a message that no longer matches a consumer, the next of its group is ready."""
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0)
    few, several, everything = slots_of(dispatcher, *((which, threading.Event()) for which in (1, 2, 0)))
    grouped(dispatcher, partition, 0, 1, 4)
    first = dispatcher.take(few)
    assert first is not None
    assert dispatcher.take(everything) is None
    dispatcher.leave(everything)
    dispatcher.let_go(first)  # the next is ready for `few`
    assert dispatcher.take(several) is None
    dispatcher.leave(few)
    assert several.wakeup.is_set()
    after = dispatcher.take(several)
    assert after is not None
    assert after.offset == 4


def test_a_message_is_overtaken_by_so_many_and_no_more() -> None:
    """However many urgent messages come: what is less urgent is dispatched after a bounded number of them."""
    limit = 3
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=limit)
    partition = partition_from(0)
    unused: Any = None
    slot = ConsumerSlot(unused, None, threading.Event())
    dispatcher.join(slot)

    def arrive(number: int, priority: int) -> None:
        delivery = Delivery(Record(number, None, priority), partition, number, number)
        partition.settlement.read(number, delivery)
        dispatcher.arrive(delivery)

    arrive(0, 4)
    overtaken = 0
    for number in range(1, 1_000):
        arrive(number, 9)
        taken = dispatcher.take(slot)
        assert taken is not None
        if taken.offset == 0:
            break
        overtaken += 1
    assert overtaken == OVERTAKING * limit


def test_very_many_that_nobody_wants_are_evicted() -> None:
    """Of too many unmatched messages, the older ones are evicted until a consumer opens that may match them."""
    unused: Any = None
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100, evicts=True, most_unmatched=10)
    partition = partition_from(0)
    log = [Record(number) for number in range(35)]

    def read(record: Record) -> None:
        delivery = Delivery(record, partition, record.offset(), record.offset())
        if partition.settlement.read(record.offset(), delivery):
            delivery.is_relocating = record.offset() == 1 and len(dispatcher.unmatched) < 10
            dispatcher.arrive(delivery)

    for record in log[:30]:
        read(record)
    assert len(dispatcher.unmatched) < 15
    assert dispatcher.unmatched[0].offset == 1  # is being moved
    assert partition.settlement.evicted == 30 - len(dispatcher.unmatched)
    assert partition.settlement.committed_offset == 0
    dispatcher.join(ConsumerSlot(unused, parse_selector("n < 3"), threading.Event()))
    assert dispatcher.eviction.wants_reread
    assert dispatcher.to_reread() == [partition]
    assert not dispatcher.eviction.wants_reread
    for record in log[partition.settlement.reread_from(0) :]:
        read(record)
    slot = ConsumerSlot(unused, None, threading.Event())
    dispatcher.join(slot)
    got: list[int] = []
    assert dispatcher.take(slot) is None  # older ones come first
    assert dispatcher.to_reread() == [partition]
    for record in log[partition.settlement.reread_from(0) :]:
        read(record)
    while (delivery := dispatcher.take(slot)) is not None:
        got.append(delivery.offset)
        partition.settlement.settle(delivery.offset)
    assert got == [1, 0, *range(2, 35)]
    assert partition.settlement.committed_offset == 35


def test_the_garbage_collector_looks_at_nothing_in_the_record_of_an_unmatched_message() -> None:
    unused: Any = None
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100), partition_from(0)
    dispatcher.join(ConsumerSlot(unused, parse_selector("n > 100"), threading.Event()))
    headers = [("kjms", b"1;text;n=int"), ("n", b"4")]
    records = [KafkaMessage(topic="t", partition=0, offset=n, value=b"x", headers=[*headers]) for n in range(3)]
    first, *run = [Delivery(record, partition, number, number) for number, record in enumerate(records)]
    assert partition.settlement.read_run(0, [first, *run])
    dispatcher.arrive(first)
    dispatcher.arrive_run(run)

    for _ in range(2):  # what holds another tuple is looked at once more
        gc.collect()
    for record in records:
        assert not gc.is_tracked(record.headers())
        assert [*record.headers()] == headers


def test_an_unmatched_message_is_held_as_its_record_and_nothing_else() -> None:
    """Of an unmatched message there is no decoded one, and nothing about deliveries: there may be very many."""
    unused: Any = None
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100), partition_from(0)
    dispatcher.join(ConsumerSlot(unused, parse_selector("n > 100"), threading.Event()))
    arrive(dispatcher, partition, 3)
    run = [Delivery(Record(number), partition, number, number) for number in range(3, 6)]
    assert partition.settlement.read_run(3, run)
    dispatcher.arrive_run(run)

    assert [delivery.offset for delivery in dispatcher.unmatched] == [*range(6)]
    for delivery in dispatcher.unmatched:
        delivery.stands_at(partition, delivery.offset, delivery.history)
        delivery.note()
        assert delivery.decoded is None
        assert delivery.history is NEVER

    dispatcher.join(wants := ConsumerSlot(unused, parse_selector("n = 4"), threading.Event()))
    taken = dispatcher.take(wants)
    assert taken is not None
    assert taken.message(Queue("q")).get_int_property("n") == 4


def test_what_was_relocated_and_evicted_comes_before_what_is_newer() -> None:
    """A consumer without a selector gets what was relocated first, though that has to be read again."""
    unused: Any = None
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100, evicts=True, most_unmatched=10)
    aside, partition = AssignedPartition("t.aside", 0, EMPTY, is_kept=False, is_overflow=True), partition_from(0)
    log = [Record(number) for number in range(20)]
    orders = itertools.count()

    def read(source: AssignedPartition, records: list[Record]) -> None:
        for record in records:
            delivery = Delivery(record, source, record.offset(), next(orders))
            if source.settlement.read(record.offset(), delivery):
                dispatcher.arrive(delivery)

    def take_all() -> list[tuple[str, int]]:
        got = []
        while (delivery := dispatcher.take(slot)) is not None:
            got.append((delivery.partition.topic, delivery.offset))
            delivery.partition.settlement.settle(delivery.offset)
        return got

    other = ConsumerSlot(unused, parse_selector("n > 100"), threading.Event())
    dispatcher.join(other)
    read(aside, log[:12])
    assert aside.settlement.evicted > 0
    read(partition, log[:5])
    assert partition.settlement.evicted == 0
    slot = ConsumerSlot(unused, None, threading.Event())
    dispatcher.join(slot)
    assert take_all() == []
    read(partition, log[5:8])
    assert dispatcher.to_reread() == [aside]
    read(partition, log[8:10])
    read(aside, log[aside.settlement.reread_from(0) : 6])
    assert take_all() == [("t.aside", number) for number in range(6)]
    assert aside.settlement.is_rereading
    read(partition, log[10:12])
    read(aside, log[6:12])
    assert not aside.settlement.is_rereading
    assert take_all() == [("t.aside", number) for number in range(6, 12)]
    assert dispatcher.eviction.is_urgent
    assert dispatcher.to_reread() == [partition]
    assert not dispatcher.eviction.is_urgent
    read(partition, log[partition.settlement.reread_from(0) :])
    assert take_all() == [("t", number) for number in range(20)]


def test_what_was_moved_and_is_still_to_be_read_is_not_evicted() -> None:
    """A message whose copy has not been read yet is kept, in its place: else it would come as if it were the newest."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100, evicts=True, most_unmatched=10)
    aside, partition = AssignedPartition("t.aside", 0, EMPTY, is_kept=False, is_overflow=True), partition_from(0)
    for number in range(9):
        delivery = Delivery(Record(number), partition, number, number)
        partition.settlement.read(number, delivery)
        dispatcher.arrive(delivery)
        if number < 3:
            aside.settlement.place(number, delivery)
            partition.settlement.settle(number)
            delivery.partition = aside
    for number in range(9, 30):
        delivery = Delivery(Record(number), partition, number, number)
        partition.settlement.read(number, delivery)
        dispatcher.arrive(delivery)
    assert partition.settlement.evicted > 0
    assert [delivery.order for delivery in dispatcher.unmatched[:3]] == [0, 1, 2]
    assert aside.settlement.is_behind


def test_what_others_want_is_not_evicted() -> None:
    """A message that waits for room in another process would be read again for each that goes there."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100, evicts=True, most_unmatched=10)
    partition = partition_from(0)
    peers = Peers("we")
    dispatcher.sharing.peers = peers
    peers.apply({"engine": "they", "lease": 10, "partition": -1, "selectors": ["n > 5"]}, 0.0)
    for number in range(30):
        delivery = Delivery(Record(number), partition, number, number)
        partition.settlement.read(number, delivery)
        dispatcher.arrive(delivery)
    assert [delivery.offset for delivery in dispatcher.unmatched if delivery.offset > 5] == list(range(6, 30))
    assert partition.settlement.evicted > 0


def test_a_consumer_that_stops_passes_its_wake_up_on_to_any_that_wants_the_message() -> None:
    """A message that woke a consumer which then stops wakes another one, whatever the selectors of the two."""
    unused: Any = None
    dispatcher, partition = Dispatcher(Queue("q"), keeps_unmatched=True, limit=10), partition_from(0)
    leaving, staying = (
        ConsumerSlot(unused, None, threading.Event()),
        ConsumerSlot(unused, parse_selector("n < 5"), threading.Event()),
    )
    for slot in (leaving, staying):
        dispatcher.join(slot)
        assert dispatcher.take(slot) is None
    delivery = Delivery(Record(0), partition, 0, 0)  # type: ignore[arg-type]
    partition.settlement.read(0, delivery)
    dispatcher.arrive(delivery)
    assert leaving.wakeup.is_set()
    dispatcher.leave(leaving)
    assert staying.wakeup.is_set()
    assert dispatcher.take(staying) is delivery


def test_a_consumer_beside_a_large_backlog_starts_at_once() -> None:
    """What it takes to share out what was kept aside grows with its size, not with its square."""
    record: Any = Record(0, None)

    def steps(size: int) -> int:
        """Return how many lines run until it is done: unlike time, they are the same on a busy machine."""
        dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=10)
        partition = AssignedPartition("t", 0, State(0, 0, (), 0), is_kept=False)
        for number in range(size):
            delivery = Delivery(record, partition, number, number)
            partition.settlement.read(number, delivery)
            dispatcher.arrive(delivery)
        count = 0

        def trace(_: FrameType, event: str, __: object) -> TraceFunction:
            nonlocal count
            count += event == "line"  # Python 3.12.1 gives no event for each instruction
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            dispatcher.join(ConsumerSlot(None, None, threading.Event()))  # type: ignore[arg-type]
        finally:
            sys.settrace(before)
        return count

    few, many = steps(250), steps(2_000)
    assert 0 < many < 12 * few


def test_a_delayed_redelivery_is_dispatched_by_no_other_selector_queue_before_it_is_due() -> None:
    """A returned message that is not due yet is passed over where it was ready, too; once due, it comes once."""
    dispatcher, partition, unused = Dispatcher(Queue("q"), keeps_unmatched=True, limit=5), partition_from(0), None
    first, second = (
        ConsumerSlot(unused, selector, threading.Event())  # type: ignore[arg-type]
        for selector in (SELECTORS[0], SELECTORS[1])
    )
    dispatcher.join(first)
    dispatcher.join(second)
    arrive(dispatcher, partition, 1)
    delivery = dispatcher.take(first)
    assert delivery is not None
    delivery.state = RETURN[delivery.state]
    delivery.due = 1_000
    dispatcher.put_back([delivery])
    assert dispatcher.take(second) is None
    assert (len(dispatcher.delayed), dispatcher.held) == (1, 0)
    dispatcher.release(1_000)
    assert dispatcher.take(second) is delivery
    assert dispatcher.take(first) is None
