"""Bound what clients cost before they have logged in: how many they are, and the checks of their passwords.

A check takes tens of milliseconds of a processor, or the time that Kafka takes to refuse a password. The checks have
threads of their own, so that other work never waits for them, and addresses take turns, so that one that tries many
passwords delays itself alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from kjms.errors import ResourceAllocationException

__all__ = ["Logins"]

T = TypeVar("T")

Turn = tuple["asyncio.Future[None]", Callable[[], bool]]

CHECKS_WAITING: Final = 250  # of one address


class Logins:
    """The clients that have not logged in; used in one event loop's thread.

    Args:
        most: How many there may be.
        threads: How many passwords are checked at a time.
    """

    def __init__(self, most: int, threads: int) -> None:
        self._most = most
        self._threads = threads
        self._clients: set[object] = set()
        self._executor = ThreadPoolExecutor(threads, "kjms-gateway-login")
        self._running = 0
        self._waiting: dict[str, deque[Turn]] = {}  # by address; the first one's turn is next

    def __repr__(self) -> str:
        return f"<Logins: {len(self._clients)} of {self._most}>"

    def enter(self, client: object) -> bool:
        """Count *client*; return whether there was room for it."""
        if len(self._clients) >= self._most:
            return False
        self._clients.add(client)
        return True

    def leave(self, client: object) -> None:
        """Count *client* no more: it has logged in, or is gone."""
        self._clients.discard(client)

    async def check(self, address: str, check: Callable[[], T], is_wanted: Callable[[], bool]) -> T:
        """Return what *check* returns, called in a thread when *address* is next.

        Raises:
            ResourceAllocationException: Too many checks of that address wait; or *is_wanted* says,
                when the check is next, that it is not wanted any more.
        """
        waiting = self._waiting.setdefault(address, deque())
        if len(waiting) >= CHECKS_WAITING:
            raise ResourceAllocationException(f"{CHECKS_WAITING} logins from {address} wait already")
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        waiting.append((turn, is_wanted))
        self._next()
        await turn
        try:
            return await loop.run_in_executor(self._executor, check)
        finally:
            self._running -= 1
            self._next()

    def _next(self) -> None:
        """Begin as many checks as there are threads for, of one address after the other."""
        while self._running < self._threads and self._waiting:
            address = next(iter(self._waiting))
            waiting = self._waiting.pop(address)
            while waiting:
                turn, is_wanted = waiting.popleft()
                if is_wanted():
                    self._running += 1
                    turn.set_result(None)
                    break
                turn.set_exception(ResourceAllocationException("the client has gone before its login was checked"))
            if waiting:
                self._waiting[address] = waiting  # behind the other addresses

    def close(self) -> None:
        """End the threads, which finish what they have begun."""
        self._executor.shutdown(wait=False, cancel_futures=True)
