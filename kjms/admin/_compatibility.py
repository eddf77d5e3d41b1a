"""What kjms needs of a Kafka, in one table, and what a trial says of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kjms.engine import Failure, Pong

__all__ = ["NEEDS", "Fitness", "Need", "Ping", "State", "fitness", "needs_table", "ping_of"]

State: TypeAlias = Literal["ok", "missing", "unknown"]

APIS: Final[Mapping[str, int]] = {
    "Produce": 0,
    "Fetch": 1,
    "ListOffsets": 2,
    "Metadata": 3,
    "OffsetCommit": 8,
    "OffsetFetch": 9,
    "FindCoordinator": 10,
    "JoinGroup": 11,
    "Heartbeat": 12,
    "LeaveGroup": 13,
    "SyncGroup": 14,
    "DescribeGroups": 15,
    "ListGroups": 16,
    "CreateTopics": 19,
    "DeleteTopics": 20,
    "DeleteRecords": 21,
    "InitProducerId": 22,
    "AddPartitionsToTxn": 24,
    "AddOffsetsToTxn": 25,
    "EndTxn": 26,
    "TxnOffsetCommit": 28,
    "DescribeConfigs": 32,
    "CreatePartitions": 37,
    "DeleteGroups": 42,
    "IncrementalAlterConfigs": 44,
}
"""Kafka's numbers of the requests."""

RELEASES: Final = {7: "2.1", 8: "2.4", 9: "2.8", 10: "3.7", 11: "3.8", 12: "4.0", 13: "4.1"}
"""The first Kafka that takes a version of Produce: the request changes with every few releases."""


class Need(NamedTuple):
    """Something that kjms needs of a Kafka.

    Attributes:
        name: What it is.
        purpose: What kjms does with it.
        apis: The requests, each with the version that brokers must take, or a later one.
        step: What the trial does; "": it does not try it.
        otherwise: What is worse without it; "": kjms does not work without it.
    """

    name: str
    purpose: str
    apis: Mapping[str, int]
    step: str
    otherwise: str = ""


NEEDS: Final[Sequence[Need]] = (
    Need("create topics", "queues, topics, and those that kjms keeps beside them", {"CreateTopics": 4}, "create"),
    Need(
        "keep records without limit, and read the settings of topics",
        "queues keep what was not consumed; dead letters, overflow",
        {"DescribeConfigs": 1},
        "settings",
    ),
    Need("compacted topics", "registry, bookkeeping", {"CreateTopics": 4}, "compact"),
    Need(
        "topic ids",
        "notice that a topic was deleted and made again",
        {"Metadata": 10},
        "ids",
        "a topic that is made again while programs run is not noticed",
    ),
    Need(
        "transactions",
        "transacted sessions, moves, delayed messages",
        {"InitProducerId": 0, "FindCoordinator": 1, "AddPartitionsToTxn": 0, "EndTxn": 0, "Produce": 3},
        "send",
    ),
    Need(
        "headers, times and keys of records are kept",
        "messages",
        {"Produce": 3, "Fetch": 4, "Metadata": 4, "ListOffsets": 2},
        "read",
    ),
    Need("aborted records stay invisible", "rollback", {"Fetch": 4, "ListOffsets": 2}, "abort"),
    Need(
        "classic consumer groups, and offsets in transactions",
        "sharing a queue, and receiving in transactions",
        {
            "JoinGroup": 0,
            "SyncGroup": 0,
            "Heartbeat": 0,
            "LeaveGroup": 0,
            "OffsetFetch": 1,
            "AddOffsetsToTxn": 0,
            "TxnOffsetCommit": 3,
        },
        "group",
    ),
    Need(
        "commit metadata of 4,000 characters",
        "settling single messages",
        {"OffsetCommit": 2, "OffsetFetch": 1},
        "metadata",
        "more messages go to the overflow topic",
    ),
    Need(
        "delete records",
        "settled messages take no space",
        {"DeleteRecords": 0},
        "truncate",
        "queues keep settled messages, and their logs grow without end",
    ),
    Need("add partitions", "transfer partitions, delayed messages", {"CreatePartitions": 0}, "grow"),
    Need(
        "list, describe and delete groups",
        "administration; the end of subscriptions",
        {"ListGroups": 0, "DescribeGroups": 0, "DeleteGroups": 0},
        "groups",
    ),
    Need("delete topics", "temporary destinations, the end of subscriptions", {"DeleteTopics": 0}, "delete"),
    Need(
        "change the settings of topics",
        "`kjms doctor --repair`",
        {"IncrementalAlterConfigs": 0},
        "",
        "the command names the settings, and you change them",
    ),
)
"""All that kjms needs; the page on clusters has the same table."""


@dataclass(frozen=True)
class Fitness:
    """Whether a cluster has something that kjms needs.

    Attributes:
        name: What it is.
        purpose: What kjms does with it.
        state: ``ok``; ``missing``: the cluster cannot do it; ``unknown``: it was not tried, or this user may not do it.
        required: Whether kjms does not work without it.
        detail: What is missing, or why it is unknown; empty if it is there.
    """

    name: str
    purpose: str
    state: State
    required: bool
    detail: str = ""


@dataclass(frozen=True)
class Ping:
    """How a cluster answers.

    Attributes:
        cluster: Its id.
        brokers: The addresses of its brokers.
        milliseconds: How long a question and its answer take, on a connection that is up: the shortest of three.
        release: The first release of Apache Kafka that takes such requests, such as ``4.1``: this one is like it, or
            later. None: the broker does not say.
    """

    cluster: str
    brokers: tuple[str, ...]
    milliseconds: float
    release: str | None


def ping_of(pong: Pong) -> Ping:
    """Return what *pong* says, for people."""
    _, last = pong.apis.get(APIS["Produce"], (0, 0))
    release = RELEASES.get(min(last, max(RELEASES)))
    return Ping(pong.cluster, pong.brokers, pong.milliseconds, release)


def fitness(apis: Mapping[int, tuple[int, int]], tried: Mapping[str, Failure | None]) -> list[Fitness]:
    """Return, for each of `NEEDS`, whether it is there.

    Args:
        apis: The first and the last version of each request that a broker takes; empty: unknown.
        tried: Why each step of the trial failed; None: it did not.
    """
    return [_fitness(need, apis, tried) for need in NEEDS]


def _fitness(need: Need, apis: Mapping[int, tuple[int, int]], tried: Mapping[str, Failure | None]) -> Fitness:
    state, detail = _state(need, apis, tried)
    if state == "missing" and need.otherwise:
        detail = f"{detail}; {need.otherwise}"
    return Fitness(need.name, need.purpose, state, not need.otherwise, detail)


def _state(need: Need, apis: Mapping[int, tuple[int, int]], tried: Mapping[str, Failure | None]) -> tuple[State, str]:
    lacking = [f"{name} {version}" for name, version in need.apis.items() if apis.get(APIS[name], (0, -1))[1] < version]
    if apis and lacking:
        return "missing", f"the broker does not take the requests {', '.join(lacking)}"
    failure = tried[need.step] if need.step else None
    if failure is not None:
        return "missing" if failure.is_certain else "unknown", failure.text
    if not need.step and not apis:
        return "unknown", "the broker does not say which requests it takes"
    return "ok", ""


def needs_table() -> list[str]:
    """Return `NEEDS` as the lines of a table in Markdown."""
    lines = ["| Needed | For | Requests, from version | Without it |", "|---|---|---|---|"]
    for need in NEEDS:
        apis = ", ".join(f"{name} {version}" for name, version in need.apis.items())
        lines.append(f"| {need.name} | {need.purpose} | {apis} | {need.otherwise or 'kjms does not work'} |")
    return lines
