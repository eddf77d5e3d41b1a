"""Notices that a delayed log which was left alone has to be served again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kjms.errors import JMSException

if TYPE_CHECKING:
    from kjms.engine.admin.topics import Topics

__all__ = ["Rest", "was_made_again"]

_log = logging.getLogger("kjms.schedule")


class Rest(NamedTuple):
    """What a partition's log has to differ from before a destination without clients is served again.

    Attributes:
        due: When to begin, in milliseconds since the epoch; a message is due soon after.
        ends: Where each partition ended; whatever is written there changes that.
        identity: Kafka's id of the topic.
    """

    due: int
    ends: Mapping[int, int]
    identity: str


def was_made_again(topics: Topics, name: str, identity: str, report: Callable[[JMSException], None]) -> bool:
    """Return whether the topic *name* is no more the one with that *identity*: what is known of it holds no longer.

    It is reported.
    """
    latest = topics.ids.watch(name)
    if "-" in (identity, latest) or latest == identity:
        return False
    if topics.ids.find(name) in {"-", identity}:  # the answer was late
        return False
    topics.forget(name, identity)
    failure = JMSException(
        f"the Kafka topic {name!r} was deleted and made again: delayed messages that waited in the former"
        " topic are gone"
    )
    _log.warning("%s", failure)
    report(failure)
    return True
