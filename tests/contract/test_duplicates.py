"""drop_duplicates: messages that were there already are not delivered again, and the first ones are."""

from __future__ import annotations

import pytest

from kjms import ConnectionFactory, Session, TextMessage
from kjms.mapping import encode
from tests.helpers import WAIT_MS


@pytest.fixture
def factory(kafka):
    return ConnectionFactory(kafka.bootstrap_servers, drop_duplicates=True)


@pytest.fixture
def write_ids(write):
    """A function that writes messages with given ids, as a producer does that tries again."""

    def write_ids(destination, *ids):
        for message_id in ids:
            message = TextMessage(message_id)
            message.jms_message_id = f"ID:{message_id}"
            record = encode(message)
            write(destination, record.value, headers=record.headers)

    return write_ids


def test_a_message_that_was_there_is_not_delivered_again(factory, write_ids, kjms_queue):
    """Of messages with one id the first is delivered, also when it comes back."""
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
        consumer = session.create_consumer(kjms_queue)
        write_ids(kjms_queue, "a", "a", "b", "a", "c")
        assert [consumer.receive(WAIT_MS).text for _ in range(3)] == ["a", "b", "c"]
        session.recover()
        again = [consumer.receive(WAIT_MS) for _ in range(3)]
        assert [message.text for message in again] == ["a", "b", "c"]
        assert again[0].jms_redelivered
        again[-1].acknowledge()
        assert consumer.receive(100) is None


def test_what_was_settled_before_a_restart_is_remembered(factory, write_ids, kjms_queue):
    """A process that takes a queue over knows what was there before."""
    for ids, expected in ((("a", "b"), ["a", "b"]), (("b", "c", "a", "d"), ["c", "d"])):
        with factory.create_connection() as connection:
            connection.start()
            consumer = connection.create_session().create_consumer(kjms_queue)
            write_ids(kjms_queue, *ids)
            assert [consumer.receive(WAIT_MS).text for _ in expected] == expected


def test_messages_without_an_id_repeat_nothing(factory, kjms_queue):
    """Only an id tells that a message was there."""
    with factory.create_connection() as connection:
        connection.start()
        session = connection.create_session()
        producer = session.create_producer(kjms_queue)
        producer.disable_message_id = True
        for _ in range(2):
            producer.send(session.create_text_message("same"))
        consumer = session.create_consumer(kjms_queue)
        assert [consumer.receive(WAIT_MS).text for _ in range(2)] == ["same", "same"]
