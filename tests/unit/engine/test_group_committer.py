"""What becomes of the work of transacted sessions when its commit fails."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kjms import JMSException
from kjms.engine.transactions.errors import AbortedError
from kjms.engine.transactions.group_committer import GroupCommitter, SessionTransaction
from kjms.engine.transactions.plan import Copy
from kjms.mapping import KafkaRecord
from tests.helpers import WAIT_MS

WAIT = WAIT_MS / 1000


class Failing(GroupCommitter):
    """Begins a commit, which fails when the test says so; it needs no Kafka."""

    def __init__(self, error: AbortedError) -> None:
        super().__init__({}, "sessions", bookkeeping=None)  # type: ignore[arg-type]  # for transactions only
        self.has_begun = threading.Event()
        self.may_fail = threading.Event()
        self._error = error

    def _carry_out(self, batch: list[SessionTransaction]) -> None:
        self.has_begun.set()
        assert self.may_fail.wait(WAIT)
        raise self._error


@pytest.mark.parametrize(("is_too_large", "text"), [(False, "refused"), (True, "commit: the connection was closed")])
def test_what_fails_after_the_close_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, is_too_large: bool, text: str
) -> None:
    """Its commit returns, though no thread is left to try again: the answer came after the close had given up."""
    monkeypatch.setattr("kjms.engine.transactions.transactional_producer.COMMIT_SECONDS", 0)
    copy = Copy("orders", 0, KafkaRecord(None, b"", [], 0))
    committer = Failing(AbortedError(JMSException("refused"), is_too_large=is_too_large))
    with ThreadPoolExecutor(1) as pool:
        commit = pool.submit(committer.commit, SessionTransaction([copy, copy], []))
        assert committer.has_begun.wait(WAIT)
        committer.close(0)
        committer.may_fail.set()
        assert str(commit.result(WAIT)) == text
