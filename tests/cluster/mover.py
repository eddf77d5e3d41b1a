"""A program that moves messages from one queue to another, one in each transaction, and notes when.

``python -m tests.cluster.mover SERVERS QUEUE TARGET FILE SECONDS``; SIGTERM ends it in order. A line of the file is the
time of a commit that returned, or ``refused`` and what it raised.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path

from kjms import ConnectionFactory, JMSException, Queue, Session


def main(servers: str, queue: str, target: str, file: str, pause: str) -> None:
    """Move messages until SIGTERM."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    thread = threading.Thread(target=move, args=(servers, queue, target, Path(file), float(pause), is_over))
    thread.start()  # the main thread leaves commits to another thread
    thread.join()


def move(servers: str, queue: str, target: str, file: Path, pause: float, is_over: threading.Event) -> None:
    """Move messages until *is_over*, with a *pause* in seconds after each."""
    with file.open("a", buffering=1) as notes, ConnectionFactory(servers).create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.SESSION_TRANSACTED)
        consumer, producer = session.create_consumer(Queue(queue)), session.create_producer(Queue(target))
        while not is_over.wait(pause):
            try:
                message = consumer.receive(1_000)
                if message is None:
                    continue
                producer.send(session.create_text_message(message.get_body(str)))
                session.commit()
                print(time.time(), file=notes)
            except JMSException as error:
                print("refused", error, file=notes)


if __name__ == "__main__":
    main(*sys.argv[1:])
