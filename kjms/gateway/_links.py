"""The links of a client in the loop's thread: what it sends, and what it receives.

Spec: AMQP 1.0, part 2, §2.6 (links); part 3, §3.4 (delivery states); AMQP JMS mapping §5 to §9.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from proton import Condition, Delivery, Endpoint, Link, Terminus

from kjms.client.brokered_session import BrokeredSession, PassthroughProducer
from kjms.destinations import Destination
from kjms.errors import JMSException, ResourceAllocationException
from kjms.gateway._errors import LinkStolen, condition_of
from kjms.gateway._proton import ACCEPTED, TRANSACTIONAL, accepted_in, settle, settle_within, transactional
from kjms.gateway._source import LinkSource, Outcome
from kjms.gateway._terminus import Wanted, destination_at, temporary_kind, wanted
from kjms.gateway._transactions import UnknownTransaction
from kjms.gateway._worker import Worker

if TYPE_CHECKING:
    from kjms.engine import Delivery as Handed
    from kjms.gateway._connection import AmqpConnection

__all__ = ["UNKNOWN_ID", "ClientLink", "Receiving", "Sending", "Temporary", "refuse", "reject"]

UNKNOWN_ID: Final = "amqp:transaction:unknown-id"
OUTGOING_BYTES: Final = 512 << 10  # that the engine holds of a session before more is given to it


def refuse(link: Link, name: str, text: str) -> None:
    """Answer an attach with a link that leads nowhere, and end it with an error (part 2, §2.6.3)."""
    link.source.type = link.target.type = Terminus.UNSPECIFIED
    link.open()
    link.condition = Condition(name, text)
    link.close()


class ClientLink:
    """A link, from its attach to its detach.

    Args:
        connection: The client's.
        worker: Of the link's session.
        link: The engine's link.
    """

    def __init__(self, connection: AmqpConnection, worker: Worker, link: Link) -> None:
        self.connection = connection
        self.worker = worker
        self.link = link  # until the client has no answer to get any more
        self.link_name = link.name
        self._kept: dict[int, Delivery] = {}  # those that wait for a worker's answer
        self.is_gone = False  # whether there is nobody any more who wants an answer
        self.is_open = False
        self.is_leaving = False  # whether it is about to end
        self.name: Hashable = None  # by which the gateway knows it, while it does

    @property
    def is_busy(self) -> bool:
        """Whether the client has sent what is not answered yet."""
        return False

    def attach(self) -> None:
        """Answer the client's attach, at once or later."""
        raise NotImplementedError

    def enter(self) -> None:
        """Take the link's name from whoever has it; `named` goes on when that is gone.

        Raises:
            IllegalStateException: It is not to be had.
        """
        self.connection.link_names.enter(self, (self.connection.number, self.link.is_sender, self.link_name))

    def named(self) -> None:
        """Go on with the attach: nobody else has the link's name."""
        raise NotImplementedError

    def replaces(self, other: ClientLink) -> bool:
        """Tell whether this link, which comes again, may take the place of *other*, of the same name."""
        return True

    def steal(self, *, is_attached: bool) -> None:
        """End the link: another has its name (part 2, §2.6.1).

        Args:
            is_attached: Whether it had the name; else it was still waiting for it.
        """
        stolen = LinkStolen("another link of that name has taken its place")
        self.is_leaving = True
        self.connection.log("link %r stolen", self.link_name)
        if is_attached:
            self.shut(lambda _, failure: self.finish(is_closed=True, failure=stolen))
        else:
            self.refuse(stolen)

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        """Have closed what the link uses, and *then* called."""
        then(None, None)

    def detach(self, *, is_closed: bool) -> None:
        """Answer the client's detach; closed says that it wants the link no more."""
        self.is_leaving = True
        self.shut(lambda _, failure: self.finish(is_closed=is_closed, failure=failure))

    def lost(self) -> None:
        """Note that the client is gone; the worker's end closes what it has, and gives up the link's name."""
        self.is_gone = self.is_leaving = True

    def keep(self, delivery: Delivery) -> int:
        """Keep a delivery that a worker's answer is for, and return the number that `take` returns it for.

        The worker is given the number: the last reference to the delivery stays in the loop's thread.
        """
        self._kept[id(delivery)] = delivery
        return id(delivery)

    def take(self, kept: int) -> Delivery:
        """Return a delivery that was kept, and keep it no more."""
        return self._kept.pop(kept)

    def let_go(self) -> None:
        """Let go of the engine's objects: the last reference to this link may be a worker's, or in a cycle."""
        del self.link
        self._kept.clear()

    def flow(self) -> None:
        """Note that the client's credit changed."""

    def delivery(self, delivery: Delivery) -> None:
        """Note that a delivery has news."""

    def refuse(self, failure: Exception) -> None:
        """Answer an attach with why there is no link."""
        if self.is_gone:
            return
        self.connection.log("link %r refused: %s", self.link_name, failure)
        refuse(self.link, *condition_of(failure))
        self._is_over()

    def fail(self, name: str, text: str) -> None:
        """End the link with an error."""
        if not self.is_gone:
            self.connection.log("link %r ended: %s", self.link_name, text)
            self.link.condition = Condition(name, text)
            self.link.close()
            self.is_open = False

    def finish(self, *, is_closed: bool, failure: Exception | None = None) -> None:
        """Answer a detach."""
        if self.is_gone:
            return
        if failure is not None:
            self.link.condition = Condition(*condition_of(failure))
        if is_closed:
            self.link.close()
        else:
            self.link.detach()
        self._is_over()

    def _is_over(self) -> None:
        self.is_gone = True
        self.connection.forget(self)
        self.connection.link_names.leave(self)

    def open(self) -> None:
        """Answer the attach with what the client asked for."""
        self.is_open = True
        self.link.open()


class Receiving(ClientLink):
    """What a client sends, to one destination or, by the anonymous relay, to that which each message names."""

    def __init__(self, connection: AmqpConnection, worker: Worker, link: Link) -> None:
        super().__init__(connection, worker, link)
        self.destination: Destination | None = None
        self._forwarder: PassthroughProducer | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._pending = 0  # messages that the worker has
        self._state: tuple[bytes | None, Any] = None, None  # of the last delivery that was accepted in a transaction
        self._bytes = 0

    @property
    def is_busy(self) -> bool:
        return self._pending > 0

    def attach(self) -> None:
        try:
            if self.link.remote_target.address is not None:
                self.destination = destination_at(self.link.remote_target)
        except JMSException as failure:
            self.refuse(failure)
        else:
            self.enter()

    def named(self) -> None:
        self.worker.do(lambda session: session.create_forwarder(self.destination), self._attached)

    def _attached(self, forwarder: PassthroughProducer | None, failure: Exception | None) -> None:
        if failure is not None:
            self.refuse(failure)
        elif not self.is_gone:
            self._forwarder = forwarder
            self.answer()
            self.link.max_message_size = self.connection.options.max_message_size
            self.link.rcv_settle_mode = Link.RCV_FIRST
            self.link.snd_settle_mode = self.link.remote_snd_settle_mode
            self.open()
            self.link.flow(self.connection.options.credit)

    def answer(self) -> None:
        """Say to the client what it has attached to."""
        self.link.source.copy(self.link.remote_source)
        self.link.target.copy(self.link.remote_target)

    def delivery(self, delivery: Delivery) -> None:
        link = self.link
        if not self.is_open:
            return  # it was refused or ended: what comes on it still is for nobody
        if link.credit < 0:  # the engine counts, and leaves it to us
            self.fail("amqp:link:transfer-limit-exceeded", "the client sent more messages than it was allowed")
            return
        if delivery.aborted:
            self._take_parts()
            link.advance()
            delivery.settle()
            link.flow(1)
            return
        has_room = True
        while delivery.pending:
            part = link.recv(delivery.pending)
            self._size += len(part)
            self._parts.append(part)
            has_room = self.connection.hold_part(len(part))
        if self._size > self.connection.options.max_message_size:
            said = f"a message is larger than the {self.connection.options.max_message_size} bytes that are allowed"
            transaction = _transaction_of(delivery)
            if transaction is not None:
                self.worker.mark_rollback_only(transaction, ResourceAllocationException(said))
            self.fail("amqp:link:message-size-exceeded", said)
        elif not delivery.partial and delivery.readable:
            data = self._take_parts()
            link.advance()
            self.received(delivery, data)
        elif not has_room:
            self.fail("amqp:resource-limit-exceeded", "the connection sends too many large messages at the same time")

    def _take_parts(self) -> bytes:
        """Return what has come of a message, and keep it no more."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.connection.hold_part(-self._size)
        self._size = 0
        return data

    def lost(self) -> None:
        super().lost()
        self._take_parts()

    def fail(self, name: str, text: str) -> None:
        super().fail(name, text)
        self._take_parts()

    def _is_over(self) -> None:
        super()._is_over()
        self._take_parts()

    def received(self, delivery: Delivery, data: bytes) -> None:
        """Pass on a message of which all has come."""
        transaction = _transaction_of(delivery)
        is_settled = delivery.settled
        if is_settled:
            delivery.settle()
        self._pending += 1
        self._bytes += len(data)
        self.connection.hold(self.worker, len(data))
        assert self._forwarder is not None
        then = partial(self._sent, None if is_settled else self.keep(delivery), len(data), transaction)
        self.worker.send(self._forwarder, self.destination, data, transaction, then)

    def _sent(self, kept: int | None, size: int, transaction: bytes | None, failure: Exception | None) -> None:
        self._pending -= 1
        self._bytes -= size
        self.connection.hold(self.worker, -size)
        if failure is None:
            self.connection.metrics.messages_received_total += 1
        else:
            self.connection.metrics.messages_rejected_total += 1
            self.connection.log("a message was not taken: %s", failure)
        if self.is_gone:
            return
        delivery = None if kept is None else self.take(kept)
        if not self.is_open:
            return
        if delivery is not None:
            if failure is not None:
                reject(delivery, failure)
                delivery.settle()
            elif transaction is not None:
                if transaction != self._state[0]:  # most come in the same one as the one before
                    self._state = transaction, accepted_in(transaction)
                settle_within(delivery, self._state[1])
            else:
                settle(delivery, ACCEPTED)
        self._grant()

    def _grant(self) -> None:
        """Let the client go on when half of its credit is used up, and what it sent has not piled up here."""
        options = self.connection.options
        there = self.link.credit + self._pending
        if self.worker.is_paused:
            return
        if there <= options.credit // 2 and self._bytes <= options.max_message_size:
            self.link.flow(options.credit - there)

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        def close(_: BrokeredSession) -> None:
            if self._forwarder is not None:
                self._forwarder.close()

        self.worker.do(close, then)


class Temporary(Receiving):
    """The link that makes a temporary destination, which lives as long as it is attached (mapping §5.3)."""

    def __init__(self, connection: AmqpConnection, worker: Worker, link: Link) -> None:
        super().__init__(connection, worker, link)
        self._made: Any = None

    def attach(self) -> None:
        self.enter()

    def named(self) -> None:
        kind = temporary_kind(self.link.remote_target)
        self.worker.do(lambda session: self._make(session, kind.__name__), self._attached)

    def _make(self, session: BrokeredSession, kind: str) -> PassthroughProducer:
        is_topic = kind == "TemporaryTopic"
        self._made = session.create_temporary_topic() if is_topic else session.create_temporary_queue()
        self.destination = self._made
        return session.create_forwarder(self._made)

    def answer(self) -> None:
        super().answer()
        self.link.target.address = self._made._name

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        def delete(_: BrokeredSession) -> None:
            made, self._made = self._made, None
            if self._forwarder is not None:
                self._forwarder.close()
            if made is not None:
                made.delete()

        self.worker.do(delete, then)


class Sending(ClientLink):
    """What a client receives."""

    def __init__(self, connection: AmqpConnection, worker: Worker, link: Link) -> None:
        super().__init__(connection, worker, link)
        is_settled = link.remote_snd_settle_mode == Link.SND_SETTLED
        self.source = LinkSource(self, is_settled=is_settled, max_unsettled=connection.options.max_unsettled)
        self._wanted: Wanted | None = None
        self._queue: deque[tuple[Handed | None, bytes]] = deque()
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
            self.connection.link_names.enter(self, (*self.connection.who, self.link_name))

    def replaces(self, other: ClientLink) -> bool:
        if self._wanted is None or self._wanted.subscription is None:
            return True
        return isinstance(other, Sending) and self._wanted == other._wanted

    def named(self) -> None:
        if self._wanted is None:
            kind = temporary_kind(self.link.remote_source)
            self.worker.do(lambda session: self._make(session, kind.__name__), self._attached)
        else:
            self.worker.do(self._open, self._attached)

    def _open(self, session: BrokeredSession) -> None:
        assert self._wanted is not None
        if self._wanted.subscription is not None and not self._wanted.is_global:
            self.connection.need_client_id(session)
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
            self.flow()

    def flow(self) -> None:
        if self.is_open:
            self.worker.request(self.source, self._sent + self.link.credit, is_draining=self.link.drain_mode)

    def send(self, batch: Sequence[tuple[Handed | None, bytes]]) -> None:
        """Send messages to the client, or keep them until it takes some."""
        self._queue.extend(batch)
        self.push()

    def push(self) -> None:
        """Give the engine what it has room for."""
        if self.is_gone or not self.is_open:
            self.worker.consumed(sum(len(data) for _, data in self._queue))
            self._queue.clear()
            return
        link, queue = self.link, self._queue
        session, size = link.session, 0
        while queue and session.outgoing_bytes < OUTGOING_BYTES and not self.connection.is_congested:
            handed, data = queue.popleft()
            delivery = link.delivery(str(next(self._tags)))
            delivery.handed = handed
            link.send(data)
            link.advance()
            if self.source.is_settled or handed is None:
                delivery.settle()
            self._sent += 1
            self.connection.metrics.messages_sent_total += 1
            size += len(data)
        self.worker.consumed(size)
        if queue:
            self.connection.congested.add(self)
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
        if not delivery.updated:
            return
        handed = getattr(delivery, "handed", None)
        state = delivery.remote_state
        transaction, stated = transactional(delivery) if state == TRANSACTIONAL else (None, state)
        outcome = self._outcome_of(delivery, stated, transaction)
        if outcome is None:
            return
        if handed is None:
            delivery.settle()
            return
        then = None
        if not delivery.settled:
            then = partial(self._told, self.keep(delivery), state, transaction)
        delivery.handed = None
        if then is None:
            delivery.settle()
        self.connection.tell(self, *outcome, handed, then)

    def _outcome_of(
        self, delivery: Delivery, state: int, transaction: bytes | None
    ) -> tuple[Outcome, bytes | None, str] | None:
        """Return what is to become of a message, in which transaction and why; None: nothing yet."""
        if state == Delivery.ACCEPTED:
            return Outcome.ACCEPTED, transaction, ""
        if state == Delivery.RELEASED:
            return Outcome.RELEASED, transaction, ""
        if state == Delivery.REJECTED:
            condition = delivery.remote.condition
            said = f": {condition.name} {condition.description or ''}".rstrip() if condition is not None else ""
            return Outcome.REJECTED, None, f"rejected by the client{said}"
        if state == Delivery.MODIFIED:
            if delivery.remote.undeliverable:
                return Outcome.REJECTED, None, "the client says that it cannot be delivered there"
            return (Outcome.FAILED if delivery.remote.failed else Outcome.RELEASED), None, "the client gave it back"
        return (Outcome.FAILED, None, "the client settled it without an outcome") if delivery.settled else None

    def _told(self, kept: int, state: int, transaction: bytes | None, failure: Exception | None) -> None:
        if self.is_gone:
            return
        delivery = self.take(kept)
        if isinstance(failure, UnknownTransaction):
            self.fail(UNKNOWN_ID, str(failure))
            return
        if transaction is None:
            delivery.update(state if failure is None else Delivery.RELEASED)
        delivery.settle()

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
        self.is_open = False
        its = self._wanted

        def close(session: BrokeredSession) -> None:
            self.worker.close_source(self.source)
            made, self._made = self._made, None
            if made is not None:
                made.delete()
            if self._is_to_end and its is not None and its.is_durable and its.subscription is not None:
                session.end_subscription(its.subscription, is_global=its.is_global)

        self.worker.do(close, then)


def reject(delivery: Delivery, failure: Exception) -> None:
    """Say that a message was not taken, and why."""
    delivery.local.condition = Condition(*condition_of(failure))
    delivery.update(Delivery.REJECTED)


def _transaction_of(delivery: Delivery) -> bytes | None:
    """Return the id of the transaction that a delivery's state names."""
    return transactional(delivery)[0] if delivery.remote_state == TRANSACTIONAL else None
