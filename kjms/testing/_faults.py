"""Faults that a test asks an in-memory Kafka for: failures, lost answers, late requests, absent clients, refusals."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from kjms.engine.kafka import KafkaError

__all__ = ["Fault", "Faults", "LateRequest", "Operation", "Refusal", "Repeated", "Right", "lost"]

Operation: TypeAlias = Literal[
    "produce",
    "read",
    "join",
    "commit",
    "committed",
    "list_offsets",
    "describe",
    "describe_configs",
    "create_topic",
    "alter_topic",
    "alter_configs",
    "delete_topic",
    "delete_records",
    "describe_groups",
    "delete_group",
    "init_transactions",
    "send_offsets",
    "commit_transaction",
    "abort_transaction",
]
"""What a client asks brokers for. ``commit`` and ``committed`` are a group's offsets, ``describe`` is metadata."""

Repeated: TypeAlias = Literal["send_offsets", "commit_transaction", "abort_transaction"]
"""Requests of a transaction that the client repeats by itself."""

Right: TypeAlias = Literal["Read", "Write", "Create", "Delete", "Alter", "AlterConfigs", "Describe", "DescribeConfigs"]
"""What an ACL of Kafka allows."""

RIGHTS: Final[dict[str, Right]] = {
    "produce": "Write",
    "read": "Read",
    "join": "Read",
    "commit": "Read",
    "committed": "Read",
    "list_offsets": "Describe",
    "describe": "Describe",
    "describe_configs": "DescribeConfigs",
    "create_topic": "Create",
    "alter_topic": "Alter",
    "alter_configs": "AlterConfigs",
    "delete_topic": "Delete",
    "delete_records": "Delete",
    "describe_groups": "Describe",
    "delete_group": "Delete",
    "init_transactions": "Write",
    "send_offsets": "Read",
    "commit_transaction": "Write",
    "abort_transaction": "Write",
}
TRANSACTIONAL: Final = frozenset({"init_transactions", "send_offsets", "commit_transaction", "abort_transaction"})
# What librdkafka's calls raise where no broker answers in time; _TIMED_OUT where nothing else is said.
UNANSWERED: Final = {
    "describe": KafkaError._TRANSPORT,
    "commit": KafkaError._WAIT_COORD,
}
COORDINATOR_SECONDS: Final = 2.0
"""How long a commit waits for brokers that are away (``coordinator.query.interval.ms``, as kjms sets it)."""


@dataclasses.dataclass
class Fault:
    """A fault of one kind of requests.

    Attributes:
        operation: Which requests.
        error: What the client receives.
        times: How many of them are left.
        is_carried_out: Whether the request is carried out all the same.
        topic: Only those about that topic.
        group: Only those about that group.
        client_id: Only those of clients with that ``client.id``.
        is_confirmed: Whether the client receives a confirmation instead.
    """

    operation: str
    error: KafkaError
    times: int
    is_carried_out: bool
    topic: str | None
    group: str | None
    client_id: str | None
    is_confirmed: bool = False

    def meets(self, operation: str, topic: str, group: str, client_id: str) -> bool:
        """Return whether it is one of such requests."""
        return (
            self.operation == operation
            and self.topic in {None, topic}
            and self.group in {None, group}
            and self.client_id in {None, client_id}
        )


class LateRequest:
    """A request that was cut off on its way, which the client has repeated; it may still arrive.

    Attributes:
        operation: Which request.
        client_id: Only that of a client with that ``client.id``.
    """

    def __init__(self, operation: Repeated, client_id: str | None, lock: threading.RLock) -> None:
        self.operation = operation
        self.client_id = client_id
        self._lock = lock
        self._arrives: Callable[[], int] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a client has made the request, and repeated it."""
        return self._arrives is not None

    def cut(self, arrives: Callable[[], int]) -> None:
        """Keep the request; the caller holds the cluster's lock."""
        self._arrives = arrives

    def arrive(self) -> int:
        """Have the request arrive now.

        Returns:
            The error code that the broker answers; 0 where it does what it was asked for.

        Raises:
            ValueError: No client has made such a request.
        """
        with self._lock:
            if self._arrives is None:
                raise ValueError(f"no client has made a request {self.operation!r} that could arrive late")
            return self._arrives()


@dataclasses.dataclass(eq=False)
class Refusal:
    """A right that is withheld: of a topic, a group or a transactional id; None: of every one."""

    right: Right
    topic: str | None
    group: str | None
    id: str | None


class Faults:
    """What goes wrong; the cluster's lock is held by all that use it.

    Attributes:
        away: Whose clients reach no broker, by their ``client.id``, and how often that was said; None: all clients.
        killed: Whose clients have ended.
    """

    def __init__(self) -> None:
        self.away: dict[str | None, int] = {}
        self.killed: set[str] = set()
        self.faults: list[Fault] = []
        self.late: list[LateRequest] = []
        self.refusals: list[Refusal] = []

    def is_away(self, client_id: str) -> bool:
        """Return whether the client reaches no broker."""
        return bool(self.away) and (None in self.away or client_id in self.away)

    def refusal(self, operation: str, *, topic: str = "", group: str = "", id: str = "") -> KafkaError | None:
        """Return the error with which the cluster refuses *operation*, for want of a right."""
        for refusal in self.refusals:
            if refusal.right != RIGHTS[operation]:
                continue
            if refusal.topic is not None and refusal.topic == topic:
                return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
            if refusal.group is not None and refusal.group == group:
                return KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
            if refusal.id is not None and refusal.id == id:
                return KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return None

    def next(self, operation: str, client_id: str, *, topic: str = "", group: str = "") -> Fault | None:
        """Return the fault that the next request of that kind meets, and count it."""
        for fault in self.faults:
            if fault.meets(operation, topic, group, client_id):
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                return fault
        return None

    def next_late(self, operation: str, client_id: str) -> LateRequest | None:
        """Return what is to become of the next request of that kind, if it is to be cut off."""
        for late in self.late:
            if late.operation == operation and late.client_id in {None, client_id}:
                self.late.remove(late)
                return late
        return None


def lost(operation: str) -> KafkaError:
    """Return the error of an *operation* to which there is no answer."""
    if operation == "produce":
        return KafkaError(KafkaError._MSG_TIMED_OUT)
    if operation in TRANSACTIONAL:
        return KafkaError(KafkaError._TIMED_OUT, "Local: Timed out", retriable=True)
    return KafkaError(UNANSWERED.get(operation, KafkaError._TIMED_OUT))
