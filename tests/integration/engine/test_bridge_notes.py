"""What a bridge notes in Kafka of what it brought: exact, whatever became of the life of the bridge before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kjms import ConnectionFactory, Queue, TextMessage
from kjms.engine import Engine
from kjms.engine.transactions.bridged import Bridged, TooLargeError
from kjms.engine.transactions.plan import Copy
from kjms.errors import JMSException
from kjms.mapping import KafkaRecord, encode
from kjms.testing.engine import engine_of


@pytest.fixture
def engine(kjms_factory: ConnectionFactory) -> Iterator[Engine]:
    with kjms_factory.create_connection() as connection:
        yield engine_of(connection)


def copies(topic: str, *texts: str) -> list[Copy]:
    return [Copy(topic, 0, encode(TextMessage(text))) for text in texts]


def test_a_later_life_knows_what_came_and_ends_the_earlier_one(engine: Engine, kjms_destination_name: str) -> None:
    """A bridge that begins knows the moved ids; the one before writes no more until it begins again itself."""
    topic, _ = engine.topic_of(Queue(kjms_destination_name), engine.options)
    first, second = (Bridged(engine, topic, "bridge", most=3) for _ in range(2))
    first.begin()
    first.write(copies(topic, "a", "b"), ["1", "2"])
    second.begin()
    assert (second.has("1"), second.has("2"), second.has("3")) == (True, True, False)
    with pytest.raises(JMSException):
        first.write(copies(topic, "c"), ["3"])
    with pytest.raises(JMSException):  # it does not begin anew by itself: it would not know what came meanwhile
        first.write(copies(topic, "c"), ["3"])
    second.write(copies(topic, "d", "e"), ["4", "5"])
    first.begin()
    known = [number for number in "12345" if first.has(number)]
    assert known == ["2", "4", "5"]  # the last three are remembered
    other = Bridged(engine, topic, "another bridge")
    other.begin()
    assert not other.has("5")


def test_what_is_too_large_is_told_apart(engine: Engine, kjms_destination_name: str) -> None:
    """A message that can never be written is distinguished from passing failures, and nothing of its batch is there."""
    topic, _ = engine.topic_of(Queue(kjms_destination_name), engine.options)
    bridged = Bridged(engine, topic, "bridge")
    bridged.begin()
    large = Copy(topic, 0, KafkaRecord(None, b"x" * 3_000_000, [], 0))
    with pytest.raises(TooLargeError):
        bridged.write([*copies(topic, "a"), large], ["1", "2"])
    bridged.begin()
    assert not bridged.has("1")
    bridged.write(copies(topic, "a"), ["1"])
    assert bridged.has("1")
