"""What the relocator does with messages that cannot be relocated: they wait, and hold nothing up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kjms import Queue
from kjms.engine.admin.topics import WantedTopic
from kjms.engine.transactions.plan import DeadLetterMove, Move
from kjms.engine.transactions.relocator import Relocator
from kjms.errors import JMSException
from kjms.mapping.dead_letters import Cause
from tests.helpers import WAIT_SECONDS
from tests.unit.engine.records import Record

REFUSED = WantedTopic(Queue("refused"), "", "", True, 1, None)
TAKES_A_MEGABYTE = WantedTopic(Queue("small"), "", "", True, 1, None)


class Message:
    """A message with a body of so many bytes."""

    def __init__(self, size: int) -> None:
        self.record = Sized(size)


class Sized(Record):
    """A record with a body of so many bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(0)
        self.size = size

    def value(self) -> bytes:
        return b"x" * self.size


class Settler:
    """A group consumer whose messages are all held."""

    def still_held(self, moves: Iterable[Move[Any]]) -> list[Move[Any]]:
        return list(moves)


def ensure(wanted: WantedTopic) -> tuple[str, int]:
    if wanted is REFUSED:
        raise JMSException("no topic can be called so")
    return wanted.topic, 1


def move(target: WantedTopic, size: int = 10) -> DeadLetterMove[Any]:
    return DeadLetterMove(Message(size), Cause("delivered 1 time", "queue://orders", 1), target)


def returns(call: Callable[..., None], *arguments: Any) -> bool:
    """Return whether *call* returns, long before the hour that it may take."""
    thread = threading.Thread(target=call, args=arguments, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    return not thread.is_alive()


@pytest.fixture
def heard() -> list[JMSException]:
    """What the relocator reports."""
    return []


@pytest.fixture
def relocator(heard: list[JMSException]) -> Relocator:
    """A relocator that asks for topics, and has no Kafka."""
    return Relocator({}, "any", ensure, lambda _: 1_000_000, heard.append, lambda _: True)


@pytest.mark.parametrize("target", [REFUSED, TAKES_A_MEGABYTE], ids=["no topic", "too large"])
def test_neither_leaving_nor_closing_waits_for_what_cannot_be_relocated(
    relocator: Relocator, heard: list[JMSException], target: WantedTopic
) -> None:
    """They have an hour, and return; it is still there, and was reported once."""
    settler: Any = Settler()
    relocator.submit(settler, [move(target, 2_000_000), move(target, 2_000_000)])
    assert returns(relocator.finish, settler, 3600)
    assert relocator.moving(settler) == 2
    assert returns(relocator.close, 3600)
    assert len(heard) == 1


def test_what_has_not_been_tried_is_waited_for(heard: list[JMSException]) -> None:
    """Closing lets each message be tried once."""
    asked, may_answer = threading.Event(), threading.Event()

    def ensure(_: WantedTopic) -> tuple[str, int]:
        asked.set()
        may_answer.wait(20)
        raise JMSException("no topic can be called so")

    relocator, settler = Relocator({}, "any", ensure, lambda _: None, heard.append, lambda _: True), Settler()
    relocator.submit(settler, [move(REFUSED)])  # type: ignore[arg-type]
    assert asked.wait(20)
    closing = threading.Thread(target=relocator.close, args=(3600,))
    closing.start()
    assert heard == []
    may_answer.set()
    closing.join(20)
    assert not closing.is_alive()
    assert len(heard) == 1
