"""Send a message to a queue and receive it."""

from kjms import ConnectionFactory, Queue
from kjms.broker import find_broker

COFFEE = Queue("coffee")

with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_context() as context:
    context.create_producer().set_property("customer", "Ada").send(COFFEE, "two pounds of coffee")
    consumer = context.create_consumer(COFFEE, "customer = 'Ada'")  # other orders stay for other consumers
    order = consumer.receive(10_000)
    print(order.properties["customer"], "wants", order.get_body(str))
