"""What JMS says of connections, on a real Kafka: starting and stopping, identity, and what is made of them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kjms import (
    Connection,
    ConnectionFactory,
    JMSSecurityException,
    Message,
    Queue,
)
from kjms.broker import LocalBroker
from kjms.client.session_core import SessionCore
from tests.helpers import NOTHING_MS, WAIT_MS, Eventually, send


@pytest.mark.requirement("NEV-147", "NET-65")
def test_a_connection_is_an_open_socket(kjms_broker: Any, eventually: Eventually) -> None:
    """While a connection is open, so is a socket of its own to the broker, whether or not anything was done with it."""
    ports = {int(server.rpartition(":")[2]) for server in kjms_broker.bootstrap_servers.split(",")}

    def sockets() -> set[int]:
        return {
            socket.laddr.port
            for socket in psutil.Process().net_connections("tcp")
            if socket.status == psutil.CONN_ESTABLISHED and socket.raddr.port in ports
        }

    before = sockets()
    with ConnectionFactory(kjms_broker.bootstrap_servers, send_timeout=12_345).create_connection():
        eventually(lambda: sockets() - before)
        own = sockets() - before
    eventually(lambda: not sockets() & own)


@pytest.mark.requirement(
    "JMS-4.3.1-1", "JMS-4.3.1-2", "JMS-7.3-5", "JMS-7.3-6", "JMS-B.4.4-1", "NEV-316", "NET-41", "NET-42",
)  # fmt: skip
def test_who_connects_is_checked_when_the_connection_is_made(
    users_broker: LocalBroker, bob: dict[str, str], queue: Queue
) -> None:
    """User and password may be given with it, and are refused with it; without, the factory's identity counts."""
    admin = AdminClient({"bootstrap.servers": users_broker.listeners["PLAINTEXT"]})
    may = ("User:bob", "*", AclOperation.IDEMPOTENT_WRITE, AclPermissionType.ALLOW)  # and nothing to any topic
    rule = AclBinding(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, *may)
    admin.create_acls([rule])[rule].result(20)
    factory = ConnectionFactory(users_broker.bootstrap_servers, kafka=bob, send_timeout=2_000)
    with factory.create_connection("ann", "pa55word") as connection:
        assert isinstance(connection, Connection)
        connection.create_session().create_producer(queue)
    with factory.create_connection() as connection, pytest.raises(JMSSecurityException):
        connection.create_session().create_producer(queue)  # bob is known, and may not
    with pytest.raises(JMSSecurityException, match="uthentication"):
        factory.create_connection("ann", "wrong")


@pytest.mark.requirement("NEV-166", "JMS-4.3.4-6")
def test_stop_waits_for_a_message_that_is_on_its_way(
    kjms_factory: ConnectionFactory, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When stop has returned, no receive that was under way returns with a message until the connection is started."""
    taken, may_go = threading.Event(), threading.Event()
    with kjms_factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        send(session, queue, "a", time_to_live=600_000)  # what may expire is looked at before it is returned
        checked = SessionCore.checked

        def slow(self: SessionCore, *arguments: Any) -> Message | None:
            taken.set()
            may_go.wait(20)
            return checked(self, *arguments)

        monkeypatch.setattr(SessionCore, "checked", slow)
        consumer = session.create_consumer(queue)
        with ThreadPoolExecutor(2) as pool:
            receiving = pool.submit(consumer.receive, WAIT_MS)
            assert taken.wait(20)
            stopping = pool.submit(connection.stop)
            with pytest.raises(FutureTimeout):
                stopping.result(0.1)
            may_go.set()
            stopping.result(20)
            assert receiving.result(20) is not None
        send(session, queue, "b")
        assert consumer.receive(NOTHING_MS) is None
        connection.start()
        assert consumer.receive(WAIT_MS) is not None
