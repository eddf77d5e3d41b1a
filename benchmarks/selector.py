"""Workloads that select: a compiled selector beside the Python function that a programmer would write in its place."""

from __future__ import annotations

from collections.abc import Callable

from kjms import Message, Queue, TextMessage
from kjms.bench._stage import Stage
from kjms.bench._workload import Clock, Unit, per_call, workload
from kjms.mapping import KafkaRecord, decode, encode
from kjms.selector import Selector, parse_selector
from kjms.selector._parser import parse

SELECTOR = "region = 'EU' AND amount > 100 AND name LIKE 'A%'"

# What the conditions are asked of: all hold, the first does not, the last does not.
VALUES = [("EU", 101, "Ada"), ("US", 101, "Ada"), ("EU", 500, "Bob")]


def by_hand(message: Message) -> bool:
    """Do what the selector does, with its rules for values of another type or none."""
    value = message.selector_value
    if value("region") != "EU":
        return False
    amount = value("amount")
    if not isinstance(amount, (int, float)) or isinstance(amount, bool) or amount <= 100:
        return False
    name = value("name")
    return isinstance(name, str) and name.startswith("A")


def trusting(message: Message) -> bool:
    """Do what the selector does, as long as all messages have all properties, and of the right types."""
    value = message.selector_value
    return value("region") == "EU" and value("amount") > 100 and value("name").startswith("A")  # type: ignore


class Source:
    """A record as a Kafka consumer gives it."""

    def __init__(self, record: KafkaRecord) -> None:
        self.record = record

    def value(self) -> bytes | None:
        """Return the value."""
        return self.record.value

    def key(self) -> bytes | None:
        """Return the key."""
        return self.record.key

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Return the headers."""
        return list(self.record.headers)

    def timestamp(self) -> tuple[int, int]:
        """Return kind and milliseconds."""
        return 1, self.record.timestamp

    def topic(self) -> str:
        """Return the topic."""
        return "orders"

    def partition(self) -> int:
        """Return the partition."""
        return 0

    def offset(self) -> int:
        """Return the offset."""
        return 0


def _received(count: int) -> list[Message]:
    """Return so many messages of which nothing has been read yet."""
    sources = []
    for region, amount, name in VALUES:
        message = TextMessage("x" * 200)
        message.set_string_property("region", region)
        message.set_int_property("amount", amount)
        message.set_string_property("name", name)
        message.set_double_property("price", 12.5)
        sources.append(Source(encode(message)))
    return [decode(sources[number % len(sources)], Queue("orders")) for number in range(count)]


def _per_message(predicate: Callable[[Message], bool], messages: list[Message]) -> float:
    with Clock() as clock:
        found = sum(map(predicate, messages))
    if found != len(range(0, len(messages), len(VALUES))):
        raise RuntimeError("the predicate did not select what it should")
    return clock.seconds / len(messages) * 1e6


def _selector() -> Selector:
    selector = parse_selector(SELECTOR)
    assert selector is not None
    return selector


unread = workload("select", "three conditions, on messages just received", Unit.MICROSECONDS, needs_broker=False)


@unread.side("kjms")
def _(stage: Stage) -> float:
    return _per_message(_selector().matches, _received(stage.count))


@unread.side("by hand")
def _(stage: Stage) -> float:
    return _per_message(by_hand, _received(stage.count))


@unread.side("by hand, trusting the types", is_baseline=False)
def _(stage: Stage) -> float:
    return _per_message(trusting, _received(stage.count))


def _read_before(count: int) -> list[Message]:
    messages = _received(count)
    for message in messages:
        by_hand(message)
    return messages


read = workload("select-again", "the same, on messages read before", Unit.MICROSECONDS, needs_broker=False)


@read.side("kjms")
def _(stage: Stage) -> float:
    return _per_message(_selector().matches, _read_before(stage.count))


@read.side("by hand")
def _(stage: Stage) -> float:
    return _per_message(by_hand, _read_before(stage.count))


@read.side("by hand, trusting the types", is_baseline=False)
def _(stage: Stage) -> float:
    return _per_message(trusting, _read_before(stage.count))


parsing = workload("parse", "parse and compile that selector", Unit.MICROSECONDS, share=0.02, needs_broker=False)


@parsing.side("kjms")
def _(stage: Stage) -> float:
    return per_call(lambda: Selector(SELECTOR, parse(SELECTOR)).matches, stage.count)
