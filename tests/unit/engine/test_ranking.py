"""When messages are put in the order of their priorities: as they arrive, or, while consumers are quick, later."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from kjms.engine.consumer import ranking
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.delivery import Delivery
from kjms.engine.consumer.ranking import LOOK_SECONDS, QUICK
from tests.unit.engine.records import Record, Source

MOMENT = 2 * LOOK_SECONDS
RUN = round(2 * QUICK * MOMENT)  # quick consumers take half of it in a moment
NO_PRIORITIES: Mapping[int, int] = {}


class Quick(Source):
    """A source whose consumer has just taken as many messages as make it quick, and a clock that the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(RUN, batch=10)
        self.now = 100.0
        monkeypatch.setattr(ranking, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.dispatcher.ranking.look()
        self.consumer = self.slot()
        self.take_all(self.consumer)
        self.now += MOMENT

    def arrive(self, first: int, count: int, priorities: Mapping[int, int] = NO_PRIORITIES) -> list[Delivery]:
        """Let messages arrive at once."""
        run = [
            Delivery(Record(offset, priority=priorities.get(offset, 4)), self.partition, offset, offset)
            for offset in range(first, first + count)
        ]
        assert self.partition.settlement.read_run(first, run)
        self.dispatcher.arrive_run(run)
        return run

    def take_all(self, slot: ConsumerSlot) -> list[int]:
        """Return the offsets of what *slot* gets."""
        taken = []
        while (delivery := slot.poll()) is not None:
            taken.append(delivery.offset)
        return taken


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Quick:
    """A source with a quick consumer."""
    return Quick(monkeypatch)


def test_messages_for_quick_consumers_are_decoded_by_their_session(quick: Quick) -> None:
    """What arrives is ready without having been decoded, and comes in its order."""
    run = quick.arrive(RUN, 30)
    assert {delivery.decoded for delivery in run} == {None}
    assert quick.dispatcher.held == 30
    assert quick.take_all(quick.consumer) == list(range(RUN, RUN + 30))


@pytest.mark.requirement("JMS-3.4.10-2", "JMS-3.4.10-3")
def test_what_waits_for_slow_consumers_is_ranked(quick: Quick) -> None:
    """When a quick consumer becomes slow, an urgent message overtakes what is ready, and what is in its batch."""
    quick.arrive(RUN, 30, {RUN + 29: 9})
    first = quick.consumer.poll()
    assert first is not None
    assert first.offset == RUN
    assert quick.consumer.batch
    quick.now += MOMENT
    quick.dispatcher.ranking.look()
    assert quick.take_all(quick.consumer) == [RUN + 29, *range(RUN + 1, RUN + 29)]
    assert quick.dispatcher.ranking.is_needed


@pytest.mark.requirement("JMS-3.4.10-2", "JMS-3.4.10-3")
def test_all_is_ranked_after_a_session_took_an_urgent_message(quick: Quick) -> None:
    """The session notes it; what is ready then is ranked, and all that arrives from then on as it arrives."""
    quick.arrive(RUN, 30, {RUN: 1, RUN + 28: 6})
    taken = quick.consumer.poll()
    assert taken is not None
    taken.slot.has_priorities = True  # type: ignore[union-attr] # it was dispatched
    quick.dispatcher.batches.recall()
    assert quick.take_all(quick.consumer) == [RUN + 28, *range(RUN + 1, RUN + 28), RUN + 29]
    run = quick.arrive(RUN + 30, 5, {RUN + 34: 9})
    assert all(delivery.decoded is not None for delivery in run)
    assert quick.take_all(quick.consumer) == [RUN + 34, *range(RUN + 30, RUN + 34)]


@pytest.mark.requirement("JMS-3.4.10-2", "JMS-3.4.10-3")
def test_what_arrives_and_is_urgent_has_the_rest_ranked(quick: Quick) -> None:
    """A message whose priority is known at once, behind others whose priorities are not."""
    quick.arrive(RUN, 3, {RUN + 1: 8})
    urgent = Delivery(Record(RUN + 3, priority=9), quick.partition, RUN + 3, RUN + 3)
    assert quick.partition.settlement.read(RUN + 3, urgent)
    quick.dispatcher.arrive(urgent)
    assert quick.take_all(quick.consumer) == [RUN + 3, RUN + 1, RUN, RUN + 2]


def test_a_consumer_with_a_selector_finds_what_is_unranked(quick: Quick) -> None:
    """It gets what matches, by priority; the others get the rest."""
    quick.arrive(RUN, 4, {RUN + 3: 9})
    selecting = quick.slot(f"n > {RUN + 1}")
    assert quick.take_all(selecting) == [RUN + 3, RUN + 2]
    assert quick.take_all(quick.consumer) == [RUN, RUN + 1]


def test_consumers_that_are_not_quick_get_ranked_messages(quick: Quick) -> None:
    """A consumer that has taken nothing for a moment is not quick: what arrives is ranked, and what is ready, too."""
    assert quick.arrive(RUN, 1)[0].decoded is None
    quick.now += MOMENT
    assert quick.arrive(RUN + 1, 1)[0].decoded is not None
    assert all(delivery.decoded is not None for delivery in quick.dispatcher.selector_queues[None])


@pytest.mark.requirement("JMS-3.4.10-2")
def test_what_a_consumer_leaves_unranked_is_ranked_for_the_next_one(quick: Quick) -> None:
    """Also where no consumer is left meanwhile, so that all of it is unmatched."""
    quick.arrive(RUN, 4, {RUN + 2: 9})
    quick.dispatcher.leave(quick.consumer)
    assert quick.take_all(quick.slot()) == [RUN + 2, RUN, RUN + 1, RUN + 3]
