"""Messages of a queue go to whoever wants them, in whatever process: selectors, busy owners, ends of all kinds.

Two connections with different Kafka settings have engines of their own, and so are to each other as processes are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, Queue, Session
from kjms.testing.engine import reader_of
from tests.helpers import WAIT_MS, Busy, Desk, Eventually, consume, owner_of, send, text

Process = Callable[..., Connection]


@pytest.fixture
def process(desk: Desk) -> Process:
    """A function that returns a started connection that hands over, as another process would have."""
    return functools.partial(desk.connect, is_apart=True, hand_over=True)


def test_a_box_is_free_when_no_commit_for_it_is_under_way(
    process: Process, queue: Queue, eventually: Eventually
) -> None:
    """A process that gives up its box says so only when its own last commit has ended: it would undo what others do."""
    here = owner_of(process(), queue, mode=Session.CLIENT_ACKNOWLEDGE)
    with Busy(here):
        there = consume(process(), queue)
        send(here._session._connection, queue, "a", "b")
        assert text(there.receive(WAIT_MS)) in {"a", "b"}
        reader: Any = reader_of(there)
        handover = reader._handover
        eventually(lambda: handover._open)
        box = next(iter(handover._open))
        said: list[list[int]] = []
        send_notice = handover.publish

        def listen(notice: dict[str, Any], *given: Any) -> None:
            said.append(notice.get("boxes", []))
            send_notice(notice, *given)

        handover.publish = listen
        with reader.client.held(20):  # as by a thread that commits
            with reader.lock:
                handover.sure_until = 0.0
                assert not reader.plan([], [])[0]  # it is given up before anything more is committed for it
                assert not handover._open
                handover.speak()
            with reader.lock:
                handover.speak()
            assert len(said) >= 2
            assert all(box in boxes for boxes in said)
        eventually(lambda: not handover._going)
        with reader.lock:
            handover._box = -1
            handover.speak()
        assert box not in said[-1]


def test_a_claim_that_lapses_while_a_box_is_opened_opens_none(
    process: Process, queue: Queue, eventually: Eventually
) -> None:
    """Kafka may keep a process waiting while it opens its box; by then, the box may be another one's."""
    here = owner_of(process(), queue, mode=Session.CLIENT_ACKNOWLEDGE)
    with Busy(here):
        there = consume(process(), queue)
        reader: Any = reader_of(there)
        held: list[bool] = []

        def restore(consumer: Any, wanted: Any, *more: Any) -> Any:
            found = type(reader._holdings).restore(reader._holdings, consumer, wanted, *more)
            if wanted and wanted[0][0] == reader._handover.topic and not held:
                reader._handover.sure_until = 0.0
                held.append(True)
            return found

        reader._holdings.restore = restore
        hold = reader._hold
        opened: list[list[Any]] = []

        def watched(consumer: Any, restored: Any, *more: Any) -> None:
            hold(consumer, restored, *more)
            if restored and restored[0].is_transfer:
                opened.append([partition for partition in restored if partition in reader._holdings])

        reader._hold = watched
        send(here._session._connection, queue, "a", "b")
        assert text(there.receive(WAIT_MS)) in {"a", "b"}  # from the box that it claims next
        eventually(lambda: len(opened) > 1)
        assert opened[0] == []
        assert len(opened[1]) == 1
