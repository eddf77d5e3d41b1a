"""From where partitions are fetched: past what is settled, and again for what is evicted."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kjms import Queue
from kjms.engine.consumer.assignment import Assignment
from kjms.engine.consumer.client import ConsumerClient
from kjms.engine.consumer.delivery import AssignedPartition
from kjms.engine.consumer.dispatcher import Dispatcher
from kjms.engine.consumer.fetch_positions import LONG_RUN, FetchPositions
from kjms.engine.kafka import TopicPartition
from kjms.txn.metadata import State

FAR = 10 * LONG_RUN


class Fetching:
    """A `FetchPositions`, and a Kafka consumer that notes from where it is to read."""

    def __init__(self, look_back: int = 0) -> None:
        lock = threading.RLock()
        dispatcher = Dispatcher(Queue("q"), keeps_unmatched=True, limit=10)
        self.held = Assignment("q", "q", "q.overflow", "g", "e", dispatcher)
        nothing: Any = SimpleNamespace(opened=lambda _partition: None)
        self.client = ConsumerClient("q", lock, threading.Condition(lock))
        self.fetch = FetchPositions(self.held, self.client, nothing, nothing, nothing, dispatcher, lock, look_back)
        self.starts: list[tuple[str, int, int]] = []
        self.reads: set[tuple[str, int]] = set()
        self.paused: set[tuple[str, int]] = set()
        self.given: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def incremental_assign(self, places: Any) -> None:
        for place in places:
            assert (place.topic, place.partition) not in self.reads | self.paused
            self.reads.add((place.topic, place.partition))
            self.starts.append((place.topic, place.partition, place.offset))

    def incremental_unassign(self, places: Any) -> None:
        for place in places:
            self.reads.remove((place.topic, place.partition))  # each once: else librdkafka ends the process

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in sorted(self.reads)]

    def pause(self, places: Any) -> None:
        self.paused |= {(place.topic, place.partition) for place in places}

    def resume(self, places: Any) -> None:
        self.paused -= {(place.topic, place.partition) for place in places}

    def position(self, places: Any) -> list[TopicPartition]:
        return [
            TopicPartition(place.topic, place.partition, self.given.get(place.partition, -1001)) for place in places
        ]

    def get_watermark_offsets(self, place: TopicPartition, _timeout: float, cached: bool) -> tuple[int, int]:
        assert cached  # nothing is asked of the broker
        return 0, self.ends.get(place.partition, -1001)

    def resume_again(self) -> list[tuple[str, int, int]]:
        """Pause, resume, and return what is read first."""
        self.fetch.reading.pause(self)  # type: ignore[arg-type]
        self.fetch.reading.resume(self)  # type: ignore[arg-type]
        starts, self.starts = self.starts, []
        return starts

    def hold(self, topic: str, number: int, state: State) -> AssignedPartition:
        partition = AssignedPartition(topic, number, state)
        self.fetch.hold(self, [partition])  # type: ignore[arg-type]
        self.starts.clear()
        return partition

    def skip(self) -> list[tuple[str, int, int]]:
        self.fetch.skip_known(self)  # type: ignore[arg-type]
        starts, self.starts = self.starts, []
        return sorted(starts)


def test_a_long_settled_run_is_not_fetched() -> None:
    """Fetching continues behind it once what is unsettled before it was read, and only then."""
    fetching = Fetching()
    partition = fetching.hold("q", 0, State(0, 0, ((0, 2),), FAR))
    partition.settlement.read(0, object())  # type: ignore[arg-type]
    assert fetching.skip() == []
    partition.settlement.read(1, object())  # type: ignore[arg-type]
    assert fetching.skip() == [("q", 0, FAR)]
    assert fetching.skip() == []
    assert partition.settlement.position == FAR


def test_a_short_settled_run_is_fetched() -> None:
    """To fetch anew costs more than it saves."""
    fetching = Fetching()
    partition = fetching.hold("q", 0, State(0, 0, ((0, 1),), LONG_RUN))
    partition.settlement.read(0, object())  # type: ignore[arg-type]
    assert fetching.skip() == []


@pytest.mark.parametrize(("topic", "start"), [("q", FAR - 100), ("q.overflow", FAR)])
def test_what_tells_duplicates_is_fetched(topic: str, start: int) -> None:
    """Where it matters what was in the topic, the last records of a settled run are read."""
    fetching = Fetching(look_back=100)
    fetching.hold(topic, 0, State(0, 0, (), FAR))
    assert fetching.skip() == [(topic, 0, start)]


def test_copies_of_messages_that_are_here_are_not_fetched() -> None:
    """Fetching continues behind a long run of them once the first one was read."""
    fetching = Fetching()
    partition = fetching.hold("q.overflow", 0, State(0, 0, (), 0))
    assert fetching.skip() == []
    for offset in range(1, LONG_RUN + 2):
        partition.settlement.place(offset, cast("Any", object()))
    assert fetching.skip() == []
    assert not partition.settlement.read(1, cast("Any", object()))
    assert fetching.skip() == [("q.overflow", 0, LONG_RUN + 2)]
    assert fetching.skip() == []
    assert partition.settlement.unsettled == LONG_RUN + 1


def test_a_partition_that_was_given_up_is_left_alone() -> None:
    """The client does not read it any more; the others are read on."""
    fetching = Fetching()
    gone = fetching.hold("q", 0, State(0, 0, (), FAR))
    fetching.hold("q", 1, State(0, 0, (), FAR))
    fetching.held.remove(gone)
    assert fetching.skip() == [("q", 1, FAR)]


def test_what_was_paused_is_assigned_anew_behind_what_was_given() -> None:
    """Of what was paused and is still read; a partition of which no record came is read from where it was."""
    fetching = Fetching()
    partitions = [
        fetching.hold(*place, State(0, 0, (), 0)) for place in (("q", 0), ("q.overflow", 0), ("q", 1), ("q", 2))
    ]
    fetching.given = {0: 7, 1: 9}
    fetching.ends = {0: 10, 1: 10, 2: 0}
    fetching.fetch.reading.pause(fetching)  # type: ignore[arg-type]
    assert fetching.paused == fetching.reads
    fetching.fetch.unassign(fetching, [TopicPartition("q", 0)])  # type: ignore[arg-type]
    assert not partitions[1].is_held
    fetching.fetch.reading.resume(fetching)  # type: ignore[arg-type]
    assert fetching.paused == {("q", 0), ("q.overflow", 0), ("q", 2)}
    assert fetching.starts == [("q", 1, 9)]
    fetching.fetch.reading.resume_later(fetching, has_read=True)  # type: ignore[arg-type]
    assert fetching.paused == {("q", 0), ("q.overflow", 0)}
    assert fetching.starts == [("q", 1, 9), ("q", 2, 0)]
    assert fetching.reads == {("q", 1), ("q", 2)}
    fetching.hold("q", 0, State(0, 0, (), 0))  # which asserts that it is paused no more
    assert fetching.paused == {("q.overflow", 0)}


def test_after_each_pause_another_partition_is_read_first() -> None:
    """Be it that it gave nothing, such as where a transaction has ended; one that has no more is not read first."""
    fetching = Fetching()
    for number in range(4):
        fetching.hold("q", number, State(0, 0, (), 0))
    fetching.ends = {0: 10, 1: 10, 2: 10, 3: 0}
    fetching.given = {0: 4}
    firsts = [fetching.resume_again() for _ in range(4)]
    assert firsts == [[("q", 1, 0)], [("q", 2, 0)], [("q", 0, 4)], [("q", 1, 0)]]
    assert fetching.paused == {("q", 0), ("q", 2), ("q", 3)}
    fetching.fetch.reading.resume_later(fetching, has_read=False)  # type: ignore[arg-type]
    assert fetching.paused == {("q", 0), ("q", 2), ("q", 3)}
    while fetching.paused:  # not for long
        fetching.fetch.reading.resume_later(fetching, has_read=False)  # type: ignore[arg-type]
    assert fetching.starts == [("q", 0, 4), ("q", 2, 0), ("q", 3, 0)]


def test_where_no_partition_has_more_all_are_read_at_once() -> None:
    """As far as the client knows, which may be little."""
    fetching = Fetching()
    for number in range(2):
        fetching.hold("q", number, State(0, 0, (), 0))
    fetching.given = {0: 4}
    fetching.ends = {0: 4}
    assert fetching.resume_again() == [("q", 0, 4), ("q", 1, 0)]
    assert not fetching.paused


def test_what_is_left_twice_is_unassigned_once() -> None:
    """The handover's thread may give a transfer partition up that the consumer gives up in order to close."""
    fetching = Fetching()
    partitions = [fetching.hold("q.handover", number, State(0, 0, (), 0)) for number in (0, 1)]
    fetching.fetch.leave(partitions[0])
    fetching.fetch.leave(partitions[0])
    fetching.fetch.unassign_left(fetching)  # type: ignore[arg-type]
    assert fetching.reads == {("q.handover", 1)}
    fetching.fetch.leave(partitions[0])  # once more, and it is not read any longer
    fetching.fetch.unassign_left(fetching)  # type: ignore[arg-type]
    assert fetching.reads == {("q.handover", 1)}


def test_a_client_that_another_thread_uses_is_waited_for() -> None:
    """A commit is not disturbed."""
    fetching = Fetching()
    fetching.hold("q", 0, State(0, 0, (), FAR))
    with fetching.client.turn:
        thread = threading.Thread(target=fetching.skip)
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        assert fetching.starts == []
    thread.join()
    assert fetching.reads == {("q", 0)}
