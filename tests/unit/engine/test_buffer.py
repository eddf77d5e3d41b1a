"""How a reader shares out messages among its consumers, without Kafka and threads."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kjms.destinations import Queue
from kjms.engine._buffer import Buffer, Feed
from kjms.engine._delivery import Delivery, Partition
from kjms.selector import Selector, parse_selector
from kjms.txn.metadata import State


def partition_from(start: int) -> Partition:
    """Return a partition whose settlement nobody keeps: no mark holds its messages back."""
    return Partition("t", 0, State(start, start, (), start), is_kept=False)


class Record:
    """A Kafka record of a text message with the property ``n``."""

    def __init__(self, n: int) -> None:
        self._n = n

    def value(self) -> bytes:
        return b"x"

    def key(self) -> None:
        return None

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("kjms", b"1;text;n=int"), ("n", b"%d" % self._n)]

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._n


SELECTORS: list[Selector | None] = [
    None,
    parse_selector("n < 5"),
    parse_selector("n BETWEEN 3 AND 8"),
    parse_selector("n > 100"),
]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.just(0)),
        st.tuples(st.sampled_from(["join", "leave", "take", "rest", "return"]), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(steps=STEPS, keeps=st.booleans())
def test_every_message_is_somewhere_and_goes_to_one_who_wants_it_in_order(
    steps: list[tuple[str, int]], keeps: bool
) -> None:
    """Whoever comes and goes: no message is lost or doubled, or given to who does not want it, or out of order."""
    buffer = Buffer(Queue("q"), keeps_unwanted=keeps, limit=5)
    partition = partition_from(0)
    unused: Any = None
    feeds = [Feed(unused, SELECTORS[number % len(SELECTORS)], threading.Event()) for number in range(6)]
    arrived: list[Delivery] = []
    in_hands: list[Delivery] = []
    settled_unwanted = 0
    for step, number in steps:
        feed = feeds[number]
        if step == "arrive":
            delivery = Delivery(Record(len(arrived)), partition, len(arrived), len(arrived))
            partition.settlement.read(delivery.offset, delivery)
            arrived.append(delivery)
            buffer.arrive(delivery)
        elif step == "join" and feed.lane is None:
            buffer.join(feed)
        elif step == "leave":
            buffer.leave(feed)
        elif step == "rest":
            buffer.rest(feed)
        elif step == "return" and in_hands:
            buffer.put_back(in_hands)
            in_hands.clear()
        elif step == "take":
            taken = buffer.take(feed)
            if taken is None:
                assert feed.lane is None or feed.is_hungry
                continue
            selector = feed.selector
            assert selector is None or selector.matches(taken.message(Queue("q")))
            assert taken not in in_hands
            in_hands.append(taken)
            later = [d for d in arrived if d.order < taken.order and not d.is_taken and d.lanes]
            assert not [d for d in later if selector is None or selector.matches(d.message(Queue("q")))]
        ready = {id(d) for lane in buffer._lanes.values() for d in lane.ready if not d.is_taken}
        assert buffer.held == len(ready)
        kept = {id(d) for d in buffer.unwanted}
        assert not ready & kept
        assert not (ready | kept) & {id(d) for d in in_hands}
        if keeps:
            assert len(ready) + len(kept) + len(in_hands) + settled_unwanted == len(arrived)
        # Nobody sleeps while a message that he wants is ready.
        for lane in buffer._lanes.values():
            if lane.hungry:
                assert not [d for d in lane.ready if not d.is_taken] or any(f.wakeup.is_set() for f in feeds)


def test_a_message_goes_to_the_consumer_that_has_waited_longest() -> None:
    """Waiting consumers are woken in the order in which they began to wait, one per message."""
    buffer, partition = Buffer(Queue("q"), keeps_unwanted=True, limit=5), partition_from(0)
    unused: Any = None
    first, second = (Feed(unused, None, threading.Event()) for _ in range(2))
    for feed in (first, second):
        buffer.join(feed)
        assert buffer.take(feed) is None
    buffer.arrive(Delivery(Record(0), partition, 0, 0))
    assert (first.wakeup.is_set(), second.wakeup.is_set()) == (True, False)
    assert buffer.take(first) is not None


def test_a_dropped_partitions_messages_are_forgotten() -> None:
    """When a partition goes to another reader, what was ready of it is nobody's here."""
    buffer = Buffer(Queue("q"), keeps_unwanted=True, limit=5)
    mine, gone = partition_from(0), partition_from(0)
    unused: Any = None
    feed = Feed(unused, SELECTORS[1], threading.Event())
    buffer.join(feed)
    for order, (partition, n) in enumerate([(gone, 1), (mine, 2), (gone, 50), (mine, 60)]):
        buffer.arrive(Delivery(Record(n), partition, n, order))
    buffer.drop(gone)
    assert (buffer.held, len(buffer.unwanted)) == (1, 1)
    taken = buffer.take(feed)
    assert taken is not None
    assert taken.partition is mine
    assert buffer.take(feed) is None
