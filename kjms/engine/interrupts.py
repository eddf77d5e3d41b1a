"""Find the Ctrl-C behind an error of the Kafka client: where C calls Python, a signal's handler may raise.

confluent-kafka takes what it raised for a failure of its own and puts another error in its place, or lets Python do so.
"""

from __future__ import annotations

from typing import Final

__all__ = ["interrupt_behind"]

_HEADER: Final = "expected header key to be unicode string"


def interrupt_behind(error: Exception) -> BaseException | None:
    """Return what a signal's handler raised inside of a call of the Kafka client, which raised *error* instead.

    `produce` calls ``str()`` for the name of each header, where Python runs the handlers of signals, and drops what
    they raised: KeyboardInterrupt stands for it, whatever it was. For a name, ``str()`` fails for no other reason.

    Returns:
        None: *error* is the call's own.
    """
    if isinstance(error, TypeError) and str(error) == _HEADER:
        return KeyboardInterrupt()
    cause = error.__cause__
    return None if isinstance(cause, Exception) else cause
