"""What a named subscription is: its identity, its terms, and how the registry keeps them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from kjms.destinations import Topic
from kjms.engine.admin.claims import Claim, Claims, resource
from kjms.engine.kafka import IN_USE
from kjms.errors import JMSException
from kjms.mapping.internal import read_array
from kjms.mapping.names import subscription_group
from kjms.selector import Selector, parse_selector

__all__ = [
    "ACTIVE",
    "DURABLE",
    "INACTIVE",
    "NON_DURABLE",
    "SILENT",
    "Found",
    "Identity",
    "Space",
    "Terms",
    "group_of",
    "has_consumers",
    "in_order",
    "is_first",
    "is_of_other_kind",
    "owners",
]

Space = Literal["durable", "non-durable"]
DURABLE: Final = "durable"
NON_DURABLE: Final = "non-durable"
ACTIVE: Final = "active"
INACTIVE: Final = "inactive"
SILENT: Final = "not answering"


class Identity(NamedTuple):
    """What a subscription is found by: two that differ in any of it have nothing to do with each other."""

    space: Space
    client_id: str | None
    name: str

    @property
    def resource(self) -> str:
        """How the registry calls it."""
        return resource(self.space, self.client_id, self.name)

    @classmethod
    def of(cls, resource: str) -> Identity | None:
        """Return what a definition's *resource* names; None: no subscription."""
        try:
            space, client_id, name = read_array(resource.encode())
        except ValueError:  # MalformedError is one, as is another number of parts
            return None
        if space not in (DURABLE, NON_DURABLE) or not isinstance(name, str) or not isinstance(client_id, str | None):
            return None
        return cls(space, client_id, name)

    def __str__(self) -> str:
        whose = "" if self.client_id is None else f" of client {self.client_id!r}"
        return f"{self.space} subscription {self.name!r}{whose}"


@dataclass(frozen=True)
class Terms:
    """What makes a subscription another one, although its identity is the same.

    Args:
        destination: Its topic.
        topic: The Kafka topic.
        selector: Which messages it wants; None is all.
        no_local: Whether it leaves out what its own client sends.
        is_shared: Whether it may have several consumers.
    """

    destination: Topic
    topic: str
    selector: Selector | None
    no_local: bool
    is_shared: bool

    def written(self) -> dict[str, Any]:
        """Return them as a definition in the registry has them."""
        return {
            "destination": self.destination.topic_name,
            "topic": self.topic,
            "selector": None if self.selector is None else self.selector.text,
            "no_local": self.no_local,
            "shared": self.is_shared,
        }

    @classmethod
    def read(cls, definition: Mapping[str, Any]) -> Terms:
        """Return those that stand in a definition.

        Raises:
            InvalidSelectorException: Its selector cannot be read.
        """
        selector = parse_selector(definition.get("selector"))
        is_shared, no_local = definition.get("shared", False), definition.get("no_local", False)
        return cls(Topic(definition["destination"]), definition["topic"], selector, no_local, is_shared)


@dataclass(frozen=True)
class Found:
    """A subscription as `Subscriptions.find` found it.

    Attributes:
        state: ``active``: a consumer is there; ``inactive``: none is; ``not answering``: one was, and its program does
            not answer.
        starts: Where each partition of its topic ended when it was made.
        delayed_before: Where each partition of the topic's delayed messages ended then.
    """

    identity: Identity
    terms: Terms
    group: str
    state: str
    starts: tuple[int, ...] = ()
    delayed_before: tuple[int, ...] = ()


def owners(claims: Claims, client_id: str) -> set[str]:
    """Return the users to whom durable subscriptions of *client_id* belong."""
    definitions = [(Identity.of(each.resource), each) for each in claims.definitions()]
    found = [
        definition.value.get("owner")
        for identity, definition in definitions
        if identity and identity.space == DURABLE and identity.client_id == client_id
    ]
    return {owner for owner in found if isinstance(owner, str)}


def group_of(identity: Identity, definition: Claim) -> str:
    """Return the consumer group of the subscription *identity* with *definition*."""
    return subscription_group(definition.value["topic"], identity.name, identity.client_id, definition.offset)


def in_order(offsets: Mapping[int, int]) -> list[int]:
    """Return *offsets* in the order of their partitions."""
    return [offset for _, offset in sorted(offsets.items())]


def is_first(claims: Claims, claim: Claim) -> bool:
    """Return whether *claim* is the one that counts."""
    first = claims.first(claim.key.partition(":")[0], claim.resource)
    return first is not None and first.key == claim.key


def is_of_other_kind(identity: Identity, there: Terms) -> JMSException:
    """Return the error for a consumer of the other kind: shared or unshared."""
    kind = "shared" if there.is_shared else "unshared"
    return JMSException(
        f"{identity} is {kind}, and stays so until it is unsubscribed (JMS 2.0 §6.11.5, §6.11.6)", IN_USE
    )


def has_consumers(identity: Identity, there: Terms, wanted: Terms) -> JMSException:
    """Return the error for a consumer that would change a subscription with consumers."""
    if there == wanted:
        return JMSException(f"{identity} has a consumer, and may have only one (JMS 2.0 §6.11.5)", IN_USE)
    other = [
        name
        for name, is_other in (
            ("topic", there.topic != wanted.topic),
            ("selector", there.selector != wanted.selector),
            ("no_local", there.no_local != wanted.no_local),
        )
        if is_other
    ]
    return JMSException(
        f"{identity} has a consumer, so its {' and '.join(other)} cannot change (JMS 2.0 §6.11)", IN_USE
    )
