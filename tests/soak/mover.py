"""A program that a soak may kill: it moves messages in transactions, some of which it rolls back.

``python -m tests.soak.mover SERVERS QUEUE TARGET SEED``; SIGTERM ends it in order.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import threading

from kjms import Connection, ConnectionFactory, JMSException, Queue, RedeliveryPolicy, Session

SESSIONS = 2
ROLLED_BACK = 0.1  # of the transactions
AT_ONCE = 5  # messages of a transaction at most


def main(servers: str, queue: str, target: str, seed: str) -> None:
    """Move messages until SIGTERM."""
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    factory = ConnectionFactory(servers, redelivery=RedeliveryPolicy(max_deliveries=1_000_000))
    while not is_over.is_set():
        with contextlib.suppress(JMSException), factory.create_connection() as connection:
            connection.start()
            threads = [
                threading.Thread(target=move, args=(connection, queue, target, random.Random(int(seed) + n), is_over))
                for n in range(SESSIONS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


def move(connection: Connection, queue: str, target: str, chance: random.Random, is_over: threading.Event) -> None:
    """Move messages until *is_over*."""
    session = connection.create_session(Session.SESSION_TRANSACTED)
    consumer = producer = None
    while not is_over.is_set():
        try:
            consumer = consumer or session.create_consumer(Queue(queue))
            producer = producer or session.create_producer(Queue(target))
            messages = [consumer.receive(500)]
            messages += [consumer.receive_no_wait() for _ in range(chance.randrange(AT_ONCE))]
            for message in messages:
                if message is not None:
                    producer.send(session.create_text_message(message.get_body(str)))
            (session.rollback if chance.random() < ROLLED_BACK else session.commit)()
        except JMSException:
            is_over.wait(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
