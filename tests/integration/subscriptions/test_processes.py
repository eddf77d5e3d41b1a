"""Subscriptions shared and fought for by several processes, on a real Kafka."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from kjms import IllegalStateException, InvalidClientIDException, JMSException, Topic
from kjms.testing.engine import tuned
from tests.helpers import apart, pause, wait_for

Start = Callable[[], Any]


@pytest.mark.requirement(
    *["JMS-4.3.2-6", "JMS-4.3.2-7", "JMS-6.11.5-1"],
    *["JAK-createDurableConsumer-8", "JAK-createDurableSubscriber-8"],
)
def test_a_client_id_and_its_subscriptions_are_one_processs_at_a_time(desk: Any, programs: Start) -> None:
    """Another process is refused while it is in use, gets it when it is free, and continues where the first stopped."""
    program = programs()
    connection = desk.connect(desk.client)
    consumer = connection.create_session().create_durable_consumer(desk.topic, "daily")
    assert program.do("client", desk.client) == "!InvalidClientIDException"
    desk.send("1", "2")
    assert desk.receive(consumer) == ["1"]
    connection.close()
    assert program.do("client", desk.client) is None
    program.do("start")
    assert program.do("consume", "create_durable_consumer", desk.topic.topic_name, "daily") == 0
    assert program.do("receive", 0, 20_000) == "2"
    with pytest.raises(InvalidClientIDException):
        desk.connect(desk.client)


@pytest.mark.requirement(
    *["JAK-createSharedConsumer-4", "JAK-createSharedConsumer-9", "JAK-createSharedConsumer-7"],
    *["JAK-createSharedDurableConsumer-8", "JMS-6.11.6-1", "JMS-6.11.4-6", "JMS-6.11.4-7", "JMS-6.11.6-8"],
)
@pytest.mark.parametrize("kind", ["create_shared_durable_consumer", "create_shared_consumer"])
def test_consumers_of_other_processes_count(kind: str, desk: Any, programs: Start) -> None:
    """They keep a subscription alive and as it is; a non-durable one ends with the last, in whatever process."""
    program = programs()
    program.do("start")
    session = desk.session()
    consumer = getattr(session, kind)(desk.topic, desk.client)
    assert program.do("consume", kind, desk.topic.topic_name, desk.client, "n = 7") == "!JMSException"
    assert program.do("consume", kind, desk.topic.topic_name, desk.client) == 0
    consumer.close()
    desk.send("1")
    assert program.do("receive", 0, 20_000) == "1"
    with pytest.raises(JMSException, match="selector cannot change"):
        getattr(session, kind)(desk.topic, desk.client, "n = 7")
    if kind == "create_shared_durable_consumer":
        with pytest.raises(IllegalStateException, match="another program"):
            session.unsubscribe(desk.client)
    desk.send("2")
    program.do("close", 0)
    consumer = getattr(session, kind)(desk.topic, desk.client)
    desk.send("3")
    assert desk.receive(consumer) == (["2"] if kind == "create_shared_durable_consumer" else ["3"])


@pytest.mark.requirement("JMS-4.3.2-7", "JMS-6.11.5-1", "JAK-createSharedConsumer-7", "JAK-createSharedConsumer-9")
def test_what_a_killed_process_held_is_free_after_some_seconds(desk: Any, programs: Start) -> None:
    """A restarted program waits, and gets its client id and subscription; a non-durable one of the dead has ended."""
    program = programs()
    program.do("client", desk.client)
    program.do("start")
    name = desk.topic.topic_name
    assert program.do("consume", "create_durable_consumer", name, "daily") == 0
    assert program.do("consume", "create_shared_consumer", name, "passing") == 1
    desk.send("1", "2")
    assert program.do("receive", 0, 20_000) == "1"
    program.process.kill()
    program.process.wait()
    session = desk.session(desk.client)  # waits
    passing = session.create_shared_consumer(desk.topic, "passing", "n = 1")
    desk.send("3")
    assert desk.receive(passing) == ["3"]
    consumer = session.create_durable_consumer(desk.topic, "daily")
    texts = desk.receive(consumer, 2)
    if texts[0] == "1":  # the last message before the end, whose acknowledgement was not durable yet
        texts = texts[1:] + desk.receive(consumer)
    assert texts == ["2", "3"]


@pytest.mark.requirement("JMS-4.3.2-7")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says that a process has ended")
def test_what_a_killed_process_of_this_machine_held_is_free_after_one_question(
    kjms_broker: Any, topic: Topic, programs: Start
) -> None:
    """A restarted program need not wait for all the questions that a process elsewhere could leave unanswered."""
    client = f"client-{topic.topic_name}"
    program = programs()
    program.do("client", client)
    program.do("start")
    assert program.do("consume", "create_durable_consumer", topic.topic_name, "daily") == 0
    program.process.kill()
    program.process.wait()
    began = time.monotonic()
    with tuned(registry_questions=60), apart(kjms_broker.bootstrap_servers, client_id=client) as connection:
        connection.create_session().create_durable_consumer(topic, "daily")
    assert time.monotonic() - began < 30


@pytest.mark.requirement("JMS-4.3.2-7", "JMS-6.11.5-1")
def test_a_process_that_slept_too_long_is_told_what_it_lost(desk: Any, programs: Start) -> None:
    """A process that missed its lease loses its place: its exception listener gets that, its consumer is closed."""
    program = programs()
    program.do("client", desk.client)
    program.do("start")
    assert program.do("consume", "create_durable_consumer", desk.topic.topic_name, "daily") == 0
    pause(program.process.pid)
    try:
        with tuned(registry_questions=2):  # what the sleeping process leaves unanswered, a second each
            consumer = desk.session(desk.client).create_durable_consumer(desk.topic, "daily")
    finally:
        os.kill(program.process.pid, signal.SIGCONT)
    assert {program.do("failure"), program.do("failure")} == {"InvalidClientIDException", "JMSException"}
    wait_for(lambda: program.do("receive", 0, 10) == "!IllegalStateException")  # its consumer is closed
    assert program.do("consume", "create_durable_consumer", desk.topic.topic_name, "x") == "!InvalidClientIDException"
    desk.send("1")
    assert desk.receive(consumer) == ["1"]


@pytest.mark.requirement("JMS-4.3.2-6")
def test_of_several_claimants_at_once_one_wins(desk: Any, programs: Start) -> None:
    """However they race, exactly one process gets a client identifier, and the same again when it is free."""
    rivals = [programs() for _ in range(3)]
    for rival in rivals:
        rival.ask("client", desk.client)
    answers = [rival.answer() for rival in rivals]
    assert sorted(answers, key=str) == ["!InvalidClientIDException"] * 2 + [None]
    rivals.pop(answers.index(None)).end()
    for rival in rivals:
        rival.ask("client", desk.client)
    assert {rival.answer() for rival in rivals} == {"!InvalidClientIDException", None}
