"""A child uses everything that its parent has, and says what came of it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

from kjms import ConnectionFactory, Queue, QueueRequestor, Session, Topic, aio

servers, name = sys.argv[1:]
queue = Queue(name)
factory = ConnectionFactory(servers)
connection = factory.create_connection()
connection.start()
session = connection.create_session(Session.CLIENT_ACKNOWLEDGE)
producer = session.create_producer(queue)
for text in ("one", "two", "three"):
    producer.send(session.create_text_message(text))
consumer = session.create_consumer(queue)
message = consumer.receive(20_000)
assert message is not None
transacted = connection.create_session(True)
browser = session.create_browser(queue)
look = iter(browser)
next(look)
temporary = session.create_temporary_queue()
requestor = QueueRequestor(connection.create_session(), queue)
context = factory.create_context()
simple_producer = context.create_producer()
simple_consumer = context.create_consumer(Topic(f"{name}-topic"))
listening = connection.create_session().create_consumer(Topic(f"{name}-topic"))
listening.message_listener = print
loop = asyncio.new_event_loop()
aio_context = loop.run_until_complete(aio.ConnectionFactory(servers).create_context()._open())
aio_producer = aio_context.create_producer()


def set_listener() -> None:
    consumer.message_listener = print


def in_loop(call: Callable[[], Any]) -> Callable[[], Any]:
    async def run() -> Any:
        return await call()

    return lambda: asyncio.run(run())


USES: dict[str, Callable[[], Any]] = {
    "connection.start": connection.start,
    "connection.stop": connection.stop,
    "connection.create_session": connection.create_session,
    "connection.client_id": lambda: connection.client_id,
    "session.create_producer": lambda: session.create_producer(queue),
    "session.create_producer of a new queue": lambda: session.create_producer(Queue(f"{name}-new")),
    "session.create_consumer": lambda: session.create_consumer(queue),
    "session.create_browser": lambda: session.create_browser(queue),
    "session.create_temporary_queue": session.create_temporary_queue,
    "session.create_text_message": session.create_text_message,
    "session.recover": session.recover,
    "session.unsubscribe": lambda: session.unsubscribe("none"),
    "transacted.commit": transacted.commit,
    "transacted.rollback": transacted.rollback,
    "producer.send": lambda: producer.send(message),
    "consumer.receive": lambda: consumer.receive(1_000),
    "consumer.receive_no_wait": consumer.receive_no_wait,
    "consumer iteration": lambda: list(consumer),
    "consumer.message_listener": set_listener,
    "message.acknowledge": message.acknowledge,
    "browser": lambda: list(browser),
    "look": lambda: list(look),
    "temporary.delete": temporary.delete,
    "requestor.request": lambda: requestor.request(message, 1_000),
    "context.create_context": context.create_context,
    "simple_producer.send": lambda: simple_producer.send(queue, "no"),
    "simple_producer.send elsewhere": lambda: simple_producer.send(Queue(f"{name}-new"), "no"),
    "simple_consumer.receive": lambda: simple_consumer.receive(1_000),
    "aio_context.create_queue": in_loop(aio_context.create_temporary_queue),
    "aio_producer.send": in_loop(lambda: aio_producer.send(queue, "no")),
    "aio_context.recover": in_loop(aio_context.recover),
}

child = os.fork()
if child == 0:
    for what, use in USES.items():
        try:
            outcome = f"returned {use()!r}"
        except Exception as error:
            outcome = f"{type(error).__name__} {error}"
        print(f"{what}: {outcome}", flush=True)
    for closed in (look, consumer, producer, browser, requestor, session, transacted, connection, context):
        closed.close()  # type: ignore[attr-defined]
    in_loop(aio_context.close)()
    sys.exit(0)

assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert consumer.receive(20_000) is not None
message.acknowledge()
print("the parent received its message", flush=True)
loop.run_until_complete(aio_context.close())
context.close()
connection.close()
print("end")
