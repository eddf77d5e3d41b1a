"""Starting, stopping and closing: what waits, what is refused, and that nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from kjms import (
    ConnectionFactory,
    JMSException,
)


def test_a_dead_address_is_named_within_the_send_timeout() -> None:
    """Connecting to an address without a server fails in bounded time, and says which address."""
    began = time.monotonic()
    with pytest.raises(JMSException, match=r"127\.0\.0\.1:9.*500 ms"):
        ConnectionFactory("127.0.0.1:9", send_timeout=500).create_connection()
    assert time.monotonic() - began < 10


@pytest.mark.requirement("NEV-175")
def test_closing_closes_every_socket(kjms_broker: Any) -> None:
    """When the last connection is closed, the process has no socket and no native thread any more."""
    code = """
import gc, sys, time
import psutil
from kjms import *
gc.disable()  # nothing is left to it
process = psutil.Process()
before = process.num_threads()
with ConnectionFactory(sys.argv[1]).create_connection() as connection:
    connection.start()
    session = connection.create_session()
    session.create_producer(Queue("sockets")).send(session.create_text_message("a"))
    session.create_consumer(Queue("sockets")).receive()
    session.create_consumer(Topic("sockets-topic")).receive_no_wait()
    session.create_shared_consumer(Topic("sockets-topic"), "name").receive_no_wait()
def left():
    return [socket.raddr for socket in process.net_connections("tcp") if socket.raddr], process.num_threads() - before
until = time.monotonic() + 10
while left() != ([], 0) and time.monotonic() < until:  # a thread that was joined may not be gone for the system yet
    time.sleep(0.01)
print(*left())
"""
    command = [sys.executable, "-c", code, kjms_broker.bootstrap_servers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[] 0\n", done.stderr
