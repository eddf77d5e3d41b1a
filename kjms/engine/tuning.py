"""The engine's leases, grace times and limits: their defaults, and how a program replaces them as a whole.

They are no settings of the API: each default is right for every program that is known. Tests replace them, so that
they need not wait for a lease or send fifty thousand messages; see `tuned`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from kjms.txn.metadata import LIMIT

__all__ = ["DEFAULTS", "Tuning", "current", "tuned"]


@dataclass(frozen=True)
class Tuning:
    """The leases, grace times and limits of one engine.

    Attributes:
        wall_clock: Returns the time in seconds since 1970, by which messages expire and become due; unless it is
            given, that of the cluster.
        grace_seconds: How long a group consumer stays in its group without a started consumer: joining again costs
            more than waiting.
        leaving_seconds: For which Kafka may count members that have left a group.
        partition_check_seconds: Without a group, which would tell: between looks for partitions that were added.
        metadata_limit: Characters of settlement in a commit; brokers refuse metadata of over 4,096 bytes by default.
        most_runs: Runs of unsettled messages, between settled ones, before some are moved to the overflow topic: each
            commit says all of them again.
        most_unmatched: Messages that match no consumer here, before the older half of them is evicted.
        report_seconds: For a delivery report after the send timeout: librdkafka looks once a second for records whose
            time is over, and reports them then.
        flush_seconds: For a transaction without a record confirmed; nothing of the source is held up meanwhile.
        outage_seconds: For connecting again, before an outage is reported: a connection that was cut is made anew
            by then.
        outage_pause_seconds: Between attempts to connect, which may fail at once.
        registry_grace_seconds: How long the registry is read on: programs that need it once often do so again.
        registry_questions: Questions, a second apart, that an engine leaves unanswered before its leases expire: as
            many seconds as Kafka gives the members of groups.
        open_transaction_seconds: Of an open transaction, before `kjms.admin.Admin.examine` takes it for hanging:
            Kafka ends those of kjms after 30 s, and looks every 10 s.
        inbox_unread: Messages that wait in memory for a temporary destination without a consumer; of more it is only
            known where the next one stands.
        inbox_retention_records: Records of an inbox that were read, from which on deleting them is worth a request.
        inbox_retention_seconds: Between looks whether there are so many.
        kept_ms: Milliseconds for which the settled messages of a queue stay in Kafka at the least.
        retention_seconds: Between looks for settled messages that can go; each asks for the offsets of every group.
        delayed_check_seconds: Between looks for delayed messages that other processes sent.
        delayed_held: Delayed messages in memory, of all destinations.
        delayed_held_each: The same of each partition, at the least.
        delayed_commit_seconds: Between commits of where to read delayed messages from.
        delayed_retention_seconds: Between deletions of delayed messages that were moved.
        delayed_slack: Records that may stand between delayed messages that wait, before these are written anew.
        delayed_far_ms: Milliseconds before which a message must not be due to be written anew.
        delayed_quiet_seconds: Without a new delayed message, until the clients are closed: they cost threads and
            fetches.
        delayed_wake_ms: Milliseconds before a message is due at which the clients are made again.
        topic_check_seconds: Between looks for topics that were deleted and made again.
        topic_check_seconds_each: The same, for each topic, where there are very many.
        topic_attempt_seconds: Between looks at what the client library reported while it was connecting.
        topic_visible_seconds: For a topic that was made; it is known to every broker well before.
    """

    wall_clock: Callable[[], float] = time.time
    grace_seconds: float = 3.0
    leaving_seconds: float = 2.0
    partition_check_seconds: float = 10.0
    metadata_limit: int = LIMIT
    most_runs: int = 1_000
    most_unmatched: int = 50_000
    report_seconds: float = 2.0
    flush_seconds: float = 10.0
    outage_seconds: float = 3.0
    outage_pause_seconds: float = 0.1
    registry_grace_seconds: float = 5.0
    registry_questions: int = 6
    open_transaction_seconds: float = 45.0
    inbox_unread: int = 4_096
    inbox_retention_records: int = 10_000
    inbox_retention_seconds: float = 30.0
    kept_ms: int = 3_600_000
    retention_seconds: float = 600.0
    delayed_check_seconds: float = 2.0
    delayed_held: int = 100_000
    delayed_held_each: int = 1_000
    delayed_commit_seconds: float = 1.0
    delayed_retention_seconds: float = 60.0
    delayed_slack: int = 100_000
    delayed_far_ms: int = 10_000
    delayed_quiet_seconds: float = 30.0
    delayed_wake_ms: int = 15_000
    topic_check_seconds: float = 1.0
    topic_check_seconds_each: float = 0.01
    topic_attempt_seconds: float = 0.25
    topic_visible_seconds: float = 10.0

    def now_ms(self) -> int:
        """Return the time by `wall_clock`, in milliseconds since 1970."""
        return int(self.wall_clock() * 1000)


DEFAULTS: Final = Tuning()

_stack: list[Tuning] = [DEFAULTS]
_lock = threading.Lock()


def current() -> Tuning:
    """Return what an engine that is made now takes."""
    return _stack[-1]


@contextmanager
def tuned(**changes: Any) -> Iterator[Tuning]:
    """Have engines that are made inside of the block, in any thread, take these values; they keep them.

    A connection that is opened in the block shares no engine with those opened outside of it.

    >>> with tuned(grace_seconds=0.1) as tuning:
    ...     tuning.grace_seconds, current() is tuning
    (0.1, True)
    >>> current() is DEFAULTS
    True
    """
    with _lock:
        tuning = replace(_stack[-1], **changes)
        _stack.append(tuning)
    try:
        yield tuning
    finally:
        with _lock:
            _stack.remove(tuning)
