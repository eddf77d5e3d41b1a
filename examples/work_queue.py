"""Share a work queue: two workers take orders from it and acknowledge each one after its work.

If a worker's session closes, or the program crashes, kjms delivers the messages that the worker received and did not
acknowledge to another worker. Therefore acknowledge after the work.
"""

from __future__ import annotations

import threading
import time

from kjms import Connection, ConnectionFactory, Queue, Session
from kjms.broker import find_broker

ORDERS = Queue("examples.orders")


def place_orders(connection: Connection, count: int) -> None:
    with connection.create_session() as session:
        producer = session.create_producer(ORDERS)
        for number in range(1, count + 1):
            order = session.create_text_message(f"order {number}")
            order.set_int_property("number", number)
            producer.send(order)


def work(name: str, connection: Connection) -> None:
    """Work until no order arrives for a second."""
    with connection.create_session(Session.CLIENT_ACKNOWLEDGE) as session:
        consumer = session.create_consumer(ORDERS)
        while (order := consumer.receive(1_000)) is not None:
            time.sleep(0.05)  # the work
            print(f"{name} has packed {order.text}\n", end="")  # one write, because the other worker prints too
            order.acknowledge()


def main() -> None:
    with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
        place_orders(connection, 10)
        connection.start()
        workers = [threading.Thread(target=work, args=(name, connection)) for name in ("Rosa", "Tom")]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


if __name__ == "__main__":
    main()
