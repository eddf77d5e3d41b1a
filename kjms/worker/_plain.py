"""Plain listeners: each of their sessions has a thread, which the session's message listener runs in."""

from __future__ import annotations

import enum
import logging
import threading
from typing import TYPE_CHECKING, Any

from kjms.client.dead_letters import says_all
from kjms.client.session import Session
from kjms.options import SessionMode
from kjms.worker._context import Context
from kjms.worker._opening import open_consumer
from kjms.worker._replies import answers, with_exception

if TYPE_CHECKING:
    from kjms.client.connection import Connection
    from kjms.message import Message
    from kjms.worker._handler import PlainCall
    from kjms.worker._listener import Listener
    from kjms.worker._replies import DroppedReplies

__all__ = ["PlainSession"]


_log = logging.getLogger("kjms.worker")


class Phase(enum.Enum):
    """What a session does with the message that it has."""

    IDLE = enum.auto()
    CALLING = enum.auto()  # the listener runs
    SETTLING = enum.auto()  # it has returned or raised: the message is acknowledged, or given back
    INTERRUPTED = enum.auto()  # it ran when the grace period was over: its message is given back already


class PlainSession:
    """One session of a plain listener.

    Args:
        connection: Where the session is opened.
        listener: The listener.
        call: Calls its function.
        state: For the contexts.
        stopping: For the contexts.
        dropped: Counts replies whose asker has gone.

    Raises:
        JMSException: The consumer cannot be opened.
    """

    def __init__(
        self,
        connection: Connection,
        listener: Listener,
        call: PlainCall,
        state: Any,
        stopping: threading.Event,
        dropped: DroppedReplies,
    ) -> None:
        self._listener = listener
        self._call = call
        self._state = state
        self._stopping = stopping
        self._dropped = dropped
        self._phase = Phase.IDLE
        self._lock = threading.Lock()  # for the phase
        self._session: Session = connection.create_session(listener.session_mode)
        open_consumer(self._session, listener).message_listener = self._on_message

    @property
    def is_calling(self) -> bool:
        """Whether the listener runs."""
        return self._phase is Phase.CALLING

    def hold(self) -> None:
        """Let no further message begin; returns at once, while a listener may still run."""
        self._session._hold_delivery()

    def interrupt(self) -> bool:
        """Give back the message of a listener that still runs, for good; return whether one did.

        When it returns, its thread waits for the end of the process: it must not settle what others have now.
        """
        with self._lock:
            if self._phase is not Phase.CALLING:
                return False
            self._phase = Phase.INTERRUPTED
        self._session._core.acknowledgement.interrupt()
        return True

    def _on_message(self, message: Message) -> None:
        mode = self._listener.session_mode
        self._phase = Phase.CALLING
        context = Context(message, self._listener, self._state, self._stopping, self._session, self._dropped)
        try:
            result = self._call(context)
            if result is not None:
                context.reply(result)
        except BaseException as error:
            self._end_call()
            if answers(self._listener, message, error) and self._has_answered(context, error):
                return
            if mode == SessionMode.SESSION_TRANSACTED:
                self._session.rollback()
            elif mode in {SessionMode.CLIENT_ACKNOWLEDGE, SessionMode.INDIVIDUAL_ACKNOWLEDGE}:
                self._session.recover()
            raise  # the session logs it, and with the other modes gives the message back
        else:
            self._end_call()
            if mode == SessionMode.SESSION_TRANSACTED:
                self._session.commit()
        finally:
            self._phase = Phase.IDLE

    def _has_answered(self, context: Context[Any], error: BaseException) -> bool:
        """Reply with what the function raised, settle its message, and return whether that came through."""
        trace = None if says_all(error) else error
        _log.warning("%s raised, and replies with that: %r", self._listener.name, error, exc_info=trace)
        if self._session._transaction is not None:
            self._session._transaction.forget_sent()
        try:
            context.reply(with_exception(error))
            context.acknowledge()
        except Exception as failure:
            _log.error("%s: its message was not settled: %s", self._listener.name, failure)
            return False
        return True

    def _end_call(self) -> None:
        with self._lock:
            if self._phase is Phase.CALLING:
                self._phase = Phase.SETTLING
                return
        threading.Event().wait()
