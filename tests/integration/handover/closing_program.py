"""A program that consumes from a queue, slowly, until it gets SIGTERM; it says what it received."""

from __future__ import annotations

import logging
import signal
import sys
import time

from kjms import ConnectionFactory, Message, Queue, TextMessage

servers, queue = sys.argv[1:]


def listen(message: Message) -> None:
    """Take a while, so that messages are handed over to other processes."""
    assert isinstance(message, TextMessage)
    print(message.text, flush=True)
    time.sleep(0.02)


logging.basicConfig(level="WARNING", format="%(levelname)s %(name)s %(message)s")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with ConnectionFactory(servers, hand_over=True).create_context() as context:
    context.create_consumer(Queue(queue)).message_listener = listen
    while True:
        signal.pause()
