"""See and tune the engine behind a connection: what it holds as numbers and names, and its leases and limits.

Tests of kjms use it, and tests of programs may: `statistics` answers what no JMS method does, such as how many
consumers wait, and `tuned` shortens what would have to be waited for. Both work with a real Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kjms.engine.tuning import Tuning, tuned

if TYPE_CHECKING:
    from kjms.engine import Engine, KafkaSource
    from kjms.engine.statistics import EngineStatistics, GroupConsumerStatistics

__all__ = ["Tuning", "consumer_statistics", "engine_of", "source_of", "statistics", "tuned"]

_WAYS = ("_engine", "_connection", "_context", "_session", "_consumer")


def engine_of(of: Any) -> Engine:
    """Return the engine of a connection, a session, a context, or a consumer.

    It is for tests of one part of the engine, by that part's own methods; other tests need `statistics` alone.

    Raises:
        TypeError: *of* is none of these.
    """
    found = of
    for _ in _WAYS:
        way = next((name for name in _WAYS if getattr(found, name, None) is not None), None)
        if way is None:
            break
        found = getattr(found, way)
        if way == "_engine":
            return cast("Engine", found)
    raise TypeError(f"{of!r} has no engine; give a connection, a session, a context, or a consumer")


def statistics(of: Any) -> EngineStatistics:
    """Return what the engine of a connection, a session, a context, or a consumer holds and does now.

    Raises:
        TypeError: *of* is none of these.
    """
    return engine_of(of).statistics()


def source_of(consumer: Any) -> KafkaSource:
    """Return what reads the queue or subscription of *consumer*; it is for tests of that part of the engine alone.

    Raises:
        TypeError: *consumer* is none.
    """
    found = consumer
    while getattr(found, "_slot", None) is None:
        found = getattr(found, "_consumer", None)
        if found is None:
            raise TypeError(f"{consumer!r} is not a consumer")
    return cast("KafkaSource", found._slot.reader)


def consumer_statistics(consumer: Any) -> GroupConsumerStatistics:
    """Return what waits for *consumer* and for those that share its queue or subscription, in this process.

    Raises:
        TypeError: *consumer* is none.
    """
    return source_of(consumer).statistics()
