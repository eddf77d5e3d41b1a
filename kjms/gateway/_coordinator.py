"""The link by which a client declares and discharges its transactions.

Spec: AMQP 1.0, part 4 (transactions).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from proton import Condition, Terminus

from kjms.errors import JMSException, MessageFormatException
from kjms.gateway._errors import condition_of
from kjms.gateway._incoming import IncomingLink
from kjms.gateway._link import UNKNOWN_ID, reject
from kjms.gateway._proton import ACCEPTED, Delivery
from kjms.gateway._terminus import capabilities
from kjms.gateway._transactions import UnknownTransaction
from kjms.mapping.amqp import AmqpMessage
from kjms.mapping.amqp import types as amqp

__all__ = ["CoordinatorLink"]

DECLARED: Final = 0x33
DECLARE: Final = 0x31
DISCHARGE: Final = 0x32
ROLLBACK: Final = "amqp:transaction:rollback"
INTERNAL: Final = "amqp:internal-error"


class CoordinatorLink(IncomingLink):
    """Where a client declares and discharges transactions, each of one session (part 4, §4.3)."""

    def attach(self) -> None:
        if "amqp:local-transactions" not in (capabilities(self.link.remote_target) or {"amqp:local-transactions"}):
            self.refuse(JMSException("transactions are local ones"))
            return
        self.answer()
        self.link.target.type = Terminus.COORDINATOR
        self.open()
        self.link.flow(self.host.options.credit)

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
            reject(delivery, Condition(*condition_of(failure)))

    def _declare(self, delivery: Delivery) -> None:
        number = self.host.new_transaction()
        self.worker.begin(number)
        whole = delivery.whole
        whole.local.data = [number]
        whole.update(DECLARED)
        whole.settle()

    def _discharge(self, delivery: Delivery, number: bytes, *, is_commit: bool) -> None:
        kept = self.keep(delivery)

        def discharged(_: None, failure: Exception | None) -> None:
            if self.is_gone:
                return
            delivery = self.take(kept)
            if failure is None:
                delivery.settle(ACCEPTED)
            else:
                name = UNKNOWN_ID if isinstance(failure, UnknownTransaction) else self._rolled_back(failure)
                reject(delivery, Condition(name, str(failure)))

        self.worker.end_transaction(number, is_commit=is_commit, then=discharged)

    def _rolled_back(self, failure: Exception) -> str:
        """Return the error of a commit that failed (part 4, §4.5.8).

        Qpid JMS (2.10) takes the one that is meant for it as a sign that the outcome is not known, and every other one
        as a roll-back.
        """
        name, _ = condition_of(failure)
        if not self.host.client.is_qpid_jms:
            return ROLLBACK
        return INTERNAL if name == ROLLBACK else name

    def shut(self, then: Callable[[Any, Exception | None], None]) -> None:
        then(None, None)
