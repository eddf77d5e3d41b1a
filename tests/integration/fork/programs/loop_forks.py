"""A loop over a consumer forks, and the child exits from within its `with` statements."""

from __future__ import annotations

import os
import sys

from kjms import ConnectionFactory, Queue

servers, name = sys.argv[1:]
queue = Queue(name)
with ConnectionFactory(servers).create_context() as context, context.create_consumer(queue) as consumer:
    context.create_producer().send(queue, "hello")
    for _message in consumer:
        child = os.fork()
        if child == 0:
            sys.exit(0)
        break
    print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
with ConnectionFactory(servers).create_context() as context, context.create_consumer(queue) as consumer:
    assert consumer.receive(1_000) is None
print("acknowledged once")
