"""Use kjms.aio: three workers in one event loop share a queue of orders; each has its own context."""

from __future__ import annotations

import asyncio

from kjms import Queue, aio
from kjms.broker import find_broker

ORDERS, PACKED = Queue("examples.asynchronous.orders"), Queue("examples.asynchronous.packed")


async def work(context: aio.JMSContext) -> None:
    async with context.create_context(aio.JMSContext.SESSION_TRANSACTED) as own:
        producer = own.create_producer()
        async for order in own.create_consumer(ORDERS):
            await asyncio.sleep(0.01)  # the work
            await producer.send(PACKED, f"packed: {order.get_body(str)}")
            await own.commit()  # the order is done and the answer is sent, or neither


async def main(bootstrap_servers: str) -> None:
    async with aio.ConnectionFactory(bootstrap_servers).create_context() as context:
        workers = [asyncio.create_task(work(context)) for _ in range(3)]
        producer = context.create_producer()
        await asyncio.gather(*(producer.send(ORDERS, f"order {number}") for number in range(1, 6)))

        packed = context.create_consumer(PACKED)
        for _ in range(5):
            print(await packed.receive_body(str, 20_000))
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


if __name__ == "__main__":
    with find_broker() as broker:
        asyncio.run(main(broker.bootstrap_servers))
