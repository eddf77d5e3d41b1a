"""Hold the gates of the architecture: circles, entry points, pure packages, and the walk of a message.

`EXCEPTIONS` lists what is still above a gate, with today's number. A number may only fall: lower it, or take the line
out, with the change that makes it better.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

import pytest

from kjms import ConnectionFactory, Queue, SessionMode
from kjms.testing import MemoryKafka
from tests import architecture

pytestmark = pytest.mark.xdist_group("source")  # one process reads the source, once

MOST_CALLS: Final = 15
SLACK: Final = 1.1  # an entry of the list may be so much above the number of today

DOORS = {"kjms.engine", "kjms.engine.kafka", "kjms.engine.statistics", "kjms.engine.tuning"}
PURE = (
    "kjms",
    "kjms.mapping",
    "kjms.mapping.amqp",
    "kjms.message",
    "kjms.options",
    "kjms.selector",
    "kjms.txn.delivery_states",
    "kjms.txn.states",
    "kjms.engine.consumer.batches",
    "kjms.engine.consumer.delayed_messages",
    "kjms.engine.consumer.dispatcher",
    "kjms.engine.consumer.eviction",
    "kjms.engine.consumer.message_groups",
    "kjms.engine.consumer.peer_sharing",
    "kjms.engine.consumer.selector_queue",
    "kjms.engine.delayed.periodic",
    "kjms.engine.handover.demand",
    "kjms.engine.handover.peers",
)
INPUT_AND_OUTPUT = {"confluent_kafka", "proton", "pyspark", "socket"}

EXCEPTIONS: dict[str, dict[str, int]] = {
    "modules of a package in circles": {},
    "imports past the doors of the engine": {},
    "uses of another object's engine": {},
    "clients and sockets that a pure package loads": {},
    "calls for a message": {
        "AUTO_ACKNOWLEDGE": 47,
    },
}
"""Rule -> name -> today's number, where it is above the gate."""


def modules_in_circles() -> dict[str, int]:
    """Return how many modules of each package import each other."""
    return Counter(
        architecture.package_of(module) for circle in architecture.circles(architecture.graph()) for module in circle
    )


def imports_past_doors() -> dict[str, int]:
    """Return how many modules inside the engine each package outside imports, counted for each importing module."""
    return Counter(
        architecture.package_of(module)
        for module, imported in architecture.graph().items()
        for each in imported
        if not module.startswith("kjms.engine") and each.startswith("kjms.engine") and each not in DOORS
    )


def uses_of_engines() -> dict[str, int]:
    """Return how often each package outside of the engine and the client takes ``_engine`` of another object."""
    return Counter(
        architecture.package_of(module)
        for module, tree in architecture.modules().items()
        for _ in architecture.taken(tree, "_engine")
        if architecture.package_of(module) not in {"engine", "client"}
    )


@cache
def loaded_by_pure_packages() -> dict[str, int]:
    """Return how much of Kafka, Spark, AMQP and sockets each pure package loads, in a Python of its own."""
    return {package: len(loaded(package) & INPUT_AND_OUTPUT) for package in PURE}


def loaded(package: str) -> set[str]:
    code = f"import sys; before = set(sys.modules); import {package}; print(*(set(sys.modules) - before))"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.fixture(scope="module")
def calls_for_a_message() -> dict[str, int]:
    """How many functions of kjms run for one message that is received, in all threads, by acknowledge mode."""
    return {
        mode.name: walk(mode)
        for mode in (SessionMode.AUTO_ACKNOWLEDGE, SessionMode.DUPS_OK_ACKNOWLEDGE, SessionMode.CLIENT_ACKNOWLEDGE)
    }


def walk(mode: SessionMode, messages: int = 2_000) -> int:
    """Receive and settle *messages*; return how many calls each takes, without those of the Kafka itself.

    A function counts as often as it runs for each message, rounded: what runs for a batch, at a tick, or when a
    consumer starts and closes, does not depend on a message.
    """
    root = str(architecture.ROOT / "kjms") + "/"
    testing = root + "testing/"
    calls: list[CodeType] = []  # appending is one step, whichever thread does it

    def profile(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(root) and not name.startswith(testing):
            calls.append(frame.f_code)

    queue = Queue("walk")
    with MemoryKafka() as kafka:
        factory = ConnectionFactory(kafka.bootstrap_servers)
        with factory.create_context() as context:
            producer = context.create_producer()
            for number in range(messages):
                producer.send(queue, str(number))
            threading.setprofile(profile)  # for threads that start from here on, as the consumer's does
            sys.setprofile(profile)
            try:
                with factory.create_context(mode) as receiving:
                    consumer = receiving.create_consumer(queue)
                    for number in range(messages):
                        message = consumer.receive(10_000)
                        assert message is not None
                        if mode == SessionMode.CLIENT_ACKNOWLEDGE and number % 50 == 49:
                            message.acknowledge()
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return sum(round(count / messages) for count in Counter(calls).values())


RULES: dict[str, tuple[int, Callable[[], dict[str, int]]]] = {
    "modules of a package in circles": (0, modules_in_circles),
    "imports past the doors of the engine": (0, imports_past_doors),
    "uses of another object's engine": (0, uses_of_engines),
    "clients and sockets that a pure package loads": (0, loaded_by_pure_packages),
}


def worse(rule: str, most: int, found: dict[str, int]) -> Iterator[str]:
    """Return what of *found* is above the gate of *rule*, *most*, and above what the list allows."""
    for name, number in sorted(found.items()):
        allowed = EXCEPTIONS[rule].get(name, most)
        if number > allowed:
            yield f"{rule}: {name} has {number}, allowed are {allowed}"


def loose(rule: str, most: int, found: dict[str, int]) -> Iterator[str]:
    """Return which entries of *rule* in the list are no longer needed, or could be lower by more than the slack."""
    for name, listed in EXCEPTIONS[rule].items():
        number = found.get(name, 0)
        if number <= most:
            yield f"{rule}: take {name} out of the list: it has {number}, allowed are {most}"
        elif listed > number * SLACK:
            yield f"{rule}: lower {name} in the list to {number}"


@pytest.mark.parametrize("rule", RULES)
def test_gates(rule: str) -> None:
    """Nothing is above a gate, or above its number in the list."""
    most, measure = RULES[rule]
    assert not list(worse(rule, most, measure()))


def test_the_walk_of_a_message(calls_for_a_message: dict[str, int]) -> None:
    """A message takes few calls from receive() to its settlement, in all threads together."""
    assert not list(worse("calls for a message", MOST_CALLS, calls_for_a_message))


def test_the_list_of_exceptions_is_tight(calls_for_a_message: dict[str, int]) -> None:
    """Each entry of the list is needed, and at most a tenth above the number of today."""
    found = [line for rule, (most, measure) in RULES.items() for line in loose(rule, most, measure())]
    assert not [*found, *loose("calls for a message", MOST_CALLS, calls_for_a_message)]


def test_gates_see_what_is_worse() -> None:
    """A number above the gate, and one above the list, fail; one that became better makes the list loose."""
    rule, listed = "calls for a message", "AUTO_ACKNOWLEDGE"
    allowed = EXCEPTIONS[rule][listed]
    assert list(worse(rule, MOST_CALLS, {"NEW": MOST_CALLS + 1, listed: allowed + 1})) == [
        f"{rule}: {listed} has {allowed + 1}, allowed are {allowed}",
        f"{rule}: NEW has {MOST_CALLS + 1}, allowed are {MOST_CALLS}",
    ]
    assert not list(worse(rule, MOST_CALLS, {"NEW": MOST_CALLS, listed: allowed}))
    assert len(list(loose(rule, MOST_CALLS, {}))) == len(EXCEPTIONS[rule])


def test_every_public_name_is_there() -> None:
    """All that ``kjms.__all__`` names can be imported."""
    import kjms

    assert [name for name in kjms.__all__ if getattr(kjms, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        kjms.no_such_name  # noqa: B018


def test_every_name_at_the_door_is_there() -> None:
    """All that the engine's package names is loaded on first use."""
    import kjms.engine

    assert [name for name in kjms.engine.__all__ if getattr(kjms.engine, name, None) is None] == []
    with pytest.raises(AttributeError, match="no_such_name"):
        kjms.engine.no_such_name  # noqa: B018


@pytest.mark.parametrize("page", architecture.PAGES)
def test_pictures_are_those_of_the_source(page: str) -> None:
    """What a page shows of packages, states and threads is what the source says."""
    text = (architecture.ROOT / page).read_text("utf-8")
    assert text == architecture.drawn(page), "draw it anew: python tests/architecture.py --write"


def test_the_page_names_the_threads() -> None:
    """Each thread that the engine, the client, the gateway or the bridge starts is in the table of threads."""
    page = (architecture.ROOT / "docs" / "architecture.md").read_text("utf-8")
    started = {
        name
        for module, tree in architecture.modules().items()
        if architecture.package_of(module) in {"bridge", "client", "engine", "gateway"}
        for name in architecture.names_of_threads(tree)
    }
    assert started
    assert sorted(name for name in started if f"`{name}`" not in page) == []


def test_the_glossary_has_each_term_once() -> None:
    """No term stands twice in the glossary, and its terms are sorted."""
    page = (architecture.ROOT / "docs" / "glossary.md").read_text("utf-8")
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", page, flags=re.MULTILINE)
    assert len(terms) > 20
    assert terms == sorted(set(terms), key=str.lower)
