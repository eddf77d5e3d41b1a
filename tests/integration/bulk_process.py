"""One end of the bulk test, to be run as a process: ``bulk_process.py send|receive SERVERS QUEUE COUNT``.

It ends with exit code 0 only if every message was sent, or received, in order and whole.
"""

from __future__ import annotations

import sys
import threading

from kjms import ConnectionFactory, Message, Queue, Session, TextMessage

WAIT = 30_000  # milliseconds for a message to come; they come by thousands a second
ACKNOWLEDGE_EVERY = 1_000


class Completed:
    """Counts the messages that Kafka confirmed, and keeps the first error."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.error: Exception | None = None
        self.done = threading.Event()

    def on_completion(self, message: Message) -> None:
        self.left -= 1
        if not self.left:
            self.done.set()

    def on_exception(self, message: Message, exception: Exception) -> None:
        self.error = exception
        self.done.set()


def body(number: int) -> str:
    """Return the text of message *number*: 256 bytes."""
    return f"message {number} ".ljust(256, ".")


def send(servers: str, queue: str, count: int) -> None:
    completed = Completed(count)
    with ConnectionFactory(servers).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(queue))
        for number in range(count):
            message = session.create_text_message(body(number))
            message.set_string_property("region", "EU")
            message.set_int_property("number", number)
            message.set_double_property("half", number / 2)
            message.set_boolean_property("even", number % 2 == 0)
            producer.send(message, completion_listener=completed)
        assert completed.done.wait(WAIT / 1000), f"{completed.left} messages were not confirmed"
        assert completed.error is None, completed.error


def receive(servers: str, queue: str, count: int) -> None:
    with ConnectionFactory(servers).create_connection() as connection:
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(Queue(queue))
        connection.start()
        for number in range(count):
            message = consumer.receive(WAIT)
            assert isinstance(message, TextMessage), f"message {number} did not come: {message}"
            assert message.text == body(number), f"message {number} reads {message.text!r}"
            assert message.get_string_property("region") == "EU"
            assert message.get_int_property("number") == number
            assert message.get_double_property("half") == number / 2
            assert message.get_boolean_property("even") is (number % 2 == 0)
            assert not message.jms_redelivered
            if (number + 1) % ACKNOWLEDGE_EVERY == 0 or number + 1 == count:
                message.acknowledge()
        extra = consumer.receive(100)
        assert extra is None, f"after all {count} messages came {extra}"


if __name__ == "__main__":
    {"send": send, "receive": receive}[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
