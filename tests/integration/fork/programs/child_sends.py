"""A child connects, sends and ends through the interpreter's exit while its parent's connection is open."""

from __future__ import annotations

import gc
import os
import sys

from kjms import ConnectionFactory, Queue

servers, name = sys.argv[1:]
queue = Queue(name)
factory = ConnectionFactory(servers)
connection = factory.create_connection()
connection.start()
session = connection.create_session()
producer = session.create_producer(queue)
consumer = session.create_consumer(queue)
producer.send(session.create_text_message("before"))
assert consumer.receive(20_000) is not None

child = os.fork()
if child == 0:
    del connection, session, producer, consumer
    gc.collect()
    for each in (factory, ConnectionFactory(servers)):
        with each.create_context() as context:
            reply = context.create_temporary_queue()
            context.create_producer().send(reply, "to itself")
            assert context.create_consumer(reply).receive(20_000) is not None
    with factory.create_context() as context:
        context.create_producer().send(queue, "from the child")
    sys.exit(0)

print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
message = consumer.receive(20_000)
assert message is not None
print("parent received", message.get_body(str))
consumer.close()
producer.send(session.create_text_message("from the parent, afterwards"))
connection.close()
