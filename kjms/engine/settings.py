"""librdkafka's settings for the clients of one engine: the user's, and those that kjms decides."""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.engine.kafka import KafkaError

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NEW_TOPIC", "ProgramName", "check_kafka", "common_settings", "consumer_settings", "producer_settings"]

# A partition that was just made refuses the first fetch, as a rule; librdkafka waits 500 ms after that.
NEW_TOPIC: Final[Mapping[str, Any]] = {"fetch.error.backoff.ms": 20}
# The topic's max.message.bytes decides how large a message may be. Brokers read no larger request than 100 MiB, and end
# the connection for all else that is on it; consumers read no larger answer than 100 MB. Batches have batch.size.
LARGEST_MESSAGE: Final = 96_000_000
# Partitions that are added to a topic are seen with the next look at its metadata: after five minutes by default.
METADATA_MS: Final = 10_000
CLIENT_ID: Final = "kjms"  # in the broker's logs and quotas
# For clients that ask coordinators. Where librdkafka asks the bootstrap servers again, such a request waits without end
# after an outage (librdkafka issues 5456, 5511).
KEEP_BROKERS: Final[Mapping[str, str]] = {"metadata.recovery.strategy": "none"}
_PROGRAM: Final = re.compile(
    rf"{CLIENT_ID}-(?P<application>[\w.-]+)@(?P<host>[\w.-]+)-(?P<process>[0-9]{{1,18}})", re.ASCII
)
REPEAT_SECONDS: Final = 30.0  # librdkafka reports each of its attempts to reconnect, dozens in a second


# What librdkafka reports of lost connections and what follows from them, dozens of lines in one outage. kjms logs an
# outage itself, once, and raises what fails because of it.
_OF_OUTAGES: Final = frozenset({"FAIL", "ERROR", "REQTMOUT", "SESSTMOUT", "TXNERR", "GETPID", "TIMEOUT", "COMMITFAIL"})


class _OnceAndLower(logging.Filter):
    """Lets a message pass once in a while, and lowers those of lost connections to DEBUG."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now = record.created
        message = record.getMessage()
        if message.partition(" ")[0] in _OF_OUTAGES:
            record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
            if not _log.isEnabledFor(logging.DEBUG):
                return False
        if now - self._last.get(message, 0.0) < REPEAT_SECONDS:
            return False
        self._last = {text: when for text, when in self._last.items() if now - when < REPEAT_SECONDS}
        self._last[message] = now
        return True


_log = logging.getLogger("kjms.kafka")
_log.addFilter(_OnceAndLower())

# What kjms must decide itself, with the reason a user gets to read.
OWNED: Final = {
    "bootstrap.servers": "it is the factory's first argument",
    "metadata.broker.list": "the addresses are the factory's first argument",
    "group.id": "a queue's consumers share one group, whatever program they are in",
    "group.instance.id": "a restarted program must not lock out a running one",
    "enable.auto.commit": "messages are settled one by one",
    "enable.auto.offset.store": "messages are settled one by one",
    "auto.offset.reset": "a queue is read from its start, a subscription from its creation",
    "group.protocol": "partitions move between processes as the classic protocol moves them",
    "partition.assignment.strategy": "partitions move one by one, and what is in flight stays",
    "isolation.level": "consumers see committed messages only",
    "partitioner": "Java, Spark and Python must agree where a key goes",
    "enable.idempotence": "a message is sent once",
    "acks": "a PERSISTENT message is confirmed by all in-sync replicas",
    "request.required.acks": "a PERSISTENT message is confirmed by all in-sync replicas",
    "message.timeout.ms": "it is the factory's send_timeout",
    "delivery.timeout.ms": "it is the factory's send_timeout",
    "transactional.id": "transactions are the engine's",
    "allow.auto.create.topics": "destinations are made by create_destinations",
    "error_cb": "exception listeners receive errors",
    "logger": "the logger is kjms.kafka",
}

# A setting for one kind of client makes the other kind warn: these are for producers, or for consumers, only.
_PRODUCER_ONLY: Final = [
    "linger.ms",
    "queue.buffering.max.ms",
    "queue.buffering.max.messages",
    "queue.buffering.max.kbytes",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.type",
    "compression.level",
    "message.send.max.retries",
    "retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "sticky.partitioning.linger.ms",
    "request.required.acks",
    "request.timeout.ms",
    "queue.buffering.backpressure.threshold",
    "enable.gapless.guarantee",
    "transaction.timeout.ms",
]
_CONSUMER_ONLY: Final = [
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "partition.assignment.strategy",
    "group.protocol",
    "fetch.wait.max.ms",
    "fetch.queue.backoff.ms",
    "fetch.message.max.bytes",
    "max.partition.fetch.bytes",
    "fetch.max.bytes",
    "fetch.min.bytes",
    "fetch.error.backoff.ms",
    "queued.min.messages",
    "queued.max.messages.kbytes",
    "check.crcs",
    "client.rack",
    "coordinator.query.interval.ms",
    "group.remote.assignor",
    "auto.commit.interval.ms",
    "enable.partition.eof",
]


def check_kafka(kafka: Mapping[str, Any]) -> None:
    """Raise ValueError if *kafka* holds a setting that kjms decides; the text says why."""
    for name in kafka:
        if name in OWNED:
            raise ValueError(f"kafka[{name!r}] cannot be set: {OWNED[name]}")


def common_settings(
    bootstrap_servers: str,
    kafka: Mapping[str, Any],
    user: str | None,
    password: str | None,
    on_error: Callable[[KafkaError], None],
) -> dict[str, Any]:
    """Return what every client of an engine is made with.

    Raises:
        ValueError: *kafka* holds a setting that kjms decides; the text says why.
    """
    check_kafka(kafka)
    settings: dict[str, Any] = {
        # librdkafka waits half of it before it connects, too: 50 ms by default, for each new client.
        "reconnect.backoff.ms": 20,
        # A broker that comes back should be found again quickly.
        "reconnect.backoff.max.ms": 2_000,
        **kafka,
        "bootstrap.servers": bootstrap_servers,
        "allow.auto.create.topics": False,
        "error_cb": on_error,
        "logger": _log,
    }
    if user is not None:
        settings.setdefault("security.protocol", "SASL_SSL")
        settings.setdefault("sasl.mechanisms", settings.pop("sasl.mechanism", "PLAIN"))
        settings.update({"sasl.username": user, "sasl.password": password or ""})
    return settings


def producer_settings(common: Mapping[str, Any], **defaults: Any) -> dict[str, Any]:
    """Return a producer's settings: *defaults* (dots for underscores), then the user's."""
    chosen = {name.replace("_", "."): value for name, value in defaults.items()}
    user = {name: value for name, value in common.items() if name not in _CONSUMER_ONLY}
    settings = {
        "client.id": CLIENT_ID,
        "message.max.bytes": LARGEST_MESSAGE,
        "topic.metadata.refresh.interval.ms": METADATA_MS,
    }
    return {**settings, **chosen, **user}


class ProgramName(NamedTuple):
    """What the ``client.id`` of a consumer in a group says, where the program has not chosen one of its own.

    The broker reports nothing else about a member's program. The address that it has is that of a proxy or a
    container's host.

    >>> str(ProgramName("billing", "web-1", 42))
    'kjms-billing@web-1-42'
    >>> ProgramName.read("kjms-billing@web-1-42")
    ProgramName(application='billing', host='web-1', process_id=42)
    >>> ProgramName.read("billing") is None
    True

    Attributes:
        application: The name that the program has given, or that of what was started.
        host: The name of its host.
        process_id: The operating system's number of its process.
    """

    application: str
    host: str
    process_id: int

    def __str__(self) -> str:
        application, host = (re.sub(r"[^\w.-]", "-", each, flags=re.ASCII) for each in self[:2])
        return f"{CLIENT_ID}-{application}@{host}-{self.process_id}"

    @classmethod
    def own(cls, application: str | None = None) -> Self:
        """Return that of this process, as *application* or, without one, as what was started."""
        started = Path(sys.argv[0] if sys.argv else "")
        program = started.parent.name if started.stem == "__main__" else started.stem  # ``python -m PACKAGE``
        return cls(application or ("python" if program in {"", "-c"} else program), socket.gethostname(), os.getpid())

    @classmethod
    def read(cls, client_id: str) -> Self | None:
        """Return what *client_id* says; None: the program has chosen it."""
        found = _PROGRAM.fullmatch(client_id)
        return found and cls(found["application"], found["host"], int(found["process"]))


def admin_settings(common: Mapping[str, Any]) -> dict[str, Any]:
    """Return an admin client's settings: what is neither a producer's nor a consumer's alone."""
    mixed = {*_CONSUMER_ONLY, *_PRODUCER_ONLY}
    user = {name: value for name, value in common.items() if name not in mixed}
    # librdkafka asks for offsets with the leader and the epoch that it knows, and learns from no refusal of the epoch.
    return {"client.id": CLIENT_ID, "metadata.max.age.ms": METADATA_MS, **user}


def consumer_settings(
    common: Mapping[str, Any],
    group: str | None,
    *,
    has_one_partition: bool = False,
    application: str | None = None,
) -> dict[str, Any]:
    """Return the settings of a consumer of *application* that is in *group*, or in none.

    Args:
        common: Those of all clients.
        group: The consumer group; None: the consumer is in none.
        has_one_partition: Whether the topic has one partition.
        application: See `ProgramName.own`.
    """
    user = {name: value for name, value in common.items() if name not in _PRODUCER_ONLY}
    return {
        "client.id": CLIENT_ID if group is None else str(ProgramName.own(application)),
        # A stall costs other members' commits 0.8 s per rebalance, and the default heartbeat 3 s of waiting.
        "heartbeat.interval.ms": 500,
        "session.timeout.ms": 6_000,  # the least that brokers allow by default: a crash is noticed after that
        # A broker may fall silent while a commit waits for it, and be replaced within 10 s. What a fetch brings in one
        # answer must come in that time: the largest message, of 96 MB, at 80 Mbit/s.
        "socket.timeout.ms": 10_000,
        # An idle broker answers a fetch this late, and a partition that is assigned meanwhile waits for that.
        "fetch.wait.max.ms": 500 if has_one_partition else 100,
        "queued.max.messages.kbytes": 16_384,
        # How long a full queue is left alone: 1 s by default, in which a consumer reads much more than that.
        "fetch.queue.backoff.ms": 20,
        # How often a lost coordinator is looked for; every 10 minutes by default. Commits wait for it meanwhile.
        "coordinator.query.interval.ms": 2_000,
        "topic.metadata.refresh.interval.ms": METADATA_MS,
        **user,
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "group.id": group or "kjms.without-group",  # librdkafka wants a name even where it never joins
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
