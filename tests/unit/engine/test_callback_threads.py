"""Which thread calls back for a session: one for all, and one more for each session whose callbacks take long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from kjms.engine.callback_threads import SLOW_SECONDS, Callbacks, CallbackThreads
from tests.helpers import WAIT_SECONDS, wait_for


class Session:
    """A session whose callback waits until it may return.

    Attributes:
        called: The threads that called, one for each call.
    """

    def __init__(self, threads: CallbackThreads) -> None:
        self.called: list[threading.Thread] = []
        self.is_inside = self.overlapped = False
        self.may_return = threading.Event()
        self.may_return.set()
        self.callbacks: Callbacks = threads.join(self._call)

    def _call(self) -> None:
        self.overlapped |= self.is_inside
        self.is_inside = True
        self.called.append(threading.current_thread())
        self.may_return.wait(WAIT_SECONDS)
        self.is_inside = False


@pytest.fixture
def threads() -> Iterator[CallbackThreads]:
    made = CallbackThreads("callbacks-of-a-test")
    yield made
    made.close()
    assert [each for each in threading.enumerate() if each.name == "callbacks-of-a-test"] == []


def looked(threads: CallbackThreads, condition: Callable[[], object]) -> None:
    """Wait until *condition* returns something true; meanwhile look, as the publisher does."""

    def look() -> object:
        threads.look()
        return condition()

    wait_for(look)


def test_quick_callbacks_share_a_thread(threads: CallbackThreads) -> None:
    """However many sessions there are, one thread calls, each session as often as was asked for."""
    sessions = [Session(threads) for _ in range(100)]
    for _ in range(3):
        for session in sessions:
            threads.submit(session.callbacks)
        threads.look()
    wait_for(lambda: sum(len(session.called) for session in sessions) == 300)
    assert len({thread for session in sessions for thread in session.called}) == 1


def test_a_session_does_not_wait_for_the_callback_of_another(threads: CallbackThreads) -> None:
    """The thread stays with the session whose callback does not return; a new one calls for the others."""
    slow, others = Session(threads), [Session(threads) for _ in range(3)]
    slow.may_return.clear()
    threads.submit(slow.callbacks)
    wait_for(lambda: slow.is_inside)
    threads.submit(slow.callbacks)
    for session in others:
        threads.submit(session.callbacks)
    looked(threads, lambda: all(session.called for session in others))
    assert len(slow.called) == 1  # its second call comes after the first
    slow.may_return.set()
    wait_for(lambda: len(slow.called) == 2)
    threads.submit(slow.callbacks)
    wait_for(lambda: len(slow.called) == 3)
    assert len(set(slow.called)) == 1
    assert not slow.overlapped
    assert len({thread for session in others for thread in session.called}) == 1
    assert slow.called[0] not in others[0].called
    threads.leave(slow.callbacks)
    assert not slow.called[0].is_alive()


def test_several_sessions_may_be_slow(threads: CallbackThreads) -> None:
    """Each of them gets a thread of its own, and they run at the same time."""
    slow = [Session(threads) for _ in range(4)]
    for session in slow:
        session.may_return.clear()
        threads.submit(session.callbacks)
    looked(threads, lambda: all(session.is_inside for session in slow))
    assert len({session.called[0] for session in slow}) == 4
    for session in slow:
        session.may_return.set()
        threads.submit(session.callbacks)
    wait_for(lambda: all(len(session.called) == 2 for session in slow))
    assert all(len(set(session.called)) == 1 for session in slow)
    for session in slow:
        threads.leave(session.callbacks)


def test_a_slow_session_keeps_no_thread_where_no_other_waits(threads: CallbackThreads) -> None:
    """Nothing is given to a session that is alone, however long its callbacks take."""
    session = Session(threads)
    session.may_return.clear()
    threads.submit(session.callbacks)
    wait_for(lambda: session.is_inside)
    threads.submit(session.callbacks)
    assert not threading.Event().wait(2 * SLOW_SECONDS)  # so long that another session would have been given a thread
    threads.look()
    assert len([each for each in threading.enumerate() if each.name == "callbacks-of-a-test"]) == 1
    session.may_return.set()
    wait_for(lambda: len(session.called) == 2)


def test_others_wait_where_there_can_be_no_more_threads(
    threads: CallbackThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are called when the slow callback has returned."""
    slow, other = Session(threads), Session(threads)
    slow.may_return.clear()
    for session in (slow, other):
        threads.submit(session.callbacks)
    wait_for(lambda: slow.is_inside)
    refused = threading.Event()

    def refuse(_: threading.Thread) -> None:
        refused.set()
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        looked(threads, refused.is_set)
    assert not other.called
    slow.may_return.set()
    wait_for(lambda: other.called)
