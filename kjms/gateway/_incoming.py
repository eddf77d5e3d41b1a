"""The links by which a client sends: to a destination, by the anonymous relay, or to a temporary one that they make.

Spec: AMQP 1.0, part 3, §3.4 (delivery states); AMQP JMS mapping §5, §6.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from proton import Condition, Link

from kjms.client.brokered_session import BrokeredSession, PassthroughProducer
from kjms.errors import JMSException, ResourceAllocationException
from kjms.gateway._errors import condition_of
from kjms.gateway._link import ClientLink, LinkHost, reject
from kjms.gateway._proton import ACCEPTED, TRANSACTIONAL, Delivery, accepted_in
from kjms.gateway._terminus import destination_at, temporary_kind

if TYPE_CHECKING:
    from kjms.destinations import Destination
    from kjms.gateway._worker import Worker

__all__ = ["IncomingLink", "TemporaryDestinationLink"]


class IncomingLink(ClientLink):
    """What a client sends, to one destination or, by the anonymous relay, to that which each message names."""

    def __init__(self, host: LinkHost, worker: Worker, link: Link) -> None:
        super().__init__(host, worker, link)
        self.destination: Destination | None = None
        self._producer: PassthroughProducer | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._pending = 0  # messages that the worker has
        self._accepted: tuple[bytes | None, Any] = None, None  # of the last delivery that was accepted in a transaction
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
        self.worker.do(lambda session: session.create_passthrough_producer(self.destination), self._attached)

    def _attached(self, producer: PassthroughProducer | None, failure: Exception | None) -> None:
        if failure is not None:
            self.refuse(failure)
        elif not self.is_gone:
            self._producer = producer
            self.answer()
            self.link.max_message_size = self.host.options.max_message_size
            self.link.rcv_settle_mode = Link.RCV_FIRST
            self.link.snd_settle_mode = self.link.remote_snd_settle_mode
            self.open()
            self.link.flow(self.host.options.credit)

    def answer(self) -> None:
        """Describe to the client what it has attached to."""
        self.link.source.copy(self.link.remote_source)
        self.link.target.copy(self.link.remote_target)

    def delivery(self, delivery: Delivery) -> None:
        link = self.link
        if not self.state.is_open:
            return  # it was refused or ended: what still comes on it is dropped
        if link.credit < 0:  # the engine counts, and leaves it to us
            self.fail("amqp:link:transfer-limit-exceeded", "the client sent more messages than it was allowed")
            return
        if delivery.is_aborted:
            self._take_parts()
            link.advance()
            delivery.settle()
            link.flow(1)
            return
        has_room = True
        while size := delivery.pending:
            part = link.recv(size)
            self._size += len(part)
            self._parts.append(part)
            has_room = self.host.flow.hold_part(len(part))
        if self._size > self.host.options.max_message_size:
            limit = self.host.options.max_message_size
            text = f"a message is larger than the {limit} bytes that --max-message-size allows"
            transaction = _transaction_of(delivery)
            if transaction is not None:
                self.worker.mark_rollback_only(transaction, ResourceAllocationException(text))
            self.fail("amqp:link:message-size-exceeded", text)
        elif delivery.is_complete:
            data = self._take_parts()
            link.advance()
            self.received(delivery, data)
        elif not has_room:
            self.fail("amqp:resource-limit-exceeded", "the connection sends too many large messages at the same time")

    def _take_parts(self) -> bytes:
        """Return what has come of a message, and keep it no more."""
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self.host.flow.hold_part(-self._size)
        self._size = 0
        return data

    def lost(self) -> None:
        super().lost()
        self._take_parts()

    def fail(self, name: str, text: str) -> None:
        super().fail(name, text)
        self._take_parts()

    def _ended(self) -> None:
        super()._ended()
        self._take_parts()

    def received(self, delivery: Delivery, data: bytes) -> None:
        """Pass on a message of which all has come."""
        transaction = _transaction_of(delivery)
        is_settled = delivery.is_settled
        if is_settled:
            delivery.settle()
        self._pending += 1
        self._bytes += len(data)
        self.host.flow.hold(self.worker, len(data))
        assert self._producer is not None
        then = partial(self._sent, None if is_settled else self.keep(delivery), len(data), transaction)
        self.worker.send(self._producer, self.destination, data, transaction, then)

    def _sent(self, kept: int | None, size: int, transaction: bytes | None, failure: Exception | None) -> None:
        self._pending -= 1
        self._bytes -= size
        self.host.flow.hold(self.worker, -size)
        if failure is None:
            self.host.metrics.messages_received_total += 1
        else:
            self.host.metrics.messages_rejected_total += 1
            self.host.client.log("a message was not taken: %s", failure)
        if self.is_gone:
            return
        delivery = None if kept is None else self.take(kept)
        if not self.state.is_open:
            return
        if delivery is not None:
            if failure is not None:
                reject(delivery, Condition(*condition_of(failure)))
            elif transaction is not None:
                if transaction != self._accepted[0]:  # most come in the same one as the one before
                    self._accepted = transaction, accepted_in(transaction)
                delivery.settle_within(self._accepted[1])
            else:
                delivery.settle(ACCEPTED)
        self._grant()

    def _grant(self) -> None:
        """Grant the client new credit when half of it is used up, and what it sent has not piled up here."""
        options = self.host.options
        there = self.link.credit + self._pending
        if self.worker.is_paused:
            return
        if there <= options.credit // 2 and self._bytes <= options.max_message_size:
            self.link.flow(options.credit - there)

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        def close(_: BrokeredSession) -> None:
            if self._producer is not None:
                self._producer.close()

        self.worker.do(close, then)


class TemporaryDestinationLink(IncomingLink):
    """The link that makes a temporary destination, which lives as long as it is attached (mapping §5.3)."""

    def __init__(self, host: LinkHost, worker: Worker, link: Link) -> None:
        super().__init__(host, worker, link)
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
        return session.create_passthrough_producer(self._made)

    def answer(self) -> None:
        super().answer()
        self.link.target.address = self._made._name

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        def delete(_: BrokeredSession) -> None:
            made, self._made = self._made, None
            if self._producer is not None:
                self._producer.close()
            if made is not None:
                made.delete()

        self.worker.do(delete, then)


def _transaction_of(delivery: Delivery) -> bytes | None:
    """Return the id of the transaction that a delivery's state names."""
    return delivery.transactional[0] if delivery.remote_state == TRANSACTIONAL else None
