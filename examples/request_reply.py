"""Request and reply: a service sends its replies to the temporary queue that each request names.

Service and client are threads of one program here. They could be two programs: they share only `examples.sums`.
"""

from __future__ import annotations

import threading

from kjms import ConnectionFactory, JMSContext, Message, Queue, QueueRequestor
from kjms.broker import find_broker

SUMS = Queue("examples.sums")


def serve(context: JMSContext) -> None:
    """Reply with the sum of the numbers in each request; a request without numbers ends the service."""
    replies = context.create_producer()
    for request in context.create_consumer(SUMS):
        numbers = request.get_body(str).split()
        if not numbers:
            break
        replies.set_jms_correlation_id(request.jms_message_id)
        replies.send(request.jms_reply_to, str(sum(map(int, numbers))))


def ask(factory: ConnectionFactory) -> None:
    """Send one request with a requestor, then two at once without one."""
    with factory.create_connection() as connection:
        connection.start()
        with QueueRequestor(connection.create_session(), SUMS) as requestor:
            reply = requestor.request(connection.create_session().create_text_message("1 2 3"), 10_000)
            print("1 + 2 + 3 =", text(reply))
    with factory.create_context() as context:
        replies = context.create_temporary_queue()
        consumer = context.create_consumer(replies)
        producer = context.create_producer().set_jms_reply_to(replies)
        asked = {}
        for numbers in ("4 5", "6 7 8"):
            request = context.create_text_message(numbers)
            producer.send(SUMS, request)
            asked[request.jms_message_id] = numbers.replace(" ", " + ")
        for _ in asked:
            reply = consumer.receive(10_000)
            print(asked[reply.jms_correlation_id], "=", text(reply))
        producer.send(SUMS, "")


def text(reply: Message | None) -> str:
    return "no answer" if reply is None else reply.get_body(str)


def main() -> None:
    with find_broker() as broker:
        factory = ConnectionFactory(broker.bootstrap_servers)
        with factory.create_context() as context:
            service = threading.Thread(target=serve, args=(context,))
            service.start()
            ask(factory)
            service.join()


if __name__ == "__main__":
    main()
