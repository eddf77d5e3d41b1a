"""JMS for asyncio: the simplified API with the same names, awaited, on the same engine (``docs/asyncio.md``).

async with ConnectionFactory("localhost:9092").create_context() as context:
    await context.create_producer().send(Queue("orders"), "hello")
    async for message in context.create_consumer(Queue("orders")): ...
"""

from kjms.aio._context import ConnectionFactory, JMSContext
from kjms.aio._simple import JMSConsumer, JMSProducer, QueueBrowser

__all__ = ["ConnectionFactory", "JMSConsumer", "JMSContext", "JMSProducer", "QueueBrowser"]
