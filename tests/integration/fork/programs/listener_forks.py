"""A message listener forks, and the child returns from it."""

from __future__ import annotations

import logging
import os
import sys
import threading

from kjms import ConnectionFactory, Message, Queue

logging.getLogger("kjms").addHandler(logging.NullHandler())
logging.getLogger("kjms").propagate = False
servers, name = sys.argv[1:]
queue = Queue(name)
is_done = threading.Event()


def listen(_message: Message) -> None:
    """Fork; the child returns, the parent waits for its end."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        print("child ended", flush=True)
        is_done.set()


with ConnectionFactory(servers).create_context() as context:
    context.create_producer().send(queue, "hello")
    context.create_consumer(queue).message_listener = listen
    assert is_done.wait(60)
with ConnectionFactory(servers).create_context() as context:
    assert context.create_consumer(queue).receive(1_000) is None
print("acknowledged once")
