"""Which messages go to other processes, and which go back, without Kafka and threads."""

from __future__ import annotations

import threading
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from kjms.destinations import Queue
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.engine.consumer.in_flight import InFlight
from kjms.engine.consumer.peer_sharing import BUSY_SECONDS
from kjms.engine.consumer.relocations import Relocations
from kjms.engine.consumer.selector_queue import STUCK_SECONDS
from kjms.engine.handover.peers import CROWDED_WINDOWS, TARGETED, Peers
from kjms.engine.transactions.plan import Move
from kjms.selector import parse_selector
from tests.unit.engine.records import EMPTY, Record, Source, arrive, partition_from


def test_who_is_busy_shares_and_who_waits_does_not() -> None:
    """Others get what quick consumers here leave, up to the room they have; never what a consumer here waits for."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    partition = partition_from(0)
    unused: Any = None
    slot = ConsumerSlot(unused, None, threading.Event())
    dispatcher.join(slot)
    peers = Peers("we")
    dispatcher.sharing.peers = peers
    peers.apply(
        {"engine": "they", "lease": 10, "partition": 0, "partitions": [0], "credit": 3, "selectors": [None]}, 0.0
    )
    for number in range(10):
        delivery = Delivery(Record(number, b"group" if number == 2 else None), partition, number, number)
        partition.settlement.read(number, delivery)
        dispatcher.arrive(delivery)
    assert dispatcher.sharing.share(1.0)
    assert not dispatcher.sharing.leaving
    assert slot.queue is not None
    slot.taken_at = 1.0 + BUSY_SECONDS / 2
    assert dispatcher.sharing.share(1.0 + BUSY_SECONDS)
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [
        0,
        1,
        3,
    ]  # the last one is left, and what is in a group
    assert not dispatcher.sharing.share(2.0)
    assert len(dispatcher.sharing.leaving) == 3  # there is no more room
    taken = [dispatcher.take(slot) for _ in range(7)]
    assert [delivery.offset for delivery in taken if delivery is not None] == [2, 4, 5, 6, 7, 8, 9]
    assert dispatcher.held == 0


def test_a_peer_gets_messages_in_order_while_consumers_here_get_busier() -> None:
    """What is left for a consumer that was quick goes to the peer later, and is no older than what that one has."""
    dispatcher, slot, partition = shared_dispatcher(room=10)
    arrive(dispatcher, partition, 5)
    slot.took(dispatcher.take(slot), 1.0)
    dispatcher.sharing.share(1.0 - BUSY_SECONDS)
    dispatcher.sharing.share(1.0)  # it took its message just now
    dispatcher.sharing.share(1.0 + BUSY_SECONDS)  # it is still busy with that
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [1, 2, 3, 4]


def test_busy_consumers_keep_nothing_that_others_have_time_for() -> None:
    """Where no consumer has taken anything for a while, others get all that is ready, down to the last message."""
    dispatcher, slot, partition = shared_dispatcher(room=10)
    arrive(dispatcher, partition, 3)
    first = dispatcher.take(slot)
    slot.took(first, 1.0)
    dispatcher.sharing.share(1.0)
    dispatcher.sharing.share(1.0 + BUSY_SECONDS)
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [1, 2]
    arrive(dispatcher, partition, 1, start=3)
    dispatcher.sharing.share(1.0 + BUSY_SECONDS)  # they have been busy for long when it arrives
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [1, 2, 3]
    assert dispatcher.take(slot) is None
    arrive(dispatcher, partition, 1, start=4)
    dispatcher.sharing.share(2.0)
    assert len(dispatcher.sharing.leaving) == 3
    last = dispatcher.take(slot)
    assert last is not None
    assert last.offset == 4


def test_what_was_handed_over_goes_back_from_busy_consumers() -> None:
    """Behind consumers that are busy for long nothing waits that others handed over, but for message groups."""
    box = AssignedPartition("t.kjms.handover", 0, EMPTY, is_kept=False, is_transfer=True)
    dispatcher, slot, _ = shared_dispatcher()
    arrive(dispatcher, box, 4, grouped=2)
    slot.took(dispatcher.take(slot), 1.0)
    assert not dispatcher.sharing.send_back(1.0 + STUCK_SECONDS / 2)
    assert dispatcher.sharing.may_get_stuck(1.0 + STUCK_SECONDS / 2)
    assert [delivery.offset for delivery in dispatcher.sharing.send_back(1.0 + STUCK_SECONDS)] == [1, 3]
    assert not dispatcher.sharing.may_get_stuck(1.0 + STUCK_SECONDS)
    assert (dispatcher.sharing.wants(), dispatcher.sharing.wants(without_withdrawn=True)) == ({None}, set())
    left = dispatcher.take(slot)
    assert left is not None
    assert left.offset == 2
    slot.took(left, 2.0)
    assert dispatcher.take(slot) is None
    assert dispatcher.sharing.has_reopened
    assert dispatcher.sharing.wants(without_withdrawn=True) == {None}
    assert dispatcher.held == 0


def test_what_was_handed_over_to_an_idle_consumer_goes_to_a_peer_that_waits() -> None:
    """It stays for a while, as the consumer may ask again; where it asks too late, the next one stays twice as long."""
    box = AssignedPartition("t.kjms.handover", 0, EMPTY, is_kept=False, is_transfer=True)
    dispatcher, slot, _ = shared_dispatcher(room=1)
    peer, sharing, now = next(iter(dispatcher.sharing.peers)), dispatcher.sharing, 1.0
    for number in range(3):
        arrive(dispatcher, box, 1, start=number)
        patience = STUCK_SECONDS * 2**number
        slot.idle_since = now  # it has found nothing, and does not wait
        sharing.share(now)
        sharing.share(now + patience * 0.99)
        assert sharing.leaving == []
        assert not sharing.may_get_stuck(now)
        sharing.share(now + patience)
        assert [(to, delivery.offset) for to, delivery in sharing.leaving] == [(peer, number)]
        assert (sharing.wants(), sharing.wants(without_withdrawn=True)) == ({None}, set())
        arrive(dispatcher, box, 1, start=10 + number)  # it was on its way
        peer.written(None)
        sharing.share(now + patience)
        assert [delivery.offset for _, delivery in sharing.leaving] == [number, 10 + number]
        peer.written(None)
        sharing.leaving.clear()
        assert dispatcher.take(slot) is None
        slot.took(None, now)
        sharing.share(now + 100)  # it waits
        dispatcher.rest(slot)
        now += 100


def test_what_was_handed_over_to_an_idle_consumer_stays_while_no_peer_waits() -> None:
    """It goes nowhere else for its own sake: a consumer that asks once an hour finds it."""
    box = AssignedPartition("t.kjms.handover", 0, EMPTY, is_kept=False, is_transfer=True)
    dispatcher, slot, _ = shared_dispatcher()
    arrive(dispatcher, box, 1)
    slot.idle_since = 1.0
    dispatcher.sharing.share(1.0)
    dispatcher.sharing.share(3_600.0)
    assert (dispatcher.sharing.leaving, dispatcher.sharing.send_back(3_600.0)) == ([], [])
    assert dispatcher.take(slot) is not None


def test_a_message_that_came_back_goes_to_a_peer_once() -> None:
    """A message that one consumer had, and another one matches, too, is ready for each of them once when it is back."""
    dispatcher, slot, partition = shared_dispatcher(room=10)
    unused: Any = None
    other = ConsumerSlot(unused, parse_selector("n < 5"), threading.Event())
    dispatcher.join(other)
    arrive(dispatcher, partition, 3)
    in_flight = InFlight(dispatcher, lambda: 0)
    for taker in (slot, other, slot):
        in_flight.give_back([delivery for delivery in [dispatcher.take(taker)] if delivery is not None])
    assert other.queue is not None
    assert [delivery.offset for delivery in other.queue] == [0, 1, 2]
    dispatcher.sharing.share(1.0)
    dispatcher.sharing.share(1.0 + BUSY_SECONDS)
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [0, 1, 2]
    assert dispatcher.held == 0


def shared_dispatcher(room: int = 0) -> tuple[Dispatcher, ConsumerSlot, AssignedPartition]:
    """Return a buffer with one consumer, and another process with *room* messages of room."""
    unused: Any = None
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    slot = ConsumerSlot(unused, None, threading.Event())
    dispatcher.join(slot)
    peers = Peers("we")
    dispatcher.sharing.peers = peers
    peers.apply(
        {"engine": "they", "lease": 10, "partition": 0, "partitions": [0], "credit": room, "selectors": [None]}, 0.0
    )
    return dispatcher, slot, partition_from(0)


def test_what_only_others_want_is_theirs_at_once() -> None:
    """A message that no consumer here wants goes to one who does, a group's messages to the same one."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    partition = partition_from(0)
    peers = Peers("we")
    dispatcher.sharing.peers = peers
    for box, engine in enumerate(["first", "second"]):
        notice = {
            "engine": engine,
            "lease": 10,
            "partition": box,
            "partitions": [box],
            "credit": 1,
            "selectors": ["n < 5"],
        }
        peers.apply(notice, 0.0)
    for number in range(8):
        delivery = Delivery(Record(number, b"group"), partition, number, number)
        partition.settlement.read(number, delivery)
        dispatcher.arrive(delivery)
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [0, 1, 2, 3, 4]
    assert len({peer for peer, _ in dispatcher.sharing.leaving}) == 1
    assert [delivery.offset for delivery in dispatcher.unmatched] == [5, 6, 7]
    third, new = peers.apply(
        {"engine": "third", "lease": 10, "partition": 2, "partitions": [2], "credit": 1, "selectors": ["n > 6"]}, 0.0
    )
    dispatcher.sharing.offer(third, new, is_new=True)
    assert [delivery.offset for delivery in dispatcher.unmatched] == [5, 6, 7]  # the group is somebody's who lives
    peers.expire(11.0)
    peers.apply(
        {"engine": "third", "lease": 10, "partition": 2, "partitions": [2], "credit": 1, "selectors": ["n > 6"]}, 12.0
    )
    dispatcher.sharing.offer(next(iter(peers)), ["n > 6"], is_new=True)
    assert [delivery.offset for delivery in dispatcher.unmatched] == [5, 6]


def test_peers_with_the_same_selector_share_evenly() -> None:
    """A peer that requests much gets no more than one that requests little, as long as this one has room."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    dispatcher.sharing.peers = peers = Peers("we")
    for number, (engine, room) in enumerate([("much", 1_000), ("little", 1)]):
        asks = {"engine": engine, "lease": 10, "partition": number, "partitions": [number], "credit": room}
        peers.apply({**asks, "selectors": [None]}, 0.0)
    arrive(dispatcher, partition_from(0), 100)
    assert Counter(peer.engine for peer, _ in dispatcher.sharing.leaving) == {"much": 50, "little": 50}


def test_a_later_message_does_not_overtake_what_waits_for_room() -> None:
    """A message that a peer has no room for goes before later ones, also when room comes between their arrivals."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    partition, sharing = partition_from(0), dispatcher.sharing
    sharing.peers = peers = Peers("we")
    asks = {"engine": "other", "lease": 10, "partition": 0, "partitions": [0], "credit": 2, "fast": False}
    other, _ = peers.apply({**asks, "selectors": ["n <> 1"]}, 0.0)
    arrive(dispatcher, partition, 5)
    assert [delivery.offset for _, delivery in sharing.leaving] == [0, 2]
    assert other.waits_from == 3
    peers.apply({**asks, "position": 2}, 0.0)  # before it is known that what it has read was written
    sharing.offer_waiting()
    assert len(sharing.leaving) == 2
    other.written((0, 0))
    other.written((0, 1))
    arrive(dispatcher, partition, 1, start=5)
    assert len(sharing.leaving) == 2
    sharing.offer_waiting()
    assert [delivery.offset for _, delivery in sharing.leaving] == [0, 2, 3, 4]
    assert [delivery.offset for delivery in dispatcher.unmatched] == [1, 5]
    peers.apply({**asks, "credit": 5}, 0.0)
    sharing.offer_waiting()
    assert [delivery.offset for _, delivery in sharing.leaving] == [0, 2, 3, 4, 5]
    assert other.waits_from is None
    arrive(dispatcher, partition, 1, start=6)
    assert sharing.leaving[-1][1].offset == 6


def test_what_would_be_relocated_goes_to_quick_peers_beyond_their_room() -> None:
    """In a crowd, quick peers get what waits for them, evenly and in order, up to some seconds of work."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    partition, sharing = partition_from(0), dispatcher.sharing
    sharing.peers = peers = Peers("we")
    for number, (engine, fast) in enumerate([("first", True), ("second", True), ("slow", False)]):
        asks = {"engine": engine, "lease": 10, "partition": number, "partitions": [number], "credit": 80}
        peers.apply({**asks, "fast": fast, "selectors": ["n > 4"]}, 0.0)
    room = 2 * TARGETED + 80
    most = 2 * max(TARGETED, CROWDED_WINDOWS * 80) + 80
    arrive(dispatcher, partition, most + 15)
    assert len(sharing.leaving) == room
    assert sharing.give_waiting()
    assert len(sharing.leaving) == most
    got = {engine: [d.offset for peer, d in sharing.leaving if peer.engine == engine] for engine in ("first", "second")}
    assert [len(offsets) for offsets in got.values()] == [most // 2 - 40] * 2
    assert all(offsets == sorted(offsets) for offsets in got.values())
    assert [delivery.offset for delivery in dispatcher.unmatched] == [*range(5), *range(most + 5, most + 15)]
    assert {peer.waits_from for peer in peers} == {room + 5, most + 5}  # the slow one waits for what it had no room for
    assert not sharing.give_waiting()
    peers.apply({"engine": "slow", "lease": 10, "partition": 2, "partitions": [2], "credit": 160, "fast": False}, 0.0)
    sharing.offer_waiting()
    assert sum(peer.engine == "slow" for peer, _ in sharing.leaving) == 90


def test_who_has_no_room_for_all_gets_some_and_leaves_the_others() -> None:
    """Another process comes, and gets as many as it has room for; it says later that it has room for more."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    partition = partition_from(0)
    dispatcher.sharing.peers = peers = Peers("we")
    arrive(dispatcher, partition, 5)
    asks = {"engine": "other", "lease": 10, "partition": 0, "partitions": [0], "credit": 2, "fast": False}
    other, wants = peers.apply({**asks, "selectors": [None]}, 0.0)
    dispatcher.sharing.offer(other, wants, is_new=True)
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [0, 1]
    assert [delivery.offset for delivery in dispatcher.unmatched] == [2, 3, 4]


def test_a_batch_goes_back_only_where_a_peer_has_room_for_it() -> None:
    """A consumer with peers takes batches, too; a peer gets what lies in one that a busy consumer has."""
    source = Source(30)
    slot, sharing = source.slot(), source.dispatcher.sharing
    sharing.peers = peers = Peers("we")
    asks = {"engine": "they", "lease": 10, "partition": 0, "partitions": [0], "selectors": [None]}
    peers.apply({**asks, "credit": 0}, 0.0)
    first = slot.poll()
    assert first is not None
    assert len(slot.batch) == 10
    slot.took(first, 1.0)
    assert sharing.share(1.0)
    sharing.share(1.0 + BUSY_SECONDS)
    assert (len(slot.batch), sharing.leaving) == (10, [])
    peers.apply({**asks, "credit": 12}, 0.0)
    sharing.share(1.0 + BUSY_SECONDS)
    assert not slot.batch
    assert [delivery.offset for _, delivery in sharing.leaving] == list(range(1, 13))
    assert [delivery.offset for delivery in (slot.poll() for _ in range(17)) if delivery] == list(range(13, 30))


def test_a_queue_whose_messages_are_all_in_a_batch_is_busy() -> None:
    """What lies in a batch waits for its consumer as what is ready does: a peer that comes gets it."""
    source = Source(5)
    slot, sharing = source.slot(), source.dispatcher.sharing
    sharing.peers = peers = Peers("we")
    slot.took(slot.poll(), 1.0)
    assert source.dispatcher.held == 0
    assert sharing.share(1.0)
    peers.apply({"engine": "they", "lease": 10, "partition": 0, "partitions": [0], "credit": 9, "selectors": [None]}, 0)
    sharing.share(1.0 + BUSY_SECONDS)
    assert [delivery.offset for _, delivery in sharing.leaving] == [1, 2, 3, 4]


def test_what_goes_to_a_peer_is_not_relocated_as_well() -> None:
    """A settlement that gets too large loses messages that no one gets, not those that are on their way to a peer."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    partition, unused = partition_from(0), cast("Any", None)
    slot = ConsumerSlot(unused, parse_selector("n = 0 OR n = 2 OR n = 4 OR n = 6 OR n = 8"), threading.Event())
    dispatcher.join(slot)
    dispatcher.sharing.peers = peers = Peers("we")
    wants = {"engine": "they", "lease": 10, "partition": 0, "partitions": [0], "credit": 9, "fast": True}
    peers.apply({**wants, "selectors": ["n = 1 OR n = 3 OR n = 5"]}, 0.0)
    arrive(dispatcher, partition, 9)
    while (taken := dispatcher.take(slot)) is not None:
        partition.settlement.settle(taken.offset)
    assert [delivery.offset for _, delivery in dispatcher.sharing.leaving] == [1, 3, 5]
    assignment = Assignment("q", "t", "t.overflow", "g", "we", dispatcher)
    assignment.add(partition)
    relocated: list[int] = []

    def submit(_: object, moves: list[Move[Delivery]]) -> None:
        relocated.extend(move.delivery.offset for move in moves)

    lock = threading.RLock()
    overflow: Any = SimpleNamespace(topic="t.overflow", relocator=SimpleNamespace(submit=submit))
    changed = threading.Condition(lock)
    relocations = Relocations(assignment, unused, unused, dispatcher, unused, overflow, lock, changed, unused)
    relocations.make_room([partition], 0.5)  # the oldest half: they make room without that
    assert (relocated, assignment.crowding) == ([], set())
    relocations.make_room([partition], 1.0)
    assert (relocated, assignment.crowding) == ([7], {partition})
