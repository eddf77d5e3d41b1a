"""Run functions on a queue: each order is packed and announced in one transaction, and a bad order is retried once.

`kjms worker` runs the same application in several processes: docs/workers.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from kjms import ConnectionFactory, Queue, RedeliveryPolicy, Session
from kjms.broker import find_broker
from kjms.worker import Application, Context, listener

ORDERS, PACKED = Queue("examples.listeners.orders"), Queue("examples.listeners.packed")
DEAD = Queue("examples.listeners.orders.dlq")


@dataclass
class Order:
    item: str
    count: int = 1


@listener(ORDERS, concurrency=2, session_mode=Session.SESSION_TRANSACTED, redelivery=RedeliveryPolicy(max_deliveries=2))
def pack(order: Order, context: Context) -> None:
    if order.count < 1:
        raise ValueError("the order is empty")
    context.send(PACKED, f"packed: {order.count} {order.item}")


app = Application(listeners=[pack])


def main() -> None:
    with find_broker() as broker:
        factory = ConnectionFactory(broker.bootstrap_servers)
        with app.running(factory, grace=10_000), factory.create_context() as context:
            producer = context.create_producer()
            for body in ('{"item": "pens", "count": 10}', '{"item": "globe"}', '{"item": "atlas", "count": 0}'):
                producer.send(ORDERS, body)
            consumer = context.create_consumer(PACKED)
            for _ in range(2):
                print(consumer.receive_body(str, 30_000))
            dead = context.create_consumer(DEAD).receive(30_000)
            if dead is not None:
                print(f"dead letter: {dead.get_body(str)}")


if __name__ == "__main__":
    main()
