"""What can go wrong, in the words of JMS.

    JMSException                        (JMSRuntimeException is the same class)
    ├── IllegalStateException           RuntimeError
    ├── InvalidClientIDException        ValueError
    ├── InvalidDestinationException     ValueError
    ├── InvalidSelectorException        ValueError
    ├── JMSSecurityException            PermissionError
    ├── MessageEOFException             EOFError
    ├── MessageFormatException          ValueError
    │   └── BodyConversionException
    ├── MessageNotReadableException     RuntimeError
    ├── MessageNotWriteableException    RuntimeError
    ├── ResourceAllocationException     RuntimeError
    ├── TransactionInProgressException  RuntimeError
    └── TransactionRolledBackException  RuntimeError

Each class also derives from the Python built-in that is nearest to it, so that ``except ValueError`` finds what a
Python programmer would look for there. Values in error texts are shortened with `shown`; bodies and passwords never go
in.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable
from typing import Final

__all__ = [
    "BodyConversionException",
    "IllegalStateException",
    "InvalidClientIDException",
    "InvalidDestinationException",
    "InvalidSelectorException",
    "JMSException",
    "JMSRuntimeException",
    "JMSSecurityException",
    "MessageEOFException",
    "MessageFormatException",
    "MessageNotReadableException",
    "MessageNotWriteableException",
    "ReplyException",
    "ResourceAllocationException",
    "TransactionInProgressException",
    "TransactionRefusedException",
    "TransactionRolledBackException",
    "hint",
    "shown",
]

READABLE_BITS: Final = 2_048
"""Of whole numbers that are written in decimal: Python's limit of digits is 4,300, and can be set to 640, not lower."""


def shown_integer(value: int) -> str:
    """Return *value* in decimal digits; a very long one as how it begins, and its length.

    >>> shown_integer(17), shown_integer(-(10**5000))
    ('17', '-0x31e2080103… (16,610 bits)')
    """
    if value.bit_length() <= READABLE_BITS:
        return str(value)
    sign, digits = "-" * (value < 0), f"{abs(value):x}"
    return f"{sign}0x{digits[:10]}… ({value.bit_length():,} bits)"


class _Short(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        return super().repr_int(x, level) if x.bit_length() <= READABLE_BITS else shown_integer(x)


_SHORT = _Short()
_SHORT.maxstring = _SHORT.maxother = 60


def shown(value: object) -> str:
    """Return *value* as error texts show it: its ``repr``, shortened, with its type.

    >>> shown("heavy")
    "'heavy' (str)"
    """
    return f"{_SHORT.repr(value)} ({type(value).__name__})"


def hint(name: object, known: Iterable[str]) -> str:
    """Return the end of an error text for *name*, which is none of *known*: what was meant, or what there is.

    >>> hint("prefech", ["partitions", "prefetch"]), hint("xyz", ["partitions", "prefetch"])
    ("; did you mean 'prefetch'?", '; there are partitions, prefetch')
    """
    names = list(known)
    near = difflib.get_close_matches(str(name), names, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"


class JMSException(Exception):
    """The root of everything that JMS raises.

    Args:
        reason: What happened, in one sentence.
        error_code: A short code that programs may compare; the provider's own (here: Kafka's, such as
            ``_TRANSPORT``), or None.
        linked_exception: The exception of the layer below, if there was one. An exception raised ``from`` another
            has that one.

    Spec: JMS 2.0 §7.2.
    """

    def __init__(
        self, reason: str = "", error_code: str | None = None, linked_exception: BaseException | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error_code = error_code
        self._linked_exception = linked_exception

    @property
    def linked_exception(self) -> BaseException | None:
        """The exception of the layer below, or None (JMS 2.0 §7.2)."""
        return self._linked_exception if self._linked_exception is not None else self.__cause__

    @linked_exception.setter
    def linked_exception(self, exception: BaseException | None) -> None:
        self._linked_exception = exception


JMSRuntimeException = JMSException
"""The simplified API's name for it: Python has no checked exceptions (JMS 2.0 §7.2)."""


class IllegalStateException(JMSException, RuntimeError):
    """A method was called at a time when JMS does not allow it (JMS 2.0 §7.3)."""


class InvalidClientIDException(JMSException, ValueError):
    """A client identifier that the provider rejects, or that is in use (JMS 2.0 §7.3)."""


class InvalidDestinationException(JMSException, ValueError):
    """A destination that does not exist, cannot be named so, or is of the wrong kind (JMS 2.0 §7.3)."""


class InvalidSelectorException(JMSException, ValueError):
    """A message selector whose syntax is wrong (JMS 2.0 §7.3, §3.8.1.1)."""


class JMSSecurityException(JMSException, PermissionError):
    """Wrong credentials, or not allowed to do this (JMS 2.0 §7.3)."""

    def __init__(
        self, reason: str = "", error_code: str | None = None, linked_exception: BaseException | None = None
    ) -> None:
        # OSError would read two arguments as errno and text.
        JMSException.__init__(self, reason, error_code, linked_exception)

    def __str__(self) -> str:
        return self.reason


class MessageEOFException(JMSException, EOFError):
    """The end of a BytesMessage or StreamMessage came in the middle of a read (JMS 2.0 §7.3)."""


class MessageFormatException(JMSException, ValueError):
    """A value of a type that a message cannot hold, or cannot be read as (JMS 2.0 §7.3)."""


class BodyConversionException(MessageFormatException):
    """The body of a message does not become the type that the program asks for.

    The text names what did not fit, and never shows what the body holds. A second attempt finds the same body: the
    message is a dead letter at once, unless the redelivery policy retries it (`kjms.RedeliveryPolicy.retry_on`).

    Args:
        reason: What happened, in one sentence.
        error_code: None.
        linked_exception: None: the exception of the library that reads the body shows the body.
        path: Where in the body, such as ``$.items[0].count``; ``$`` is the whole.
        rule: What is expected there.
    """

    def __init__(
        self,
        reason: str = "",
        error_code: str | None = None,
        linked_exception: BaseException | None = None,
        *,
        path: str = "$",
        rule: str = "",
    ) -> None:
        super().__init__(reason, error_code, linked_exception)
        self.path = path
        self.rule = rule


class MessageNotReadableException(JMSException, RuntimeError):
    """A write-only message was read (JMS 2.0 §7.3)."""


class MessageNotWriteableException(JMSException, RuntimeError):
    """A read-only message was written to (JMS 2.0 §7.3)."""


class ReplyException(JMSException):
    """The reply to a request says that the service raised an exception; raised by what sent the request.

    Args:
        reason: What the service says.
        error_code: The class of its exception, by its dotted name.
        linked_exception: None.
        reply: The reply, a `kjms.Message`.
    """

    def __init__(
        self,
        reason: str = "",
        error_code: str | None = None,
        linked_exception: BaseException | None = None,
        *,
        reply: object = None,
    ) -> None:
        super().__init__(reason, error_code, linked_exception)
        self.reply = reply


class ResourceAllocationException(JMSException, RuntimeError):
    """The provider lacks the resources for this: a quota, a size limit, a full buffer (JMS 2.0 §7.3)."""


class TransactionInProgressException(JMSException, RuntimeError):
    """The operation is not possible while a transaction is in progress (JMS 2.0 §7.3)."""


class TransactionRolledBackException(JMSException, RuntimeError):
    """The transaction was rolled back instead of committed (JMS 2.0 §7.3)."""


class TransactionRefusedException(TransactionRolledBackException, JMSSecurityException):
    """The transaction was rolled back because Kafka does not allow what was to be committed: both at once."""
