"""Slow down logins that fail, by the address that they come from; used in the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from typing import Final

from kjms.errors import ResourceAllocationException

__all__ = ["Throttle"]

CHECKS: Final = 2  # passwords checked at a time
CHECKS_WAITING: Final = 50
FAILURES: Final = 10  # of one address within the time below, before it has to wait
FAILURE_SECONDS: Final = 60.0
MOST_ADDRESSES: Final = 10_000
PREFIX: Final = 64  # of an IPv6 address: one customer has all that begin with these bits


class Throttle:
    """Admits a few checks of passwords at a time, and none of an address that has just failed too often."""

    def __init__(self) -> None:
        self._checks = asyncio.Semaphore(CHECKS)
        self._waiting = 0
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def check(self, address: str) -> AsyncIterator[None]:
        """Wait until a password that comes from *address* may be checked.

        Raises:
            ResourceAllocationException: Too many have failed, or too many wait.
        """
        self._refuse(address)
        if self._waiting >= CHECKS_WAITING:
            raise ResourceAllocationException("too many people log in; try again in a minute")
        self._waiting += 1
        try:
            async with self._checks:
                self._refuse(address)  # others of this address may have failed meanwhile
                yield
        finally:
            self._waiting -= 1

    def failed(self, address: str) -> None:
        """Note that a password from *address* was wrong."""
        name = network(address)
        self._failures.setdefault(name, deque(maxlen=FAILURES)).append(time.monotonic())
        self._failures.move_to_end(name)
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)

    def _refuse(self, address: str) -> None:
        recent = self._failures.get(network(address))
        if recent is not None and len(recent) == FAILURES and time.monotonic() - recent[0] < FAILURE_SECONDS:
            raise ResourceAllocationException("too many logins failed; try again in a minute")


def network(address: str) -> str:
    """Return what failures are counted for: an IPv4 address, or the network of an IPv6 address.

    >>> network("192.0.2.7"), network("2001:db8:1:2:3::4"), network("testclient")
    ('192.0.2.7', '2001:db8:1:2::/64', 'testclient')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    return address if found.version == 4 else str(ipaddress.ip_network((found, PREFIX), strict=False))
