"""Which thread commits the work of transacted sessions, and what becomes of it when that fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError

import pytest

from kjms import JMSException
from kjms.engine.transactions.errors import AbortedError
from kjms.engine.transactions.group_committer import GroupCommitter, SessionTransaction
from kjms.engine.transactions.plan import Copy
from kjms.mapping import KafkaRecord
from tests.helpers import WAIT_MS, wait_for

WAIT = WAIT_MS / 1000


class Committing(GroupCommitter):
    """Notes which thread commits, waits until the test lets it, and ends with *outcomes*; it needs no Kafka."""

    def __init__(self, *outcomes: AbortedError) -> None:
        super().__init__({}, "sessions", bookkeeping=None)  # type: ignore[arg-type]  # for transactions only
        self.threads: list[threading.Thread] = []
        self.has_begun = threading.Event()
        self.may_end = threading.Event()
        self._outcomes = [*outcomes]

    def _carry_out(self, batch: list[SessionTransaction]) -> None:
        self.threads.append(threading.current_thread())
        self.has_begun.set()
        assert self.may_end.wait(WAIT)
        if self._outcomes:
            raise self._outcomes.pop(0)
        for work in batch:
            work.end()


@pytest.mark.parametrize(("is_too_large", "text"), [(False, "refused"), (True, "commit: the connection was closed")])
def test_what_fails_after_the_close_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, is_too_large: bool, text: str
) -> None:
    """Its commit returns, though no thread is left to try again: the answer came after the close had given up."""
    monkeypatch.setattr("kjms.engine.transactions.transactional_producer.COMMIT_SECONDS", 0)
    copy = Copy("orders", 0, KafkaRecord(None, b"", [], 0))
    committer = Committing(AbortedError(JMSException("refused"), is_too_large=is_too_large))
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(committer.commit, SessionTransaction([copy, copy], []))
        assert committer.has_begun.wait(WAIT)
        committer.close(0)
        committer.may_end.set()
        assert str(commit.result(WAIT)) == text


def nothing() -> SessionTransaction:
    return SessionTransaction([], [])


def test_a_session_that_commits_alone_does_so_in_its_own_thread() -> None:
    """Not in the main thread, where an interrupt would end it half-way."""
    committer = Committing()
    committer.may_end.set()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(committer.commit, nothing()).result(WAIT) is None
        assert committer.threads == [pool.submit(threading.current_thread).result(WAIT)]
        assert (committer.thread, committer.statistics().is_busy) == (None, False)
    assert committer.commit(nothing()) is None
    assert committer.threads[1:] == [committer.thread]
    committer.close(WAIT)


def test_a_session_that_commits_meanwhile_waits_for_the_first() -> None:
    """The committer's thread commits for those that come while a session does so itself: for all of them at once."""
    committer = Committing()
    with ThreadPoolExecutor(4) as pool:
        commits = [pool.submit(committer.commit, nothing())]
        assert committer.has_begun.wait(WAIT)
        commits += [pool.submit(committer.commit, nothing()) for _ in range(3)]
        wait_for(lambda: committer.statistics().waiting == 3)
        assert len(committer.threads) == 1
        committer.may_end.set()
        assert [commit.result(WAIT) for commit in commits] == [None] * 4
        assert committer.threads[1:] == [committer.thread]
        assert pool.submit(committer.commit, nothing()).result(WAIT) is None  # several commit at about the same time
        assert committer.threads[2:] == [committer.thread]
    committer.close(WAIT)


def test_the_thread_tries_again_what_a_session_could_not_commit() -> None:
    """What passes by is tried again, and its session gets the outcome of that."""
    committer = Committing(AbortedError(JMSException("moving"), is_passing=True))
    committer.may_end.set()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(committer.commit, nothing()).result(WAIT) is None
        assert committer.threads == [pool.submit(threading.current_thread).result(WAIT), committer.thread]
    committer.close(WAIT)


def test_closing_waits_for_a_session_that_commits_itself() -> None:
    """As it does for the committer's thread; what comes afterwards is refused."""
    committer = Committing()
    with ThreadPoolExecutor(2) as pool:
        commit = pool.submit(committer.commit, nothing())
        assert committer.has_begun.wait(WAIT)
        close = pool.submit(committer.close, WAIT)
        with pytest.raises(FutureTimeoutError):
            close.result(0.05)
        committer.may_end.set()
        assert close.result(WAIT) is None
        assert commit.result(WAIT) is None
    assert "closed" in str(committer.commit(nothing()))
