"""A gateway in the process of the tests."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from kjms import ConnectionFactory
from tests.helpers import WAIT_SECONDS


class RunningGateway:
    """A gateway in a thread of its own."""

    def __init__(self, factory: ConnectionFactory, **options: Any) -> None:
        from kjms.gateway import Gateway, GatewayOptions

        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway-loop", daemon=True)
        self._thread.start()
        options = {"port": 0, "anonymous": True, **options}
        self.gateway = Gateway(factory, GatewayOptions(**options))
        self.run(self.gateway.start())

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def url(self) -> str:
        return f"amqp://localhost:{self.port}"

    def close(self) -> None:
        self.run(self.gateway.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()
