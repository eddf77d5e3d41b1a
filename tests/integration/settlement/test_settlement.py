"""Each message is settled on its own, and stays so: after crashes, rebalances, and other incidents of a group."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kjms import (
    Connection,
    DeliveryMode,
    JMSException,
    Message,
    Queue,
    RedeliveryPolicy,
    Session,
)
from kjms.mapping.names import BOOKKEEPING, overflow, queue_group
from kjms.testing.engine import tuned
from kjms.txn.metadata import read_state
from tests.helpers import (
    NOTHING_MS,
    SHORT_SESSION,
    WAIT_MS,
    Completions,
    Eventually,
    apart,
    delete_topic,
    drain,
    members,
    running,
    seen,
    send,
    text,
    texts_of,
)


def offsets(broker: Any, queue: Queue) -> dict[str, tuple[int, str]]:
    """Return what the queue's group has committed for partition 0 of each of its topics."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    group = queue_group(queue.queue_name)
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result()
    return {p.topic: (p.offset, p.metadata or "") for p in answer.topic_partitions if p.partition == 0}


OPEN = """
connection = factory.create_connection()
connection.start()
queue = Queue(name)
"""
HOLD = """
session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
consumer = session.create_consumer(queue)
messages = [consumer.receive(20_000) for _ in range(6)]
for number in (1, 4, 2):
    messages[number].acknowledge()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.requirement(
    "JMS-3.4.7-1", "JMS-3.5.11-3", "JMS-4.4.12-1", "JMS-4.10-2", "JMS-5.7-1", "NEV-43", "NEV-245", "NEV-280"
)
def test_what_was_settled_out_of_order_stays_settled_when_its_process_is_killed(
    kjms_broker: Any, connection: Connection, queue: Queue
) -> None:
    """After kill -9 the unsettled ones come again, marked, and nothing else; what was never delivered is not marked."""
    send(connection, queue, *range(400))
    with running(kjms_broker.bootstrap_servers, OPEN + HOLD, name=queue.queue_name):
        pass
    # Handed over to the killed process while its lease lasts, some would come back later than others.
    with apart(kjms_broker.bootstrap_servers, hand_over=False) as later:
        received = [seen(message) for message in drain(later.create_session().create_consumer(queue), count=397)]
    assert [number for number, _, _ in received] == ["0", "3", "5", *map(str, range(6, 400))]
    assert received[:3] == [("0", True, 2), ("3", True, 2), ("5", True, 2)]
    assert all(entry[1:] == (False, 1) for entry in received[100:])  # beyond the mark


@pytest.mark.requirement("JMS-4.7-3")
def test_a_non_persistent_message_comes_again_after_a_crash(
    kjms_broker: Any, connection: Connection, queue: Queue
) -> None:
    """A NON_PERSISTENT message whose consumer was killed is not lost: it comes again, marked."""
    with connection.create_session() as session:
        session.create_producer(queue).send(session.create_text_message("a"), delivery_mode=DeliveryMode.NON_PERSISTENT)
    program = """
consumer = connection.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue)
assert consumer.receive(20_000).jms_delivery_mode == DeliveryMode.NON_PERSISTENT
print("ready", flush=True)
sys.stdin.read()
"""
    with running(kjms_broker.bootstrap_servers, OPEN + program, name=queue.queue_name):
        pass
    assert [seen(message) for message in drain(connection.create_session().create_consumer(queue))] == [("a", True, 2)]


def test_an_orderly_end_leaves_no_suspicion(kjms_broker: Any, connection: Connection, queue: Queue) -> None:
    """A close records exactly what was delivered: the others come unmarked."""
    send(connection, queue, *range(20))
    with apart(kjms_broker.bootstrap_servers) as first:
        session = first.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        assert [text(consumer.receive(WAIT_MS)) for _ in range(3)] == ["0", "1", "2"]
    received = [seen(message) for message in drain(connection.create_session().create_consumer(queue), count=20)]
    assert received[:4] == [("0", True, 2), ("1", True, 2), ("2", True, 2), ("3", False, 1)]
    assert [number for number, _, _ in received] == [str(number) for number in range(20)]


def test_counts_survive_a_crash(kjms_broker: Any, connection: Connection, queue: Queue) -> None:
    """JMSXDeliveryCount continues where it was, though the process was killed in the middle of a delivery."""
    send(connection, queue, "a")
    program = """
session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
consumer = session.create_consumer(queue)
for _ in range(3):
    consumer.receive(20_000)
    session.recover()
consumer.receive(20_000)
print("ready", flush=True)
sys.stdin.read()
"""
    with running(kjms_broker.bootstrap_servers, OPEN + program, name=queue.queue_name):
        pass
    assert [seen(message) for message in drain(connection.create_session().create_consumer(queue))] == [("a", True, 5)]


@pytest.mark.parametrize("hand_over", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_message_that_kills_its_consumer_ends_in_the_dead_letter_queue_alone(
    kjms_broker: Any, connection: Connection, queue: Queue, hand_over: bool
) -> None:
    """The neighbours that were prefetched with it each time are delivered as if nothing had happened."""
    # With a short session, the next process would hand messages over to the one that was just killed.
    settings = {} if hand_over else SHORT_SESSION
    send(connection, queue, *range(5), "poison", *range(5, 60))
    program = """
policy = RedeliveryPolicy(max_deliveries=2)
connection = ConnectionFactory(sys.argv[1], redelivery=policy, kafka=kafka, hand_over=hand_over).create_connection()
connection.start()
consumer = connection.create_session().create_consumer(queue)
print("ready", flush=True)
got = 0
while (message := consumer.receive(10_000 if not got else 1_500)) is not None:
    got += 1
    if message.text == "poison":
        os.kill(os.getpid(), 9)
    print(message.text, flush=True)
connection.close()
""".replace("sys.argv[1]", repr(kjms_broker.bootstrap_servers))
    delivered: list[str] = []
    for _ in range(6):
        names = {"name": queue.queue_name, "hand_over": hand_over}
        with running(kjms_broker.bootstrap_servers, OPEN + program, kafka=settings, **names) as child:
            delivered += child.communicate(timeout=40)[0].split()
        if child.returncode == 0:
            break
    assert child.returncode == 0
    expected = [str(number) for number in range(60)]
    if hand_over:  # what was handed over to a killed process comes back when its lease has ended
        consumer = connection.create_session().create_consumer(queue)
        while len(delivered) < len(expected):
            delivered.append(text(consumer.receive(WAIT_MS)))
        delivered.sort(key=int)
    assert delivered == expected
    dead = connection.create_session().create_consumer(Queue(f"{queue.queue_name}.dlq"))
    assert texts_of(drain(dead)) == ["poison"]


@pytest.mark.requirement("NEV-256")
def test_a_delayed_redelivery_holds_nothing_up(kjms_broker: Any, queue: Queue) -> None:
    """While a message waits for its next delivery, those behind it are delivered."""
    with apart(kjms_broker.bootstrap_servers, redelivery=RedeliveryPolicy(delay=700, multiplier=2.0)) as connection:
        send(connection, queue, "late", "b", "c")
        order: list[tuple[str, int, float]] = []
        done = {"late": 0}

        def listener(message: Message) -> None:
            name, _, count = seen(message)
            order.append((name, count, time.monotonic()))
            if name == "late" and count < 3:
                raise RuntimeError("not yet")
            done[name] = 1

        consumer = connection.create_session().create_consumer(queue)
        consumer.message_listener = listener
        deadline = time.monotonic() + 20
        while not (done["late"] and len(order) == 5):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert [(name, count) for name, count, _ in order] == [
            ("late", 1), ("b", 1), ("c", 1), ("late", 2), ("late", 3),
        ]  # fmt: skip
        assert order[3][2] - order[0][2] >= 0.7
        assert order[4][2] - order[3][2] >= 1.4


def test_a_delay_survives_a_crash(kjms_broker: Any, connection: Connection, queue: Queue) -> None:
    """A message that waits when its process is killed waits on, elsewhere."""
    send(connection, queue, "late", "b")
    program = f"""
connection = ConnectionFactory({kjms_broker.bootstrap_servers!r},
    redelivery=RedeliveryPolicy(delay=3_600_000), kafka=kafka).create_connection()
connection.start()
session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
consumer = session.create_consumer(queue)
consumer.receive(20_000)
session.recover()
consumer.receive(20_000).acknowledge()
print("ready", flush=True)
sys.stdin.read()
"""
    with running(kjms_broker.bootstrap_servers, OPEN + program, name=queue.queue_name):
        pass
    committed_offset, metadata = offsets(kjms_broker, queue)[queue.queue_name]
    history = read_state(metadata, committed_offset).histories[0]
    assert history.deliveries == 1
    assert history.due > time.time_ns() // 1_000_000 + 3_000_000
    send(connection, queue, "c")
    assert texts_of(drain(connection.create_session().create_consumer(queue))) == ["c"]


@pytest.mark.parametrize("limit", [300, 1_000])
def test_settlement_that_does_not_fit_makes_room_for_itself(
    kjms_broker: Any, connection: Connection, queue: Queue, limit: int
) -> None:
    """However many messages stay unsettled, and wherever: the metadata stays small, and nothing comes twice."""
    count, chance = (1_500, 0.3) if limit < 1_000 else (5_000, 0.2)
    completions = Completions()
    send(connection, queue, *range(count), completion_listener=completions)
    assert completions.failed == []
    picked = random.Random(limit)
    with tuned(metadata_limit=limit), apart(kjms_broker.bootstrap_servers) as holder:
        session = holder.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        kept: list[Message] = []
        done: list[Message] = []
        for _ in range(count):
            message = consumer.receive(WAIT_MS)
            assert message is not None
            (kept if picked.random() < chance else done).append(message)
            if len(done) == 100:
                picked.shuffle(done)
                for one in done:
                    one.acknowledge()
                done.clear()
                sizes = [len(metadata) for _, metadata in offsets(kjms_broker, queue).values()]
                assert max(sizes) <= limit
        for one in done:
            one.acknowledge()
        assert overflow(queue.queue_name, queue_group(queue.queue_name)) in offsets(kjms_broker, queue)
        picked.shuffle(kept)
        half = len(kept) // 2
        for one in kept[:half]:  # relocated, in the session's hands, and acknowledged there
            one.acknowledge()
        left = sorted(int(text(one)) for one in kept[half:])
    received = [seen(message) for message in drain(connection.create_session().create_consumer(queue), count=len(left))]
    assert sorted(int(number) for number, _, _ in received) == left
    assert {entry[1:] for entry in received} == {(True, 2)}
    state = offsets(kjms_broker, queue)
    assert state[queue.queue_name][0] == count


def test_a_rebalance_repeats_nothing_that_was_settled(kjms_broker: Any, queue: Queue) -> None:
    """Members come and go while messages are settled out of order on several partitions."""
    options = {"partitions": 6, "ordering": "none"}
    with apart(kjms_broker.bootstrap_servers, **options) as sender:
        send(sender, queue, *range(600))
        taken: list[str] = []
        repeated: list[tuple[str, bool, int]] = []
        for _ in range(3):
            with (
                apart(kjms_broker.bootstrap_servers, **options) as first,
                apart(kjms_broker.bootstrap_servers, **options) as second,
            ):
                ends = [
                    connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
                    for connection in (first, second)
                ]
                for number in range(160):
                    message = ends[number % 2].receive(WAIT_MS if number < 2 else 200)  # each has its share by then
                    if message is None:
                        continue
                    if message.jms_redelivered:
                        repeated.append(seen(message))
                    if number % 3:
                        try:
                            message.acknowledge()
                            taken.append(text(message))
                        except JMSException:
                            pass  # it is delivered elsewhere
        rest = texts_of(drain(sender.create_session().create_consumer(queue), count=600 - len(taken)))
        assert sorted(map(int, taken + rest)) == list(range(600))
        assert min(count for _, _, count in repeated) >= 2  # what was left unacknowledged came again, and counted


def commit(broker: Any, queue: Queue, offset: int, metadata: str) -> None:
    """Commit as another program would."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": queue_group(queue.queue_name)})
    consumer.commit(offsets=[TopicPartition(queue.queue_name, 0, offset, metadata)], asynchronous=False)
    consumer.close()


@pytest.mark.requirement("JMS-3.4.7-2")
@pytest.mark.parametrize("metadata", ["AgAAAYkQ+", "kjms/1 broken", "kjms/1 - - zAAAA"])
def test_metadata_that_is_not_ours_or_damaged_stops_nobody(
    kjms_broker: Any, connection: Connection, queue: Queue, metadata: str
) -> None:
    """The group continues from its offset; where our own was damaged, messages come marked."""
    send(connection, queue, *range(6))
    commit(kjms_broker, queue, 2, metadata)
    received = [seen(message) for message in drain(connection.create_session().create_consumer(queue), count=4)]
    assert [number for number, _, _ in received] == ["2", "3", "4", "5"]
    assert {is_marked for _, is_marked, _ in received} == {metadata.startswith("kjms")}


def test_a_partition_settled_by_a_later_version_is_left_alone(
    kjms_broker: Any, connection: Connection, queue: Queue, eventually: Eventually
) -> None:
    """The exception listener gets that, and the later version's settlement stays as it is."""
    heard: list[JMSException] = []
    connection.exception_listener = heard.append
    send(connection, queue, "a")
    commit(kjms_broker, queue, 0, "kjms/9 - - what only the future knows")
    consumer = connection.create_session().create_consumer(queue)
    assert consumer.receive(NOTHING_MS) is None
    eventually(lambda: heard)
    assert "version 9" in str(heard[0])
    consumer.close()
    assert offsets(kjms_broker, queue)[queue.queue_name] == (0, "kjms/9 - - what only the future knows")


def test_settlement_of_a_topic_that_was_made_anew_is_forgotten(
    kjms_broker: Any, queue: Queue, eventually: Eventually
) -> None:
    """A new topic of an old name begins at its start: none of its messages is skipped as settled."""
    with apart(kjms_broker.bootstrap_servers) as connection:
        send(connection, queue, *range(50))
        session = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE)
        consumer = session.create_consumer(queue)
        messages = [consumer.receive(WAIT_MS) for _ in range(50)]
        for message in messages[10:]:
            assert message is not None
            message.acknowledge()
    before = offsets(kjms_broker, queue)[queue.queue_name]
    delete_topic(kjms_broker.bootstrap_servers, queue.queue_name)
    with apart(kjms_broker.bootstrap_servers) as connection:
        send(connection, queue, *range(20))
        commit(kjms_broker, queue, *before)  # Kafka may have thrown it away with the topic
        received = [seen(message) for message in drain(connection.create_session().create_consumer(queue), count=20)]
        assert [number for number, _, _ in received] == [str(number) for number in range(20)]


def test_what_kafka_has_forgotten_comes_from_a_copy(kjms_broker: Any, queue: Queue) -> None:
    """After the group's offsets are gone, the queue continues where it was; what comes is marked."""
    with apart(kjms_broker.bootstrap_servers) as connection:
        send(connection, queue, *range(30))
        consumer = connection.create_session(Session.INDIVIDUAL_ACKNOWLEDGE).create_consumer(queue)
        messages = [consumer.receive(WAIT_MS) for _ in range(20)]
        for message in messages[5:]:
            assert message is not None
            message.acknowledge()
    admin = AdminClient({"bootstrap.servers": kjms_broker.bootstrap_servers})
    group = queue_group(queue.queue_name)
    assert BOOKKEEPING in admin.list_topics(timeout=5).topics
    admin.delete_consumer_groups([group])[group].result()
    with apart(kjms_broker.bootstrap_servers) as connection:
        received = [seen(message) for message in drain(connection.create_session().create_consumer(queue), count=15)]
    assert [number for number, _, _ in received] == [*map(str, range(5)), *map(str, range(20, 30))]
    assert all(is_marked for _, is_marked, _ in received)


def test_acknowledging_a_message_of_a_lost_partition_raises(kjms_broker: Any, queue: Queue) -> None:
    """An acknowledgement that comes too late raises that the message is delivered elsewhere."""
    group = queue_group(queue.queue_name)
    with members(kjms_broker.bootstrap_servers) as made, apart(kjms_broker.bootstrap_servers, partitions=1) as first:
        send(first, queue, "a")
        message = first.create_session(Session.CLIENT_ACKNOWLEDGE).create_consumer(queue).receive(WAIT_MS)
        assert message is not None
        made[group][0].lose(queue.queue_name, 0)
        with pytest.raises(JMSException, match="belong to partitions that this"):
            message.acknowledge()
