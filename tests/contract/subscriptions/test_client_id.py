"""One connection at a time has a client identifier."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import pytest

from kjms import ConnectionFactory, InvalidClientIDException


@pytest.mark.requirement("JMS-4.3.2-4", "JMS-4.3.2-6", "NEV-149", "NEV-154", "NEV-317", "NET-22", "NET-68")
def test_a_client_id_in_use_is_refused_and_free_after(desk: Any, kafka: Any, kjms_factory: ConnectionFactory) -> None:
    """A second connection does not get it, by factory or by itself, until the first is closed."""
    factory = ConnectionFactory(kafka.bootstrap_servers, client_id=desk.client)
    with factory.create_connection() as first:
        assert first.client_id == desk.client
        with pytest.raises(InvalidClientIDException, match="in use"):
            factory.create_connection()
        second = desk.connect()
        with kjms_factory.create_connection() as third:
            with pytest.raises(InvalidClientIDException, match="in use"):
                third.client_id = desk.client
            third.client_id = desk.client + "-3"  # a refusal changes nothing
        second.close()
    with factory.create_connection() as again:
        assert again.client_id == desk.client


def test_an_engine_of_other_settings_is_no_way_around(desk: Any, kafka: Any) -> None:
    """A connection with Kafka clients of its own is refused, too: what counts stands in Kafka."""
    other = ConnectionFactory(kafka.bootstrap_servers, send_timeout=20_000)
    desk.connect(desk.client)
    with other.create_connection() as connection, pytest.raises(InvalidClientIDException, match="in use"):
        connection.client_id = desk.client


def test_hundreds_of_connections_share_one_registry_thread(desk: Any, kafka: Any) -> None:
    """The registry costs the process one thread, however many connections have client identifiers."""
    others = {thread for thread in threading.enumerate() if thread.name == "kjms-registry"}
    factory = ConnectionFactory(kafka.bootstrap_servers, kafka={"client.id": desk.client})  # an engine of its own
    with contextlib.ExitStack() as stack:
        for number in range(30):
            stack.enter_context(factory.create_connection()).client_id = f"{desk.client}-{number}"
        mine = {thread for thread in threading.enumerate() if thread.name == "kjms-registry"} - others
        assert len(mine) == 1
