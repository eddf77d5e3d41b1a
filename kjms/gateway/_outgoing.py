"""The links by which a client receives: from a queue, a subscription, a browser, or a temporary destination.

Spec: AMQP 1.0, part 3, §3.4 (delivery states); AMQP JMS mapping §5, §7 to §9.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proton import Endpoint, Link

from kjms.gateway._errors import condition_of
from kjms.gateway._link import UNKNOWN_ID, ClientLink, LinkHost
from kjms.gateway._proton import ACCEPTED, MODIFIED, REJECTED, RELEASED, TRANSACTIONAL, Delivery, send
from kjms.gateway._source import LinkSource, Outcome
from kjms.gateway._states import LinkEvent
from kjms.gateway._terminus import Wanted, temporary_kind, wanted
from kjms.gateway._transactions import UnknownTransaction

if TYPE_CHECKING:
    from kjms.client.brokered_session import BrokeredSession
    from kjms.engine import Delivery as KafkaDelivery
    from kjms.gateway._worker import Worker

__all__ = ["OutgoingLink"]

OUTGOING_BYTES: Final = 512 << 10  # that the engine holds of a session before more is given to it


class OutgoingLink(ClientLink):
    """What a client receives."""

    def __init__(self, host: LinkHost, worker: Worker, link: Link) -> None:
        super().__init__(host, worker, link)
        is_settled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self.source = LinkSource(self, is_settled=is_settled, max_unsettled=host.options.max_unsettled)
        self._wanted: Wanted | None = None
        self._queue: deque[tuple[KafkaDelivery | None, bytes]] = deque()
        self._unsettled: dict[int, KafkaDelivery] = {}  # what the client has; by addresses of deliveries
        self._tags = itertools.count(1)
        self._sent = 0
        self._is_drained = False
        self._made: Any = None  # the node of a dynamic source
        self._is_to_end = False  # whether its subscription is, too

    def attach(self) -> None:
        source = self.link.remote_source
        if not source.dynamic:
            self._wanted = wanted(self.link_name, source)
        self.enter()

    def enter(self) -> None:
        if self._wanted is None or self._wanted.subscription is None:
            super().enter()
        else:  # a subscription outlives connections: its client may come again by another one
            self.host.link_names.enter(self, (*self.host.client.subscriber, self.link_name))

    def replaces(self, other: ClientLink) -> bool:
        if self._wanted is None or self._wanted.subscription is None:
            return True
        return isinstance(other, OutgoingLink) and self._wanted == other._wanted

    def named(self) -> None:
        if self._wanted is None:
            kind = temporary_kind(self.link.remote_source)
            self.worker.do(lambda session: self._make(session, kind.__name__), self._attached)
        else:
            self.worker.do(self._open, self._attached)

    def _open(self, session: BrokeredSession) -> None:
        assert self._wanted is not None
        if self._wanted.subscription is not None and not self._wanted.is_global:
            self.host.access.need_client_id(session)
        self.worker.open_source(self.source, self._wanted)

    def _make(self, session: BrokeredSession, kind: str) -> None:
        is_topic = kind == "TemporaryTopic"
        self._made = session.create_temporary_topic() if is_topic else session.create_temporary_queue()
        self._wanted = Wanted(self._made)
        self._open(session)

    def _attached(self, _: None, failure: Exception | None) -> None:
        if failure is not None:
            self.refuse(failure)
        elif not self.is_gone:
            self.link.source.copy(self.link.remote_source)
            self.link.target.copy(self.link.remote_target)
            if self._made is not None:
                self.link.source.address = self._made._name
            self.link.snd_settle_mode = Link.SND_SETTLED if self.source.is_settled else Link.SND_UNSETTLED
            self.link.rcv_settle_mode = self.link.remote_rcv_settle_mode
            self.open()
            its = self._wanted
            if its is not None and its.subscription is not None and its.is_durable and its.is_global:
                self.host.link_names.attached_to_global(self.host.client.subscriber, its.subscription)
            self.flow()

    def flow(self) -> None:
        if self.state.is_open:
            self.worker.request(self.source, self._sent + self.link.credit, is_draining=self.link.drain_mode)

    def send(self, batch: Sequence[tuple[KafkaDelivery | None, bytes]]) -> None:
        """Send messages to the client, or keep them until it takes some."""
        self._queue.extend(batch)
        self.push()

    def push(self) -> None:
        """Give the engine what it has room for."""
        if not self.state.is_open:
            self.worker.consumed(sum(len(data) for _, data in self._queue))
            self._queue.clear()
            return
        link, queue, flow = self.link, self._queue, self.host.flow
        room = 0 if flow.is_congested() else OUTGOING_BYTES - link.session.outgoing_bytes
        size = count = 0
        while queue and size < room:
            received, data = queue.popleft()
            tag = b"%d" % next(self._tags)
            if self.source.is_settled or received is None:
                send(link, tag, data, is_settled=True)
            else:
                self._unsettled[send(link, tag, data, is_settled=False)] = received
            size += len(data)
            count += 1
        self._sent += count
        self.host.metrics.messages_sent_total += count
        self.worker.consumed(size)
        if queue:
            flow.congested.add(self)
        else:
            self.worker.loop_has_room()
            if self._is_drained:
                self._is_drained = False
                link.drained()

    def drained(self) -> None:
        """Tell the client that there is nothing more, after what waits here."""
        self._is_drained = True
        self.push()

    def delivery(self, delivery: Delivery) -> None:
        if not delivery.is_updated:
            return
        state = delivery.remote_state
        transaction, stated = delivery.transactional if state == TRANSACTIONAL else (None, state)
        outcome = self._outcome_of(delivery, stated, transaction)
        if outcome is None:
            return
        received = self._unsettled.pop(delivery.address, None)
        if received is None:
            delivery.settle()
            return
        then = None
        if delivery.is_settled:
            delivery.settle()
        else:
            then = partial(self._settled, self.keep(delivery), state, transaction)
        self.host.outcomes.add(self.worker, self.source, *outcome, received, then)

    def _outcome_of(
        self, delivery: Delivery, state: int, transaction: bytes | None
    ) -> tuple[Outcome, bytes | None, str] | None:
        """Return what is to become of a message, in which transaction and why; None: nothing yet."""
        if state == ACCEPTED:
            return Outcome.ACCEPTED, transaction, ""
        if state == RELEASED:
            return Outcome.RELEASED, transaction, ""
        if state == REJECTED:
            condition = delivery.whole.remote.condition
            reason = f": {condition.name} {condition.description or ''}".rstrip() if condition is not None else ""
            return Outcome.REJECTED, None, f"rejected by the client{reason}"
        if state == MODIFIED:
            modified = delivery.whole.remote
            if modified.undeliverable:
                return Outcome.UNDELIVERABLE, None, "the client found it undeliverable"
            return (Outcome.FAILED if modified.failed else Outcome.RELEASED), None, "the client gave it back"
        return (Outcome.FAILED, None, "the client settled it without an outcome") if delivery.is_settled else None

    def _settled(self, kept: int, state: int, transaction: bytes | None, failure: Exception | None) -> None:
        if self.is_gone:
            return
        delivery = self.take(kept)
        if isinstance(failure, UnknownTransaction):
            self.fail(UNKNOWN_ID, str(failure))
            return
        if transaction is None:
            delivery.settle(state if failure is None else RELEASED)
        else:
            delivery.settle()

    def interrupted(self, outcome: Outcome, cause: str) -> None:
        """Settle what the client was sent and did not answer; what it was not sent was not delivered."""
        queued = self.link.queued  # by the engine, the last ones
        sent = list(self._unsettled.values())[: len(self._unsettled) - queued]
        if sent:
            self.worker.settle(self.source, outcome, sent, None, cause, None)

    def let_go(self) -> None:
        super().let_go()
        self._unsettled.clear()

    def fail(self, name: str | Exception, text: str = "") -> None:
        """End the link with an error."""
        if isinstance(name, Exception):
            name, text = condition_of(name)
        super().fail(name, text)

    def detach(self, *, is_closed: bool) -> None:
        # The answer to a link that was ended here ends no subscription.
        self._is_to_end = is_closed and not self.is_leaving and bool(self.link.state & Endpoint.LOCAL_ACTIVE)
        super().detach(is_closed=is_closed)

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        self.happens(LinkEvent.STOPPED)
        its = self._wanted

        def close(session: BrokeredSession) -> None:
            self.worker.close_source(self.source)
            made, self._made = self._made, None
            if made is not None:
                made.delete()
            if self._is_to_end and its is not None and its.is_durable and its.subscription is not None:
                session.end_subscription(its.subscription, is_global=its.is_global)

        self.worker.do(close, then)
