"""Consumer groups of an in-memory Kafka: the assignment, the arguments of callbacks, and which commits are refused."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from kjms.engine.kafka import (
    ConsumerGroupTopicPartitions,
    ConsumerPort,
    NewPartitions,
    TopicPartition,
)
from kjms.testing._groups import share_out
from tests.unit.testing.conftest import error

SECONDS = 20.0


class Member:
    """A consumer that notes the arguments of its callbacks.

    Args:
        does: Whether the callbacks themselves change what is read.
    """

    def __init__(self, consumer: ConsumerPort, topic: str, *, does: bool = True) -> None:
        self.consumer = consumer
        self.heard: list[tuple[str, set[int]]] = []
        self.records: list[tuple[int | None, bytes | None]] = []
        self._does = does
        consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lost)

    def _assign(self, consumer: ConsumerPort, places: list[TopicPartition]) -> None:
        self.heard.append(("assign", {place.partition for place in places}))
        if self._does:
            consumer.incremental_assign([TopicPartition(place.topic, place.partition, 0) for place in places])

    def _revoke(self, consumer: ConsumerPort, places: list[TopicPartition]) -> None:
        self.heard.append(("revoke", {place.partition for place in places}))
        if self._does:
            consumer.incremental_unassign(places)

    def _lost(self, consumer: ConsumerPort, places: list[TopicPartition]) -> None:
        self.heard.append(("lost", {place.partition for place in places}))
        if self._does:
            consumer.incremental_unassign(places)

    def poll(self) -> None:
        """Call what waits to be called, and keep the record that may come with it."""
        message = self.consumer.poll(0.01)
        if message is not None and message.error() is None:
            self.records.append((message.partition(), message.value()))

    @property
    def has(self) -> set[int]:
        """The partitions that it reads."""
        return {place.partition for place in self.consumer.assignment()}


def settle(condition: Callable[[], bool], *members: Member) -> None:
    """Poll until *condition* holds."""
    for _ in range(2_000):
        if condition():
            return
        for member in members:
            member.poll()
    raise AssertionError([(member.has, member.heard) for member in members])


def group() -> str:
    return f"group-{uuid.uuid4().hex}"


@pytest.mark.parametrize("does", [True, False], ids=["callbacks assign", "callbacks do nothing"])
def test_one_member_gets_all(clients: Any, write: Any, does: bool) -> None:
    """What a callback does not do, the client does itself."""
    topic = clients.topic(3)
    write(topic, b"x", partition=2)
    member = Member(clients.consumer(group()), topic, does=does)
    settle(lambda: member.has == {0, 1, 2}, member)
    assert member.heard == [("assign", {0, 1, 2})]
    assert member.consumer.memberid()
    settle(lambda: member.records == [(2, b"x")], member)


def test_partitions_move_to_a_second_member_one_generation_later(clients: Any) -> None:
    """The first keeps half of them throughout; the second gets none before they are given up."""
    topic, name = clients.topic(4), group()
    first = Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == 4, first)
    second = Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == len(second.has) == 2, first, second)
    assert first.has | second.has == {0, 1, 2, 3}
    assert [kind for kind, _ in first.heard[:2]] == ["assign", "revoke"]
    assert first.heard[1] == ("revoke", second.has)
    assert {kind for kind, _ in second.heard} == {"assign"}
    assert [places for _, places in second.heard if places] == [second.has]  # at once, after they were given up


def test_a_member_that_leaves_gives_its_partitions_up(clients: Any) -> None:
    """Unsubscribe revokes in the next polls, and leaves then; the others get the partitions."""
    topic, name = clients.topic(2), group()
    first, second = Member(clients.consumer(name), topic), Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == len(second.has) == 1, first, second)
    had = first.has
    first.consumer.unsubscribe()
    assert first.consumer.memberid()
    settle(lambda: not first.consumer.memberid(), first)
    assert first.heard[-1] == ("revoke", had)
    settle(lambda: second.has == {0, 1}, second)


def test_closing_revokes_and_leaves(clients: Any) -> None:
    """Close runs the callback itself; a second time does nothing."""
    topic, name = clients.topic(2), group()
    first, second = Member(clients.consumer(name), topic), Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == len(second.has) == 1, first, second)
    had = first.has
    first.consumer.close()
    first.consumer.close()
    assert first.heard[-1] == ("revoke", had)
    settle(lambda: second.has == {0, 1}, second)
    with pytest.raises(RuntimeError, match="closed"):
        first.consumer.poll(0)


def test_added_partitions_are_assigned(clients: Any) -> None:
    """A topic that grows is shared out anew."""
    topic = clients.topic(1)
    member = Member(clients.consumer(group()), topic)
    settle(lambda: member.has == {0}, member)
    clients.admin.create_partitions([NewPartitions(topic, 2)], request_timeout=SECONDS)[topic].result()
    settle(lambda: member.has == {0, 1}, member)
    assert ("revoke", {0}) not in member.heard


def test_a_subscribed_topic_that_is_not_there_is_an_event(clients: Any) -> None:
    """The consumer waits for it, and says so."""
    member = Member(clients.consumer(group()), "no-such-topic")
    message = None
    while message is None:
        message = member.consumer.poll(0.1)
    assert message.error().name() == "UNKNOWN_TOPIC_OR_PART"
    assert message.topic() == "no-such-topic"


def test_more_can_be_read_than_the_group_assigns(clients: Any, write: Any) -> None:
    """Partitions of other topics are read beside it; the group knows nothing of them."""
    topic, other = clients.topic(), clients.topic()
    write(other, b"beside")
    member = Member(clients.consumer(group()), topic)
    settle(lambda: member.has == {0}, member)
    beside = TopicPartition(other, 0, 0)
    member.consumer.incremental_assign([beside])
    message = None
    while message is None or message.error() is not None:
        message = member.consumer.poll(0.1)
    assert (message.topic(), message.value()) == (other, b"beside")
    assert error(lambda: member.consumer.incremental_assign([beside])).name() == "_CONFLICT"
    member.consumer.incremental_unassign([beside])
    assert error(lambda: member.consumer.incremental_unassign([beside])).name() == "_INVALID_ARG"
    assert [place.topic for place in member.consumer.assignment()] == [topic]


def test_a_paused_partition_gives_nothing(clients: Any, write: Any) -> None:
    """The others continue, and it continues from where it was."""
    topic = clients.topic(2)
    consumer = clients.consumer()
    consumer.assign([TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)])
    consumer.pause([TopicPartition(topic, 0)])
    write(topic, b"zero")
    write(topic, b"one", partition=1)

    def next_value() -> bytes | None:
        message = None
        while message is None or message.error() is not None:
            message = consumer.poll(0.1)
        return message.value()

    assert next_value() == b"one"
    consumer.resume([TopicPartition(topic, 0)])
    assert next_value() == b"zero"


def committed(consumer: ConsumerPort, topic: str, partition: int = 0) -> tuple[int, str | None]:
    known = consumer.committed([TopicPartition(topic, partition)], SECONDS)[0]
    return known.offset, known.metadata


def test_a_member_commits_offsets_with_metadata(clients: Any) -> None:
    """Up to 4,095 characters; one that is larger is refused, and the others of that commit are made."""
    topic = clients.topic(2)
    member = Member(clients.consumer(group()), topic)
    settle(lambda: len(member.has) == 2, member)
    commit = member.consumer.commit
    longest = "x" * 4_095
    assert commit(offsets=[TopicPartition(topic, 0, 7, longest)], asynchronous=False)[0].error is None
    assert committed(member.consumer, topic) == (7, longest)
    both = [TopicPartition(topic, 0, 8, "x" * 4_096), TopicPartition(topic, 1, 9)]
    assert error(lambda: commit(offsets=both, asynchronous=False)).name() == "OFFSET_METADATA_TOO_LARGE"
    assert committed(member.consumer, topic) == (7, longest)
    assert committed(member.consumer, topic, 1)[0] == 9
    missing = [TopicPartition("no-such-topic", 0, 1)]
    assert error(lambda: commit(offsets=missing, asynchronous=False)).name() == "UNKNOWN_TOPIC_OR_PART"


def test_only_members_commit_while_there_are_some(clients: Any) -> None:
    """A consumer without membership, and the admin client, commit for a group that has none."""
    topic, name = clients.topic(), group()
    outside = clients.consumer(name)
    place = TopicPartition(topic, 0, 1)
    outside.commit(offsets=[place], asynchronous=False)
    member = Member(clients.consumer(name), topic)
    settle(lambda: member.has == {0}, member)
    refused = error(lambda: outside.commit(offsets=[place], asynchronous=False))
    assert refused.name() == "UNKNOWN_MEMBER_ID"
    wanted = [ConsumerGroupTopicPartitions(name, [place])]
    answer = clients.admin.alter_consumer_group_offsets(wanted, request_timeout=SECONDS)[name].result()
    assert answer.topic_partitions[0].error.name() == "UNKNOWN_MEMBER_ID"
    delete = clients.admin.delete_consumer_groups
    assert error(delete([name], request_timeout=SECONDS)[name].result).name() == "NON_EMPTY_GROUP"
    member.consumer.close()
    answer = clients.admin.alter_consumer_group_offsets(wanted, request_timeout=SECONDS)[name].result()
    assert answer.topic_partitions[0].error is None
    delete([name], request_timeout=SECONDS)[name].result()
    assert error(delete([name], request_timeout=SECONDS)[name].result).name() == "GROUP_ID_NOT_FOUND"


def test_a_transaction_with_a_former_generation_is_refused(clients: Any) -> None:
    """What was known of the group before a rebalance does not commit after it."""
    topic, name = clients.topic(2), group()
    first = Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == 2, first)
    former = first.consumer.consumer_group_metadata()
    second = Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == len(second.has) == 1, first, second)
    producer = clients.producer(f"tx-{name}")
    producer.begin_transaction()
    offsets = [TopicPartition(topic, 0, 1)]
    refused = error(lambda: producer.send_offsets_to_transaction(offsets, former, SECONDS))
    assert (refused.name(), refused.txn_requires_abort()) == ("ILLEGAL_GENERATION", True)
    producer.abort_transaction(SECONDS)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(offsets, first.consumer.consumer_group_metadata(), SECONDS)
    producer.commit_transaction(SECONDS)
    assert committed(first.consumer, topic)[0] == 1


def test_groups_and_their_offsets_are_listed(clients: Any) -> None:
    """A group is there as long as it has members or offsets."""
    topic, name = clients.topic(), group()
    consumer = clients.consumer(name)
    consumer.commit(offsets=[TopicPartition(topic, 0, 4, "meta")], asynchronous=False)
    found = clients.admin.list_consumer_groups(request_timeout=SECONDS).result()
    assert name in {each.group_id for each in found.valid}
    answer = clients.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)], request_timeout=SECONDS)[
        name
    ].result()
    assert [(p.topic, p.partition, p.offset, p.metadata) for p in answer.topic_partitions] == [(topic, 0, 4, "meta")]


def test_a_rebalance_waits_for_a_member_that_does_not_poll(clients: Any) -> None:
    """The one that comes gets nothing before; what the other commits meanwhile is taken."""
    topic, name = clients.topic(2), group()
    first = Member(clients.consumer(name), topic)
    settle(lambda: len(first.has) == 2, first)
    second = Member(clients.consumer(name), topic)
    settle(lambda: ("assign", set()) in second.heard, second)
    for _ in range(20):
        second.consumer.poll(0.01)
    assert second.has == set()
    assert first.heard == [("assign", {0, 1})]
    first.consumer.commit(offsets=[TopicPartition(topic, 0, 1), TopicPartition(topic, 1, 1)], asynchronous=False)
    settle(lambda: len(first.has) == len(second.has) == 1, first, second)
    assert committed(second.consumer, topic)[0] == 1


def test_a_consumer_begins_where_its_group_has_committed(clients: Any, write: Any) -> None:
    """Where a callback says no offset; a partition without one is read from its start."""
    topic, name = clients.topic(2), group()
    for partition in (0, 1):
        write(topic, b"0", b"1", partition=partition)
    clients.consumer(name).commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    member = Member(clients.consumer(name), topic, does=False)
    got: set[tuple[int | None, bytes | None]] = set()
    while len(got) < 3:
        message = member.consumer.poll(0.1)
        if message is not None and message.error() is None:
            got.add((message.partition(), message.value()))
    assert got == {(0, b"1"), (1, b"0"), (1, b"1")}


def test_a_topic_that_is_deleted_is_taken_from_its_readers(clients: Any) -> None:
    """Its offsets are forgotten with it, so that a new topic of that name begins anew."""
    topic, name = clients.topic(), group()
    member = Member(clients.consumer(name), topic)
    settle(lambda: member.has == {0}, member)
    member.consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
    delete = clients.admin.delete_topics([topic], operation_timeout=SECONDS, request_timeout=SECONDS)
    delete[topic].result()
    settle(lambda: member.has == set(), member)
    assert member.heard[1] == ("lost", {0})
    assert committed(member.consumer, topic)[0] == -1001


@pytest.mark.parametrize("members", [1, 2, 3, 5])
@pytest.mark.parametrize("partitions", [0, 1, 4, 7])
def test_partitions_are_shared_evenly_and_stay(members: int, partitions: int) -> None:
    """Shares differ by one at the most; no member gives up more than it has above its share."""
    names = [f"m{number}" for number in range(members)]
    topics = {name: frozenset({"t"}) for name in names}
    first = share_out(topics, {"t": partitions}, {})
    assert sorted(place for share in first.values() for place in share) == [("t", n) for n in range(partitions)]
    more = {**topics, "new": frozenset({"t"})}
    second = share_out(more, {"t": partitions}, first)
    sizes = [len(share) for share in second.values()]
    assert sum(sizes) == partitions
    assert max(sizes) - min(sizes) <= 1
    assert all(second[name] <= first[name] for name in names)
    others = share_out(topics, {"t": partitions, "u": 3}, first)
    assert others == first
