"""Send a delayed message: it is sent first and received last, when its delivery time is reached."""

import time

from kjms import ConnectionFactory, Queue
from kjms.broker import find_broker

with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
    connection.start()
    session = connection.create_session()
    consumer = session.create_consumer(Queue("examples.reminders"))
    producer = session.create_producer(Queue("examples.reminders"))

    producer.send(session.create_text_message("the tea is ready"), delivery_delay=1_000)
    producer.send(session.create_text_message("put the kettle on"))
    for _ in range(2):
        message = consumer.receive(10_000)
        print(message.text, "on time" if time.time() * 1000 >= message.jms_delivery_time else "early", sep=": ")
