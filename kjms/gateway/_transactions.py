"""The transactions of one AMQP session: what was sent in each, and which ones can only be rolled back.

Spec: AMQP 1.0, part 4 (transactions).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kjms.errors import JMSException, ResourceAllocationException

if TYPE_CHECKING:
    from kjms.client.brokered_session import BrokeredSession, Transacted

__all__ = ["Transactions", "UnknownTransaction"]


class UnknownTransaction(JMSException):
    """A transaction that was not declared, or is over."""


class Transactions:
    """The open transactions of a session, by their ids; used by the session's thread.

    Args:
        session: The session.
        max_size: How many bytes may be sent in a transaction.

    Attributes:
        are_used: Whether there was one: the client's session is transacted.
    """

    def __init__(self, session: BrokeredSession, max_size: int) -> None:
        self._session = session
        self._max_size = max_size
        self.are_used = False
        self._open: dict[bytes, Transacted] = {}
        self._sizes: dict[bytes, int] = {}  # of what was sent in each of them
        self._rollback_only: dict[bytes, Exception] = {}  # why they cannot commit

    def begin(self, number: bytes) -> None:
        """Begin a transaction."""
        self.are_used = True
        self._open[number] = self._session.begin()

    def find(self, number: bytes | None) -> Transacted | None:
        """Return an open transaction; None for no number.

        Raises:
            UnknownTransaction: It was not declared in this session, or is over.
        """
        if number is None:
            return None
        found = self._open.get(number)
        if found is None:
            raise UnknownTransaction("there is no such transaction in this session")
        return found

    def with_room(self, number: bytes, size: int) -> Transacted | None:
        """Return the transaction that a message of *size* bytes is sent in.

        Raises:
            JMSException: The transaction can only be rolled back; or the message makes it too large.
        """
        transaction = self.find(number)
        if number in self._rollback_only:
            raise self._rollback_only[number]
        whole = self._sizes[number] = self._sizes.get(number, 0) + size
        if whole > self._max_size:
            raise ResourceAllocationException(
                f"the messages of a transaction are larger than the {self._max_size} bytes that"
                " --max-transaction-size allows"
            )
        return transaction

    def mark_rollback_only(self, number: bytes, failure: Exception) -> None:
        """Record that a transaction cannot commit because of *failure*; drop what was sent in it."""
        transaction = self._open.get(number)
        if transaction is not None:
            transaction.forget_sent()
            self._rollback_only.setdefault(number, failure)

    def discharge(self, number: bytes, *, is_commit: bool) -> None:
        """Commit or roll back.

        Raises:
            UnknownTransaction: It was not declared in this session, or is over.
            JMSException: It could not be committed, and is rolled back.
        """
        transaction = self.find(number)
        assert transaction is not None
        del self._open[number]
        self._sizes.pop(number, None)
        failure = self._rollback_only.pop(number, None)
        if not is_commit:
            transaction.rollback()
            return
        if failure is None:
            failure = self._session.end_well(transaction)
        if failure is not None:
            transaction.rollback()
            raise failure

    def rollback_all(self) -> None:
        """Roll back the transactions that are open when the session ends."""
        for transaction in self._open.values():
            transaction.rollback()
