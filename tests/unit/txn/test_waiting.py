"""What waits for its time, held against a model that is too simple to be wrong: a log, and one owner after another."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kjms.txn.waiting import NEVER, Waiting


class Owners(RuleBasedStateMachine):
    """A log of messages and notes. An owner holds a few messages only, and reads again when it has room for more."""

    @initialize(limit=st.integers(2, 6))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.log: list[int | tuple[int, ...]] = []  # when a message is due, or the offsets that a note settles
        self.take_over()

    @rule()
    def take_over(self) -> None:
        """The owner is gone; the next one reads the log from where the last one said."""
        self.owner: Waiting[int] = Waiting(self.limit)
        for offset, entry in enumerate(self.log):
            if isinstance(entry, int):
                self.owner.add(offset, entry, entry)
            else:
                for settled in entry:
                    self.owner.settle(settled)
        self.owner.caught_up()

    @rule(due=st.integers(0, 30))
    def send(self, due: int) -> None:
        self.owner.add(len(self.log), due, due)
        self.log.append(due)

    @rule(now=st.integers(0, 30), most=st.integers(1, 4), works=st.booleans())
    def move(self, now: int, most: int, works: bool) -> None:
        """Due messages are moved, unless the cluster refuses."""
        taken = self.owner.take(now, most)
        waits = self.waiting()
        assert all(offset in waits and waits[offset] == due <= now for offset, due in taken)
        known = sorted(
            (due, offset) for offset, due in waits.items() if due <= now and (due, offset) < self.owner.horizon
        )
        assert [(due, offset) for offset, due in taken] == known[:most]
        if works:
            self.note(*(offset for offset, _ in taken))
        else:
            for offset, _ in taken:
                self.owner.put_back(offset)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        waits = self.waiting()
        if waits:
            offset = data.draw(st.sampled_from(sorted(waits)))
            assert self.owner.may_hold(offset)
            self.note(offset)

    def note(self, *offsets: int) -> None:
        for offset in offsets:
            self.owner.settle(offset)
        self.log.append(offsets)

    @precondition(lambda self: self.owner.is_short)
    @rule()
    def look_again(self) -> None:
        owner, found = self.owner, Waiting[int](max(1, self.limit // 2))
        before = owner.horizon
        for offset, entry in enumerate(self.log):
            if isinstance(entry, int):
                if (entry, offset) >= owner.horizon and not owner.is_gone(offset):
                    found.add(offset, entry, entry)
            else:
                for settled in entry:
                    found.settle(settled)
        owner.take_in(found)
        assert owner.horizon > before  # each look brings some, so that it comes to an end

    def waiting(self) -> dict[int, int]:
        gone = {offset for entry in self.log if not isinstance(entry, int) for offset in entry}
        return {o: due for o, due in enumerate(self.log) if isinstance(due, int) and o not in gone}

    @invariant()
    def what_is_due_first_is_held(self) -> None:
        waits = self.waiting()
        held = {offset for _, offset, _ in self.owner.all()}
        assert {offset for offset, due in waits.items() if (due, offset) < self.owner.horizon} <= held <= waits.keys()
        assert len(held) <= self.limit + 1
        assert self.owner.committed_offset(len(self.log)) <= min(waits, default=len(self.log))
        assert self.owner.next_due == min((waits[offset] for offset in held), default=NEVER)


TestOwners = Owners.TestCase
TestOwners.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_a_message_may_be_postponed() -> None:
    """A message that cannot be moved now is due later; the others are not held up."""
    waiting: Waiting[str] = Waiting(10)
    waiting.add(0, 5, "a")
    waiting.add(1, 6, "b")
    assert waiting.take(10, 1) == [(0, "a")]
    waiting.put_back(0)
    waiting.postpone(0, 20)
    assert waiting.take(10, 9) == [(1, "b")]
    assert waiting.take(20, 9) == [(0, "a")]


def test_the_oldest_are_those_that_stand_first() -> None:
    """What stands first in the log, and is not settled, can be had with its time."""
    waiting: Waiting[str] = Waiting(10)
    for offset, due in enumerate([30, 10, 20, 40]):
        waiting.add(offset, due, "")
    waiting.settle(0)
    assert waiting.oldest(2) == [(1, 10, ""), (2, 20, "")]


def test_those_due_last_are_forgotten_beyond_the_limit() -> None:
    """A quarter of the limit is free then; how many are not held is known, and from when on."""
    waiting: Waiting[str] = Waiting(4)
    for offset, due in enumerate([50, 40, 30, 20]):
        waiting.add(offset, due, str(offset))
    assert (len(waiting), waiting.forgotten) == (4, 0)
    waiting.add(4, 10, "4")
    assert waiting.all() == [(10, 4, "4"), (20, 3, "3"), (30, 2, "2")]
    assert (waiting.horizon, waiting.forgotten) == ((40, 1), 2)
    waiting.add(5, 60, "5")
    assert (len(waiting), waiting.forgotten) == (3, 3)
    assert [waiting.message(offset) for offset in (0, 2)] == [None, "2"]
    assert [waiting.may_hold(offset) for offset in (0, 2)] == [True, True]


def test_one_message_is_held_at_least() -> None:
    """However small the limit is."""
    waiting: Waiting[str] = Waiting(1)
    waiting.add(0, 20, "later")
    waiting.add(1, 10, "sooner")
    assert waiting.all() == [(10, 1, "sooner")]


def test_a_note_may_come_before_its_message() -> None:
    """While the log is being read, what it says of messages that follow is kept; not longer than it is needed."""
    waiting: Waiting[str] = Waiting(1)
    waiting.settle(7)
    assert (waiting.is_gone(7), waiting.is_gone(8)) == (True, False)
    waiting.add(0, 20, "later")
    waiting.add(1, 10, "sooner")
    waiting.caught_up()
    assert waiting.is_gone(7)  # some are not held: the log will be read once more
    found: Waiting[str] = Waiting(1)
    found.add(0, 20, "later")
    waiting.take_in(found)
    assert not waiting.is_gone(7)
    assert waiting.all() == [(10, 1, "sooner"), (20, 0, "later")]


def test_a_log_that_is_read_needs_no_notes() -> None:
    """All that it says is in what is held."""
    waiting: Waiting[str] = Waiting(1)
    waiting.settle(7)
    waiting.caught_up()
    assert not waiting.is_gone(7)


def test_what_waits_among_many_that_were_settled_is_found() -> None:
    """The order of the log is kept of what waits, and not of all that ever did."""
    waiting: Waiting[str] = Waiting(10)
    for offset in range(3_000):
        waiting.add(offset, 10, "")
        if offset not in {500, 2_000}:
            waiting.settle(offset)
    assert waiting.committed_offset(3_000) == 500
    assert waiting.oldest(9) == [(500, 10, ""), (2_000, 10, "")]
