"""The clusters of Kafka's own users: each is asked with the credentials of one user, while the user is logged in."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import weakref
from collections.abc import Callable, Collection
from typing import Final

from kjms.console._cluster import Cluster
from kjms.errors import JMSSecurityException, ResourceAllocationException

__all__ = ["KafkaUsers"]

MOST: Final = 16  # each is a process, where Kafka checks the passwords


class KafkaUsers:
    """Connects each user once, and closes what is not used; used in the event loop's thread.

    Args:
        made: Makes the cluster of a user with a password.
    """

    def __init__(self, made: Callable[[str, str], Cluster]) -> None:
        self._made = made
        self._secret = secrets.token_bytes(32)
        self._clusters: dict[str, tuple[Cluster, bytes]] = {}
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def cluster(self, user: str, password: str, used: Callable[[], Collection[Cluster]]) -> Cluster | None:
        """Return the cluster of *user*; None: the broker refuses the password.

        Args:
            user: The name.
            password: The password.
            used: Returns the clusters that have a session; others may be closed if there are too many.

        Raises:
            ResourceAllocationException: Too many users are logged in.
            JMSException: The broker does not answer.
        """
        digest = hmac.digest(self._secret, password.encode(), "sha256")
        lock = self._locks.setdefault(user, asyncio.Lock())
        async with lock:  # two logins of one user connect once
            known = self._clusters.get(user)
            if known is not None and hmac.compare_digest(known[1], digest):
                return known[0]
            cluster = self._made(user, password)
            try:
                await cluster.ask("connect")
                known = self._clusters.pop(user, None)
                if known is not None:  # the password was changed: sessions with the old one end
                    await known[0].close()
                await self._check_number(used)
            except BaseException as error:
                await cluster.close()
                if isinstance(error, JMSSecurityException):
                    return None
                raise
            # Nothing waits from here until the caller has a session: `keep` would close what has none.
            cluster.start()
            self._clusters[user] = cluster, digest
            return cluster

    async def _check_number(self, used: Callable[[], Collection[Cluster]]) -> None:
        if len(self._clusters) >= MOST:
            await self.keep(used())
        if len(self._clusters) >= MOST:
            raise ResourceAllocationException(f"{MOST} users of Kafka have logged in: that is the most")

    async def keep(self, used: Collection[Cluster]) -> None:
        """Close all clusters but those that are *used*."""
        left = {user: cluster for user, (cluster, _) in self._clusters.items() if cluster not in used}
        for user in left:
            del self._clusters[user]
        await asyncio.gather(*(each.close() for each in left.values()))
