"""Workers: functions that consume messages, and the processes that run them (``docs/workers.md``).

@listener(Queue("orders"), concurrency=4)
def pack(order: Order, context: Context) -> None:
    context.send(Queue("packed"), order.number)
"""

from kjms.worker._application import Application
from kjms.worker._context import AsyncContext, Context
from kjms.worker._listener import Listener, listener
from kjms.worker._running import Running

__all__ = ["Application", "AsyncContext", "Context", "Listener", "Running", "listener"]
