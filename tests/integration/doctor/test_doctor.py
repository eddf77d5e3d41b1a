"""``kjms doctor`` on a real Kafka: each state that a fault can leave is found, repaired, and not found any more."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from kjms import ConnectionFactory, Queue, Session, Topic
from kjms.admin import Admin, Finding
from kjms.broker import LocalBroker
from kjms.cli import main
from kjms.mapping.names import (
    BOOKKEEPING,
    REGISTRY,
    delayed,
    handover,
    overflow,
    queue_group,
    subscription_group,
)
from kjms.testing.engine import tuned
from tests.helpers import WAIT_MS, Program, delete_topic, partitions, send, text, topics, wait_for

pytestmark = pytest.mark.xdist_group("doctor")

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "administration.md").read_text("utf-8").partition("## Examine and repair")[2]
SHOWN = PAGE.partition("$ kjms doctor\n")[2].partition("```")[0]
SECONDS = 20.0
QUESTIONS = 2  # that a program which was killed leaves unanswered


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    """A Kafka of these tests' own: what others leave is not theirs to find."""
    with LocalBroker() as broker:
        yield broker


@pytest.fixture
def servers(broker: LocalBroker) -> str:
    """Its address."""
    return broker.bootstrap_servers


@pytest.fixture
def programs(servers: str) -> Iterator[Callable[[], Program]]:
    """Start other processes."""
    started: list[Program] = []

    def start() -> Program:
        started.append(Program(Path(__file__).with_name("other_program.py"), servers))
        return started[-1]

    yield start
    for program in started:
        program.end()


@pytest.fixture
def factory(servers: str) -> ConnectionFactory:
    """What the programs use: an engine of their own, which ends with them, and not with the doctor's."""
    return ConnectionFactory(servers, kafka={"client.id": "programs"})


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    """The doctor, in a process where programs that do not answer are given up after two seconds."""
    tuning = tuned(registry_questions=QUESTIONS, open_transaction_seconds=3.0)
    with tuning, Admin(ConnectionFactory(servers)) as admin:
        yield admin


@pytest.fixture(autouse=True)
def nothing_left(admin: Admin) -> Iterator[None]:
    """Hold that nothing is found before a test, and that all can be repaired that it leaves, such as deleted topics."""
    assert admin.examine() == []
    yield
    for finding in admin.examine():
        admin.repair(finding)
    wait_for(lambda: admin.examine() == [])


def found(admin: Admin, kind: str, subject: str) -> Finding:
    """Return the only finding of *kind* about *subject*."""
    matching: list[Finding] = []

    def look() -> bool:  # members leave a group, and topics leave the list, a moment later
        matching[:] = [each for each in admin.examine() if each.kind == kind and subject in each.subject]
        return bool(matching)

    wait_for(look)
    (finding,) = matching
    return finding


def cured(admin: Admin, kind: str, subject: str) -> Finding:
    """Return what is found of *kind* about *subject*; repair it, and hold that it is not found then."""
    finding = found(admin, kind, subject)
    assert finding.repairable
    admin.repair(finding)
    assert not [each for each in admin.examine() if each.kind == kind and subject in each.subject]
    return finding


def write(servers: str, topic: str, key: bytes, value: bytes | None) -> None:
    """Write a record as any program with the right can."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, value, key, partition=0)
    assert producer.flush(SECONDS) == 0


def make(servers: str, topic: str, **config: object) -> None:
    settings = {name.replace("_", "."): str(value) for name, value in config.items()}
    client = AdminClient({"bootstrap.servers": servers})
    client.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result()
    wait_for(lambda: topic in topics(servers))


def change(servers: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": servers})
    client.incremental_alter_configs([resource])[resource].result()


def consume_one(factory: ConnectionFactory, queue: Queue, body: str) -> None:
    """Send a message, and receive it."""
    with factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        consumer = session.create_consumer(queue)
        send(session, queue, body)
        assert text(consumer.receive(WAIT_MS)) == body


def durable(factory: ConnectionFactory, topic: str, name: str) -> None:
    """Make a durable subscription, and leave it inactive."""
    with factory.create_connection() as connection, connection.create_session() as session:
        session.create_shared_durable_consumer(Topic(topic), name).close()


# A healthy system.


def test_a_live_system_has_no_findings(
    admin: Admin, factory: ConnectionFactory, servers: str, programs: Callable[[], Program]
) -> None:
    """Find nothing where programs consume, wait, have transactions open and temporary destinations; harm none."""
    other = programs()
    inbox = other.do("temporary")
    other.do("shared", "live.prices", "watchers", "live-client")
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer = session.create_consumer(Queue("live.orders"), "kind = 'a'")
        subscriber = session.create_shared_durable_consumer(Topic("live.prices"), "daily")
        reply = session.create_temporary_queue()
        producer = session.create_producer(Queue("live.orders"))
        message = session.create_text_message("one")
        message.set_string_property("kind", "a")
        producer.send(message)
        producer.delivery_delay = 3_600_000
        producer.send(session.create_text_message("later"))
        session.commit()
        assert text(consumer.receive(WAIT_MS)) == "one"  # in flight, and not committed
        assert admin.examine() == []
        session.rollback()
        assert text(consumer.receive(WAIT_MS)) == "one"
        session.commit()
        send(connection, Topic("live.prices"), "5")
        assert text(subscriber.receive(WAIT_MS)) == "5"
        send(connection, reply, "reply")
        session.commit()
        session.create_consumer(reply)
        assert partitions(servers, inbox) == 2
        assert admin.examine() == []
    other.end()
    admin.unsubscribe("daily")
    admin.delete_topic("live.prices")
    admin.delete_queue("live.orders")
    wait_for(lambda: admin.examine() == [])


# Destinations and subscriptions.


def test_what_a_deleted_queue_has_left(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """Delete the topics, the group and the records of a queue whose Kafka topic another tool has deleted."""
    queue = Queue("gone.orders")
    consume_one(factory, queue, "one")
    make(servers, overflow("gone.orders", queue_group("gone.orders")), retention_ms=-1)
    make(servers, "gone.orders2")  # another topic, which begins with its name
    delete_topic(servers, "gone.orders")
    finding = cured(admin, "deleted destination", "gone.orders")
    assert queue_group("gone.orders") in finding.text
    assert not {each for each in topics(servers) if each.startswith("gone.orders.")}
    delete_topic(servers, "gone.orders2")


def test_messages_of_a_deleted_queue_stay(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """Delete no message: where a deleted queue has delayed ones, say how to receive or to delete them."""
    with factory.create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(Queue("half.orders"))
        producer.delivery_delay = 3_600_000
        producer.send(session.create_text_message("later"))
    delete_topic(servers, "half.orders")
    finding = found(admin, "deleted destination", "half.orders")
    assert "1 messages are in it" in finding.text
    assert "kjms queues delete half.orders" in finding.remedy
    with pytest.raises(ValueError, match=r"kjms does not repair deleted destination half\.orders"):
        admin.repair(finding)
    assert delayed("half.orders") in topics(servers)
    admin.delete_queue("half.orders")


def test_a_subscription_without_topic(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """End a durable subscription whose topic was deleted, unless it has an open consumer."""
    durable(factory, "gone.prices", "daily")
    with factory.create_connection() as connection:
        consumer = connection.create_session().create_shared_durable_consumer(Topic("gone.prices"), "daily")
        delete_topic(servers, "gone.prices")
        assert not found(admin, "subscription without topic", "daily").repairable
        consumer.close()
    cured(admin, "subscription without topic", "daily")
    assert "daily" not in {each.name for each in admin.subscriptions(estimate=True)}


def test_a_group_without_subscription(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """Delete the group, and the topics, of a subscription whose definition is gone from the registry."""
    make(servers, "lost.prices")
    durable(factory, "lost.prices", "daily")
    (before,) = admin.subscriptions(estimate=True)
    make(servers, handover("lost.prices", before.group), retention_ms=-1)
    assert admin.examine() == []  # it is defined, so both are its own
    stray = subscription_group("lost.prices", "stray", None, 7)  # its program was killed half-way
    commit_for(servers, stray, "lost.prices")
    make(servers, handover("lost.prices", stray), retention_ms=-1)
    cured(admin, "group without subscription", stray)
    cured(admin, "topic without subscription", handover("lost.prices", stray))
    assert [each.name for each in admin.subscriptions(estimate=True)] == ["daily"]
    admin.unsubscribe("daily")
    delete_topic(servers, "lost.prices")


def commit_for(servers: str, group: str, topic: str) -> None:
    """Commit for a group, as a program does that is killed then."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()


# Programs that were killed.


def test_the_inbox_of_a_killed_program(admin: Admin, servers: str, programs: Callable[[], Program]) -> None:
    """Delete the inbox of a program that was killed, and take its claims away."""
    program = programs()
    inbox = program.do("temporary")
    program.kill()
    cured(admin, "dead inbox", inbox)
    assert inbox not in topics(servers)
    finding = cured(admin, "dead program", "")
    assert inbox in finding.text


def test_a_shared_subscription_of_a_killed_program(admin: Admin, servers: str, programs: Callable[[], Program]) -> None:
    """End a non-durable subscription whose last program was killed, and release its client identifier."""
    make(servers, "killed.prices")
    program = programs()
    program.do("shared", "killed.prices", "watchers", "killed-client")
    program.kill()
    wait_for(lambda: not admin.consumers())  # the group coordinator gives its member up
    finding = found(admin, "dead program", "")
    assert "killed-client" in finding.text
    cured(admin, "ended subscription", "watchers")
    for left in admin.examine():
        admin.repair(left)
    delete_topic(servers, "killed.prices")


def test_delayed_messages_that_no_process_serves(admin: Admin, factory: ConnectionFactory) -> None:
    """Deliver messages that came due while no program was there to deliver them."""
    with factory.create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(Queue("late.orders"))
        producer.delivery_delay = 2_000
        producer.send(session.create_text_message("late"))
    wait_for(lambda: [each for each in admin.examine() if each.kind == "overdue messages"], seconds=60, pause=0.5)
    cured(admin, "overdue messages", "late.orders")
    (message,) = admin.browse("late.orders").messages
    assert message.message.text == "late"
    admin.delete_queue("late.orders")


# Records.


@pytest.mark.parametrize(
    ("topic", "key", "value"),
    [
        (REGISTRY, b"use:forged", b"{"),
        (REGISTRY, b"definition:forged", b'{"version":1,"resource":"x"}'),
        (BOOKKEEPING, b"kjms.queue.any\nany\n0", b"\xff\xfe"),
        (BOOKKEEPING, b"kjms.queue.any\nany\nnone", b"5 "),
    ],
)
def test_a_damaged_record(
    admin: Admin, factory: ConnectionFactory, servers: str, topic: str, key: bytes, value: bytes
) -> None:
    """Take away a record of kjms's own topics that cannot be read."""
    make_own_topics(factory, servers)
    make(servers, "any")
    write(servers, topic, key, value)
    finding = cured(admin, "damaged record", topic)
    assert "cannot be read" in finding.text
    delete_topic(servers, "any")


def test_a_record_of_a_later_kjms_stays(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """Find no damage in a record that a later version has written."""
    make_own_topics(factory, servers)
    write(servers, REGISTRY, b"use:later", b'{"version":2,"wonder":1}')
    assert admin.examine() == []
    write(servers, REGISTRY, b"use:later", None)


def test_a_copy_without_group(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """Take away copies of settlement whose queue is gone; keep those of a queue that is there."""
    make_own_topics(factory, servers)
    make(servers, "there.orders")
    write(servers, BOOKKEEPING, b"kjms.queue.there.orders\nthere.orders\n0", b"5 ")
    write(servers, BOOKKEEPING, b"kjms.queue.away.orders\naway.orders\n0", b"5 ")
    assert [each.subject for each in admin.examine()] == ["away.orders"]
    cured(admin, "copy without group", "away.orders")
    delete_topic(servers, "there.orders")
    cured(admin, "copy without group", "there.orders")


def make_own_topics(factory: ConnectionFactory, servers: str) -> None:
    """Have kjms make the topics that it keeps for itself."""
    with factory.create_connection() as connection:
        session = connection.create_session()
        session.create_shared_durable_consumer(Topic("own.prices"), "own").close()
        session.unsubscribe("own")
        session.create_consumer(Queue("own.orders")).close()
    with Admin(factory) as admin:
        admin.create_queue("own.new")
        admin.delete_queue("own.new")
    assert {REGISTRY, BOOKKEEPING} <= topics(servers)


# Settings.


def test_settings_that_delete_messages(admin: Admin, servers: str) -> None:
    """Give a queue that kjms made its settings back; leave those of another program's topic to people."""
    admin.create_queue("set.orders")
    change(servers, "set.orders", "retention.ms", "60000")
    finding = cured(admin, "settings that lose messages", "set.orders")
    assert "after 1 minute, received or not" in finding.text
    make(servers, "set.foreign", retention_ms=60_000)
    commit_for(servers, queue_group("set.foreign"), "set.foreign")
    assert not found(admin, "settings that lose messages", "set.foreign").repairable
    change(servers, "set.foreign", "retention.ms", "-1")
    for name in ("set.orders", "set.foreign"):
        admin.delete_queue(name)


def test_the_registry_must_be_compacted(admin: Admin, factory: ConnectionFactory, servers: str) -> None:
    """Have Kafka keep the registry's records, whatever their age."""
    make_own_topics(factory, servers)
    change(servers, REGISTRY, "cleanup.policy", "delete")
    cured(admin, "settings that lose messages", REGISTRY)


def test_a_dead_letter_queue_with_a_lower_limit(admin: Admin, servers: str) -> None:
    """Let a dead-letter queue take the largest messages of its queue."""
    admin.create_queue("big.orders", config={"max.message.bytes": 2_000_000})
    admin.create_queue("big.orders.dlq")
    finding = cured(admin, "small dead-letter queue", "big.orders.dlq")
    assert "2000000" in finding.text
    for name in ("big.orders", "big.orders.dlq"):
        admin.delete_queue(name)


# Transactions.


def test_a_transaction_that_stays_open(admin: Admin, servers: str) -> None:
    """Name the partition and the offset of a transaction that is open for longer than kjms's own."""
    make(servers, "stuck.orders")
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "stuck", "linger.ms": 0})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("stuck.orders", "open", partition=0)
    assert producer.flush(SECONDS) == 0
    finding = found(admin, "hanging transaction", "stuck.orders[0]@0")
    assert "--topic stuck.orders --partition 0 --start-offset 0" in finding.remedy
    producer.abort_transaction(SECONDS)
    delete_topic(servers, "stuck.orders")


# The command.


def test_the_command_says_and_does(servers: str, admin: Admin, capsys: pytest.CaptureFixture[str]) -> None:
    """Report what the page shows, repair with --repair, and say by the exit code whether something is left."""
    where = ("--bootstrap", servers)
    assert main(["doctor", *where]) == 0
    assert capsys.readouterr().out == "Nothing was found: the cluster is as kjms leaves it.\n"
    admin.create_queue("orders")
    change(servers, "orders", "retention.ms", "604800000")
    assert main(["doctor", *where]) == 3
    assert capsys.readouterr().out == SHOWN
    make(servers, "told.foreign", retention_ms=60_000)
    commit_for(servers, queue_group("told.foreign"), "told.foreign")
    assert main(["doctor", "--repair", *where]) == 3
    out = capsys.readouterr().out
    assert "  remedy  set retention.ms=-1, as kjms made the topic (repaired)\n" in out
    assert out.endswith("\n2 found, 1 repaired, 1 left\n")
    assert main(["doctor", "--json", *where]) == 3
    (left,) = json.loads(capsys.readouterr().out)
    assert (left["subject"], left["repairable"], left["state"]) == ("told.foreign", False, "found")
    change(servers, "told.foreign", "retention.ms", "-1")
    for name in ("orders", "told.foreign"):
        admin.delete_queue(name)


def test_the_page_names_each_kind() -> None:
    """The table on the page has a line for each kind of finding that the source has."""
    source = "".join(
        (ROOT / "kjms" / name).read_text("utf-8") for name in ("admin/_examination.py", "engine/admin/leftovers.py")
    )
    kinds = set(re.findall(r"(?:Finding\.of|Leftover)\(\s*\"([a-z -]+)\",", source))
    assert len(kinds) > 10
    assert kinds == set(re.findall(r"^\| ([a-z -]+) \|", PAGE, flags=re.MULTILINE)) - {"takes"}
