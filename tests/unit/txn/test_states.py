"""The settlement of one partition, held against a model that is too simple to be wrong."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kjms.txn.metadata import History, State, read_state, write_state
from kjms.txn.runs import UnsettledRuns
from kjms.txn.states import NEVER, PartitionSettlement

WINDOW = 3
UNTOUCHED = State(0, 0, (), 0)


class Owners(RuleBasedStateMachine):
    """One owner of a partition after the other: some leave in order, some crash and are followed by what was committed.

    The model is a list of what happened to each message. Kafka is one text, as it was committed last.
    """

    @initialize(holes=st.sets(st.integers(0, 40)), start=st.integers(0, 5))
    def begin(self, holes: set[int], start: int) -> None:
        self.log = [offset for offset in range(start, 46) if offset not in holes]
        self.kafka: tuple[int, str] | None = None
        self.durable: set[int] = set()  # settled, and the commit came through
        self.settled: set[int] = set()
        self.deliveries: dict[int, int] = {}  # how often a message really was delivered
        self.promised: set[int] = set()  # granted to a consumer that waits, so said to be delivered
        self.take_over()

    def take_over(self) -> None:
        state = None if self.kafka is None else read_state(self.kafka[1], self.kafka[0])
        self.settled = set(self.durable)
        self.owner: PartitionSettlement[int] = PartitionSettlement(state)
        self.next = (
            0
            if state is None
            else next((i for i, o in enumerate(self.log) if o >= state.committed_offset), len(self.log))
        )
        self.hands: dict[int, History] = {}
        self.ready: dict[int, History] = {}
        self.evicted: set[int] = set()

    @rule(pick=st.integers(0, 100), count=st.integers(1, 8))
    def evict(self, pick: int, count: int) -> None:
        ready = sorted(self.ready)
        for offset in ready[pick % len(ready) :][:count] if ready else ():
            self.owner.evict(offset)
            assert not self.owner.holds(offset)
            del self.ready[offset]
            self.evicted.add(offset)

    @rule(count=st.integers(0, 46), gone=st.integers(0, 3), least=st.integers(0, 4))
    def reread(self, count: int, gone: int, least: int) -> None:
        """Read again what was evicted; it may be broken off, and the oldest may be gone from the log."""
        low = sorted(self.evicted)[min(gone, len(self.evicted) - 1)] if self.evicted and gone else 0
        lost = {offset for offset in self.evicted if offset < low}
        self.evicted -= lost
        self.settled |= lost
        position = self.owner.reread_from(low)
        for _ in range(count):
            if least:
                position = self.skip(least) or position
            offset = next((offset for offset in self.log[: self.next] if offset >= position), None)
            if offset is None:
                assert not self.evicted
                return
            is_back = self.owner.read(offset, offset)
            assert is_back == (offset in self.evicted)
            if is_back:
                self.evicted.remove(offset)
                noted = self.owner.noted(offset) if offset < self.owner.histories_end else None
                self.ready[offset] = self.owner.history(offset) if noted is None else noted
            position = offset + 1

    @rule(least=st.integers(1, 4), margin=st.integers(0, 2))
    def skip_known(self, least: int, margin: int) -> None:
        self.skip(least, margin)

    def skip(self, least: int, margin: int = 0) -> int | None:
        """Pass over what is settled: nothing that is not, and not the last of what the previous owner settled."""
        position = self.owner.position
        target = self.owner.skip_known(least, margin)
        if target is not None and target > position:
            passed = {offset for offset in self.log[self.next :] if offset < target}
            assert passed <= self.durable
            assert target + margin <= self.log[-1] + 1
            self.next += len(passed)
        return target

    @invariant()
    def nothing_parked_is_forgotten(self) -> None:
        assert self.owner.evicted == len(self.evicted)
        assert self.owner.unsettled == len(self.evicted) + len(self.ready) + len(self.hands)

    @rule(count=st.integers(1, 8))
    def read(self, count: int) -> None:
        for offset in self.log[self.next : self.next + count]:
            is_new = self.owner.read(offset, offset)
            assert is_new == (offset not in self.durable)  # nothing is lost, nothing comes twice
            if is_new:
                self.ready[offset] = self.owner.history(offset)
        self.next = min(self.next + count, len(self.log))

    @rule(count=st.integers(1, 8))
    def read_run(self, count: int) -> None:
        """Read messages that follow each other at once, where the owner agrees: as one by one."""
        coming = self.log[self.next : self.next + count]
        run = [offset for number, offset in enumerate(coming) if offset == coming[0] + number]
        if run and self.owner.read_run(run[0], run):
            assert not self.durable.intersection(run)
            self.next += len(run)
            self.ready.update((offset, self.owner.history(offset)) for offset in run)

    @rule(pick=st.integers(0, 100))
    def dispatch(self, pick: int) -> None:
        if not self.ready:
            return
        offset = sorted(self.ready)[pick % len(self.ready)]
        if not self.owner.permits(offset):
            self.commit(frozenset({offset}))
            assert self.owner.permits(offset)
        history = self.ready.pop(offset)
        really = self.deliveries.get(offset, 0)
        if really:
            assert history.deliveries >= 1  # a repeated delivery is always known to be one
        if history.deliveries:  # every delivery but the first is recorded before it is made
            self.owner.note(offset, replace_history(history))
            history = self.owner.history(offset)
            self.commit()
        self.owner.dispatch(offset)
        self.deliveries[offset] = really + 1
        self.hands[offset] = history

    @rule(pick=st.integers(0, 100))
    def settle(self, pick: int) -> None:
        if self.hands:
            offset = sorted(self.hands)[pick % len(self.hands)]
            del self.hands[offset]
            self.owner.settle(offset)
            self.owner.settle(offset)
            self.settled.add(offset)

    @rule(pick=st.integers(0, 100), count=st.integers(1, 8))
    def settle_run(self, pick: int, count: int) -> None:
        """Settle messages that follow each other at once, of which some may be settled already."""
        if self.hands:
            hands = sorted(self.hands)
            first = past = hands[pick % len(hands)]
            while past < first + count and (past in self.hands or past in self.settled):
                past += 1
            self.owner.settle(first, past)
            for offset in range(first, past):
                self.hands.pop(offset, None)
                self.settled.add(offset)

    @rule(offsets=st.sets(st.integers(0, 50)))
    def settle_each(self, offsets: set[int]) -> None:
        """Settle messages anywhere, as a transaction does, of which some may be settled already."""
        self.owner.settle_each(offsets & (self.settled | set(self.hands)))
        for offset in offsets & set(self.hands):
            del self.hands[offset]
            self.settled.add(offset)

    @invariant()
    def what_a_transaction_settles_is_written_as_settled(self) -> None:
        """Its commit says what a commit would say after it."""
        if self.owner.committed_offset < 0 or not self.hands:
            return
        settled = set(sorted(self.hands)[::2])
        state = self.owner.snapshot(WINDOW, settled).state
        for offset in self.log:
            assert says_settled(state, offset) == (offset in self.settled or offset in settled)

    @rule(pick=st.integers(0, 100), due=st.integers(0, 3))
    def give_back(self, pick: int, due: int) -> None:
        if self.hands:
            offset = sorted(self.hands)[pick % len(self.hands)]
            history = self.hands.pop(offset)
            deliveries = max(history.deliveries, 1)
            self.owner.note(offset, History(deliveries, history.uncounted, due))
            self.owner.come_back(offset)
            self.ready[offset] = self.owner.history(offset)
            assert self.ready[offset].deliveries >= self.deliveries[offset] - history.uncounted

    @rule(window=st.integers(0, 3 * WINDOW), pick=st.integers(0, 100))
    def commit_ahead(self, window: int, pick: int) -> None:
        ready = sorted(self.ready)
        self.write(window, frozenset(ready[pick % len(ready) :][:2]) if ready else frozenset())

    def commit(self, granted: frozenset[int] = frozenset()) -> None:
        self.write(WINDOW, granted)

    def write(self, window: int | None, granted: frozenset[int] = frozenset()) -> None:
        if self.owner.committed_offset < 0:
            return
        snapshot = self.owner.snapshot(window, granted=granted)
        if window == 0:
            self.promised |= granted
        self.kafka = (snapshot.state.committed_offset, write_state(snapshot.state))
        self.owner.narrow(snapshot)
        self.owner.committed(snapshot)
        self.durable = set(self.settled)
        assert not self.owner.is_dirty
        assert self.owner.committed_version >= snapshot.version

    @rule()
    def crash(self) -> None:
        self.take_over()

    @rule()
    def leave_in_order(self) -> None:
        for offset, history in self.hands.items():
            self.owner.note(offset, History(max(history.deliveries, 1), history.uncounted))
        self.write(None)
        untouched = [offset for offset in self.log if not self.deliveries.get(offset) and offset not in self.promised]
        possibly_delivered = {offset for offset, history in self.ready.items() if history.deliveries}
        self.take_over()
        for offset in untouched:  # an orderly end leaves no suspicion, but for what was under it before
            if offset not in possibly_delivered and not self.was_possibly_delivered(offset):
                assert self.owner.history(offset).deliveries == 0 or self.kafka is None

    def was_possibly_delivered(self, offset: int) -> bool:
        if self.kafka is None:
            return False
        return any(first <= offset < past for first, past in read_state(self.kafka[1], self.kafka[0]).possible)

    @invariant()
    def the_state_says_what_is_settled(self) -> None:
        if self.owner.committed_offset < 0:
            return
        state = self.owner.snapshot(WINDOW).state
        lists = {name: tuple(getattr(state, name)) for name in ("runs", "held", "possible", "lent")}
        assert read_state(write_state(state), state.committed_offset) == state._replace(**lists)
        for offset in self.log:
            assert says_settled(state, offset) == (offset in self.settled)

    @invariant()
    def the_base_is_the_oldest_that_is_not_settled(self) -> None:
        unread = self.log[self.next :]
        left = sorted({*self.ready, *self.hands, *self.evicted, *(o for o in unread if o not in self.settled)})
        if left and self.owner.committed_offset >= 0:
            assert self.owner.snapshot(WINDOW).state.committed_offset <= left[0]


def says_settled(state: State, offset: int) -> bool:
    is_unsettled = any(first <= offset < past for first, past in state.runs)
    return offset < state.committed_offset or (offset < state.known and not is_unsettled)


def replace_history(history: History) -> History:
    return History(history.deliveries + 1, history.uncounted)


TestOwners = Owners.TestCase
TestOwners.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


def test_long_settled_runs_are_passed_over() -> None:
    """What the previous owner settled is not read again, where there is much of it; what lies between is."""
    state = State(0, 0, ((0, 2), (5, 6), (100, 101)), 500, {100: History(2)})
    settlement: PartitionSettlement[str] = PartitionSettlement(state)
    assert settlement.skip_known(10) is None
    for offset in (0, 1):
        settlement.read(offset, "a")
    assert settlement.skip_known(10) is None  # three alone
    for offset in range(2, 10):
        assert settlement.read(offset, "a") == (offset == 5)
    assert settlement.skip_known(10) == 100
    assert settlement.read(100, "a")
    assert settlement.history(100) == History(2)
    assert settlement.is_catching_up
    assert settlement.skip_known(10, margin=50) == 450
    assert settlement.skip_known(10, margin=50) is None
    assert not settlement.read(450, "a")
    assert settlement.skip_known(10) == 500
    assert not settlement.is_catching_up
    settlement.settle(1)
    assert settlement.snapshot().state.runs == [(0, 1), (5, 6), (100, 101)]  # what was passed over is no hole
    assert settlement.snapshot().state.known == 500


def test_what_is_settled_is_passed_over_where_messages_are_read_again() -> None:
    """Reading again goes from what is evicted to what is evicted, and from the last to where reading was."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, ((0, 1),), 1_000))
    settlement.read(0, "a")
    assert settlement.skip_known(10) == 1_000
    for offset in range(1_000, 1_100):
        settlement.read(offset, "a")
        settlement.settle(offset) if offset != 1_050 else None
    settlement.evict(0)
    settlement.evict(1_050)
    assert settlement.reread_from(0) == 0
    assert settlement.is_catching_up
    assert settlement.read(0, "a")
    assert settlement.skip_known(10) == 1_050
    assert settlement.read(1_050, "a")
    assert settlement.skip_known(10) == 1_100
    assert settlement.read(1_100, "a")
    assert not settlement.is_catching_up


def test_a_first_read_beyond_the_base_needs_no_commit() -> None:
    """A new partition is dirty only once a message is settled."""
    settlement: PartitionSettlement[str] = PartitionSettlement()
    assert settlement.committed_offset == -1
    settlement.read(12, "a")
    assert not settlement.is_dirty
    settlement.settle(12)
    assert settlement.is_dirty
    assert settlement.committed_offset == 13


def test_holes_between_settled_messages_are_settled() -> None:
    """Transaction markers and compacted records count for nothing (trap: offsets are not dense)."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    for offset in (0, 3, 9, 12):
        settlement.read(offset, "a")
        settlement.dispatch(offset)
    settlement.settle(3)
    settlement.settle(9)
    assert settlement.snapshot().state.runs == [(0, 1)]
    assert settlement.snapshot().state.known == 12
    settlement.settle(0)
    assert settlement.committed_offset == 12


@pytest.mark.parametrize("settled", [(), (13,), (12, 13, 14), (19,), range(12, 20)])
def test_placed_messages_are_passed_over_as_if_they_were_read(settled: Sequence[int]) -> None:
    """From the first of them on that was read: what stands before it may be another process's message."""
    reading, passing = (PartitionSettlement[object](State(10, 10, (), 10)) for _ in range(2))
    for each in (reading, passing):
        for offset in range(11, 20):
            each.place(offset, f"moved to {offset}")
        for offset in settled:
            each.settle(offset)
        assert each.is_catching_up
        assert each.skip_known(5) is None
        assert not each.read(11, "as it was read")
    for offset in range(12, 20):
        assert not reading.read(offset, "as it was read")
    assert passing.skip_known(9) is None
    assert passing.skip_known(8) == 20
    for each in (reading, passing):
        assert not each.is_catching_up
        assert each.read(21, "a new one")
    assert passing.snapshot(64).state == reading.snapshot(64).state
    assert [*passing.messages()] == [*reading.messages()]


def test_what_is_dispatched_in_order_needs_a_mark_and_no_runs() -> None:
    """The usual case costs a few bytes."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    for offset in range(1_000):
        settlement.read(offset, "a")
    for offset in range(10):
        settlement.dispatch(offset)
        settlement.settle(offset)
    state = settlement.snapshot(64).state
    assert state == State(10, 74, [], 10, held=[], possible=[(10, 74)], lent=[])
    assert len(write_state(state)) < 30


def test_a_placed_message_is_settled_where_it_stands() -> None:
    """What was moved is settled at its new place, read there or not, and not delivered from there here."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    settlement.read(0, "a")
    for offset in (4, 6, 8):
        settlement.place(offset, "moved")
    assert settlement.unsettled == 4
    settlement.settle(6)
    state = settlement.snapshot().state
    assert (state.committed_offset, state.runs, state.known) == (0, [(0, 6)], 7)  # 6 alone is settled
    for offset in range(1, 10):
        assert settlement.read(offset, "b") == (offset not in {4, 6, 8})
    settlement.settle(8)
    settlement.dispatch(9)
    state = settlement.snapshot().state
    assert (state.runs, state.known) == ([(0, 6), (7, 8)], 9)


def test_what_will_be_settled_in_the_same_transaction_is_written_as_settled() -> None:
    """A move commits the state that is true once it has come through, and changes nothing before."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    for offset in range(6):
        settlement.read(offset, "a")
        settlement.dispatch(offset)
    settlement.note(0, History(3))
    state = settlement.snapshot(1, settled={0, 1, 4}).state
    assert (state.committed_offset, state.runs, state.known) == (2, [(2, 4)], 5)
    assert state.histories == {}
    assert settlement.snapshot(1).state.committed_offset == 0
    assert settlement.snapshot(1).state.histories == {0: History(3)}


def test_a_settled_message_has_no_history() -> None:
    """Histories are of what is not settled; a late report changes nothing."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    settlement.read(0, "a")
    settlement.note(0, History(2))
    settlement.settle(0)
    settlement.note(0, History(3))
    assert settlement.snapshot().state.histories == {}


def test_memory_follows_what_is_unsettled_and_not_what_was_read() -> None:
    """One message that stays unsettled does not make its settled neighbours stay."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    for offset in range(50_000):
        settlement.read(offset, "a")
        if offset % 1_000:
            settlement.settle(offset)
    assert settlement.unsettled == 50
    assert len(settlement._unsettled.firsts) < 100
    assert [offset for offset, _ in settlement.messages()] == list(range(0, 50_000, 1_000))


@pytest.mark.parametrize("due", [0, 1_800_000_000_000])
def test_histories_come_back(due: int) -> None:
    """Counts and due times are kept over owners."""
    state = State(5, 9, ((5, 6), (8, 9)), 9, {5: History(2, 1, due), 8: History(1)})
    settlement: PartitionSettlement[str] = PartitionSettlement(read_state(write_state(state), 5))
    assert settlement.history(5) == History(2, 1, due)
    assert settlement.history(8) == History(1)
    assert settlement.history(6) == History(1, 1)  # below the dispatch limit, so perhaps delivered
    assert settlement.history(9).deliveries == 0


def test_what_is_settled_before_it_was_dispatched_is_written_down() -> None:
    """A copy of a message that a session has already is settled without being dispatched from its new place."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    for offset in range(6):
        settlement.place(offset, "moved")
    for offset in range(6):
        assert not settlement.read(offset, "copy")
    for offset in (1, 4):
        settlement.settle(offset)
    state = settlement.snapshot(1).state
    assert (state.committed_offset, state.runs, state.known) == (0, [(0, 1), (2, 4)], 5)


def test_the_shortest_runs_make_room() -> None:
    """Of what lies scattered, the shortest runs are found first; what is only apart by a hole in the log is one run."""
    partition: PartitionSettlement[int] = PartitionSettlement(State(0, 0, (), 0))
    for offset in (0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13):
        partition.read(offset, offset)
    for offset in (1, 5, 11):
        partition.settle(offset)
    # 0 | 2 3 4 | 6 8 9 10 | 12 13: after the last one that was settled nothing need be said
    assert partition.snapshot().state.runs == [(0, 1), (2, 5), (6, 11)]
    assert partition.fragments(0.5) == [0]
    assert partition.fragments(0.7) == [0, 2, 3, 4]
    partition.evict(3)
    assert partition.fragments(1.0) == [0, 6, 8, 9, 10]


def read_up_to(past: int, state: State = UNTOUCHED) -> PartitionSettlement[str]:
    """Return a settlement of which the messages before *past* were read: "0", "1" ..."""
    settlement: PartitionSettlement[str] = PartitionSettlement(state)
    for offset in range(state.committed_offset, past):
        settlement.read(offset, str(offset))
    return settlement


def test_reading_again_goes_on_where_it_was_broken_off() -> None:
    """Each evicted message is taken back once, as it was read the second time."""
    settlement = read_up_to(4)
    settlement.evict(1)
    settlement.evict(2)
    assert settlement.reread_from(0) == 1
    assert settlement.read(1, "1 again")
    assert not settlement.read(3, "3 again")
    assert settlement.reread_from(0) == 4  # offsets rise, so it was looked through up to 3
    settlement.evict(3)
    assert settlement.reread_from(0) == 3
    assert dict(settlement.messages()) == {0: "0", 1: "1 again"}


def test_what_is_evicted_again_is_found_again() -> None:
    """A second look that was begun in the middle of the first one leaves nothing out."""
    settlement = read_up_to(4)
    settlement.evict(1)
    settlement.evict(2)
    assert settlement.reread_from(0) == 1
    assert settlement.read(1, "1 again")
    assert settlement.reread_from(0) == 2
    assert settlement.read(2, "2 again")
    assert not settlement.is_rereading
    assert dict(settlement.messages()) == {0: "0", 1: "1 again", 2: "2 again", 3: "3"}


def test_a_evicted_message_keeps_its_history() -> None:
    """When it is read again, it is known how often it was delivered; of others nothing is said."""
    settlement = read_up_to(4)
    settlement.evict(0)
    assert settlement.histories_end <= 0
    settlement.note(1, History(2))
    settlement.evict(1)
    assert settlement.histories_end == 2
    assert settlement.noted(1) == History(2)
    assert settlement.noted(2) is None


@pytest.mark.parametrize("window", [None, 0, WINDOW])
def test_suspicion_outlives_an_owner(window: int | None) -> None:
    """What the owner before last possibly delivered stays so for the next one: the dispatch limit never goes back."""
    settlement = read_up_to(10, State(0, 50, (), 0))
    settlement.dispatch(0)
    assert settlement.snapshot(window).state.dispatch_limit == 50


def told(state: State) -> dict[str, list[tuple[int, int]]]:
    """Return what *state* says of what was dispatched, where it says anything."""
    assert state.held is not None
    lists = {"held": list(state.held), "possible": list(state.possible), "lent": list(state.lent)}
    return {name: runs for name, runs in lists.items() if runs}


def test_what_sessions_have_is_said_exactly() -> None:
    """In the order of priorities messages are dispatched here and there: no other one is said to be dispatched."""
    settlement = read_up_to(100)
    for offset in (7, 8, 50, 52, 90):
        settlement.dispatch(offset)
    settlement.settle(51)
    settlement.settle(8)
    settlement.dispatch(60, is_lent=True)
    state = settlement.snapshot(0).state
    assert told(state) == {"held": [(7, 8), (50, 53), (90, 91)], "lent": [(60, 61)]}
    assert state.dispatch_limit == 91, "an older reader takes all below for possibly dispatched"
    successor = PartitionSettlement(read_state(write_state(state), state.committed_offset))
    delivered = {offset: successor.history(offset) for offset in range(100) if successor.history(offset).deliveries}
    assert delivered == {7: History(1), 50: History(1), 52: History(1), 90: History(1), 60: History(1, 1)}
    assert successor.held_before == {7, 50, 52, 90}
    assert settlement.snapshot().state.held == [], "the owner that ends in order has noted them"


def test_what_comes_back_is_not_said_to_be_dispatched() -> None:
    """Where no session has a message any more, Kafka is to know."""
    settlement = read_up_to(9)
    settlement.dispatch(4)
    snapshot = settlement.snapshot(0)
    settlement.committed(snapshot)
    assert not settlement.is_dirty
    settlement.come_back(4)
    assert settlement.is_dirty
    assert told(settlement.snapshot(0).state) == {}


def test_nothing_is_dispatched_that_the_last_commit_does_not_permit() -> None:
    """What a commit under way permits no more is not dispatched meanwhile; what it permits besides, after it."""
    settlement = read_up_to(100)
    settlement.committed(settlement.snapshot(10, granted=frozenset({50, 60})))
    assert [offset for offset in range(100) if settlement.permits(offset)] == [*range(10), 50, 60]
    settlement.dispatch(0)
    settlement.dispatch(50)
    settlement.requests.add(70)
    snapshot = settlement.snapshot(10, granted=frozenset({60, 70}))
    assert told(snapshot.state) == {"held": [(0, 1), (50, 51)], "possible": [(51, 61), (70, 71)]}
    settlement.narrow(snapshot)
    assert [offset for offset in range(100) if settlement.permits(offset)] == [60]
    settlement.committed(snapshot)
    assert [offset for offset in range(100) if settlement.permits(offset)] == [*range(51, 61), 70]
    assert not settlement.requests
    slow = settlement.snapshot(0, granted=frozenset({70}))
    assert told(slow.state) == {"held": [(0, 1), (50, 51), (70, 71)]}, "a consumer waits for it, and will have it"


def test_a_batch_is_possibly_dispatched_as_far_as_its_session_has_not_taken_it() -> None:
    """What is left of it is the beginning of the window."""
    settlement = read_up_to(100)
    settlement.dispatch(0)
    settlement.advance(20)
    assert told(settlement.snapshot(10, start=1).state) == {"held": [(0, 1)], "possible": [(1, 31)]}


def test_of_very_many_that_sessions_had_it_is_said_that_they_were_possibly_delivered() -> None:
    """A history of each would take too much room."""
    settlement = PartitionSettlement(State(0, 2_000, (), 0, held=((0, 1_500),)))
    assert (settlement.history(7), settlement.history(1_500)) == (History(1, 1), NEVER)
    assert not settlement.held_before


def test_an_orderly_end_takes_the_dispatch_limit_back() -> None:
    """What was dispatched is noted then: nothing is possibly delivered. Before, the dispatch limit is ahead of it."""
    settlement = read_up_to(6)
    for offset in range(3):
        settlement.dispatch(offset)
    settlement.settle(1)
    assert settlement.dispatched == 3
    assert settlement.snapshot(WINDOW).state.dispatch_limit == 3 + WINDOW
    assert settlement.snapshot().state.dispatch_limit == 0


def test_histories_are_of_what_is_left() -> None:
    """Those of messages settled in the same transaction are left out, and those behind the committed offset."""
    settlement = read_up_to(6)
    settlement.note(4, History(1))
    settlement.note(5, History(2))
    assert settlement.snapshot(1, settled={4}).state.histories == {5: History(2)}
    settlement = PartitionSettlement(State(3, 3, (), 3, {3: History(2)}))
    settlement.read(5, "the log begins here now")
    assert settlement.snapshot(1).state.histories == {}


def test_what_will_be_settled_is_known_though_it_was_not_dispatched() -> None:
    """A transaction may settle a message that was moved elsewhere before any consumer had it."""
    state = read_up_to(6).snapshot(1, settled={3}).state
    assert (state.committed_offset, state.runs, state.known) == (0, [(0, 3)], 4)


def test_no_run_is_empty() -> None:
    """The last message of a run may be settled, in the same transaction as others."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(0, 0, (), 0))
    for offset in (0, 1, 2, 5, 6):
        settlement.read(offset, "a")
        settlement.dispatch(offset)
    state = settlement.snapshot(1, settled={2, 6}).state
    assert (state.runs, state.known) == ([(0, 2), (5, 6)], 7)


def test_between_placed_messages_that_are_settled_nothing_is() -> None:
    """What stands there was not read yet."""
    settlement = read_up_to(1)
    for offset in (4, 6):
        settlement.place(offset, "moved")
        settlement.settle(offset)
    state = settlement.snapshot().state
    assert (state.runs, state.known) == ([(0, 4), (5, 6)], 7)


def test_placed_messages_are_in_this_process_until_they_are_settled() -> None:
    """They are among its messages, oldest first, but for what did not come to stand there after all."""
    settlement = read_up_to(1)
    for offset in (8, 6, 4, 2):
        settlement.place(offset, f"moved to {offset}")
    settlement.settle(8)
    settlement.note(4, History(3))
    settlement.unplace(4)
    assert list(settlement.messages()) == [(0, "0"), (2, "moved to 2"), (6, "moved to 6")]
    assert [settlement.holds(offset) for offset in (0, 2, 4, 8)] == [True, True, False, False]
    assert settlement.noted(4) is None
    settlement.unplace(4)  # once more changes nothing
    assert [offset for offset in range(1, 10) if settlement.read(offset, "read")] == [1, 3, 4, 5, 7, 9]


def test_what_has_to_be_written_down_takes_room() -> None:
    """Messages before one that is settled, or with a history; the others take no room."""
    settlement = read_up_to(6)
    settlement.settle(2)
    settlement.note(4, History(1))
    settlement.place(9, "moved")
    assert [*settlement.messages(take_room=True)] == [(0, "0"), (1, "1"), (4, "4")]


def test_a_short_run_behind_a_long_one_makes_room_first() -> None:
    """Its length counts, and not where it stands."""
    settlement = read_up_to(7)
    settlement.settle(4)
    settlement.settle(6)
    assert settlement.fragments(0.5) == ["5"]


def test_neighbours_are_settled_before_they_were_dispatched() -> None:
    """One after the other: what is known ends behind the last of them."""
    settlement = read_up_to(6)
    settlement.settle(1)
    settlement.settle(2)
    state = settlement.snapshot(1).state
    assert (state.committed_offset, state.runs, state.known) == (0, [(0, 1)], 3)


def test_an_owner_begins_where_the_last_one_stood() -> None:
    """Reading begins at the committed offset, nothing before it is dispatched, and all histories are known."""
    settlement: PartitionSettlement[str] = PartitionSettlement(State(5, 6, (), 5, {8: History(1)}))
    assert (settlement.position, settlement.committed_offset, settlement.dispatched, settlement.dispatch_limit) == (
        5,
        5,
        5,
        6,
    )
    assert settlement.histories_end == 9


def test_a_run_is_split_before_others() -> None:
    """What stands behind a hole in the log stays as it is; a run that ends with the settled message gets shorter."""
    settlement = read_up_to(5)
    for offset in range(6, 10):
        settlement.read(offset, str(offset))
        settlement.dispatch(offset)
    settlement.settle(2)
    settlement.settle(4)
    assert settlement.snapshot(1).state.runs == [(0, 2), (3, 4)]  # behind them nothing is settled
    settlement.settle(9)
    assert settlement.snapshot(1).state.runs == [(0, 2), (3, 4), (6, 9)]
    assert [offset for offset, _ in settlement.messages()] == [0, 1, 3, 6, 7, 8]


def test_settling_leaves_other_histories_alone() -> None:
    """The settled message's own is forgotten, though older ones are unsettled; one without a history is no matter."""
    settlement = read_up_to(4)
    settlement.note(1, History(1))
    settlement.note(3, History(2))
    settlement.settle(2)
    settlement.settle(3)
    assert settlement.snapshot(1).state.histories == {1: History(1)}


def test_what_was_possibly_delivered_is_said_in_runs() -> None:
    """Mark it for the next owner, without a history of each message."""
    partition = PartitionSettlement(State(0, 0, (), 0))
    for offset in range(10):
        partition.read(offset, "message")
        partition.dispatch(offset)
    partition.settle(3)
    partition.committed_version = partition.version
    partition.possibly_delivered(range(8))
    assert partition.is_dirty, "Kafka does not know of it yet"
    partition.committed_version = version = partition.version
    partition.possibly_delivered(range(5))
    partition.possibly_delivered([7, 2])
    assert (partition.is_dirty, partition.version) == (False, version), "nothing new"
    assert partition.histories_end == 8
    state = partition.snapshot().state
    assert (state.dispatch_limit, state.histories, state.possible) == (8, {}, [(0, 8)])
    successor = PartitionSettlement(state)
    assert [successor.history(offset) for offset in (2, 7, 8)] == [History(1, 1), History(1, 1), NEVER]
    assert partition.history(7) == History(1, 1)


def same(one: PartitionSettlement[str], other: PartitionSettlement[str]) -> bool:
    """Return whether two settlements say the same, to Kafka and of what is open."""
    return (
        one.snapshot().state == other.snapshot().state
        and list(one.messages()) == list(other.messages())
        and (one.position, one.committed_offset, one.unsettled)
        == (other.position, other.committed_offset, other.unsettled)
    )


@pytest.mark.parametrize("first", [5, 6, 9])
def test_a_run_is_read_as_its_messages_are(first: int) -> None:
    """Also behind a hole of the log, which joins what is unsettled before and behind it."""
    runs, singly = (PartitionSettlement[str](State(0, 0, (), 0)) for _ in range(2))
    messages = [f"message {number}" for number in range(5)]
    assert runs.read_run(0, messages)
    assert runs.read_run(first, messages)
    for begin in (0, first):
        for offset, message in enumerate(messages, begin):
            assert singly.read(offset, message)
    assert same(runs, singly)
    for settled in (2, first + 2, first):
        runs.settle(settled)
        singly.settle(settled)
        assert same(runs, singly)
    assert runs.snapshot(1).state == singly.snapshot(1).state


def test_a_run_is_read_as_a_whole_from_where_nothing_is_known() -> None:
    """What the previous owner knew ends there; before it, each message is looked at."""
    settlement = PartitionSettlement[str](State(0, 0, ((0, 2),), 5))
    assert not settlement.read_run(0, ["a", "b", "c"])
    assert not settlement.read_run(4, ["e", "f"])
    assert (settlement.position, settlement.unsettled) == (0, 0)
    assert settlement.read_run(5, ["f", "g"])
    assert [offset for offset, _ in settlement.messages()] == [5, 6]


def test_a_run_that_was_read_is_not_read_again() -> None:
    """Nor is one of which a part was."""
    settlement = PartitionSettlement[str](State(0, 0, (), 0))
    assert settlement.read_run(0, ["a", "b", "c"])
    settlement.settle(0, 3)
    assert not settlement.read_run(0, ["a", "b", "c"])
    assert not settlement.read_run(2, ["c", "d"])
    assert (settlement.position, settlement.unsettled, settlement.committed_offset) == (3, 0, 3)


def test_a_run_beside_what_was_placed_is_looked_at() -> None:
    """What stands there in this process already is not delivered a second time."""
    settlement = PartitionSettlement[str](State(0, 0, (), 0))
    settlement.place(1, "moved")
    assert not settlement.read_run(0, ["a", "b"])
    assert [settlement.read(offset, text) for offset, text in enumerate(["a", "b"])] == [True, False]
    assert settlement.read_run(2, ["c"])


def test_a_run_that_is_read_again_is_looked_at() -> None:
    """Of what comes again, only what was evicted is to be delivered."""
    settlement = PartitionSettlement[str](State(0, 0, (), 0))
    assert settlement.read_run(0, ["a", "b", "c"])
    settlement.evict(1)
    assert settlement.reread_from(0) == 1
    assert not settlement.read_run(3, ["d"])
    assert [settlement.read(offset, text) for offset, text in ((1, "b"), (2, "c"), (3, "d"))] == [True, False, True]
    assert settlement.read_run(4, ["e"])


def test_a_record_that_comes_twice_is_read_once() -> None:
    """The client may return one again after a seek; it is no second message, settled or not."""
    settlement = PartitionSettlement[str](State(0, 0, (), 0))
    assert settlement.read(0, "a")
    assert settlement.read(1, "b")
    assert not settlement.read(0, "a")
    settlement.settle(1)
    assert not settlement.read(1, "b")
    assert settlement.unsettled == 1


def test_each_settled_record_that_is_read_is_to_be_committed() -> None:
    """The base moves with them, one by one and over runs of them, though no message is settled."""
    settlement = PartitionSettlement[str](State(0, 0, ((0, 0),), 40))
    committed = set[int]()
    for offset in range(3):
        assert not settlement.read(offset, "settled")
        assert settlement.is_dirty
        assert settlement.version not in committed
        settlement.committed_version = settlement.version
        committed.add(settlement.version)
    for target in (20, 40):
        assert settlement.skip_known(1, margin=40 - target) == target
        assert settlement.is_dirty
        assert settlement.version not in committed
        settlement.committed_version = settlement.version
        committed.add(settlement.version)


def test_a_partition_without_a_state_has_no_history() -> None:
    """Nothing in it was possibly delivered."""
    settlement = PartitionSettlement[str]()
    assert settlement.read(0, "a")
    assert settlement.history(0) == NEVER


def test_what_a_run_holds() -> None:
    """From its first offset to the one before its end, and nothing before the first run or between two."""
    runs = UnsettledRuns()
    runs.add(3, 5)
    runs.add(8, 9)
    assert [offset for offset in range(12) if runs.holds(offset)] == [3, 4, 8]
    assert [list(runs.offsets_below(low)) for low in (3, 4, 8, 12)] == [[], [3], [3, 4], [3, 4, 8]]
