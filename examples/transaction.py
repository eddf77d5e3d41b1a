"""Use a transacted session: receive a message from one queue and send another to a second queue, both or neither."""

from kjms import ConnectionFactory, Queue
from kjms.broker import find_broker

with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
    connection.start()
    with connection.create_session() as session:
        session.create_producer(Queue("raw")).send(session.create_text_message("ore"))

    session = connection.create_session(True)
    consumer, producer = session.create_consumer(Queue("raw")), session.create_producer(Queue("refined"))
    message = consumer.receive(10_000)
    producer.send(session.create_text_message(f"steel from {message.text}"))
    session.commit()

    print(connection.create_session().create_consumer(Queue("refined")).receive(10_000).text)
