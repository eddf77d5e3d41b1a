"""Use the simplified API: contexts, chained producers, plain bodies, and a transaction on the same connection."""

from kjms import ConnectionFactory, JMSContext, Queue
from kjms.broker import find_broker

ORDERS, INVOICES = Queue("examples.simplified.orders"), Queue("examples.simplified.invoices")

with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_context() as context:
    producer = context.create_producer().set_property("region", "EU").set_jms_type("order")
    producer.send(ORDERS, {"item": "tea", "pounds": 2}).send(ORDERS, {"item": "coffee", "pounds": 3})

    with context.create_context(JMSContext.SESSION_TRANSACTED) as billing:
        orders = billing.create_consumer(ORDERS, "region = 'EU' AND JMSType = 'order'")
        invoices = billing.create_producer()
        while (order := orders.receive_body(dict, 1_000)) is not None:
            invoices.send(INVOICES, f"{order['pounds']} pounds of {order['item']}")
            billing.commit()  # the order is done and its invoice is sent, or neither

    received = context.create_consumer(INVOICES)
    print("invoice:", received.receive_body(str, 10_000))
    print("invoice:", received.receive_body(str, 10_000))
