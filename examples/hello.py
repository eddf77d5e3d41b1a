"""Send a message to a queue, and receive it."""

from kjms import ConnectionFactory, Queue
from kjms.broker import find_broker

with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
    session = connection.create_session()
    session.create_producer(Queue("hello")).send(session.create_text_message("Hello, Kafka!"))
    connection.start()
    message = session.create_consumer(Queue("hello")).receive(10_000)
    print(message.text)
