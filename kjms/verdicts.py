"""What a program raises to say what becomes of the message that it works on.

raise Retry("the mail server is away", after=timedelta(seconds=30))
raise Reject("no such customer")
"""

from __future__ import annotations

from datetime import timedelta

from kjms.errors import shown
from kjms.options import LONGEST_DELAY, milliseconds

__all__ = ["Reject", "Retry", "Verdict"]


class Verdict(Exception):
    """What both verdicts have.

    Attributes:
        reason: In words; the dead letter has them.
    """

    def __init__(self, reason: str = "") -> None:
        if not isinstance(reason, str):
            raise TypeError(f"{type(self).__name__}: the reason is text, not {shown(reason)}")
        super().__init__(reason)
        self.reason = reason


class Retry(Verdict):
    """Raised by a program: deliver its message again. The delivery counts, and after the last one it is a dead letter.

    A listener raises it, a worker's function, or what a loop over a consumer does, so that it leaves the ``with``
    statement of the consumer, session, connection or context.

    Args:
        reason: Why, in words, for the log and for a dead letter.
        after: Milliseconds until the next delivery, at least; a year at the most. None: the redelivery policy says.

    Raises:
        TypeError: *reason* is no text.
        ValueError: *after* is negative, or neither a whole number nor a timedelta.

    Spec: JMS 2.0 §4.5.2, §3.5.11 leave the redelivery of what a listener raised to providers.
    """

    def __init__(self, reason: str = "", *, after: int | timedelta | None = None) -> None:
        super().__init__(reason)
        self.after = None if after is None else min(milliseconds(after, "after"), LONGEST_DELAY)


class Reject(Verdict):
    """Raised by a program: its message becomes a dead letter now, after however few deliveries.

    What a transacted session sent before is rolled back. It is raised where `Retry` is.

    Args:
        reason: Why, in words; the dead letter has them.

    Raises:
        TypeError: *reason* is no text.
    """
