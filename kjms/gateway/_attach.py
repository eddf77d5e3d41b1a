"""Which link it is that a client attaches, and those that carry no messages: unsubscribing, and its transactions.

Spec: AMQP 1.0, part 4 (transactions); AMQP JMS mapping §7.3, §8.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from proton import Condition, Delivery, Link, Terminus

from kjms.client.brokered_session import BrokeredSession
from kjms.errors import InvalidClientIDException, InvalidDestinationException, JMSException, MessageFormatException
from kjms.gateway._errors import condition_of
from kjms.gateway._links import UNKNOWN_ID, ClientLink, Receiving, Sending, Temporary, reject
from kjms.gateway._terminus import capabilities, describe, subscription_name
from kjms.gateway._transactions import UnknownTransaction
from kjms.gateway._worker import Worker
from kjms.mapping.amqp import AmqpMessage
from kjms.mapping.amqp import types as amqp

if TYPE_CHECKING:
    from collections.abc import Callable

    from kjms.engine import Terms
    from kjms.gateway._connection import AmqpConnection

__all__ = ["link_of"]

DECLARED: Final = 0x33
DECLARE: Final = 0x31
DISCHARGE: Final = 0x32
ROLLBACK: Final = "amqp:transaction:rollback"
INTERNAL: Final = "amqp:internal-error"


def link_of(connection: AmqpConnection, worker: Worker, link: Link) -> ClientLink:
    """Return what serves a link that the client attaches."""
    if link.is_sender:
        source = link.remote_source
        if source.type == Terminus.UNSPECIFIED or (source.address is None and not source.dynamic):
            return Unsubscriber(connection, worker, link)
        return Sending(connection, worker, link)
    target = link.remote_target
    if target.type == Terminus.COORDINATOR:
        return Coordinator(connection, worker, link)
    return Temporary(connection, worker, link) if target.dynamic else Receiving(connection, worker, link)


class Unsubscriber(ClientLink):
    """A receiver without a source: it asks for a durable subscription by its name, to end it (mapping §7.3, §8.8).

    A subscription of the client's own container comes first. A global one is ended only by a client that means it: Qpid
    JMS says so by desired capabilities, which the engine does not pass on, and by the link name's suffix.
    """

    def __init__(self, connection: AmqpConnection, worker: Worker, link: Link) -> None:
        super().__init__(connection, worker, link)
        self._name = subscription_name(link.name)
        self._is_global = False
        self._is_found = False

    def attach(self) -> None:
        self.worker.do(self._look, self._attached)

    def _look(self, session: BrokeredSession) -> tuple[Terms, bool] | None:
        """Return what the subscription is, and whether it is a global one; None: there is none."""
        may_be_global = self.link_name.partition("|")[2].startswith("global")
        for is_global in (False, True) if may_be_global else (False,):
            if not is_global:
                try:
                    self.connection.need_client_id(session)
                except InvalidClientIDException:  # another connection has it, and with it the container's subscriptions
                    if may_be_global:
                        continue
                    raise
            found = session.durable_subscription(self._name, is_global=is_global)
            if found is not None:
                return found, is_global
        return None

    def _attached(self, found: tuple[Terms, bool] | None, failure: Exception | None) -> None:
        if failure is None and found is None:
            failure = InvalidDestinationException(f"there is no subscription {self._name!r}")
        if failure is not None:
            self.refuse(failure)
        elif not self.is_gone and found is not None:
            self._is_found = True
            terms, self._is_global = found
            describe(self.link.source, terms, is_global=self._is_global)
            self.link.target.copy(self.link.remote_target)
            self.open()

    def detach(self, *, is_closed: bool) -> None:
        if not self._is_found or not is_closed:
            self.finish(is_closed=is_closed)
            return
        self.worker.do(
            lambda session: session.end_subscription(self._name, is_global=self._is_global),
            lambda _, failure: self.finish(is_closed=True, failure=failure),
        )


class Coordinator(Receiving):
    """Where a client declares and discharges transactions, each of one session (part 4, §4.3)."""

    def attach(self) -> None:
        if "amqp:local-transactions" not in (capabilities(self.link.remote_target) or {"amqp:local-transactions"}):
            self.refuse(JMSException("transactions are local ones"))
            return
        self.answer()
        self.link.target.type = Terminus.COORDINATOR
        self.open()
        self.link.flow(self.connection.options.credit)

    def received(self, delivery: Delivery, data: bytes) -> None:
        self.link.flow(1)
        try:
            values = AmqpMessage.decode(data).body.values
            request = values[0] if values else None
            if not isinstance(request, amqp.Described) or not isinstance(request.value, list):
                raise MessageFormatException("a coordinator takes declare and discharge (AMQP 1.0 §4.5)")
            if request.descriptor in {DECLARE, "amqp:declare:list"}:
                self._declare(delivery)
            elif request.descriptor in {DISCHARGE, "amqp:discharge:list"}:
                number, *rest = [*request.value, None]
                self._discharge(delivery, number, is_commit=not (rest and rest[0] is True))
            else:
                raise MessageFormatException("a coordinator takes declare and discharge (AMQP 1.0 §4.5)")
        except MessageFormatException as failure:
            reject(delivery, failure)
            delivery.settle()

    def _declare(self, delivery: Delivery) -> None:
        number = self.connection.new_transaction()
        self.worker.begin(number)
        delivery.local.data = [number]
        delivery.update(DECLARED)
        delivery.settle()

    def _discharge(self, delivery: Delivery, number: bytes, *, is_commit: bool) -> None:
        kept = self.keep(delivery)

        def discharged(_: None, failure: Exception | None) -> None:
            if self.is_gone:
                return
            delivery = self.take(kept)
            if failure is None:
                delivery.update(Delivery.ACCEPTED)
            else:
                name = UNKNOWN_ID if isinstance(failure, UnknownTransaction) else self._rolled_back(failure)
                delivery.local.condition = Condition(name, str(failure))
                delivery.update(Delivery.REJECTED)
            delivery.settle()

        self.worker.end_transaction(number, is_commit=is_commit, then=discharged)

    def _rolled_back(self, failure: Exception) -> str:
        """Return the error of a commit that failed (part 4, §4.5.8).

        Qpid JMS (2.10) takes the one that is meant for it as a sign that the outcome is not known, and every other one
        as a roll-back.
        """
        name, _ = condition_of(failure)
        if not self.connection.is_qpid_jms:
            return ROLLBACK
        return INTERNAL if name == ROLLBACK else name

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        then(None, None)
