"""Where logs end behind the transactions that have committed: Kafka ends those in one partition after the other."""

from __future__ import annotations

import pytest

from kjms.engine.admin import log_ends
from kjms.engine.admin.log_ends import ends_after_commits
from kjms.engine.kafka import IsolationLevel


class Logs:
    """Two partitions that end at 5; the transactions that are open there end one by one.

    Args:
        committed: Where partition 1 ends for readers of committed records, by the number of the question.
    """

    def __init__(self, *committed: int) -> None:
        self._committed = list(committed)
        self.asked = 0

    def ends(self, isolation: IsolationLevel) -> dict[int, int]:
        if isolation == IsolationLevel.READ_UNCOMMITTED:
            assert not self.asked, "what is written later is not waited for"
            return {0: 5, 1: 5}
        self.asked += 1
        return {0: 5, 1: self._committed.pop(0) if len(self._committed) > 1 else self._committed[0]}


def test_open_transactions_are_waited_for() -> None:
    """The answer is the first one that has all partitions at or behind where their logs ended."""
    logs = Logs(2, 2, 3, 6, 9)
    assert ends_after_commits(logs.ends) == {0: 5, 1: 6}
    assert logs.asked == 4


def test_where_none_is_open_the_first_answer_counts() -> None:
    """One question of each kind is asked."""
    logs = Logs(5, 9)
    assert ends_after_commits(logs.ends) == {0: 5, 1: 5}
    assert logs.asked == 1


def test_a_transaction_that_stays_open_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has settled nothing, so what stands before it is the answer."""
    monkeypatch.setattr(log_ends, "MOST_SECONDS", 0.02)
    logs = Logs(2)
    assert ends_after_commits(logs.ends) == {0: 5, 1: 2}
    assert logs.asked > 1
