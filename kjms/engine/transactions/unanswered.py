"""Find out from librdkafka's log whether a request of a producer was left without an answer, and repeated."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["ProducerLog", "logged"]

INFO: Final = 6  # librdkafka's level, its default: it reports lost connections and requests that timed out
BEFORE_REQUESTS: Final = frozenset(  # a connection in such a state has carried no request of a transaction
    {"INIT", "DOWN", "TRY_CONNECT", "CONNECT", "SSL_HANDSHAKE", "AUTH_LEGACY", "APIVERSION_QUERY"}
    | {"AUTH_HANDSHAKE", "AUTH_REQ"}
)
_STATE: Final = re.compile(r"\(after -?\d+ms in state (\w+)")


class ProducerLog:
    """The log of one producer, for librdkafka's setting ``logger``: passes lines on, and notes what they mean.

    librdkafka reports the first loss of a connection on which a request was under way, and the time-out of a request,
    at its default level. Of further ones it leaves some out, so what was noted is never taken back.

    Args:
        log: Where the lines go; None: nowhere.

    Attributes:
        is_in_doubt: Whether a request may still be under way that the producer has made a second time, or given up.
    """

    def __init__(self, log: logging.Logger | None) -> None:
        self._log = log
        self.is_in_doubt = False

    def log(self, level: int, message: str, *args: Any) -> None:
        """Take a line; called by `poll` and `flush` of the producer.

        >>> log = ProducerLog(None)
        >>> log.log(20, "%s [%s] %s", "FAIL", "rdkafka#producer-1", "Disconnected (after 9ms in state UP)")
        >>> log.is_in_doubt
        True
        """
        line = message % args if args else message
        if line.startswith("REQTMOUT"):
            self.is_in_doubt = True
        elif line.startswith("FAIL"):
            state = _STATE.search(line)
            self.is_in_doubt |= state is None or state[1] not in BEFORE_REQUESTS
        if self._log is not None:
            self._log.log(level, message, *args)


def logged(config: Mapping[str, Any]) -> tuple[dict[str, Any], ProducerLog]:
    """Return *config* for a producer of which lost requests are to be noticed, and its log."""
    log = ProducerLog(config.get("logger"))
    level = max(int(config.get("log_level", INFO)), INFO)
    return {**config, "logger": log, "log_level": level, "log.connection.close": True}, log
