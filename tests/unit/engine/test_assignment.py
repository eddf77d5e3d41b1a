"""The partitions that a group consumer holds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from kjms import Queue
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import AssignedPartition, Delivery
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.txn.metadata import State
from tests.unit.engine.records import Record


def test_a_transfer_partition_is_no_part_of_the_partition_with_its_number() -> None:
    """When a partition goes to another member of the group, the transfer partition that has its number stays."""
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=1)
    assignment = Assignment("q", "q", "q.kjms.overflow", "group", "engine", dispatcher)
    partitions = {
        topic: AssignedPartition(topic, 1, State(0, 0, (), 0), is_transfer=topic == "q.kjms.handover")
        for topic in ("q", "q.kjms.overflow", "q.kjms.handover")
    }
    for partition in partitions.values():
        assignment.add(partition)
    both = [partitions["q"], partitions["q.kjms.overflow"]]
    assert assignment.of(1) == both
    assert assignment.of(2) == []
    assert assignment.drop(1) == both
    assert [partition.is_held for partition in partitions.values()] == [False, False, True]
    assert list(assignment) == [partitions["q.kjms.handover"]]


def assigned(
    partitions: int, clock: Callable[[], float] = lambda: 0.0, dispatcher: Dispatcher | None = None
) -> tuple[Assignment, list[AssignedPartition]]:
    """Return an assignment with so many partitions, of which nothing was read."""
    dispatcher = dispatcher or Dispatcher(Queue("q"), keeps_unmatched=True, limit=1)
    assignment = Assignment("q", "q", "q.kjms.overflow", "group", "engine", dispatcher, clock=clock)
    held = [AssignedPartition("q", number, State(0, 0, (), 0)) for number in range(partitions)]
    for partition in held:
        assignment.add(partition)
    return assignment, held


def read(partition: AssignedPartition, messages: int) -> None:
    """Note that so many messages of *partition* were read."""
    for offset in range(messages):
        partition.settlement.read(offset, Delivery(Record(offset), partition, offset, offset))


def test_a_commit_with_a_smaller_dispatch_limit_stops_dispatching_there() -> None:
    """No message is dispatched that Kafka's dispatch limit does not cover, also where a commit takes it back.

    The window is wider where much is dispatched between two commits, and narrower where little is.
    """
    assignment, (partition,) = assigned(1)
    settlement = partition.settlement
    read(partition, 1_000)
    limits = []
    for past in (1, *range(200, 215)):  # much between the first two commits, and little after them
        settlement.dispatch(past - 1)
        settlement.settle(past - 1)
        commits, _ = assignment.plan()
        (commit,) = commits
        limits.append(commit.snapshot.state.dispatch_limit)
        assert settlement.dispatch_limit <= max(limits[-2:])
        assignment.committed(commits)
        assert settlement.dispatch_limit == limits[-1]
        assert partition.extend_at < limits[-1]
    assert limits[-1] < limits[1]


def test_a_consumer_that_asks_before_the_first_commit_widens_no_window() -> None:
    """What is dispatched before the next commit is half of the window for it, too: after a crash little is marked."""
    limits = []
    for is_early in (False, True):
        assignment, (partition,) = assigned(1)
        read(partition, 400)
        if is_early:
            partition.settlement.requests.add(0)
        assignment.committed(assignment.plan()[0])
        partition.settlement.dispatch(partition.extend_at - 1)  # as a batch does
        partition.settlement.settle(0)
        assignment.committed(assignment.plan()[0])
        limits.append(partition.settlement.dispatch_limit)
    assert limits == [96, 96]


def test_a_session_that_commits_within_a_batch_keeps_its_window() -> None:
    """A batch is dispatched at once: commits that find nothing dispatched until the next one do not narrow the window.

    Narrower limits would have the next batch end early, and the consumer thread commit for each of them.
    """
    assignment, (partition,) = assigned(1)
    settlement = partition.settlement
    read(partition, 10_000)
    windows = []
    for commit in range(90):
        if commit % 3 == 0:
            settlement.dispatch(settlement.dispatched + 99)
        settlement.settle(settlement.committed_offset)
        commits, _ = assignment.plan()
        assignment.committed(commits)
        windows.append(settlement.dispatch_limit - settlement.dispatched)
    assert len(set(windows[30:])) == 1
    assert windows[-1] >= 200, "half of the window is a batch's"


def test_partitions_whose_messages_come_one_partition_after_the_other_share_their_window() -> None:
    """A consumer that is fast waits for no commits of each partition: the next one's limit is as far ahead at once."""
    assignment, (first, second, _) = assigned(3)
    for partition in (first, second):
        read(partition, 5_000)

    def limits() -> dict[int, int]:
        """Commit what is to be committed, and return the limits of its partitions."""
        commits, _ = assignment.plan()
        assignment.committed(commits)
        return {commit.partition.number: commit.snapshot.state.dispatch_limit for commit in commits}

    assert limits() == {0: 64, 1: 64}
    commits = 0
    while first.settlement.dispatch_limit < 4_000:
        first.settlement.dispatch(first.settlement.dispatch_limit - 1)
        wide = limits()
        commits += 1
    assert commits < 5
    assert wide[1] == second.settlement.dispatch_limit > 1_000, "none of the second partition was dispatched yet"
    assert 2 not in wide, "of this one nothing is there to be dispatched"
    while second.settlement.dispatch_limit > 300:  # a consumer that has become slow
        for partition in (first, second):
            partition.settlement.settle(partition.settlement.committed_offset)
        narrow = limits()
    assert narrow[0] - first.settlement.dispatched == narrow[1] < 300


def slots_of(dispatcher: Dispatcher, count: int) -> list[ConsumerSlot]:
    """Return so many started consumers, each of a session of its own."""
    unused: Any = None
    slots = [ConsumerSlot(unused, None, threading.Event()) for _ in range(count)]
    for slot in slots:
        dispatcher.join(slot)
    return slots


def arrive(dispatcher: Dispatcher, partition: AssignedPartition, count: int, urgent: tuple[int, ...] = ()) -> None:
    """Let *count* messages arrive, of which those at the offsets *urgent* go before the others."""
    for offset in range(count):
        record = Record(offset, priority=9 if offset in urgent else 4)
        delivery = Delivery(record, partition, offset, offset)
        partition.settlement.read(offset, delivery)
        dispatcher.arrive(delivery)


def test_slow_consumers_get_each_message_by_a_commit_and_nothing_ahead() -> None:
    """A window that quick consumers had is taken back, and with it what is in batches; the broker is notified once."""
    now = [0.0]
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100, batch=10)
    assignment, (partition,) = assigned(1, lambda: now[0], dispatcher)
    (slot,) = slots_of(dispatcher, 1)
    arrive(dispatcher, partition, 100)

    def told() -> tuple[list[tuple[int, int]], list[tuple[int, int]]] | None:
        commits, _ = assignment.plan()
        assignment.committed(commits)
        dispatcher.dispatch_limit_moved()
        states = [commit.snapshot.state for commit in commits]
        return (list(states[0].held or ()), list(states[0].possible)) if states else None

    assert told() == ([], [(0, 64)]), "nothing is known of the consumer yet"
    assert dispatcher.take(slot) is not None
    assert len(slot.batch) == 10
    assert slot.batch.popleft().offset == 1
    now[0] = 1.0
    assert told() == ([(0, 2)], [])
    assert assignment.is_slow
    assert not slot.batch
    assert told() is None, "nothing has changed"


def test_what_slow_consumers_ask_for_is_granted_to_each_of_them_at_once() -> None:
    """Each consumer that waits gets the next message in the order of dispatch: one commit serves all of them."""
    now = [0.0]
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    assignment, (partition,) = assigned(1, lambda: now[0], dispatcher)
    now[0] = 1.0
    first, second, third = slots_of(dispatcher, 3)
    arrive(dispatcher, partition, 30, urgent=(20, 25))
    assert dispatcher.take(first) is dispatcher.take(second) is dispatcher.take(third) is None
    commits, _ = assignment.plan()
    assert dispatcher.take(first) is None, "not committed yet"
    assignment.committed(commits)
    dispatcher.dispatch_limit_moved()
    (commit,) = commits
    assert commit.snapshot.state.held == [(0, 1), (20, 21), (25, 26)]
    assert not commit.snapshot.state.possible
    taken = [dispatcher.take(slot) for slot in (first, second, third)]
    assert [delivery.offset for delivery in taken if delivery] == [20, 25, 0]
    assert dispatcher.take(first) is None
    assert partition.settlement.requests == {1}


def test_a_grant_that_no_consumer_takes_is_taken_back() -> None:
    """Its consumer waits no more: after a crash the message is not marked."""
    now = [0.0]
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=100)
    assignment, (partition,) = assigned(1, lambda: now[0], dispatcher)
    now[0] = 1.0
    (slot,) = slots_of(dispatcher, 1)
    arrive(dispatcher, partition, 1)
    assert dispatcher.take(slot) is None
    commits, _ = assignment.plan()
    assignment.committed(commits)
    assert commits[0].snapshot.state.held == [(0, 1)]
    dispatcher.rest(slot)
    commits, _ = assignment.plan()
    assignment.committed(commits)
    assert commits[0].snapshot.state.held == []
    assert assignment.plan() == ([], [])
    assert dispatcher.take(slot) is None


def test_quick_consumers_get_their_window_back_within_a_few_messages() -> None:
    """Eight messages of a burst are granted one by one; from then on commits are as rare as before."""
    now = [0.0]
    dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=1_000)
    assignment, (partition,) = assigned(1, lambda: now[0], dispatcher)
    (slot,) = slots_of(dispatcher, 1)
    now[0] = 1.0
    assignment.plan()
    assert assignment.is_slow
    arrive(dispatcher, partition, 500)
    commits = 0
    for _ in range(100):
        now[0] += 0.001
        while (delivery := dispatcher.take(slot)) is None:
            assignment.committed(assignment.plan()[0])
            dispatcher.dispatch_limit_moved()
            commits += 1
        partition.settlement.settle(delivery.offset)
    assert not assignment.is_slow
    assert commits < 15
