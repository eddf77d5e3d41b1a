"""Messages of a queue go to consumers that match, in any process: selectors, busy owners, ends of all kinds.

Two connections with different Kafka settings have engines of their own, and so are to each other as processes are.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from kjms import Connection, Message, MessageConsumer, Queue, Session, Topic
from kjms.engine.handover.peers import write_interest
from kjms.engine.kafka import open_producer
from kjms.mapping.names import handover, interest, queue_group
from kjms.testing.engine import consumer_statistics, tuned
from tests.helpers import (
    NOTHING_MS,
    WAIT_MS,
    WAIT_SECONDS,
    Busy,
    Desk,
    Eventually,
    consume,
    owner_of,
    partitions,
    send,
    text,
    texts,
    texts_of,
    wait_for,
)

Process = Callable[..., Connection]


@pytest.fixture
def process(desk: Desk) -> Process:
    """A function that returns a started connection that hands over, as another process would have."""
    return functools.partial(desk.connect, is_apart=True, hand_over=True)


def unhurried(name: str, got: list[tuple[str, str]]) -> Callable[[Message], None]:
    """Return a listener that takes five milliseconds for each message, and notes *name* and the text in *got*."""

    def on_message(message: Message) -> None:
        time.sleep(0.005)
        got.append((name, text(message)))

    return on_message


@pytest.mark.requirement("JMS-5.8-2", "JMS-3.8.1-3")
def test_what_only_a_consumer_elsewhere_wants_goes_there(process: Process, queue: Queue) -> None:
    """A message goes to the consumer whose selector wants it, wherever; being handed over is no delivery."""
    home = process()
    here = owner_of(home, queue, "kind = 'first'")
    assert text(here.receive(WAIT_MS)) == "hello"
    there = consume(process(), queue, "kind = 'second'")
    send(home, queue, "a", "b", "c", properties={"kind": "second"})
    send(home, queue, "d", properties={"kind": "first"})
    for expected in "abc":
        message = there.receive(WAIT_MS)
        assert text(message) == expected
        assert message is not None
        assert not message.jms_redelivered
        assert message.get_int_property("JMSXDeliveryCount") == 1
        assert message.jms_destination == queue
    assert text(here.receive(WAIT_MS)) == "d"
    assert here.receive(NOTHING_MS) is None


def test_a_scattered_backlog_arrives_in_order(process: Process, queue: Queue, eventually: Eventually) -> None:
    """What a peer wants comes in order, also where so much lies among settled messages that it has to be relocated."""
    got: dict[str, list[int]] = {"first": [], "second": []}
    with tuned(most_runs=100):
        home = process()
        consumers = {"first": owner_of(home, queue, "kind = 'first'", Session.DUPS_OK_ACKNOWLEDGE)}
        assert text(consumers["first"].receive(WAIT_MS)) == "hello"
        consumers["second"] = consume(process(), queue, "kind = 'second'", Session.DUPS_OK_ACKNOWLEDGE)
        send(home, queue, "ready", properties={"kind": "second"})
        assert text(consumers["second"].receive(WAIT_MS)) == "ready"
        for kind, consumer in consumers.items():
            consumer.message_listener = lambda message, kind=kind: got[kind].append(int(text(message)))
        with home.create_session(Session.SESSION_TRANSACTED) as session:
            for number in range(3_000):
                send(session, queue, str(number), properties={"kind": ("first", "second")[number % 2]})
            session.commit()
        eventually(lambda: sum(map(len, got.values())) >= 3_000)
    assert got == {"first": [*range(0, 3_000, 2)], "second": [*range(1, 3_000, 2)]}


@pytest.mark.requirement("JMS-5.8-2")
def test_what_nobody_wants_stays_until_somebody_does(process: Process, queue: Queue) -> None:
    """Browsers show messages that match no selector; these go to the first consumer that matches, in order."""
    home = process()
    here = owner_of(home, queue)
    here.close()
    here = consume(home, queue, "kind = 'first'")
    sender = process()
    send(sender, queue, "a", "b", properties={"kind": "second"})
    with sender.create_session() as session, session.create_browser(queue) as browser:
        assert texts_of(browser) == ["a", "b"]
    there = consume(sender, queue)
    assert texts(there, 2) == ["a", "b"]
    assert here.receive(NOTHING_MS) is None


def test_a_busy_owner_shares(process: Process, queue: Queue) -> None:
    """A consumer without a partition gets messages while the owner's consumers are busy, each message once."""
    home = process()
    got: list[tuple[str, str]] = []
    here = owner_of(home, queue)
    there = [consume(process(), queue) for _ in range(2)]
    here.message_listener = unhurried("here", got)
    for number, consumer in enumerate(there):
        consumer.message_listener = unhurried(f"there {number}", got)
    send(home, queue, *map(str, range(600)))
    wait_for(lambda: len(got) >= 600)
    assert sorted(int(body) for _, body in got) == list(range(600))
    assert {name for name, _ in got} == {"here", "there 0", "there 1"}


@pytest.mark.parametrize("prefetch", [1, 1000])
def test_nothing_waits_behind_a_busy_consumer(
    process: Process, queue: Queue, eventually: Eventually, prefetch: int
) -> None:
    """While the owner's listener runs, every ready message reaches an idle consumer elsewhere, down to the last."""
    connection = process(prefetch=prefetch)
    there: MessageConsumer
    with Busy(consume(connection, queue)) as here:
        send(connection, queue, "held")
        eventually(lambda: here.got == ["held"])
        there = consume(process(prefetch=prefetch), queue)
        for count in (5, 1, 1):
            bodies = [str(number) for number in range(count)]
            send(connection, queue, *bodies)
            assert texts(there, count) == bodies
        assert here.got == ["held"]


@pytest.mark.parametrize("prefetch", [1, 1000])
@pytest.mark.parametrize("idle", ["the owner", "a third process"])
def test_nothing_waits_in_a_busy_process_that_was_quick(
    process: Process, queue: Queue, eventually: Eventually, idle: str, prefetch: int
) -> None:
    """What a quick process got in advance, and has no time for, moves to a consumer that has, in any process."""
    connection = process(prefetch=prefetch)
    with Busy(consume(connection, queue)) as here:
        send(connection, queue, "held")
        eventually(lambda: here.got == ["held"])
        with Busy(consume(process(prefetch=prefetch), queue)) as there:
            there.blocks = False
            send(connection, queue, *map(str, range(300)))
            eventually(lambda: len(there.got) == 300)
            third = consume(process(prefetch=prefetch), queue) if idle != "the owner" else None
            there.blocks = True
            send(connection, queue, *map(str, range(300, 340)))
            eventually(lambda: len(there.got) == 301)
            if third is None:
                here.__exit__()
                eventually(lambda: len(here.got) == 40)
                rest = here.got[1:]
            else:
                rest = texts(third, 39)
            assert sorted([*there.got[300:], *rest]) == sorted(map(str, range(300, 340)))
            assert len(there.got) == 301


def test_what_a_closing_process_leaves_goes_to_others(process: Process, queue: Queue, eventually: Eventually) -> None:
    """Messages that were handed over and not consumed are the others' when the process closes its connection."""
    home = process()
    here = owner_of(home, queue, "kind = 'first'")
    other = process()
    there = consume(other, queue, "kind = 'second'", Session.CLIENT_ACKNOWLEDGE)
    send(home, queue, *"ab", properties={"kind": "second"})
    assert texts(there, 2) == ["a", "b"]
    waiting = consume(other, queue, "kind = 'second'")
    assert waiting.receive(NOTHING_MS) is None
    send(home, queue, *"cdef", properties={"kind": "second"})
    eventually(lambda: consumer_statistics(there).ready == 4)
    other.close()
    here.close()
    here = consume(home, queue, "kind = 'second'")
    assert sorted(texts(here, 6)) == list("abcdef")
    assert here.receive(NOTHING_MS) is None


def test_what_a_consumer_leaves_goes_back(process: Process, queue: Queue, eventually: Eventually) -> None:
    """Messages whose consumer closes, while its process lives, go back to where others find them."""
    home = process()
    here = owner_of(home, queue, "kind = 'first'")
    other = process()
    holding = other.create_session(Session.CLIENT_ACKNOWLEDGE)
    there = holding.create_consumer(queue, "kind = 'second'")
    staying = consume(other, queue, "kind = 'third'")
    send(home, queue, "a", properties={"kind": "second"})
    assert text(there.receive(WAIT_MS)) == "a"
    session = other.create_session()
    assert session.create_consumer(queue, "kind = 'second'").receive(NOTHING_MS) is None
    send(home, queue, *"bcdef", properties={"kind": "second"})
    eventually(lambda: consumer_statistics(there).ready == 5)
    session.close()
    holding.close()
    here.close()
    here = consume(home, queue, "kind = 'second'")
    assert sorted(texts(here, 6)) == list("abcdef")
    assert staying.receive(NOTHING_MS) is None


@pytest.mark.requirement("JMS-5.8-2")
@pytest.mark.parametrize("waiting", ["the owner", "a third process"])
def test_what_an_idle_consumer_was_handed_goes_to_one_that_waits(
    process: Process, queue: Queue, eventually: Eventually, waiting: str
) -> None:
    """A consumer that does not receive, in a process whose other consumer waits, holds no message back from others."""
    home = process()
    here = owner_of(home, queue, "kind = 'first'")
    assert text(here.receive(WAIT_MS)) == "hello"
    other = process()
    consume(other, queue, "kind = 'third'").message_listener = lambda message: None
    idle = consume(other, queue, "kind = 'second'")
    send(home, queue, *"abc", properties={"kind": "second"})
    eventually(lambda: consumer_statistics(idle).ready == 3)
    late = consume(home if waiting == "the owner" else process(), queue, "kind = 'second'")
    assert texts(late, 3) == ["a", "b", "c"]
    send(home, queue, "d", properties={"kind": "second"})
    assert text(idle.receive(WAIT_MS)) == "d"


def test_a_consumer_that_asks_from_time_to_time_is_handed_a_message(process: Process, queue: Queue) -> None:
    """Consumers of two processes that look for a message in turn, and do not wait, do not send it to and fro."""
    home = process()
    owner_of(home, queue, "kind = 'first'")
    looking = [consume(process(), queue, "kind = 'second'") for _ in range(2)]
    for consumer in looking:
        assert consumer.receive(NOTHING_MS) is None
    send(home, queue, "a", properties={"kind": "second"})
    found: list[str] = []

    def look() -> bool:
        time.sleep(0.6)  # longer than a message stays with a consumer that asks for nothing, at first
        looking.reverse()
        found.extend(text(each) for each in [looking[0].receive_no_wait()] if each is not None)
        return bool(found)

    wait_for(look)
    assert found == ["a"]


def test_what_is_handed_over_is_part_of_transactions(process: Process, queue: Queue) -> None:
    """A rollback redelivers what was handed over, marked and counted; a commit settles it."""
    home = process()
    owner_of(home, queue, "kind = 'first'")
    other = process()
    session = other.create_session(Session.SESSION_TRANSACTED)
    there = session.create_consumer(queue, "kind = 'second'")
    send(home, queue, "a", "b", properties={"kind": "second"})
    assert texts(there, 2) == ["a", "b"]
    session.rollback()
    again = there.receive(WAIT_MS)
    assert again is not None
    assert (text(again), again.jms_redelivered, again.get_int_property("JMSXDeliveryCount")) == ("a", True, 2)
    assert text(there.receive(WAIT_MS)) == "b"
    session.commit()
    other.close()
    with consume(home, queue, "kind = 'second'") as late:
        assert late.receive(NOTHING_MS) is None


def test_shared_subscriptions_are_shared_among_processes(process: Process, topic: Topic) -> None:
    """The consumers of a shared subscription get each message once, also those without a partition."""
    first, second = process(), process()
    got: list[tuple[str, str]] = []
    for name, connection in (("first", first), ("second", second)):
        consumer = connection.create_session().create_shared_consumer(topic, "shared", "kind = 'wanted'")
        consumer.message_listener = unhurried(name, got)
    send(first, topic, *map(str, range(400)), properties={"kind": "wanted"})
    send(first, topic, "no", properties={"kind": "unwanted"})
    wait_for(lambda: len(got) >= 400)
    assert sorted(int(body) for _, body in got) == list(range(400))
    assert {name for name, _ in got} == {"first", "second"}


def test_a_group_stays_together_elsewhere(process: Process, queue: Queue) -> None:
    """The messages of a group that only other processes want go to one of them, in their order."""
    home = process()
    owner_of(home, queue, "kind = 'first'")
    there = [consume(process(), queue, "kind = 'second'", Session.CLIENT_ACKNOWLEDGE) for _ in range(2)]
    for number in range(20):
        send(
            home,
            queue,
            str(number),
            properties={"kind": "second", "JMSXGroupID": f"group {number % 2}"},
        )
    got: dict[str, list[tuple[int, int]]] = {"group 0": [], "group 1": []}
    deadline = time.monotonic() + 20
    while sum(map(len, got.values())) < 20 and time.monotonic() < deadline:
        for number, consumer in enumerate(there):
            message = consumer.receive(10)
            if message is not None:
                got[message.get_string_property("JMSXGroupID") or ""].append((number, int(text(message))))
    for name, entries in got.items():
        assert [entry for _, entry in entries] == list(range(int(name[-1]), 20, 2))
        assert len({number for number, _ in entries}) == 1


def test_forged_claims_make_no_more_partitions_than_members_need(
    process: Process, queue: Queue, kafka: Any, eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """However much a record claims: the handover topic gets two partitions for each member of the group at the most."""
    home = process()
    owner_of(home, queue, "kind = 'first'")
    others = [consume(process(), queue, "kind = 'second'")]
    send(home, queue, "a", properties={"kind": "second"})
    assert text(others[0].receive(WAIT_MS)) == "a"
    producer = open_producer({"bootstrap.servers": kafka.bootstrap_servers})
    claim = {"lease": 600, "partition": 0, "partitions": [*range(1_000)]}
    producer.produce(interest(queue.queue_name, queue_group(queue.queue_name)), write_interest("forger", claim))
    assert producer.flush(WAIT_SECONDS) == 0
    topic = handover(queue.queue_name, queue_group(queue.queue_name))
    assert partitions(kafka.bootstrap_servers, topic) == 4
    with caplog.at_level(logging.WARNING, "kjms.handover"):
        others += [consume(process(), queue, f"kind = '{kind}'") for kind in ("third", "fourth")]
        for consumer in others[1:]:
            consumer.message_listener = lambda message: None
        eventually(lambda: f"{topic}: other processes claim all 8 partitions" in caplog.text)
    assert partitions(kafka.bootstrap_servers, topic) == 8
