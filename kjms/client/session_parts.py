"""The parts of a session that are of another class where its factory has observers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kjms.client.acknowledge_modes import Acknowledgement, acknowledgement_of
from kjms.client.dead_letters import Redelivery
from kjms.client.listener_thread import ListenerThread
from kjms.client.observing import (
    Observation,
    ObservedListenerThread,
    ObservedSender,
    ObservedTransacted,
    observed_acknowledgement_of,
)
from kjms.client.session_sender import SessionSender
from kjms.client.transacted import Transacted
from kjms.observe._observers import Observers
from kjms.options import SessionMode

if TYPE_CHECKING:
    from kjms.engine import Engine
    from kjms.options import FactoryOptions

__all__ = ["SessionParts"]


class SessionParts:
    """Makes the parts of one session: plain ones, or those that tell observers, decided once.

    Args:
        engine: What settles and sends.
        options: The factory's options.

    Attributes:
        observation: What the session's observers know of its messages; None: it has none.
        redelivery: Decides what becomes of messages whose delivery failed.
        sender: Makes the session's sending side.
        listener_thread: Makes the thread of its listeners.
    """

    def __init__(self, engine: Engine, options: FactoryOptions) -> None:
        self._commit = engine.committer.commit
        self._options = options
        observers = Observers(options.observers)
        self.observation = observation = Observation(observers, engine.tuning.now_ms) if observers else None
        self.redelivery = Redelivery(engine, options, None if observation is None else observation.dead_lettered)
        self.sender: Callable[..., SessionSender] = SessionSender
        self.listener_thread: Callable[..., ListenerThread] = ListenerThread
        if observation is not None:
            self.sender = partial(ObservedSender, observation)
            self.listener_thread = partial(ObservedListenerThread, observation)

    def transacted(self, limit: int | None = None) -> Transacted:
        """Return a new transaction, which may receive *limit* messages; None: any number."""
        if self.observation is None:
            return Transacted(self.redelivery, self._commit, limit)
        return ObservedTransacted(self.redelivery, self.observation, self._commit, limit)

    def acknowledgement(self, mode: SessionMode) -> Acknowledgement:
        """Return what a session of *mode* does with its messages."""
        if mode == SessionMode.SESSION_TRANSACTED:
            return self.transacted(self._options.max_unacknowledged)
        if self.observation is None:
            return acknowledgement_of(mode, self.redelivery, self._options)
        return observed_acknowledgement_of(mode, self.redelivery, self._options, self.observation)
