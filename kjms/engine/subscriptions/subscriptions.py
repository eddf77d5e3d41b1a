"""The named subscriptions of one engine: made, shared, changed and ended by JMS's rules, among all processes.

    durable        kept until `remove`; its messages wait while it has no consumer. Unshared: one consumer at a time.
    non-durable    shared, and kept while a consumer is open in any process.

A subscription is a definition in the registry and a consumer group, whose first offsets are committed before a consumer
can use it. An engine with consumers on it says so in the registry by one claim, a *use*.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kjms.engine.admin.claims import DEFINITION, USE, Claim, Claims, resource
from kjms.engine.admin.registry import LEASE_EXPIRED, Registry
from kjms.engine.consumer.consumer_slot import ConsumerSlot
from kjms.engine.consumer.kafka_source import KafkaSource
from kjms.engine.kafka import (
    IN_USE,
    KafkaException,
    TopicPartition,
    jms_error,
)
from kjms.engine.subscriptions.definitions import (
    ACTIVE,
    DURABLE,
    INACTIVE,
    NON_DURABLE,
    SILENT,
    Found,
    Identity,
    Terms,
    group_of,
    has_consumers,
    in_order,
    is_first,
    is_of_other_kind,
    owners,
)
from kjms.engine.threads import start_thread
from kjms.errors import (
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    JMSException,
)
from kjms.mapping.names import handover, interest, overflow
from kjms.selector import Selector

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics

__all__ = ["Subscriptions"]

_log = logging.getLogger("kjms.subscriptions")

CLIENT: Final = "client"  # the claims on client identifiers

OnLost = Callable[["ConsumerSlot", JMSException], None]
Opener = Callable[[str, Mapping[int, int]], "KafkaSource"]


@dataclass(eq=False)
class Subscription:
    """One that this process has consumers on, or messages of that are not acknowledged."""

    identity: Identity
    terms: Terms
    definition: Claim
    use: Claim
    source: KafkaSource
    wanted: Selector | None
    slots: dict[ConsumerSlot, OnLost] = field(default_factory=dict)
    is_ended: bool = False

    @property
    def group(self) -> str:
        return group_of(self.identity, self.definition)

    @property
    def has_messages_in_flight(self) -> bool:
        """Whether messages were received that are not settled."""
        return self.source.has_messages_in_flight


class ClientClaim(NamedTuple):
    """A client identifier that a connection of this process has."""

    client_id: str
    owner: str | None
    on_lost: Callable[[JMSException], None]


class Subscriptions:
    """The engine's part in the subscriptions of all processes.

    Args:
        registry: Where all processes agree on them.
        topics: What is known of the cluster's topics.
        timeout: Seconds to wait for Kafka.
        ends_of_delayed: Gives the end of each partition with a topic's messages that are not due yet.
        forget: Deletes the copies of what a group committed for these topics and partitions.
    """

    def __init__(
        self,
        registry: Registry,
        topics: Topics,
        timeout: float,
        ends_of_delayed: Callable[[str], Mapping[int, int]],
        forget: Callable[[str, Iterable[tuple[str, int]]], None],
    ) -> None:
        self._forget = forget
        self._registry = registry
        self._topics = topics
        self._timeout = timeout
        self._ends_of_delayed = ends_of_delayed
        self._lock = threading.Lock()
        self._turns: dict[Identity, list[Any]] = {}  # a lock, and how many want it
        self._open: dict[Identity, Subscription] = {}
        self._by_source: dict[KafkaSource, Subscription] = {}  # also those that are not ours any more
        self._clients: dict[str, ClientClaim] = {}  # by their keys in the registry

    def __repr__(self) -> str:
        return f"<Subscriptions: {len(self._open)} open, {len(self._clients)} client ids>"

    def names(self) -> list[str]:
        """Return which named subscriptions are open, as ``NAME`` or ``CLIENT-ID/NAME``."""
        identities = list(self._open.copy())
        return sorted(i.name if i.client_id is None else f"{i.client_id}/{i.name}" for i in identities)

    def client_ids(self) -> list[str]:
        """Return the client identifiers that are claimed."""
        return sorted(claim.client_id for claim in self._clients.copy().values())

    # Client identifiers (JMS 2.0 §4.3.2).

    def claim_client(self, client_id: str, on_lost: Callable[[JMSException], None], owner: str | None = None) -> str:
        """Make *client_id* that of one connection, among all processes, and return what to `release_client`.

        Args:
            client_id: The client identifier.
            on_lost: Called in a thread of its own when another program has taken it.
            owner: The user that durable subscriptions made with it belong to; it may have no client id of another
                user's; "" is a client without a name. None: a program that Kafka itself lets in, which may have any.

        Raises:
            InvalidClientIDException: A connection has it, or it belongs to another user.
            JMSException: The broker does not answer.
        """
        of = resource(CLIENT, client_id)
        refusal = InvalidClientIDException(f"client id {client_id!r} is in use by another connection (JMS 2.0 §4.3.2)")
        with self._registry.locked(of) as claims:
            users = {claim.engine for claim in claims.all(USE, of)}
            if users and self._registry.one_lives(users):
                raise refusal
            if owner is not None and owners(claims, client_id) - {owner}:
                raise InvalidClientIDException(
                    f"client id {client_id!r} belongs to another user, who has durable subscriptions under it"
                )
            use = self._registry.put(USE, {"resource": of})
            self._clients[use.key] = ClientClaim(client_id, owner, on_lost)
            if not is_first(claims, use):
                self.release_client(use.key)
                raise refusal
        return use.key

    def release_client(self, key: str) -> None:
        """Let others have a client identifier; trouble is logged."""
        if self._clients.pop(key, None) is not None:
            self._take_away([key])

    def _owner_of(self, identity: Identity, claims: Claims) -> str | None:
        """Return the user that a durable subscription is to belong to: that of its client identifier, or as before."""
        if identity.space != DURABLE or identity.client_id is None:
            return None
        clients = list(self._clients.values())
        owner = next((client.owner for client in clients if client.client_id == identity.client_id), None)
        before = claims.first(DEFINITION, identity.resource)
        return owner if owner or before is None else before.value.get("owner")

    # Consumers come.

    def open(
        self,
        identity: Identity,
        terms: Terms,
        wanted: Selector | None,
        wakeup: threading.Event,
        open_source: Opener,
        on_lost: OnLost,
    ) -> ConsumerSlot:
        """Return a slot for a new consumer of a subscription, which is made or made anew where JMS says so.

        Args:
            identity: Which subscription.
            terms: What it is to be.
            wanted: What decides about messages: the selector, with what no_local adds to it.
            wakeup: The consumer's; see `ConsumerSlot`.
            open_source: Creates the source of a consumer group; its second argument is where each partition of delayed
                messages ended when the subscription was made.
            on_lost: Called in a thread of its own when another program has taken the subscription.

        Raises:
            JMSException: It has a consumer, and may have no other; or a consumer keeps it from being changed; or it
                is shared and should not be, or the other way round.
        """
        with self._turn(identity):
            mine = self._open.get(identity)
            if mine is None:
                mine = self._begin(identity, terms, wanted, open_source)
            else:
                _check_mine(mine, terms)
            slot = ConsumerSlot(mine.source, mine.wanted, wakeup)
            mine.slots[slot] = on_lost
            if self._open.get(identity) is mine and self._registry.counts(mine.use.key, mine.definition.key):
                return slot
            self._open.pop(identity, None)  # it was lost before its consumer was there
        self.leave([slot])
        self._registry.take_away([mine.use.key], wait=False)
        raise JMSException(f"{identity}: another program changed it meanwhile; try again", IN_USE)

    def _begin(self, identity: Identity, terms: Terms, wanted: Selector | None, open_source: Opener) -> Subscription:
        registry = self._registry
        with registry.locked(identity.resource) as claims:
            owner = self._owner_of(identity, claims)
            definition = self._usable(claims, identity, terms)
            is_new = definition is None
            if definition is None:
                value = terms.written()
                value["delayed"] = in_order(self._ends_of_delayed(terms.topic))  # first: what is moved now is in both
                value["starts"] = in_order(self._topics.ends(terms.topic))
                if owner:
                    value["owner"] = owner
                definition = registry.put(DEFINITION, {"resource": identity.resource, **value})
            group = group_of(identity, definition)
            self._commit_starts(group, terms.topic, definition.value["starts"], is_new=is_new)
            before = dict(enumerate(definition.value.get("delayed", ())))
            use = registry.put(USE, {"resource": identity.resource, "definition": definition.key})
            try:
                # All of it is checked again, since this process may have slept while others made changes.
                if not is_first(claims, definition) or not (terms.is_shared or is_first(claims, use)):
                    raise JMSException(f"{identity}: another program changed it meanwhile; try again", IN_USE)
                mine = Subscription(identity, terms, definition, use, open_source(group, before), wanted)
            except BaseException:
                registry.take_away([use.key], wait=False)
                raise
            with self._lock:
                self._open[identity] = self._by_source[mine.source] = mine
            return mine

    def _usable(self, claims: Claims, identity: Identity, terms: Terms) -> Claim | None:
        """Return the definition that a consumer with *terms* can use; None, after ending what there was.

        Raises:
            JMSException: There is one that it cannot use, and that cannot be ended.
        """
        definition = claims.first(DEFINITION, identity.resource)
        if definition is None:
            self._end(claims, identity)
            return None
        there = Terms.read(definition.value)
        if there.is_shared != terms.is_shared:
            raise is_of_other_kind(identity, there)
        is_same = there == terms
        users = {claim.engine for claim in claims.all(USE, identity.resource)}
        if users and not (is_same and terms.is_shared and identity.space == DURABLE):
            if self._registry.one_lives(users):
                if not is_same or not terms.is_shared:
                    raise has_consumers(identity, there, terms)
                return definition
            users = set()
        if is_same and (users or identity.space == DURABLE):
            return definition
        self._end(claims, identity)
        return None

    def _commit_starts(self, group: str, topic: str, starts: Iterable[int], *, is_new: bool) -> None:
        """Commit where *group* starts to read, where it has no offset: it is new, or its maker was killed too early.

        Raises:
            JMSException: Kafka did not take it.
        """
        try:
            known = set() if is_new else self._committed(group, topic, len(list(starts)))
            missing = [
                TopicPartition(topic, number, start) for number, start in enumerate(starts) if number not in known
            ]
            if not missing:
                return
            self._topics.commit(group, missing)
        except KafkaException as error:
            raise jms_error(error, f"commit where group {group!r} starts", group=group) from error

    def _committed(self, group: str, topic: str, count: int) -> set[int]:
        places = [TopicPartition(topic, number) for number in range(count)]
        return {known.partition for known in self._topics.committed(group, places) if known.offset >= 0}

    # Consumers go.

    def keeps(self, source: KafkaSource) -> bool:
        """Tell whether *source* is a subscription's, to be closed by `leave` alone."""
        return source in self._by_source

    def leave(self, slots: Collection[ConsumerSlot]) -> None:
        """Note that consumers are closed; subscriptions that have none left here are let go.

        A durable one whose messages are received and not acknowledged is let go later: when they are, and another
        consumer or session closes. Never raises: what Kafka does not take now, it gets when it answers.
        """
        for slot in slots:
            subscription = self._by_source.get(slot.reader) if isinstance(slot.reader, KafkaSource) else None
            if subscription is not None:
                subscription.slots.pop(slot, None)
        with contextlib.ExitStack() as turns:
            idle = [subscription for subscription in list(self._by_source.values()) if self._may_go(subscription)]
            for identity in sorted({subscription.identity for subscription in idle}, key=str):
                turns.enter_context(self._turn(identity))
            self._let_go([subscription for subscription in idle if self._may_go(subscription)])

    def _may_go(self, subscription: Subscription) -> bool:
        if subscription.slots or subscription.source not in self._by_source:
            return False
        return not subscription.has_messages_in_flight or (
            subscription.identity.space == NON_DURABLE and self._open.get(subscription.identity) is subscription
        )

    def _let_go(self, going: Collection[Subscription]) -> None:
        """Close the group consumers of *going*, all at the same time, and then release their uses."""
        ours = [subscription for subscription in going if self._open.get(subscription.identity) is subscription]
        for subscription in ours:
            del self._open[subscription.identity]
        unread = [subscription for subscription in going if not subscription.has_messages_in_flight]
        for subscription in unread:
            subscription.source.begin_to_close()
        for subscription in unread:
            subscription.source.close()
            self._by_source.pop(subscription.source, None)
        self._take_away([subscription.use.key for subscription in ours if subscription.identity.space == DURABLE])
        for subscription in ours:
            if subscription.identity.space == NON_DURABLE:
                self._end_if_last(subscription)
        for subscription in unread:
            if subscription.is_ended:  # while its last messages were not acknowledged yet
                self._delete_group(subscription.terms.topic, subscription.group)

    def _end_if_last(self, subscription: Subscription) -> None:
        """Leave a non-durable subscription, and end it where no process has a consumer on it."""
        registry, identity = self._registry, subscription.identity
        try:
            with registry.locked(identity.resource) as claims:
                registry.take_away([subscription.use.key])
                if not claims.all(USE, identity.resource):
                    registry.take_away([claim.key for claim in claims.all(DEFINITION, identity.resource)])
                    subscription.is_ended = True
        except JMSException as failure:
            _log.warning("%s could not be ended: %s", identity, failure)
            registry.take_away([subscription.use.key], wait=False)

    def _take_away(self, keys: Collection[str]) -> None:
        if not keys:
            return
        try:
            self._registry.take_away(keys)
        except JMSException as failure:  # it is tried again
            _log.warning("other programs do not know yet which subscriptions were closed: %s", failure)

    def lost(self, key: str) -> None:
        """Report, in a thread of its own, that the claim *key* was removed by another process."""
        failure = JMSException(f"{LEASE_EXPIRED}, and has its place now")
        client = self._clients.pop(key, None)
        if client is not None:
            start_thread(lambda: client.on_lost(failure), "kjms-client-id-lost")
            return
        with self._lock:
            mine = next((s for s in self._open.values() if key in {s.use.key, s.definition.key}), None)
            if mine is None:
                return
            del self._open[mine.identity]
        self._registry.take_away([mine.use.key], wait=False)
        failure = JMSException(f"{mine.identity}: {failure}")

        def report() -> None:
            for slot, on_lost in list(mine.slots.items()):
                on_lost(slot, failure)
            self.leave(list(mine.slots))

        start_thread(report, "kjms-subscription-lost")

    # Ending and finding.

    def remove(self, identity: Identity) -> None:
        """End a durable subscription (JMS 2.0 §6.11.5): nothing is left of it.

        Raises:
            InvalidDestinationException: There is none.
            IllegalStateException: It has an open consumer, in any process, or messages received from it are not
                acknowledged.
        """
        of = identity.resource
        with self._turn(identity):
            mine = self._open.get(identity)
            if mine is not None:
                if mine.slots or mine.has_messages_in_flight:
                    why = "has an open consumer" if mine.slots else "has messages that are not acknowledged"
                    raise IllegalStateException(f"unsubscribe: {identity} {why} (JMS 2.0 §6.11.5)")
                self._let_go([mine])
            with self._registry.locked(of) as claims:
                if claims.first(DEFINITION, of) is None:
                    raise InvalidDestinationException(f"unsubscribe: there is no {identity}")
                users = {claim.engine for claim in claims.all(USE, of)}
                if users and self._registry.one_lives(users):
                    raise IllegalStateException(
                        f"unsubscribe: {identity} has an open consumer, or messages that are not acknowledged, in"
                        " another program (JMS 2.0 §6.11.5)"
                    )
                self._end(claims, identity)

    def _end(self, claims: Claims, identity: Identity) -> None:
        """Take away all definitions of *identity* with what their groups have committed; the caller has its lock."""
        definitions = claims.all(DEFINITION, identity.resource)
        if not definitions:
            return
        self._registry.take_away([definition.key for definition in definitions])
        for definition in definitions:
            self._delete_group(definition.value["topic"], group_of(identity, definition))

    def _delete_group(self, topic: str, group: str) -> None:
        """Delete what *group* has committed, and its overflow topic; what fails, Kafka deletes later."""
        doing = f"delete group {group!r} of a subscription that has ended"
        topics = [overflow(topic, group), handover(topic, group), interest(topic, group)]
        try:
            self._topics.coordinators.delete(group, is_left=True)
            there = self._topics.counts([topic, *topics])
            self._topics.delete(topics, self._timeout)
            self._forget(group, [(each, number) for each, count in there.items() for number in range(count)])
        except (KafkaException, JMSException) as error:
            _log.info("%s", jms_error(error, doing) if isinstance(error, KafkaException) else f"{doing}: {error}")

    def look_up(self, identity: Identity) -> Terms | None:
        """Return what *identity* is the subscription of; None: there is no such one.

        Raises:
            JMSException: The broker does not answer.
        """
        with self._registry.reading() as claims:
            self._registry.catch_up()
            definition = claims.first(DEFINITION, identity.resource)
        return None if definition is None else Terms.read(definition.value)

    def find(self) -> list[Found]:
        """Return the subscriptions of all processes that have a name; others than ours are asked whether they live.

        Raises:
            JMSException: The broker does not answer.
        """
        registry = self._registry
        with registry.reading() as claims:
            registry.catch_up()
            definitions = list(claims.definitions())
            users = {d.key: {use.engine for use in claims.all(USE, d.resource)} for d in definitions}
            alive = registry.living(set().union(*users.values()))
        found = []
        for definition in definitions:
            identity = Identity.of(definition.resource)
            engines = users[definition.key]
            if identity is None or not (engines or identity.space == DURABLE):
                continue  # another program's, or it ended when its last consumer did
            try:
                terms = Terms.read(definition.value)
            except JMSException as error:
                _log.warning("%s is left out: %s", identity, error)
                continue
            state = ACTIVE if engines & alive else SILENT if engines else INACTIVE
            starts, delayed = (tuple(definition.value.get(key, ())) for key in ("starts", "delayed"))
            found.append(Found(identity, terms, group_of(identity, definition), state, starts, delayed))
        return sorted(found, key=lambda entry: (entry.identity.name, entry.identity.client_id or "", entry.group))

    def close(self) -> None:
        """Let go of everything: the engine ends."""
        self._let_go(list(self._by_source.values()))

    @contextlib.contextmanager
    def _turn(self, identity: Identity) -> Iterator[None]:
        """Let the threads of this process see to one subscription one after the other."""
        with self._lock:
            turn = self._turns.setdefault(identity, [threading.RLock(), 0])
            turn[1] += 1
        try:
            with turn[0]:
                yield
        finally:
            with self._lock:
                turn[1] -= 1
                if not turn[1]:
                    del self._turns[identity]


def _check_mine(mine: Subscription, terms: Terms) -> None:
    """Raise what forbids another consumer with *terms* on a subscription of this process."""
    if mine.terms.is_shared != terms.is_shared:
        raise is_of_other_kind(mine.identity, mine.terms)
    if mine.slots and not (terms.is_shared and mine.terms == terms):
        raise has_consumers(mine.identity, mine.terms, terms)
    if mine.terms != terms:
        raise JMSException(
            f"{mine.identity} cannot be changed while messages from it are not acknowledged (JMS 2.0 §6.11.5)",
            IN_USE,
        )
