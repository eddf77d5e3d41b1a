"""A member of a group on Kafka that is closed while it joins."""

from __future__ import annotations

import threading

from kjms import ConnectionFactory, Queue
from kjms.engine.consumer.membership import Membership
from kjms.engine.kafka import ConsumerPort, TopicPartition, open_consumer
from tests.helpers import send, wait_for
from tests.kafka_proxy import JOIN_GROUP, LEAVE_GROUP, KafkaProxy


def test_a_consumer_that_is_closed_before_it_knows_its_member_id_leaves_the_group(queue: Queue) -> None:
    """The broker would wait for that member in every rebalance, until the session time-out."""

    def follow(_consumer: ConsumerPort, _partitions: list[TopicPartition]) -> None:
        """Nothing is to be done."""

    with KafkaProxy() as proxy:
        with ConnectionFactory(proxy.bootstrap_servers, replication_factor=1).create_connection() as connection:
            send(connection, queue, "a")
        membership = Membership()
        consumer = open_consumer({"bootstrap.servers": proxy.bootstrap_servers, "group.id": queue.queue_name})
        before = proxy.requests[LEAVE_GROUP]
        proxy.hold(JOIN_GROUP)
        membership.subscribe(consumer, queue.queue_name, on_assign=follow, on_revoke=follow, on_lost=follow)
        wait_for(lambda: (membership.poll(consumer, 0.01), proxy.held)[1])
        closing = threading.Thread(target=membership.close, args=(consumer,))
        closing.start()
        closing.join(0.5)  # one that forgets the request has ended by then
        proxy.release()
        closing.join()
        assert proxy.requests[LEAVE_GROUP] == before + 1
