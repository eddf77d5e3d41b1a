"""Send a message to a queue and receive it."""

from kjms import ConnectionFactory, Queue
from kjms.broker import find_broker

with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
    connection.start()
    session = connection.create_session()
    message = session.create_text_message("two pounds of coffee")
    message.properties["customer"] = "Ada"
    session.create_producer(Queue("coffee")).send(message)
    received = session.create_consumer(Queue("coffee")).receive(10_000)
    print(received.properties["customer"], "wants", received.text)
