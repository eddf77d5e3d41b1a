"""What a transacted session does with the messages that it receives and sends (JMS 2.0 §4.4.7)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kjms.client.acknowledge_modes import Client
from kjms.engine import SessionTransaction, UnknownError
from kjms.errors import (
    IllegalStateException,
    JMSException,
    JMSSecurityException,
    TransactionRefusedException,
    TransactionRolledBackException,
)

if TYPE_CHECKING:
    from kjms.client.dead_letters import Redelivery
    from kjms.engine import Copy, Delivery, Slot
    from kjms.message import Message

__all__ = ["Transacted", "commit_failure"]


class Transacted(Client):
    """SESSION_TRANSACTED: what was received and sent since the last commit or rollback is one unit (JMS 2.0 §4.4.7).

    Messages that are sent wait here until then: no consumer sees them, and Kafka has no transaction open meanwhile.

    Args:
        redelivery: Decides what becomes of messages whose delivery failed.
        commit: Carries out what the session did; returns the reason if nothing of it came through.
        limit: How many messages may be received in one transaction; None: any number.
    """

    def __init__(
        self,
        redelivery: Redelivery,
        commit: Callable[[SessionTransaction], JMSException | None],
        limit: int | None = None,
    ) -> None:
        super().__init__(redelivery, limit)
        self._commit = commit
        self.wait_for_sends: Callable[[], object] = lambda: None  # returns when their completion listeners have
        self._sent: list[Copy] = []
        self._uncertain: list[SessionTransaction] = []  # those whose commit was interrupted

    @property
    def held(self) -> Collection[Delivery]:
        return [*self._open, *(delivery for work in self._uncertain for delivery in work.deliveries)]

    @property
    def has_received(self) -> bool:
        """Whether messages were received since the last commit or rollback."""
        return bool(self._open)

    def take_received(self) -> list[Delivery]:
        """Take out what was received, if nothing was sent: it is settled in another way. Else there is nothing."""
        if self._sent:
            return []
        received, self._open = self._open, {}
        return list(received)

    def put_back(self, received: list[Delivery]) -> None:
        """Put back what `take_received` took."""
        self._open = dict.fromkeys(received)

    def was_settled(self, received: list[Delivery]) -> None:
        """Note that *received*, which `take_received` took, was settled: the transaction is committed."""

    def sent(self, copy: Copy) -> None:
        """Note a message that is to be sent."""
        self._sent.append(copy)

    def forget_sent(self) -> None:
        """Destroy what was sent so far."""
        self._sent = []

    def acknowledge(self) -> None:
        """Do nothing: the commit acknowledges (JMS 2.0 §3.6).

        Raises:
            IllegalStateException: The session is closed.
        """
        self._check_open()

    def commit(self) -> JMSException | None:
        """Send what was sent, and acknowledge what was received; return the reason if it is to be rolled back."""
        sent, received = self._sent, self._open
        if not sent and not received:
            return None
        work = SessionTransaction(sent, list(received))
        self._sent, self._open = [], {}  # a close meanwhile gives nothing back that may be committed
        try:
            failure = self._commit(work)
        except BaseException:
            if work.is_handed_over:
                self._uncertain.append(work)
            else:
                self._sent, self._open = sent, received
            raise
        if failure is not None:
            self._open = received
        return failure

    def acknowledge_now(self, message: Message) -> None:
        """Refuse it: the commit acknowledges, together with what was sent."""
        raise IllegalStateException("acknowledge: the session is transacted, and its commit acknowledges")

    def listener_failed(self, delivery: Delivery, error: BaseException) -> Slot | None:
        """Roll back, and carry out a verdict on the message; else leave it to the application (JMS 2.0 §4.5.2)."""
        if delivery in self._open and self._redelivery.judges(delivery, error):
            self.wait_for_sends()
            return self.rollback(judges=True)
        return None

    def rollback(self, *, judges: bool = False) -> Slot | None:
        """Destroy what was sent, have what was received delivered again, and return whose the oldest of that is.

        Args:
            judges: Whether the exception that is handled now may be a verdict on the message that was received last.
        """
        self._sent = []
        return self._deliver_again("its transaction was rolled back", judges=judges)

    def interrupt(self) -> None:
        self._sent = []
        super().interrupt()

    def close(self) -> None:
        self._sent = []
        super().close()


def commit_failure(failure: JMSException) -> JMSException:
    """Return the error of a commit that came to nothing because of *failure*, or whose outcome is unknown."""
    if isinstance(failure, UnknownError):
        return JMSException(f"commit: {failure}", failure.error_code, failure)
    is_refused = isinstance(failure, JMSSecurityException)
    kind = TransactionRefusedException if is_refused else TransactionRolledBackException
    return kind(f"commit: the transaction was rolled back: {failure}", failure.error_code, failure)
