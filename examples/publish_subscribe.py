"""Publish and subscribe: each subscriber of a topic receives all messages, or those that match its selector."""

from __future__ import annotations

from kjms import Connection, ConnectionFactory, Message, MessageConsumer, Topic
from kjms.broker import find_broker

PRICES = Topic("examples.prices")
QUOTES = {"AAPL": 231.5, "ASML": 640.0, "SAP": 243.1, "AMZN": 198.2}


def publish(connection: Connection) -> None:
    with connection.create_session() as session:
        publisher = session.create_producer(PRICES)
        for symbol, price in QUOTES.items():
            message = session.create_text_message(f"{symbol} costs {price}")
            message.set_string_property("symbol", symbol)
            message.set_double_property("price", price)
            publisher.send(message)


def received(subscriber: MessageConsumer) -> list[Message]:
    """Return the messages received until none arrives for half a second."""
    return list(iter(lambda: subscriber.receive(500), None))


def main() -> None:
    with find_broker() as broker, ConnectionFactory(broker.bootstrap_servers).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        # A subscriber receives messages that are published after its creation.
        everything = session.create_consumer(PRICES)
        bargains = session.create_consumer(PRICES, "symbol LIKE 'A%' AND price < 300")
        publish(connection)
        for name, subscriber in (("everything", everything), ("bargains", bargains)):
            for message in received(subscriber):
                print(f"{name}: {message.text}")


if __name__ == "__main__":
    main()
