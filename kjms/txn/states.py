"""Which messages of one partition are settled, dispatched, or to come again: pure, no clock, no I/O."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, Generic, NamedTuple, TypeVar, cast

from kjms.txn.metadata import History, Runs, State
from kjms.txn.runs import OffsetRuns, RestoredState, UnsettledRuns

__all__ = ["NEVER", "PartitionSettlement", "Snapshot"]

T = TypeVar("T")

Run = tuple[int, int]

NEVER: Final = History(0)
NO_OFFSETS: Final[frozenset[int]] = frozenset()
NOWHERE: Final = sys.maxsize
MOST_NOTED: Final = 1_000  # messages whose histories are worth their room, at once; a batch may have more


class Snapshot(NamedTuple):
    """A state that is to be committed, and what `PartitionSettlement.committed` needs afterwards.

    Attributes:
        state: The state.
        version: The version of the settlement that it says.
        window: From which offset to which one messages may be dispatched once it is committed.
        granted: Which others may be.
    """

    state: State
    version: int
    window: tuple[int, int] = (0, 0)
    granted: frozenset[int] = NO_OFFSETS


class PartitionSettlement(Generic[T]):
    """The settlement of one partition for one queue or subscription, by its only writer.

    Kafka stores one number per group and partition: the *committed offset*, before which everything is settled.
    Messages are settled in any order, so more is written beside it (`kjms.txn.metadata`): which messages above the
    committed offset are unsettled, how often those that came back were delivered, and what may be dispatched: what
    sessions have, a *window* of offsets, and offsets that are *granted* one by one. Nothing else is dispatched before
    the next commit. After an owner that terminated unexpectedly, what its sessions had was delivered, and what is
    unsettled of the rest was possibly delivered. Offsets have holes (transaction markers, compaction); a hole is as
    good as settled, and between unsettled messages as unsettled.

    Unmatched messages may be *evicted*: they are unsettled, and not in memory, until they are re-read.

    Args:
        state: What was committed; None: nothing, and reading begins wherever the log does.

    Attributes:
        position: The offset after the last message that was read; -1 before the first.
        dispatched: The offset after the last message that was dispatched, or lower, where some came back.
        free_from: Where the window that is committed begins.
        dispatch_limit: Where it ends.
        granted: What else may be dispatched by what is committed.
        requests: What was asked for, and may not be dispatched before the next commit.
        taken: What sessions have.
        lent: What they have passed on to remote clients, whose programs have seen it or not.
        held_before: What sessions of an owner before had that terminated unexpectedly.
        histories_end: `history` has something to say of no offset from here on, but for what was noted since.
        evicted: How many messages are evicted.
        version: Counts the changes.
        committed_version: The version that Kafka has.

    >>> partition = PartitionSettlement(State(7, 7, (), 7))
    >>> all([partition.read(offset, "message") for offset in (7, 8, 10)])
    True
    >>> partition.dispatch(8); partition.settle(8); partition.committed_offset
    7
    >>> partition.snapshot().state.runs
    [(7, 8)]
    >>> partition.settle(7); partition.committed_offset
    10
    """

    __slots__ = (
        "_ahead",
        "_done",
        "_evicted_from",
        "_histories",
        "_open",
        "_possible",
        "_reread",
        "_restored",
        "_unsettled",
        "committed_version",
        "dispatch_limit",
        "dispatched",
        "evicted",
        "free_from",
        "granted",
        "held_before",
        "histories_end",
        "lent",
        "position",
        "requests",
        "taken",
        "version",
    )

    def __init__(self, state: State | None = None) -> None:
        start = -1 if state is None else state.committed_offset
        self.position = start
        self.dispatched = start
        self.free_from = self.dispatch_limit = -1 if state is None else state.dispatch_limit
        self.granted: AbstractSet[int] = NO_OFFSETS
        self.requests: set[int] = set()
        self.taken: set[int] = set()
        self.lent: set[int] = set()
        self.held_before: frozenset[int] = NO_OFFSETS
        self._possible = OffsetRuns()  # what was possibly delivered before, here or by owners before
        self.version = 0
        self.committed_version = 0
        self._open: dict[int, T] = {}  # read and not settled
        self._unsettled = UnsettledRuns()  # the keys of _open, and what is evicted
        self._ahead: dict[int, T | None] = {}  # known, and not read yet: see `place`; None is settled
        self._histories: dict[int, History] = {} if state is None else dict(state.histories)
        self._restored = RestoredState(state)
        self.evicted = 0
        self._evicted_from = NOWHERE  # no message before it is evicted, but for those that are being read again
        self._reread = NOWHERE  # where reading again has got to
        self._done = -1  # the offset after the last one that was settled
        if state is not None:
            self._restore(state)
        self.histories_end = max([self._possible.end, *(offset + 1 for offset in self._histories)])

    def _restore(self, state: State) -> None:
        """Note what was delivered, and what possibly was, by the owner before."""
        if state.held is None:
            self._possible.add(state.committed_offset, state.dispatch_limit)
            self.free_from = state.committed_offset
            return
        for runs in (state.possible, state.lent):
            for first, past in runs:
                self._possible.add(first, past)
        if sum(past - first for first, past in state.held) > MOST_NOTED:
            for first, past in state.held:
                self._possible.add(first, past)
            return
        unsettled = RestoredState(state)
        self.held_before = frozenset(
            offset
            for first, past in state.held
            for offset in range(first, past)
            if offset >= state.known or unsettled.has_unsettled(offset)
        )
        for offset in self.held_before:
            self._histories.setdefault(offset, History(1))

    # What comes from Kafka.

    def read(self, offset: int, message: T) -> bool:
        """Note that *message* was read at *offset*; tell whether it is to be delivered. Offsets come in rising order.

        It is not where it was settled already, was read before and not evicted, or was placed there.
        """
        if offset < self.position:
            if self._reread == NOWHERE:
                return False
            self._reread = offset + 1
            if not self.evicted or offset in self._open or not self._unsettled.holds(offset):
                return False
            self._open[offset] = message
            self.evicted -= 1
            return True
        if self._reread != NOWHERE:
            if self.is_rereading:  # it was broken off
                self._evicted_from = min(self._evicted_from, self._reread)
            self._reread = NOWHERE
        if offset != self.position and self.position >= 0:
            self._unsettled.skip(self.position, offset)
        self.position = offset + 1
        if offset < self._restored.known and not self._restored.has_unsettled(offset):
            self.version += 1
            return False
        if self._ahead and offset in self._ahead:
            placed = self._ahead.pop(offset)
            if placed is not None:
                self._open[offset] = placed
                self._unsettled.add(offset, offset + 1)
            return False
        self._open[offset] = message
        self._unsettled.add(offset, offset + 1)
        return True

    def read_run(self, first: int, messages: Sequence[T]) -> bool:
        """Note that *messages* were read, at *first* and the offsets after it, and that all are to be delivered.

        Return False, and note nothing, where that is not certain: `read` looks at each.
        """
        is_certain = first >= self.position and first >= self._restored.known and not self._ahead
        if not is_certain or self._reread != NOWHERE:
            return False
        if first != self.position and self.position >= 0:
            self._unsettled.skip(self.position, first)
        self.position = first + len(messages)
        self._open.update(zip(range(first, self.position), messages, strict=True))
        self._unsettled.add(first, self.position)
        return True

    @property
    def is_catching_up(self) -> bool:
        """Whether some of what is read next is known: read before, here or by the previous owner, or placed."""
        return self.position < self._restored.known or self._reread < self.position or self.is_behind

    def skip_known(self, least: int, margin: int = 0) -> int | None:
        """Return from where to read on, past the settled or placed offsets that come next; None: fewer than *least* do.

        Reading continues there: what is passed over counts as read.

        Args:
            least: How many offsets are worth it.
            margin: So many of those that the previous owner settled are read all the same, the last ones.
        """
        start = min(self._reread, self.position)
        evicted = self._unsettled.next_from(start) if self.evicted else None
        target = self.position if evicted is None else min(evicted, self.position)
        if target == self.position:
            target = max(self._restored.next_from(target) - margin, target)
        if target == self.position:  # what was placed is beyond all that
            while target in self._ahead:
                target += 1
        if target - start < least:
            return None
        if self._reread != NOWHERE:
            self._reread = target
        if target > self.position:
            for offset in range(self.position, target) if self.position in self._ahead else ():
                placed = self._ahead.pop(offset)
                if placed is not None:  # as where it is read
                    self._open[offset] = placed
                    self._unsettled.add(offset, offset + 1)
            self.position = target
            self.version += 1
        return target

    # What is evicted: it is in the runs, and not in _open.

    def evict(self, offset: int) -> None:
        """Forget the message at *offset*, which was read and no session has; it stays unsettled."""
        del self._open[offset]
        self.evicted += 1
        self._evicted_from = min(self._evicted_from, offset)
        if offset in self._histories:
            self.histories_end = max(self.histories_end, offset + 1)

    def reread_from(self, low: int) -> int:
        """Return from where to read again to find all that is evicted; what was before *low* is gone from the log."""
        first = min(self._evicted_from, self._reread if self.is_rereading else NOWHERE)
        if first < low:
            for offset in [o for o in self._unsettled.offsets_below(low) if o not in self._open]:
                self.evicted -= 1
                self._settled(offset, offset + 1)
        start = max(first, low)
        self._evicted_from = NOWHERE
        self._reread = min(start, self.position)
        return self._reread

    @property
    def is_behind(self) -> bool:
        """Whether something was placed that was not read yet."""
        return bool(self._ahead)

    @property
    def has_evicted(self) -> bool:
        """Whether messages are evicted that are not being read again."""
        return self._evicted_from != NOWHERE

    @property
    def is_rereading(self) -> bool:
        """Whether what was evicted is being read again."""
        return self.evicted > 0 and self._reread < self.position

    # What happened to messages before.

    def history(self, offset: int) -> History:
        """Return what is known to have happened to the unsettled message at *offset*."""
        history = self._histories.get(offset)
        if history is not None:
            return history
        return History(1, 1) if offset in self._possible else NEVER

    def holds(self, offset: int) -> bool:
        """Tell whether the message at *offset* is in this process and not settled."""
        return offset in self._open or self._ahead.get(offset) is not None

    def get(self, offset: int) -> T | None:
        """Return the unsettled message at *offset*; None: it is not in this process."""
        return self._open[offset] if offset in self._open else self._ahead.get(offset)

    def noted(self, offset: int) -> History | None:
        """Return what was noted of the message at *offset*; None: nothing was."""
        return self._histories.get(offset)

    def unplace(self, offset: int) -> None:
        """Note that nothing stands at *offset* after all."""
        self._ahead.pop(offset, None)
        self._histories.pop(offset, None)

    def place(self, offset: int, message: T) -> None:
        """Note that *message*, which is in this process already, stands at *offset*, which was not read yet."""
        if offset >= self.position:
            self._ahead[offset] = message

    # What becomes of messages.

    def permits(self, offset: int) -> bool:
        """Return whether the message at *offset* may be dispatched by what is committed."""
        return self.free_from <= offset < self.dispatch_limit or offset in self.granted

    def dispatch(self, offset: int, *, is_lent: bool = False) -> None:
        """Note that the message at *offset* goes to a session; see `permits`.

        Args:
            offset: The offset.
            is_lent: Whether the session passes it on to a remote client.
        """
        (self.lent if is_lent else self.taken).add(offset)
        if self.granted:
            self.granted -= {offset}
        if offset >= self.dispatched:
            self.dispatched = offset + 1

    def advance(self, offset: int) -> None:
        """Note that messages up to the one at *offset* are in a batch, and no session has taken them yet."""
        self.dispatched = max(self.dispatched, offset + 1)

    def come_back(self, offset: int) -> None:
        """Note that no session has the unsettled message at *offset* any more."""
        if offset in self.taken or offset in self.lent:
            self.taken.discard(offset)
            self.lent.discard(offset)
            self.version += 1

    def note(self, offset: int, history: History) -> None:
        """Keep *history* of the message at *offset*."""
        if self.holds(offset):
            self._histories[offset] = history
            self.version += 1

    def uncount_unread(self, most: int) -> None:
        """Permit one more delivery of each message that was not read here yet, and had *most* that count."""
        for offset, history in self._histories.items():
            if offset >= self.position and not self.holds(offset) and history.deliveries - history.uncounted >= most:
                self._histories[offset] = history._replace(uncounted=history.uncounted + 1)
                self.version += 1

    def settle(self, first: int, past: int | None = None) -> None:
        """Settle the message at *first*, or those from *first* to *past*; what is settled already does not change."""
        begin, end = first, first + 1 if past is None else past
        messages, done = self._open, begin
        try:
            for offset in range(first, end):
                if offset in messages:
                    del messages[offset]
                    done = offset + 1
                    continue
                self._settled(begin, offset)
                begin = done = offset + 1
                if self._ahead.get(offset) is not None:
                    self._ahead[offset] = None
                    self._settled(offset, begin, is_read=False)
            self._settled(begin, end)
        except BaseException:  # Ctrl-C, at any call
            if begin < done and self._unsettled.holds(begin):
                self._settled(begin, done)
            raise

    def settle_each(self, offsets: Iterable[int]) -> None:
        """Settle the messages at *offsets*: as `settle` does with each, and quicker where there are many.

        Not for the main thread: Ctrl-C may come in the middle of it.
        """
        gone = []
        for offset in sorted(offsets):
            if self._open.pop(offset, None) is not None:
                gone.append(offset)
                self._histories.pop(offset, None)
                self.taken.discard(offset)
                self.lent.discard(offset)
            else:
                self.settle(offset)
        if gone:
            self._unsettled.remove_each(gone)
            self.version += 1
            self._done = max(self._done, gone[-1] + 1)

    def _settled(self, begin: int, end: int, *, is_read: bool = True) -> None:
        """Note that the messages from *begin* to *end*, which were unsettled, are settled."""
        if begin == end:
            return
        self.version += 1
        self._done = max(self._done, end)
        if is_read:
            self._unsettled.remove(begin, end)
        for having in (self.taken, self.lent):
            if having:
                having.difference_update(range(begin, end))
        if self._histories:
            for offset in range(begin, end):
                self._histories.pop(offset, None)

    def possibly_delivered(self, offsets: Iterable[int]) -> None:
        """Note that the unsettled messages at *offsets* were possibly delivered, as after an owner that was killed.

        It costs less room in the metadata than a history of each message.
        """
        new = [offset for offset in offsets if offset not in self._possible]
        if not new:
            return
        for first, past in self._unsettled.joined(new):
            self._possible.add(first, past)
        self.histories_end = max(self.histories_end, self._possible.end)
        self.version += 1

    # What is committed.

    @property
    def is_dirty(self) -> bool:
        """Whether Kafka does not know everything."""
        return self.version != self.committed_version

    @property
    def committed_offset(self) -> int:
        """The oldest offset that is not settled; -1 before any read of a partition without a committed state."""
        firsts = self._unsettled.firsts
        return firsts[0] if firsts else self.position

    @property
    def unsettled(self) -> int:
        """How many messages were read, or placed, and are not settled."""
        return self.evicted + len(self._open) + sum(message is not None for message in self._ahead.values())

    def snapshot(
        self,
        window: int | None = None,
        settled: Collection[int] = NO_OFFSETS,
        *,
        start: int | None = None,
        granted: frozenset[int] = NO_OFFSETS,
    ) -> Snapshot:
        """Return what is to be committed.

        Args:
            window: How many offsets beyond what was dispatched may be dispatched before the next commit. None: the
                owner ends in order, and has noted the history of all that it dispatched.
            settled: Offsets to be written as settled, though they are not yet: they will be in the same transaction.
            start: From where on messages are dispatched in batches that sessions have not taken yet; None: none are.
            granted: What else may be dispatched. Without a window, sessions wait for it, and will have it.
        """
        top, firsts = self._top(settled), self._unsettled.firsts
        begins: list[int] = []
        ends: list[int] = []
        if not settled and firsts and firsts[0] >= top:  # as where each message is settled before the next one
            committed_offset = firsts[0]
        else:
            if not settled:
                top = self._unsettled.end(top)
            begins, ends, committed_offset = self._collect(top, settled)
        while ends and ends[-1] >= top:
            top = begins.pop()  # what is unsettled at the end needs no saying
            ends.pop()
        runs: Sequence[tuple[int, int]] = Runs(begins, ends) if begins else []
        free_from = max(self.dispatched if start is None else start, committed_offset)
        limit = free_from if window is None else max(self.dispatched + window, free_from)
        free = free_from, limit
        if self.taken or self.lent or granted or self._possible.firsts:
            held, possible, lent = self._dispatched(window, settled, granted, free, committed_offset)
            dispatch_limit = max([committed_offset, *(runs[-1][1] for runs in (held, possible, lent) if runs)])
        else:  # as where each message is settled before the next one
            held, possible, lent = [], [free] if free_from < limit else [], []
            dispatch_limit = limit
        histories: dict[int, History] = {}
        if self._histories:
            # A message may be gone from the log before it is read again; its history stays behind the committed offset.
            histories = {o: h for o, h in self._histories.items() if o >= committed_offset and o not in settled}
        return Snapshot(
            State(committed_offset, dispatch_limit, runs, max(top, committed_offset), histories, held, possible, lent),
            self.version,
            free,
            granted,
        )

    def _dispatched(
        self,
        window: int | None,
        settled: Collection[int],
        granted: frozenset[int],
        free: Run,
        committed_offset: int,
    ) -> tuple[list[Run], list[Run], list[Run]]:
        """Return what is said of what was dispatched, as runs: held, possible, lent."""
        self._possible.forget(committed_offset)
        possible = self._possible.copy()
        possible.add(*free)
        for offset in granted if window else ():
            possible.add(offset, offset + 1)
        runs = [(max(first, committed_offset), past) for first, past in possible]
        if window is None:
            return [], runs, []
        held, join = self.taken if window else self.taken | granted, self._unsettled.joined
        if settled:
            held = held.difference(settled)
        return join(held), runs, join(self.lent.difference(settled))

    def _top(self, settled: Collection[int] = NO_OFFSETS) -> int:
        """Return the offset from which on nothing is settled."""
        top = max(self.dispatched, self._restored.known, self._done)
        return max(top, max(settled) + 1) if settled else top

    def _collect(self, top: int, settled: Collection[int]) -> tuple[list[int], list[int], int]:
        """Return where runs of unsettled offsets below *top* begin, and where they end, and the committed offset."""
        begins, ends, first = self._unsettled.below(top, settled)
        if first is not None:
            return begins, ends, first
        self._unsettled.forget_gaps(self.committed_offset)
        unread = [*self._restored.beyond(self.position)]
        start = max(self.position, self._restored.known)
        for offset in sorted(o for o, message in self._ahead.items() if message is None or o in settled):
            unread.append((start, offset))
            start = offset + 1
        for begin, past in (*unread, (start, top)):
            if begin < past:
                if ends and ends[-1] == begin:
                    ends[-1] = past
                else:
                    begins.append(begin)
                    ends.append(past)
        return begins, ends, begins[0] if begins else max(top, self.position)

    def narrow(self, snapshot: Snapshot) -> None:
        """Dispatch nothing that *snapshot*, which is about to be committed, does not permit.

        What it permits besides may be dispatched once it is committed.
        """
        self.free_from = max(self.free_from, snapshot.window[0])
        self.dispatch_limit = min(self.dispatch_limit, snapshot.window[1])
        if self.granted:
            self.granted &= snapshot.granted
        if self.requests:
            self.requests.clear()

    def committed(self, snapshot: Snapshot) -> None:
        """Note that Kafka has *snapshot*."""
        self.committed_version = max(self.committed_version, snapshot.version)
        self.free_from, self.dispatch_limit = snapshot.window
        if snapshot.granted or self.granted:
            self.requests -= snapshot.granted
            self.granted = snapshot.granted - self.taken - self.lent

    @property
    def has_window(self) -> bool:
        """Whether messages may be dispatched before the next commit."""
        return self.free_from < self.dispatch_limit or bool(self.granted)

    def messages(self, *, take_room: bool = False) -> Iterator[tuple[int, T]]:
        """Return the unsettled messages that are in this process, oldest first, with their offsets.

        Args:
            take_room: Without those that need not be written down: they are beyond all that is settled, and have no
                history.
        """
        top = self._top() if take_room else NOWHERE
        for offset in sorted(self._open):
            message = self._open.get(offset)
            if message is not None and (offset < top or offset in self._histories):
                yield offset, message
        for offset, placed in sorted(self._ahead.items(), key=_first):
            if placed is not None and (offset < top or offset in self._histories):
                yield offset, placed

    def fragments(self, share: float) -> list[T]:
        """Return the unsettled messages of the shortest *share* of runs: without them the least has to be said.

        A run of which messages are evicted is left out: it would not go away with the others.
        """
        messages = self._open
        found: list[T] = []
        for offsets in self._unsettled.shortest(self._top(), share):
            piece = [messages.get(offset) for offset in offsets]
            if None not in piece:
                found += cast("list[T]", piece)
        return found


def _first(item: tuple[int, object]) -> int:
    return item[0]
