"""A `LocalBroker` of three nodes: replicas, and nodes that are killed, stopped, paused and started one by one."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from kjms import ConnectionFactory, IllegalStateException, JMSException, Queue, Session
from kjms.broker import LocalBroker
from kjms.mapping.names import BOOKKEEPING
from tests.helpers import WAIT_MS, send, texts, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_topics_have_three_replicas(three_brokers: LocalBroker, queue: Queue) -> None:
    """Those of queues, those of kjms and Kafka's own; a message needs two of them."""
    with ConnectionFactory(three_brokers.bootstrap_servers).create_connection() as connection:
        session = connection.create_session(Session.SESSION_TRANSACTED)
        send(session, queue, "a")
        session.commit()
    admin = AdminClient({"bootstrap.servers": three_brokers.bootstrap_servers})
    topics = admin.list_topics(timeout=20).topics
    for name in (queue.queue_name, BOOKKEEPING, "__consumer_offsets", "__transaction_state"):
        assert {len(each.replicas) for each in topics[name].partitions.values()} == {3}, name
    resource = ConfigResource(ConfigResource.Type.TOPIC, queue.queue_name)
    assert admin.describe_configs([resource])[resource].result(20)["min.insync.replicas"].value == "2"
    assert sorted(admin.list_topics(timeout=20).brokers) == [1, 2, 3] == [*three_brokers.nodes]
    assert "of 3 nodes running" in repr(three_brokers)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_one_node_may_end_and_start_again(cluster: LocalBroker, queue: Queue, end: str) -> None:
    """The others have all messages and take more; the node comes back on its port."""
    addresses = cluster.bootstrap_servers
    patient = ConnectionFactory(addresses, send_timeout=60_000)  # until the killed one's leaderships have moved
    with patient.create_connection() as connection:
        connection.start()
        send(connection, queue, "before")
        getattr(cluster, end)(2)
        assert not cluster.is_running(2)
        assert cluster.is_running()
        assert [cluster.pids[number] is None for number in cluster.nodes] == [False, True, False]
        send(connection, queue, "without")
        cluster.start(2)
        assert cluster.is_running(2)
        assert cluster.bootstrap_servers == addresses
        send(connection, queue, "after")
        with connection.create_session() as session:
            assert texts(session.create_consumer(queue), 3) == ["before", "without", "after"]


def test_a_paused_node_stands_still(cluster: LocalBroker) -> None:
    """It runs, and does nothing, until it is resumed."""
    process = psutil.Process(cluster.pids[3])
    cluster.pause(3)
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED)
    assert cluster.is_running(3)
    cluster.resume(3)
    wait_for(lambda: process.status() != psutil.STATUS_STOPPED)


def test_a_cluster_is_started_again_with_its_data(tmp_path: Path, queue: Queue) -> None:
    """Each node has a directory; another number of nodes is refused; a paused node can be stopped."""
    with LocalBroker(nodes=2, data_dir=tmp_path) as broker:
        with ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
            send(connection, queue, "kept")
        broker.pause(2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node-1", "node-2"]
    with pytest.raises(JMSException, match="is that of 2 nodes, not of 1"):
        LocalBroker(data_dir=tmp_path).start()
    with LocalBroker(nodes=2, data_dir=tmp_path) as broker:
        with ConnectionFactory(broker.bootstrap_servers).create_context() as context:
            assert context.create_consumer(queue).receive_body(str, WAIT_MS) == "kept"
        pids = [*broker.pids.values()]
    assert not any(pid is not None and psutil.pid_exists(pid) for pid in pids)


def test_what_cannot_be_asked_of_several_nodes() -> None:
    """Errors name the value and the rule."""
    with pytest.raises(ValueError, match="nodes is 1 or more, not 0"):
        LocalBroker(nodes=0)
    with pytest.raises(ValueError, match="several nodes cannot share"):
        LocalBroker(nodes=2, config={"listeners": "SSL://127.0.0.1:9443"})
    broker = LocalBroker(nodes=2)
    with pytest.raises(ValueError, match="there is no node 3; the nodes are 1, 2"):
        broker.kill(3)
    with pytest.raises(IllegalStateException, match=r"start\(\) the LocalBroker first"):
        broker.start(2)
    broker.close()
