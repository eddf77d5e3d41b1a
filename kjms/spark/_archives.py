"""Archives are known to the cluster: each has a consumer group, beyond whose offsets no settled message is deleted.

The group has no members. The driver commits for it what the query has stored, after Spark has committed the batch. So
the group is never ahead of the archive, and behind it for a moment at most.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kjms.client.engine_access import engine_of
from kjms.errors import InvalidDestinationException, JMSException, shown
from kjms.mapping.names import ARCHIVES, archive_group
from kjms.spark._cluster import connected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from kjms import ConnectionFactory

__all__ = ["Archive", "Registration", "archive_name", "archives", "forget_archive"]

_log = logging.getLogger("kjms.spark")

LOOK_SECONDS: Final = 1.0  # between looks at what the query has stored
CHECK_SECONDS: Final = 60.0  # between looks for new topics and partitions
REFRESH_SECONDS: Final = 3_600.0  # until the same is committed again: Kafka deletes old offsets
EXIT_SECONDS: Final = 5.0  # that the end of the program waits for the last commit

Positions = dict[tuple[str, int], int]


@dataclass(frozen=True)
class Archive:
    """An archive that is known to the cluster.

    Attributes:
        name: Its name.
        positions: The offset of the first record that it does not have yet, by Kafka topic and partition.
    """

    name: str
    positions: Mapping[tuple[str, int], int]


def archives(factory: ConnectionFactory, *, user: str | None = None, password: str | None = None) -> list[Archive]:
    """Return the archives that are known to the cluster, by name: settled messages that one still needs stay.

    Args:
        factory: Says which cluster.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        JMSException: The cluster does not answer.
    """
    with connected(factory, user, password) as connection:
        admin = engine_of(connection).admin
        groups = sorted(group for group in admin.groups() if group.startswith(ARCHIVES))
        found = admin.settled({group: f"the archive's group {group!r}" for group in groups})
    return [Archive(group.removeprefix(ARCHIVES), _flat(found[group])) for group in groups]


def forget_archive(
    factory: ConnectionFactory, name: str, *, user: str | None = None, password: str | None = None
) -> None:
    """Forget an archive: settled messages stay no longer for it. What it has stored remains.

    Stop its query first: a query that runs registers again.

    Args:
        factory: Says which cluster.
        name: The archive's name, see `archives`.
        user: The name for SASL; None: the one in the factory's *kafka*, if any.
        password: The password for it.

    Raises:
        InvalidDestinationException: There is no such archive.
        JMSException: The cluster does not answer, or refuses.
    """
    group = archive_group(name)
    with connected(factory, user, password) as connection:
        admin = engine_of(connection).admin
        if group not in admin.groups():
            raise InvalidDestinationException(f"there is no archive {shown(name)}; archives() lists them")
        admin.delete_group(group)


def archive_name(spark: SparkSession, checkpoint: str) -> str:
    """Return the name of the archive with this *checkpoint*: the folder's, and a part that is its path's own."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(checkpoint)
    whole = path.getFileSystem(spark._jsc.hadoopConfiguration()).makeQualified(path)
    readable = re.sub(r"[^\w.-]", "-", whole.getName())[:100]
    return f"{readable}-{hashlib.sha256(whole.toString().encode()).hexdigest()[:8]}"


class Registration:
    """Keeps the group of an archive at what the archive has stored, in a thread of its own, until its query ends.

    Args:
        factory: Says which cluster.
        name: The archive's name.
        wanted: Returns the Kafka topics that are archived, of those that are there.
        user: The name for SASL.
        password: The password for it.

    Raises:
        InvalidDestinationException: The name cannot be that of a group.
        JMSException: The cluster does not answer, or refuses.
    """

    def __init__(
        self,
        factory: ConnectionFactory,
        name: str,
        wanted: Callable[[Collection[str]], Collection[str]],
        user: str | None,
        password: str | None,
    ) -> None:
        self._group = archive_group(name)
        self._wanted = wanted
        self._committed: Positions = {}
        self._refreshed_at = time.monotonic()
        self._checked_at = 0.0
        with ExitStack() as stack:
            self._admin = engine_of(stack.enter_context(connected(factory, user, password))).admin
            self._committed = _flat(self._admin.settled({self._group: f"archive {name!r}"})[self._group])
            self._begin()
            self._connection = stack.pop_all()

    def follow(self, query: StreamingQuery) -> None:
        """Commit what *query* has stored, until it ends."""

        def run() -> None:
            try:
                self._run(query)
            finally:
                self.close()
                atexit.unregister(finish)

        def finish() -> None:
            with suppress(Exception):  # Spark may be gone already
                if not query.isActive:
                    thread.join(EXIT_SECONDS)

        thread = threading.Thread(target=run, name="kjms-spark-archive", daemon=True)
        thread.start()
        atexit.register(finish)

    def close(self) -> None:
        """Close the connection: nothing is committed any more."""
        self._connection.close()

    def _begin(self) -> None:
        """Commit the first offset of each partition for which nothing is committed: all that it has is needed."""
        there = self._admin.topics()
        topics = {topic: there[topic] for topic in self._wanted(there) if there.get(topic)}
        known = self._committed
        missing = {t: n for t, n in topics.items() if any((t, number) not in known for number in range(n))}
        begins = {
            (topic, number): first
            for topic, spans in self._admin.spans(missing).items()
            for number, (first, _) in enumerate(spans)
            if (topic, number) not in self._committed
        }
        if begins:
            self._admin.commit(self._group, begins)
            self._committed |= begins
        self._checked_at = time.monotonic()

    def _run(self, query: StreamingQuery) -> None:
        is_over = False
        while not is_over:
            try:
                is_over = bool(query.awaitTermination(LOOK_SECONDS))
            except Exception as error:  # the program gets it from the query
                _log.debug("the archive of group %s ended: %s", self._group, error)
                is_over = True
            try:
                stored = _stored(query)
            except Exception as error:  # the session was stopped, too
                _log.debug("the archive of group %s does not say what it has: %s", self._group, error)
                return
            try:
                self._advance(stored)
                if time.monotonic() - self._checked_at > CHECK_SECONDS:
                    self._begin()
            except JMSException as error:
                _log.warning("the progress of the archive of group %s was not committed: %s", self._group, error)

    def _advance(self, stored: Positions) -> None:
        """Commit what is *stored*, if it is more than what was, or that was long ago."""
        new = {place: offset for place, offset in stored.items() if offset > self._committed.get(place, -1)}
        if time.monotonic() - self._refreshed_at > REFRESH_SECONDS:
            new = self._committed | new
        if new:
            self._admin.commit(self._group, new)
            self._committed |= new
            self._refreshed_at = time.monotonic()


def _stored(query: StreamingQuery) -> Positions:
    """Return the offsets up to which *query* has stored the records; none before its first batch."""
    progress = query.lastProgress
    if progress is None or not progress.sources or not progress.sources[0].endOffset:
        return {}
    held = json.loads(progress.sources[0].endOffset)
    return _flat(held) if isinstance(held, dict) else {}


def _flat(found: Mapping[str, Mapping[Any, int]]) -> Positions:
    return {(topic, int(number)): offset for topic, numbers in found.items() for number, offset in numbers.items()}
