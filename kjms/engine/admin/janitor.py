"""Deletes the inboxes of engines that ended unexpectedly, in any program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kjms.engine.admin.claims import USE, Claims, resource
from kjms.engine.threads import start_thread
from kjms.errors import JMSException
from kjms.mapping.names import is_inbox

if TYPE_CHECKING:
    from kjms.engine.admin.registry import Registry
    from kjms.engine.admin.topics import Topics

__all__ = ["Janitor", "inbox_resource"]

_log = logging.getLogger("kjms.inbox")

CLOSE_SECONDS: Final = 2.0  # what is written or deleted just now is waited for


def inbox_resource(topic: str) -> str:
    """Return what the registry calls the inbox *topic*."""
    return resource("inbox", topic)


class Janitor:
    """Looks once, in a thread of its own, for inboxes whose engine does not answer, and deletes them.

    An engine claims its inbox before it makes the Kafka topic. So an inbox without a claim, and one whose claimant
    leaves several questions in a row unanswered, has no owner any more.

    Args:
        registry: Where the claims are.
        topics: Lists and deletes Kafka topics.
        is_own: Tells whether an inbox is one of this process.
    """

    def __init__(self, registry: Registry, topics: Topics, is_own: Callable[[str], bool]) -> None:
        self._registry = registry
        self._topics = topics
        self._is_own = is_own
        self._closing = False
        self._thread = start_thread(self._run, "kjms-janitor")

    @property
    def thread(self) -> threading.Thread | None:
        """Its thread; None: none was started yet."""
        return self._thread

    def _run(self) -> None:
        try:
            self._clean()
        except Exception as failure:
            if not self._closing:
                _log.info("inboxes without an owner may remain: %s", failure)

    def _clean(self) -> None:
        found = [topic for topic in self._topics.all() if is_inbox(topic) and not self._is_own(topic)]
        with self._registry.reading() as claims:
            self._registry.catch_up()  # what was claimed before it was found is known now
            users = {topic: _users(claims, topic) for topic in found}
            silent = set().union(*users.values()) if users else set()
            silent -= self._registry.living(silent, self._registry.questions, is_over=lambda: self._closing)
            if self._closing:
                return
            for topic, engines in users.items():
                if engines <= silent and not self._closing:
                    self._delete(topic)
            gone = [claim for topic in found for claim in claims.all(USE, inbox_resource(topic))]
            self._registry.take_away([claim.key for claim in gone if claim.engine in silent], wait=False)

    def _delete(self, topic: str) -> None:
        try:
            self._topics.delete([topic])
            _log.info("deleted the Kafka topic %r: the program that used it has ended", topic)
        except JMSException as failure:
            _log.info("%s", failure)

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._registry.look()
        self._thread.join(CLOSE_SECONDS)


def _users(claims: Claims, topic: str) -> set[str]:
    return {claim.engine for claim in claims.all(USE, inbox_resource(topic))}
